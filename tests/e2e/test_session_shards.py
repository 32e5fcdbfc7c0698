"""Sessions with several brokers on a real HAL: the brokers are the tasks of one job, the slots those of another."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.client.session import SessionLost, current_session
from hal.core.model import SpecError, TaskState
from hal.runtime.session_file import read_session_file, shards_of
from tests.e2e.conftest import LiveHal, new_home, until
from tests.e2e.session_tasks import napping

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def live() -> Iterator[LiveHal]:
    """A HAL of one node of two cores."""
    found = LiveHal(new_home())
    try:
        found.up("--cpus", "2")
        yield found
    finally:
        found.remove()


def shard(_value: object = None) -> str:
    """The broker of this task."""
    return current_session()._file.id.rpartition("-")[2]


def directory_of(command: list[str]) -> Path:
    return Path(command[command.index("--session") + 1]).parent


def test_a_session_with_two_brokers_is_shown_found_and_ended(live: LiveHal) -> None:
    """Its tasks run at both; commands show the sum and each; one job of each kind, and nothing is left."""
    with live.client() as client:
        with client.session(slots=(2, 4), cpus=0.25, memory="128MiB", name="wide", shards=2) as session:
            futures = [session.submit(napping, number) for number in range(200)]
            assert [future.result() for future in futures] == list(range(200))
            assert {session.submit(shard).result() for _ in range(50)} == {"0", "1"}
            until(lambda: session.numbers().slots >= 2, "its slots are there")
            (listed,) = json.loads(live.run("sessions", "-o", "json", check=True).out)
            assert (listed["shards"], listed["brokers"], listed["broker"]) == (2, 2, session.broker.id)
            assert "2 of 2" in live.run("sessions", check=True).out
            shown = json.loads(live.run("session", "show", "wide", "-o", "json", check=True).out)
            assert shown["done"] == 250 == sum(one["done"] for one in shown["shards"])
            assert [one["answers"] for one in shown["shards"]] == [True, True]
            assert f"{session.broker.id}.1" in live.run("session", "show", "wide", check=True).out
            assert "hal_session" in live.run("session", "metrics", "wide", check=True).out
            with live.client() as second, second.find_session("wide") as other:
                assert {other.submit(shard).result() for _ in range(50)} == {"0", "1"}
            command = (session.broker.refresh().spec or {})["command"]
        assert session.broker.wait(60).state is TaskState.SUCCEEDED
        assert session.slots.wait(60).state is TaskState.SUCCEEDED
        until(lambda: not directory_of(command).exists(), "its directory is still there")


def test_brokers_are_as_many_as_slots_need(live: LiveHal) -> None:
    """Five slots at two a broker are three brokers; bounds are checked."""
    with live.client() as client:
        with client.session(slots=(1, 5), cpus=0.1, memory="128MiB", slots_per_broker=2) as session:
            assert session.broker.refresh().tasks == 3
            assert list(session.map(abs, range(100))) == list(range(100))
        with pytest.raises(SpecError, match="65 shards"):
            client.session(shards=65)
        with pytest.raises(SpecError, match="need 100 brokers"):
            client.session(slots=(1, 100), slots_per_broker=1)


def test_the_loss_of_one_broker_is_the_loss_of_its_tasks(live: LiveHal) -> None:
    """Somebody cancels one of two: its futures fail, the others have results, and the session goes on."""
    with live.client() as client, client.session(slots=2, cpus=0.25, memory="128MiB", shards=2) as session:
        assert {session.submit(shard).result() for _ in range(20)} == {"0", "1"}
        begun = [session.submit(napping, number) for number in range(400)]
        live.run("cancel", f"{session.broker.id}.1", check=True)
        ends = {future._core.shard: type(future.exception()) for future in begun}  # type: ignore[attr-defined]
        assert ends == {0: type(None), 1: SessionLost}
        assert {session.submit(shard).result() for _ in range(20)} == {"0"}
        assert list(session.map(abs, range(-100, 0))) == list(range(100, 0, -1))
        until(lambda: session.numbers().slots == 2, "slots of the lost one did not come over")


def test_a_durable_session_has_several_brokers_that_come_back(live: LiveHal, tmp_path: Path) -> None:
    """One is killed and started again by its job; another program finds what was not received; then all is gone."""
    opening = {"slots": 2, "cpus": 0.25, "memory": "128MiB", "name": "deep", "durable": True, "linger": 60}
    with live.client() as client:
        session = client.session(**opening, shards=2)
        directory = directory_of((session.broker.refresh().spec or {})["command"])
        file = read_session_file(directory / "session.json")
        assert [Path(one.journal).parent for one in shards_of(file)] == [directory / "0", directory / "1"]
        futures = [session.submit(napping, number) for number in range(100)]
        os.kill(broker_process(file.id, 1), signal.SIGKILL)
        assert [future.result(60) for future in futures] == list(range(100))
        left = [session.submit(napping, number) for number in range(20)]
        session.leave()
        assert all(isinstance(future.exception(), SessionLost) for future in left)
        with client.session(**opening) as again:  # as many brokers as it was made with
            assert sorted(future.result(60) for future in again.recovered) == list(range(20))
            assert again.broker.id == session.broker.id
        until(lambda: not directory.exists(), "it is forgotten")


def broker_process(session: str, number: int) -> int:
    """The process of one of its brokers: it holds the lock of its directory."""
    lock = Path(f"/dev/shm/hal-session-{session}-{number}/broker.lock").stat().st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and int(fields[5].rpartition(":")[2]) == lock:
            return int(fields[4])
    raise AssertionError("nobody holds it")
