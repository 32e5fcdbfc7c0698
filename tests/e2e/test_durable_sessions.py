"""Durable sessions on a real HAL: whatever is killed, each task has its result, once; what was not received is kept."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hal.client.session import SessionLost
from hal.client.sessions.opening import OpenedSession
from hal.core.model import ConflictError, NotFoundError, SpecError, TaskState
from hal.runtime.identity import kill, running
from tests.e2e.conftest import LiveHal, new_home, until
from tests.e2e.session_tasks import counted, napping
from tests.e2e.test_documents import blocks

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def live() -> Iterator[LiveHal]:
    """A HAL of one node of two cores that starts its processes again, and a directory for durable sessions."""
    found = LiveHal(new_home())
    state = tempfile.mkdtemp(prefix="s", dir=found.root.parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", state)
        found.environment["XDG_STATE_HOME"] = state
        try:
            found.up("--restart", "--cpus", "2")
            yield found
        finally:
            found.remove()
            shutil.rmtree(state, ignore_errors=True)


def processes_of(session: OpenedSession, daemon: str) -> list[int]:
    """The pids of the session's brokers or workers, and of the processes that these forked."""
    file = (session.broker.refresh().spec or {})["command"][-1]
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode().split("\0") if entry.name.isdigit() else []
            if f"hal.daemons.{daemon}" in words and file in words:
                found.append(int(entry.name))
    return found


def directory_of(session: OpenedSession) -> Path:
    return Path((session.broker.refresh().spec or {})["command"][-1]).parent


def test_a_durable_session_outlives_its_broker(live: LiveHal) -> None:
    """It is started again on the journal, by its job; the workers come back, and so does who looks after the slots."""
    with live.client() as client, client.session(slots=(1, 2), cpus=1, memory="32MiB", durable=True) as session:
        directory = directory_of(session)
        for number in range(2):
            futures = [session.submit(napping, at) for at in range(60)]
            (broker,) = processes_of(session, "broker")
            os.kill(broker, signal.SIGKILL)
            assert list(session.map(abs, range(5_000))) == list(range(5_000)), number
            assert [future.result() for future in futures] == list(range(60))
        assert session.broker.refresh().restarts == 2
        until(lambda: session.numbers().slots, "nobody asks the new broker")
    assert session.broker.wait(60).state is TaskState.SUCCEEDED
    assert session.slots.wait(60).state is TaskState.SUCCEEDED
    assert not directory.exists()


