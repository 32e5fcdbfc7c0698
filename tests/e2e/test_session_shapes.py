"""Sessions with slots of several shapes on a real HAL: jobs that are there while there are tasks for them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest

from hal.client.session import SessionLost
from hal.core.model import NotFoundError, SpecError
from tests.e2e.conftest import LiveHal, new_home, until
from tests.e2e.session_tasks import job_of_task

pytestmark = pytest.mark.slow

SHAPES = {"wide": {"slots": (0, 1), "cpus": 0.5, "memory": "128MiB", "threads": 8}}


@pytest.fixture(scope="module")
def live() -> Iterator[LiveHal]:
    """A HAL of one node of two cores."""
    found = LiveHal(new_home())
    try:
        found.up("--cpus", "2")
        yield found
    finally:
        found.remove()


def live_jobs(live: LiveHal, name: str) -> dict[str, str]:
    """Ids of a session's jobs of slots, by shape."""
    (found,) = (one for one in json.loads(live.run("sessions", "-o", "json", check=True).out) if one["name"] == name)
    return {one["shape"]: one["job"] for one in found["shapes"]}


def test_a_shape_has_a_job_while_there_are_tasks_for_it(live: LiveHal) -> None:
    """None at first, one for its tasks, none after a while, and another one for further tasks."""
    with live.client() as client:
        with client.session(slots=1, cpus=0.5, memory="32MiB", shapes=SHAPES, name="shapes", keep=0.5) as session:
            wide = session.options(shape="wide")
            plain = session.submit(job_of_task).result(60)
            assert live_jobs(live, "shapes") == {"": plain}
            first = wide.submit(job_of_task).result(60)
            assert live_jobs(live, "shapes") == {"": plain, "wide": first}
            assert len(set(wide.map(lambda _number: os.getpid(), range(100)))) == 1
            assert "wide: job" in live.run("session", "show", "shapes", check=True).out
            until(lambda: list(live_jobs(live, "shapes")) == [""], "its slots are not given back")
            second = wide.submit(job_of_task).result(60)
            assert second not in (plain, first)
        until(lambda: all(job.ended for job in client.jobs()), "something is left of it")


def test_a_shape_that_could_never_run_is_refused_and_leaves_nothing(live: LiveHal) -> None:
    with live.client() as client:
        with pytest.raises(SpecError, match="4000 cpu asked for"):
            client.session(slots=1, cpus=0.5, memory="32MiB", shapes={"huge": {"cpus": 4_000}})
        with pytest.raises(SpecError, match="shape 'x' has no keyword 'cores'"):
            client.session(shapes={"x": {"cores": 2}})  # type: ignore[typeddict-unknown-key]
        for slots in ("x", (1, 2, 3), 1.5, (0, 0), (3, 1)):
            with pytest.raises(SpecError, match=r"slots: .*\(a number, or \(least, most\)"):
                client.session(slots=slots)  # type: ignore[arg-type]
        until(lambda: all(job.ended for job in client.jobs()), "something is left of it")


def test_tasks_fail_when_the_slots_of_their_shape_are_cancelled(live: LiveHal) -> None:
    with live.client() as client, client.session(slots=1, cpus=0.5, memory="32MiB", shapes=SHAPES) as session:
        future = session.options(shape="wide").submit(time.sleep, 3_600)
        until(lambda: session.groups["wide"].job is not None, "no job was submitted")
        until(lambda: session.numbers().busy, "its task does not run")
        job = session.groups["wide"].job
        assert job is not None
        job.cancel()
        with pytest.raises(SessionLost, match=f"the job of its slots, {job.id}, has ended"):
            future.result(60)


def test_another_program_uses_the_shapes_of_a_session_that_it_finds(live: LiveHal) -> None:
    with live.client() as client:
        with client.session(slots=1, cpus=0.5, memory="32MiB", shapes=SHAPES, name="shared") as session:
            with live.client() as second, second.find_session("shared") as found:
                assert found.options(shape="wide").submit(pow, 2, 10).result(60) == 1_024
                assert found.submit(pow, 2, 3).result(60) == 8
            assert session.options(shape="wide").submit(pow, 2, 4).result(60) == 16
        with pytest.raises(NotFoundError):
            client.find_session("shared")


def test_durable_sessions_come_back_with_their_shapes(live: LiveHal) -> None:
    """Whoever opens it again by its name goes on in both."""
    with live.client() as client:
        session = client.session(slots=1, cpus=0.5, memory="32MiB", shapes=SHAPES, name="kept", durable=True, linger=60)
        session.options(shape="wide").submit(pow, 2, 10)
        session.leave()
        again = client.session(slots=1, cpus=0.5, memory="32MiB", shapes=SHAPES, name="kept", durable=True, linger=60)
        assert [future.result(60) for future in again.recovered] == [1_024]
        assert again.options(shape="wide").submit(pow, 2, 5).result(60) == 32
        again.shutdown()
