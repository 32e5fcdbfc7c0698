"""Backups: a consistent copy while somebody writes, and a store made anew from it, on either database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hal.core.model import AttemptState, ConflictError
from hal.core.model.facts import Facts
from hal.store import (
    EndAttempts,
    InsertAttempts,
    NodeAbout,
    NodeRow,
    NotAStore,
    PutMeta,
    PutNodes,
    RememberIdempotent,
    Store,
    StoreError,
)
from hal.store.backup import back_up, restore
from hal.store.operations import AttemptEnd
from tests.postgres_server import PostgresServer
from tests.store.rows import Leader, attempt, job, submitted


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A store with a leader of epoch 3, 200 jobs, attempts, a key and a fact."""
    path = tmp_path / "hal.sqlite"
    for _ in range(3):
        store = Store.open(path)
        leader = Leader(store)
        if leader.epoch < 3:
            store.close()
    leader.commit(*submitted(*(job(number, trace_id="ä") for number in range(1, 201))))
    leader.commit(InsertAttempts([attempt(1), attempt(2, credit=True)]), PutMeta({"a": "b"}))
    leader.commit(EndAttempts([AttemptEnd(1, 0, 1, AttemptState.LOST, 9)]), RememberIdempotent("k", "f", b"\x00\xff"))
    store.close()
    return path


def same(left: Store, right: Store) -> None:
    """Both hold the same."""
    assert left.load() == right.load()
    assert left.events() == right.events()
    assert left.attempts(1) == right.attempts(1)
    assert left.idempotent("k") == right.idempotent("k")


def test_a_backup_made_while_somebody_writes_holds_what_was_committed(used: Path, tmp_path: Path) -> None:
    """A transaction is open all the while; restored elsewhere, everything is as it was, and the epoch goes on."""
    store = Store.open(used)
    with store._database.writing("meanwhile") as connection:
        connection.exec_driver_sql("DELETE FROM job_labels")
        back_up(used, tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    restore(tmp_path / "copy", tmp_path / "new.sqlite")
    again = Store.open(tmp_path / "new.sqlite")
    same(store, again)
    assert again.take_leadership("next", 1) == 4
    store.close()
    again.close()


def test_after_a_restore_any_machine_may_be_a_node_again(tmp_path: Path) -> None:
    """The word by which a node is known again is left out: its machine may be another. All else of it is kept."""
    store = Store.open(tmp_path / "hal.sqlite")
    facts = Facts(host="blade", node_id="one")
    Leader(store).commit(PutNodes([NodeRow("n1", {"cpu": 1_000}, about=NodeAbout(facts=facts))]))
    store.close()
    back_up(tmp_path / "hal.sqlite", tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "new.sqlite")
    again = Store.open(tmp_path / "new.sqlite")
    assert [(row.name, row.about.facts) for row in again.load().nodes] == [("n1", Facts(host="blade"))]
    again.close()


def test_a_store_that_holds_anything_is_not_restored_into(used: Path, tmp_path: Path) -> None:
    """Nor is a backup written over a file."""
    back_up(used, tmp_path / "copy")
    with pytest.raises(ConflictError, match="has already been used"):
        restore(tmp_path / "copy", used)
    with pytest.raises(ConflictError, match="exists already"):
        back_up(used, tmp_path / "copy")


def test_what_is_no_backup_is_refused_and_leaves_no_store(tmp_path: Path) -> None:
    """A text file; and a store that is not there."""
    (tmp_path / "diary").write_text("dear diary\n" * 100)
    with pytest.raises(NotAStore):
        restore(tmp_path / "diary", tmp_path / "new.sqlite")
    with pytest.raises(StoreError):
        back_up(tmp_path / "nothing.sqlite", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.slow
def test_a_backup_moves_a_store_from_sqlite_to_postgresql_and_back(
    used: Path, tmp_path: Path, postgres: PostgresServer
) -> None:
    """Row by row the same, also what is binary; an empty database gets its tables."""
    url = postgres.url(postgres.empty())
    back_up(used, tmp_path / "copy")
    restore(tmp_path / "copy", url)
    before, after = Store.open(used), Store.open(url)
    same(before, after)
    assert after.take_leadership("next", 1) == 4
    back_up(url, tmp_path / "back")
    restore(tmp_path / "back", tmp_path / "new.sqlite")
    again = Store.open(tmp_path / "new.sqlite")
    same(after, again)
    for store in (before, after, again):
        store.close()


@pytest.mark.slow
def test_the_commands_copy_and_restore_a_home(used: Path, tmp_path: Path) -> None:
    """`hal backup` in one home, `hal restore` in another; a second time it is refused with one error."""
    homes = [tmp_path / "one", tmp_path / "two"]
    for home in homes:
        (home / "db").mkdir(parents=True)
    used.rename(homes[0] / "db" / "hal.sqlite")

    def hal(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hal.cli.main", *words, "--home", str(home)]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ}, check=False)

    done = hal(homes[0], "backup", str(tmp_path / "copy"))
    assert (done.returncode, done.stderr) == (0, "")
    assert hal(homes[1], "restore", str(tmp_path / "copy")).returncode == 0
    refused = hal(homes[1], "restore", str(tmp_path / "copy"))
    assert refused.returncode == 1
    assert "has already been used" in refused.stderr
    store = Store.open(homes[1] / "db" / "hal.sqlite")
    assert len(store.load().jobs) == 200
    store.close()
