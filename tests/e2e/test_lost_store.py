"""A store that was lost, and a node that lost its word: HAL refuses, says what to do, and that works."""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.e2e.conftest import DEADLINE_S, Gate, LiveHal, until

pytestmark = pytest.mark.slow


def test_a_lost_store_is_refused_until_a_person_chooses(own_hal: LiveHal, tmp_path: Path) -> None:
    """Removed: refused twice. An old copy: refused. --new-store: goes on, and no id is given twice (faults 1)."""
    hal = own_hal.up("--cpus", "1")
    database = hal.home.database
    hal.run("run", "--", "true", check=True)
    hal.run("backup", tmp_path / "copy.sqlite", check=True)
    hal.run("run", "--", "true", check=True)
    hal.run("down", check=True)
    for file in database.parent.iterdir():
        file.unlink()
    for _ in range(2):
        refused = hal.run("up")
        assert refused.code == 7
        assert "is gone" in refused.err
        assert "--new-store" in refused.err
    assert not database.exists()
    shutil.copy(tmp_path / "copy.sqlite", database)
    assert "is older than" in hal.run("up").err
    hal.run("up", "--new-store", check=True)
    assert hal.client().submit(["true"]).id == "3"
    hal.run("down", check=True)
    hal.run("up", check=True)


def test_what_ran_after_a_backup_is_no_end_of_what_the_restored_store_starts(own_hal: LiveHal, tmp_path: Path) -> None:
    """Two jobs begin after the backup; one runs when HAL comes back with the restored store, one has ended unheard.
    The store starts both again under the same numbers: each runs again as attempt 2, none is cancelled or believed."""
    hal = own_hal.up("--cpus", "2")
    gates = [Gate(tmp_path, name) for name in ("runs", "ended")]
    begin = time.time() + 5
    jobs = [hal.client().submit(gate.command(), begin=begin) for gate in gates]
    hal.run("backup", tmp_path / "copy.sqlite", check=True)
    assert [gate.started() for gate in gates] == ["1.0.1.0", "2.0.1.0"]
    hal.run("down", "--leave", check=True)
    gates[1].open()
    for file in hal.home.database.parent.iterdir():
        file.unlink()
    hal.run("restore", tmp_path / "copy.sqlite", check=True)
    hal.up()
    assert sorted(gate.started() for gate in gates) == ["1.0.2.0", "2.0.2.0"]
    for gate in gates:
        gate.open()
    assert [job.wait().state for job in jobs] == ["succeeded", "succeeded"]
    for gate in gates:
        gate.close()


def test_a_store_that_is_removed_under_a_running_controller_ends_it(own_hal: LiveHal) -> None:
    """Whoever submits then gets no id, but a word that the controller ends; `hal up` says what has happened."""
    hal = own_hal.up("--cpus", "1")
    sockets = hal.home.known_socket_dir()
    assert sockets is not None
    transport = httpx.HTTPTransport(uds=str(sockets / "api.sock"))
    for file in hal.home.database.parent.glob("hal.sqlite*"):
        file.unlink()
    with httpx.Client(transport=transport, base_url="http://hal", timeout=DEADLINE_S) as http:
        answer = http.post("/v1/jobs", json={"jobs": [{"command": ["true"]}]})
    assert (answer.status_code, answer.json()["code"]) == (503, "ending")
    assert "Idempotency-Key" in answer.json()["hint"]
    until(lambda: not hal.home.controller_pid.exists(), "the controller goes on without its store")
    assert "is gone" in hal.run("up").err


def test_a_damaged_store_says_so_in_one_sentence(own_hal: LiveHal) -> None:
    """Its first page is overwritten."""
    hal = own_hal.up("--cpus", "1")
    hal.run("down", check=True)
    with closing(sqlite3.connect(hal.home.database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with hal.home.database.open("r+b") as file:
        file.write(b"not a database at all" * 200)
    said = hal.run("up")
    assert (said.code, "is damaged" in said.err, "Traceback" in said.err) == (7, True, False)
    assert "hal restore" in said.err


def test_a_node_that_lost_its_word_comes_back_and_its_job_ends(own_hal: LiveHal, tmp_path: Path) -> None:
    """nodes/n1/id is removed and the agent is killed: the node is known by its home (faults 8)."""
    hal = own_hal.up("--cpus", "1")
    gate = Gate(tmp_path)
    job = hal.client().submit(gate.command())
    gate.started()
    node = hal.home.node("n1")
    former = node.id_file.read_text()
    hal.run("down", "--leave", check=True)
    node.id_file.unlink()
    hal.up()
    assert node.id_file.read_text() != former
    gate.open()
    assert job.wait().state == "succeeded"
    gate.close()
