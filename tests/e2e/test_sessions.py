"""Sessions on a real HAL: broker and slots are jobs that come, grow, make room and end."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.client.addresses.address import Address
from hal.client.async_client import AsyncClient
from hal.client.job import Job
from hal.client.session import SessionLost
from hal.core.model import ConflictError, NotFoundError, SpecError, TaskState
from tests.e2e.conftest import LiveHal, new_home, until
from tests.e2e.session_tasks import napping
from tests.e2e.test_documents import blocks

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


def running(job: Job) -> int:
    """How many of its tasks run."""
    return job.refresh().counts.get("running", 0)


SCRIPT = """
import os, sys
import hal

session = hal.connect(home=sys.argv[1]).session(slots=(1, 2), cpus=1, memory="32MiB", name="orphan", linger=1)
assert session.submit(pow, 2, 10).result() == 1024
print(session.broker.id, session.slots.id, flush=True)
os._exit(1)
"""


def test_a_session_makes_room_for_a_job_and_loses_no_task(live: LiveHal) -> None:
    """Two slots compute on two cores; a job of one core arrives, one slot leaves for it and comes back; all results are
    there, in order, and both jobs end with the session."""
    with live.client() as client:
        with client.session(slots=(1, 2), cpus=1, memory="32MiB") as session:
            futures = [session.submit(napping, number) for number in range(400)]
            until(lambda: running(session.slots) == 2, "it did not grow")
            other = client.submit(["true"], cpus=1)
            assert other.wait(60).state is TaskState.SUCCEEDED
            until(lambda: running(session.slots) == 2, "it did not grow again")
            assert [future.result() for future in futures] == list(range(400))
            mine = client.events(after=0, job=session.slots.id)
            left = [event for event in mine if event.kind == "attempts-preempted"]
            assert [event.payload["attempts"][0]["mode"] for event in left] == ["shrink"]
        assert session.broker.wait(60).state is TaskState.SUCCEEDED
        assert session.slots.wait(60).state is TaskState.SUCCEEDED


def test_slots_without_work_are_given_back(live: LiveHal) -> None:
    """All but the least; their attempts have not failed, and the slots come back with the next tasks."""
    with live.client() as client, client.session(slots=(1, 2), cpus=1, memory="32MiB", keep=0.5) as session:
        assert list(session.map(napping, range(60))) == list(range(60))
        until(lambda: session.numbers().slots == 1, "no slot was retired")
        until(lambda: running(session.slots) == 1, "its job still runs two")
        assert session.slots.refresh().exit_code is None
        futures = [session.submit(napping, number) for number in range(100)]
        until(lambda: running(session.slots) == 2, "it did not grow again")
        assert [future.result() for future in futures] == list(range(100))


def test_nothing_is_left_of_a_session_whose_client_dies(live: LiveHal, tmp_path: Path) -> None:
    """Both jobs end by themselves, and so does the directory."""
    script = tmp_path / "dies.py"
    script.write_text(SCRIPT)
    with live.client() as client:
        dies = client.submit([sys.executable, str(script), str(live.root)], request={"cpu": 0, "memory": "128MiB"})
        dies.wait(60)
        jobs = [client.job(number) for number in dies.logs().split()]
        assert len(jobs) == 2, dies.logs("stderr")
        command = (jobs[0].refresh().spec or {})["command"]
        assert [job.wait(60).state for job in jobs] == [TaskState.SUCCEEDED] * 2
        until(lambda: not Path(command[-1]).parent.exists(), "its directory is still there")


def test_a_session_is_found_by_name_and_shown(live: LiveHal) -> None:
    """By another client, and by commands; there is one of each name, and none of a name that is not there."""
    with live.client() as client, client.session(slots=1, cpus=1, memory="32MiB", name="fit") as session:
        assert list(session.map(abs, range(-3, 0))) == [3, 2, 1]
        with pytest.raises(ConflictError, match="there is a session 'fit' already"):
            client.session(name="fit")
        with pytest.raises(NotFoundError, match="no session 'fat'"):
            client.find_session("fat")
        with live.client() as second:
            with second.find_session("fit") as other:
                assert other.submit(pow, 2, 3).result() == 8
                until(lambda: other.numbers().clients == 2, "its clients are counted wrongly")
            until(lambda: session.numbers().clients == 1, "who has left is counted")
        (listed,) = json.loads(live.run("sessions", "-o", "json", check=True).out)
        assert (listed["name"], listed["broker"], listed["most"]) == ("fit", session.broker.id, 1)
        assert "fit" in live.run("sessions", check=True).out
        shown = json.loads(live.run("session", "show", "fit", "-o", "json", check=True).out)
        assert (shown["done"], shown["unanswered"], len(shown["slots"])) == (4, 0, 1)
        assert (shown["clients"], shown["uptime_s"] > 0) == (1, True)
        assert sum(shown["within_ms"].values()) == 4
        assert "4 done" in live.run("session", "show", "fit", check=True).out
        assert live.run("session", "failures", "fit", check=True).out == ""
        with pytest.raises(ZeroDivisionError):
            session.options(tags="odd").submit(divmod, 1, 0).result(60)
        (failed,) = json.loads(live.run("session", "failures", "fit", "--tag", "odd", "-o", "json", check=True).out)
        assert (failed["function"], failed["status"], failed["attempts"]) == ("divmod", "failed", 1)
        assert "ZeroDivisionError" in live.run("session", "failures", "fit", check=True).out
        assert "ZeroDivisionError" in live.run("session", "show", "fit", check=True).out
        for named in (["fit"], []):
            printed = live.run("session", "metrics", *named, check=True).out
            assert 'hal_session_tasks_total{session="fit",user="' in printed
    assert live.run("session", "show", "fit").code != 0


def test_a_name_is_free_after_the_end(live: LiveHal) -> None:
    with live.client() as client:
        for number in range(3):
            with client.session(slots=1, cpus=1, memory="32MiB", name="again") as session:
                assert session.submit(abs, -number).result(60) == number


def test_tasks_fail_when_the_job_of_the_slots_is_cancelled(live: LiveHal) -> None:
    """In the middle of a map, for which they waited for ever."""
    with live.client() as client, client.session(slots=1, cpus=1, memory="32MiB") as session:
        squares = session.map(napping, range(10_000))
        assert next(squares) == 0
        session.slots.cancel()
        with pytest.raises(SessionLost, match=f"the job of its slots, {session.slots.id}, has ended"):
            list(squares)
        assert session.broker.refresh().state is TaskState.RUNNING


def test_a_session_is_ended_by_command(live: LiveHal) -> None:
    with live.client() as client:
        session = client.session(slots=(0, 2), cpus=1, memory="32MiB", name="ends")
        assert session.submit(abs, -1).result() == 1
        live.run("session", "end", "ends", check=True)
        assert session.broker.wait(60).state.ended
        assert session.slots.wait(60).state.ended
        until(lambda: session._core.lost is not None, "its client has not noticed")
        session.shutdown()


def test_a_worker_that_is_killed_costs_nothing(live: LiveHal) -> None:
    """Its process starts another one: no attempt of the slot ends, and the task runs again."""
    with live.client() as client, client.session(slots=1, cpus=1, memory="32MiB") as session:
        pid = session.submit(os.getpid).result()
        future = session.submit(napping, 7)
        os.kill(pid, 9)
        assert future.result(60) == 7
        assert session.submit(os.getpid).result() != pid
        assert session.slots.refresh().restarts == 0


def test_what_a_session_does_not_know_is_refused(live: LiveHal) -> None:
    with live.client() as client:
        before = [job.id for job in client.jobs()]
        with pytest.raises(SpecError, match="no keyword 'cores'"):
            client.session(cores=2)  # type: ignore[call-arg]
        with pytest.raises(SpecError, match="slots: 3 to 2"):
            client.session(slots=(3, 2))
        assert [job.id for job in client.jobs()] == before


def test_the_example_of_the_page_works(live: LiveHal, tmp_path: Path) -> None:
    """docs/sessions.md, as a script: its functions travel by value."""
    example = next(block for block in blocks("docs/sessions.md", "python") if "client.session(" in block)
    (tmp_path / "squares.py").write_text(example)
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "squares.py")],
        env=live.environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.stdout, ran.stderr) == (f"{sum(x * x for x in range(10_000))}\n1024\n", "")


def test_a_session_is_opened_beside_an_event_loop(live: LiveHal) -> None:
    async def opened() -> int:
        async with AsyncClient(Address(home=live.home)) as client:
            session = await client.session(slots=1, cpus=1, memory="32MiB")
            found = await asyncio.wrap_future(session.submit(pow, 2, 10))
            await asyncio.to_thread(session.shutdown)
            return found

    assert asyncio.run(opened()) == 1024