SCRIPT = """
import os, sys
import hal
from tests.e2e.session_tasks import napping

session = hal.connect(home=sys.argv[1]).session(slots=1, cpus=1, memory="32MiB", name="kept", linger=1, durable=True)
print(len(session.recovered), session.broker.id, session.slots.id, flush=True)
futures = [session.submit(napping, number) for number in range(20)]
print(sum(future.result() for future in futures[:5]), flush=True)
session.flush()
session.leave() if len(sys.argv) > 2 else os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", [["leaves"], []], ids=["leaves", "is killed"])
def test_what_a_program_did_not_receive_is_kept(live: LiveHal, how: list[str]) -> None:
    """Its tasks run to their end; then the jobs end, as nobody is there. Later the session is opened again: the results
    are there, and tasks go on."""
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(live.root), *how], env=live.environment, capture_output=True, text=True
    )
    assert ran.returncode == (0 if how else -9), ran.stderr
    recovered, broker, slots, total = ran.stdout.split()
    assert (recovered, total) == ("0", "10")
    with live.client() as client:
        assert client.job(broker).wait(60).state is TaskState.SUCCEEDED
        assert client.job(slots).wait(60).state is TaskState.SUCCEEDED
        with pytest.raises(NotFoundError):
            client.find_session("kept")
        with client.session(slots=1, cpus=1, memory="32MiB", name="kept", durable=True) as session:
            results = [future.result() for future in session.recovered]
            assert results == list(range(20))[-len(results) :]
            assert 20 - len(results) >= 5
            assert session.submit(napping, 7).result() == 7
            directory = directory_of(session)
        assert session.broker.wait(60).state is TaskState.SUCCEEDED
        assert not directory.exists()


def test_a_durable_session_that_runs_is_continued(live: LiveHal) -> None:
    """By its name; the former program learns that another one has taken its place."""
    with live.client() as client:
        former = client.session(slots=1, cpus=1, memory="32MiB", name="runs", durable=True)
        futures = [former.submit(napping, number) for number in range(40)]
        futures[0].result()
        other = client.find_session("runs", client="other")
        assert other.submit(pow, 2, 3).result() == 8
        with client.session(name="runs", durable=True) as session:
            assert session.broker.id == former.broker.id
            assert [future.result() for future in session.recovered][-1] == 39
            until(lambda: former._core.lost is not None, "the former program has not noticed")
            former.shutdown()
            assert session.submit(abs, -1).result() == 1
        with client.session(slots=1, cpus=1, memory="32MiB", name="plain") as plain:
            with pytest.raises(ConflictError, match="not durable"):
                client.session(name="plain", durable=True)
            with pytest.raises(SpecError, match="is not durable"):
                plain.leave()


def test_a_session_is_ended_and_forgotten(live: LiveHal) -> None:
    """By command, while it runs and when only its journal is left."""
    with live.client() as client:
        session = client.session(slots=1, cpus=1, memory="32MiB", name="over", durable=True)
        session.submit(abs, -1).result()
        directory = directory_of(session)
        live.run("session", "end", "over", check=True)
        assert session.broker.wait(60).state.ended
        assert session.slots.wait(60).state.ended
        assert not directory.exists()
        session.shutdown()

        session = client.session(slots=1, cpus=1, memory="32MiB", name="over", linger=1, durable=True)
        future = session.submit(napping, 1)
        session.leave()
        assert future.exception() is not None
        assert session.broker.wait(60).state is TaskState.SUCCEEDED
        session.slots.wait(60)
        assert directory.exists()
        assert "forgotten" in live.run("session", "end", "over", check=True).err
        assert not directory.exists()
        assert live.run("session", "end", "over").code != 0


VICTIMS = ("worker", "worker", "agent", "keeper", "controller")


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "not durable"])
@pytest.mark.parametrize("seed", [1, 2])
def test_safety_nothing_is_lost_and_nothing_runs_twice_that_must_not(
    live: LiveHal, tmp_path: Path, seed: int, durable: bool
) -> None:
    """HAL's processes, workers, and brokers of durable sessions are killed at random: results are those of a serial
    run; each task of a session with `once` has begun at most once, and those that have not ended say so."""
    victims = [*VICTIMS, *["broker", "broker"] * durable]
    rng, over = random.Random(seed), threading.Event()
    killed: list[str] = []

    def kill_now_and_then(session: OpenedSession) -> None:
        for victim in rng.sample(victims, len(victims)):
            if over.wait(rng.uniform(0.2, 1.0)):
                return
            if victim in ("agent", "keeper", "controller"):
                identity = running(live.home.pid_file(victim if victim == "controller" else f"{victim}-n1"))
                if identity is not None and kill(identity, signal.SIGKILL):
                    killed.append(victim)
                continue
            if pids := processes_of(session, victim):
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(pids), signal.SIGKILL)
                    killed.append(victim)

    marks = tmp_path / "marks"
    marks.touch()
    with live.client() as client, client.session(slots=(1, 2), cpus=1, memory="32MiB", durable=durable) as session:
        careful = session.options(once=True)
        assert session.submit(abs, -1).result() == 1
        killer = threading.Thread(target=kill_now_and_then, args=(session,))
        killer.start()
        number, once = 0, []
        try:
            while killer.is_alive():
                once += [careful.submit(counted, str(marks), at) for at in range(number, number + 40)]
                number += 40
                futures = [session.submit(napping, at) for at in range(20)]
                assert list(session.map(abs, range(3_000))) == list(range(3_000))
                assert [future.result() for future in futures] == list(range(20))
        finally:
            over.set()
            killer.join()
        lost = [future.exception() is not None for future in once]
        assert [future.result() for future in once if future.exception() is None] == [
            at for at in range(number) if not lost[at]
        ]
    assert killed
    ran = list(map(int, marks.read_text().split()))
    assert len(ran) == len(set(ran))
    assert {at for at in range(number) if not lost[at]} <= set(ran)


def test_a_session_that_is_not_durable_ends_with_its_broker(live: LiveHal) -> None:
    """Every future has an end, and both jobs."""
    with live.client() as client:
        session = client.session(slots=1, cpus=1, memory="32MiB")
        futures = [session.submit(napping, number) for number in range(200)]
        assert futures[0].result() == 0
        (broker,) = processes_of(session, "broker")
        os.kill(broker, signal.SIGKILL)
        failures = [future.exception(60) for future in futures]
        assert isinstance(failures[-1], SessionLost)
        assert {type(failure) for failure in failures} == {type(None), SessionLost}
        assert session.broker.wait(60).state is TaskState.FAILED
        assert session.slots.wait(60).state.ended
        session.shutdown()


def test_the_example_of_the_page_works(live: LiveHal, tmp_path: Path) -> None:
    """docs/sessions.md, as a script, twice: the second time finds nothing that the first one has left."""
    (example,) = [block for block in blocks("docs/sessions.md", "python") if "durable=True" in block]
    (tmp_path / "fit.py").write_text(example)
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, str(tmp_path / "fit.py")],
            env=live.environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (ran.stdout, ran.stderr) == ("0 recovered\n285\n", "")
    until(lambda: not json.loads(live.run("sessions", "-o", "json", check=True).out), "a session is left")
