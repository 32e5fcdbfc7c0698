"""What goes wrong with files, and what the person is told: never half a group, never a bare driver error."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest

from hal.core.model import HALError, JobSpec, check_spec
from hal.store import (
    CommitUnknown,
    InsertJobs,
    NotAStore,
    Store,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreMissing,
    StoreReadOnly,
    StoreTooNew,
)
from hal.store.migrate import HEAD
from tests.store.rows import Leader, job, submitted

NOBODY = 65_534
"""A user who owns nothing."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is to lie."""
    return tmp_path / "hal.sqlite"


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    """A text file with that name is somebody's."""
    path.write_text("this is my diary\n" * 100)
    with pytest.raises(NotAStore, match=f"{path} is not a database"):
        Store.open(path)
    assert path.read_text() == "this is my diary\n" * 100


def test_a_truncated_database_is_refused(path: Path) -> None:
    """Half a file is not half a store."""
    store = Store.open(path)
    Leader(store).commit(*submitted(*(job(number) for number in range(1, 500))))
    store.close()
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(StoreError):
        Store.open(path).load()


def test_somebody_elses_database_is_refused_and_left_alone(path: Path) -> None:
    """It holds tables, but not HAL's."""
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE recipes (name TEXT)")
    other.commit()
    other.close()
    with pytest.raises(NotAStore, match=r"tables that are not HAL's \(recipes\)") as refused:
        Store.open(path)
    assert "choose another file" in refused.value.hint
    again = sqlite3.connect(path)
    assert [row[0] for row in again.execute("SELECT name FROM sqlite_master")] == ["recipes"]
    again.close()


def test_a_store_of_a_newer_hal_is_refused(path: Path) -> None:
    """Its schema is unknown here: nothing is touched, and the person is told what to start."""
    Store.open(path).close()
    raw = sqlite3.connect(path)
    raw.execute("UPDATE alembic_version SET version_num = '9999'")
    raw.commit()
    raw.close()
    with pytest.raises(StoreTooNew, match=f"has schema 9999, this HAL knows schemas up to {HEAD}"):
        Store.open(path)


def test_a_missing_store_is_not_made_by_those_who_only_look(path: Path) -> None:
    """create=False leaves no file behind."""
    with pytest.raises(StoreMissing, match="there is no store at"):
        Store.open(path, create=False)
    assert not path.exists()


@pytest.mark.parametrize(
    ("where", "error", "message"),
    [
        ("oracle://host/hal", StoreMissing, "'oracle' databases are not supported"),
        ("postgresql://user:secret@", StoreMissing, "names no database"),
        ("nonsense://", StoreError, "nonsense"),
        ("sqlite://///", StoreError, ""),
        ("/proc/hal.sqlite", StoreError, "/proc/hal.sqlite"),
        (
            "/no/such/directory/hal.sqlite",
            StoreMissing,
            "/no/such/directory for the store does not exist",
        ),
        ("/", NotAStore, "is a directory"),
    ],
)
def test_a_place_that_cannot_hold_a_store_is_refused(where: str, error: type[StoreError], message: str) -> None:
    """Each with one error that names the place."""
    with pytest.raises(error) as refused:
        Store.open(where)
    assert message in str(refused.value)


def test_a_url_and_a_path_name_the_same_file(path: Path) -> None:
    """Also with characters that mean something in a URL."""
    odd = path.with_name("a b?c#d%41.sqlite")
    Store.open(odd).close()
    assert odd.is_file()
    Store.open(f"sqlite:///{path}").close()
    assert path.is_file()
    memory = Store.open("sqlite://")
    Leader(memory).commit(*submitted(job(1)))
    memory.close()


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_store_that_may_not_be_written_says_so(what: str) -> None:
    """Opened by somebody who is not root, without write permission for the file, or for what lies beside it."""
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    path = directory / "hal.sqlite"
    Store.open(path).close()
    path.chmod(0o444 if what == "file" else 0o666)
    directory.chmod(0o777 if what == "file" else 0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        with pytest.raises(StoreReadOnly, match=f"the store {path} cannot be written: no permission for"):
            Store.open(path)
    finally:
        os.seteuid(user)
        directory.chmod(0o755)
        shutil.rmtree(directory)


def test_a_full_disk_is_named_and_nothing_of_the_group_is_there(path: Path) -> None:
    """The limit stands for the disk: SQLite says the same of both. Later, smaller groups go on."""
    store = Store.open(path, max_bytes=400_000)
    leader = Leader(store)
    leader.commit(*submitted(job(1)))
    large = check_spec(JobSpec(script="#!/bin/sh\n" + "x" * 1_000_000))
    group = leader.group(*submitted(job(2)), InsertJobs([job(3, spec=large)]))
    with pytest.raises(StoreFull, match="no space left") as full:
        store.commit(group, epoch=leader.epoch)
    assert "nothing of this was written" in full.value.hint
    assert not store.commit_known(group.commit_id)
    assert [row.id for row in store.load().jobs] == [1]
    assert store.last_seq() == 1
    assert leader.commit(*submitted(job(2))).first_seq == 2
    store.close()


def test_a_disk_that_fails_in_commit_leaves_the_outcome_open(path: Path) -> None:
    """Writing stops with an error that is not 'full': HAL does not guess, it looks the commit id up."""
    store = Store.open(path)
    leader = Leader(store)
    leader.commit(*submitted(job(1)))
    log = path.with_name(path.name + "-wal")
    group = leader.group(*submitted(*(job(number) for number in range(2, 400))))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 8_192, hard))
    try:
        with pytest.raises(CommitUnknown, match="it is not known whether the commit is durable"):
            store.commit(group, epoch=leader.epoch)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    known = store.commit_known(group.commit_id)
    assert len(store.load().jobs) == (399 if known else 1)
    assert store.commit(group, epoch=leader.epoch).first_seq == 2
    assert len(store.load().jobs) == 399
    store.close()


def test_a_second_controller_is_told_who_leads(path: Path) -> None:
    """The lock goes with the process that holds it, so a killed controller does not keep the next one out."""
    first = Store.open(path)
    first.take_leadership("controller pid 41 on ant", 1)
    second = Store.open(path)
    with pytest.raises(StoreBusy, match="is in use by controller pid 41 on ant") as busy:
        second.take_leadership("controller pid 42 on ant", 1)
    assert "hal down" in busy.value.hint
    assert second.load().epoch == 1
    first.close()
    assert second.take_leadership("controller pid 42 on ant", 2) == 2
    second.close()


@pytest.mark.slow
def test_a_lock_held_by_another_program_is_named(path: Path) -> None:
    """Somebody's sqlite3 shell in a transaction: the wait is bounded, the group is not done."""
    store = Store.open(path)
    leader = Leader(store)
    shell = sqlite3.connect(path, isolation_level=None)
    shell.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match="another process has locked the store"):
        leader.commit(*submitted(job(1)))
    shell.execute("ROLLBACK")
    shell.close()
    assert leader.commit(*submitted(job(1))).first_seq == 1
    store.close()


def test_every_error_of_the_store_is_a_hal_error() -> None:
    """REST and CLI show them like any other, with a stable code."""
    for error in (NotAStore, StoreBusy, StoreFull, StoreMissing, StoreReadOnly, StoreTooNew):
        assert issubclass(error, HALError)
        assert error.code == "store"
