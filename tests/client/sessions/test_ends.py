"""Sessions that end while tasks go on, and slots that end while tasks wait; children of tasks."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hal.client.session import SessionLost
from hal.client.sessions.demand import Overseer, Wanted
from hal.client.sessions.job_labels import SLOTS
from hal.client.sessions.listing import sessions_of
from hal.runtime.session_file import read_session_file
from tests.client.sessions.processes import WAIT_S, OneGroup, Processes, processes


def hang(begun: str) -> None:
    """Begin, and never end."""
    Path(begun).touch()
    time.sleep(3_600)


def until(seen: Path) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not seen.exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def overseer_of(started: Processes, **more: Any) -> Overseer:
    return Overseer(read_session_file(started.file), **more)


@pytest.mark.slow
def test_a_task_that_never_ends_does_not_keep_the_slot_of_a_session_that_is_over(tmp_path: Path) -> None:
    """Its worker ends with the code of a session that is over, so that its job does not start it again."""
    with processes(workers=1) as started:
        session = started.open()
        future = session.submit(hang, str(tmp_path / "begun"))
        behind = [session.submit(hang, str(tmp_path / "behind")) for _ in range(3)]
        until(tmp_path / "begun")
        assert overseer_of(started).end()
        assert started.workers[0].wait(WAIT_S) == 0
        for one in (future, *behind):
            assert isinstance(one.exception(WAIT_S), SessionLost)
        assert not (tmp_path / "behind").exists()


def children() -> list[int | None]:
    """How children end that were told to: one, and those of a pool."""
    context = multiprocessing.get_context("fork")
    child = context.Process(target=time.sleep, args=(3_600,))
    child.start()
    child.terminate()
    child.join(WAIT_S)
    with context.Pool(2) as pool:
        pool.map(abs, range(10))
    return [child.exitcode]


def test_children_of_a_task_end_when_they_are_told_to() -> None:
    """And their worker does not leave for that: it is the same one afterwards."""
    with processes(workers=1) as started, started.open() as session:
        before = session.submit(os.getpid).result(WAIT_S)
        assert session.submit(children).result(2 * WAIT_S) == [-15]
        assert session.submit(os.getpid).result(WAIT_S) == before


def test_tasks_fail_when_there_will_be_no_slots() -> None:
    """Futures and a map say why; while slots may come they wait."""
    reasons = ["", "", "the job of its slots, 7, has ended: cancelled"]
    with processes(workers=0) as started:
        session = started.open()
        future, squares = session.submit(abs, -1), session.map(abs, range(10))
        group = OneGroup(Wanted(1, 1), why_none=lambda: reasons.pop(0))
        overseer = overseer_of(started, groups=[group], give_up=session._core.give_up)
        overseer.begin()
        with pytest.raises(SessionLost, match="the job of its slots, 7, has ended"):
            future.result(WAIT_S)
        with pytest.raises(SessionLost, match="has ended: cancelled"):
            next(squares)
        with pytest.raises(SessionLost):
            session.submit(abs, -1)
        assert not reasons
        session.shutdown()
        overseer.end()


def test_who_only_looks_is_no_client() -> None:
    with processes(workers=1) as started, started.open() as session:
        assert session.submit(abs, -1).result(WAIT_S) == 1
        one, other = overseer_of(started), overseer_of(started)
        assert other.numbers() is not None
        found = one.numbers()
        assert found is not None
        assert found.clients == 1
        one.leave()
        other.leave()


def test_a_session_whose_broker_has_ended_is_ending() -> None:
    slots: Any = SimpleNamespace(
        labels={"hal/session": "fit", "hal/part": SLOTS},
        user="anna",
        ended=False,
        queue="default",
        id="8",
        counts={"running": 2},
        tasks=2,
        submit_ms=0,
    )
    (found,) = sessions_of(cast("Any", [slots]))
    assert (found.state, found.running, found.broker) == ("ending", 2, "")
