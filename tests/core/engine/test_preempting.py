"""Taking back: who leaves for whom, what is freed goes to whom it was freed for, and nobody is moved about for ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hal.core.engine import State, new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.errors import EngineError
from hal.core.engine.events import (
    END,
    AttemptsEnded,
    Event,
    Health,
    JobsCancelled,
    JobsHeld,
    JobsReleased,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    submit_rows,
)
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.tables.qos import MODE_NAMES
from hal.core.engine.views import running
from hal.core.model import Duration
from hal.core.model.policy import Policy, PreemptMode, Qos
from tests.core.engine.clusters import Starts, engine, places

SECOND = 1_000
A, B = NodeSpec("a", {"cpu": 4, "memory": 8}), NodeSpec("b", {"cpu": 4, "memory": 8})


def qos(mode: PreemptMode = PreemptMode.REQUEUE, grace_s: int = 10) -> Policy:
    """`urgent` may take from `low`; `plain` takes from nobody and nobody takes from it."""
    return Policy(
        qos={
            "urgent": Qos(name="urgent", preempts=("low",)),
            "low": Qos(name="low", preempt_mode=mode, grace=Duration(grace_s * SECOND)),
            "plain": Qos(name="plain"),
        }
    )


def config(mode: PreemptMode = PreemptMode.REQUEUE, grace_s: int = 10, **values: Any) -> EngineConfig:
    return EngineConfig(policy=qos(mode, grace_s), **values)


def job(number: int, cpu: int, quality: str = "low", *, gang: int = 1, memory: int = 0, **columns: Any) -> Event:
    """One job of a QOS; urgent ones rank first."""
    rows = submit_rows(1)
    rows["job"] = number
    rows["priority"] = 10 if quality == "urgent" else 0
    for name, value in columns.items():
        rows[name] = value
    return JobsSubmitted(rows, (ClassSpec({"cpu": cpu, "memory": memory}, gang),), (OwnerSpec(qos=quality),))


def over(*attempts: tuple[int, int], requeue: bool = False) -> AttemptsEnded:
    """These (job, attempt) have ended."""
    rows = np.zeros(len(attempts), END)
    rows["job"] = [job for job, _ in attempts]
    rows["attempt"] = [attempt for _, attempt in attempts]
    rows["requeue"] = int(requeue)
    return AttemptsEnded(rows)


def taken(sink: Starts) -> list[tuple[int, str, int]]:
    """(job, mode, for whom) of all that was taken back, in order."""
    return [
        (int(move["job"]), MODE_NAMES[int(move["mode"])], int(move["for_job"]))
        for plan in sink.plans
        for move in plan.preemptions
    ]


def play(scheduler: Scheduler, now: int, *events: Event) -> None:
    for event in events:
        scheduler.feed(event)
    scheduler.run(now)
    check_invariants(scheduler.state)


def full(mode: PreemptMode = PreemptMode.REQUEUE, **values: Any) -> tuple[State, Starts, Scheduler]:
    """Two nodes, each full with one job of 4 cpus: job 1 since 0 s, job 2 since 100 s; it is 200 s."""
    state, sink, scheduler = engine(config(mode, **values), A, B)
    play(scheduler, 0, job(1, 4))
    play(scheduler, 100 * SECOND, job(2, 4))
    play(scheduler, 200 * SECOND)
    return state, sink, scheduler


@pytest.mark.parametrize("backfill", list(Backfill))
def test_the_job_that_loses_least_leaves_and_its_place_goes_to_whom_it_was_freed_for(backfill: Backfill) -> None:
    """Job 2 ran 100 s, job 1 200 s: 2 leaves. A plain job that comes in between does not get what 2 frees."""
    _state, sink, scheduler = full(backfill=backfill)
    play(scheduler, 200 * SECOND, job(3, 4, "urgent"))
    assert taken(sink) == [(2, "requeue", 3)]
    play(scheduler, 201 * SECOND, job(4, 1, "plain", priority=20, walltime_ms=1))
    play(scheduler, 205 * SECOND, over((2, 1), requeue=True))
    assert sink.jobs() == [1, 2, 3], "job 3 got the place that was cleared for it"
    assert places(scheduler.state)[3] == ["b"]
    play(scheduler, 300 * SECOND, over((3, 1)))
    assert sink.jobs() == [1, 2, 3, 4]


def test_nobody_leaves_for_work_that_may_not_take_from_it() -> None:
    """A plain job waits however high it ranks, and an urgent one takes nothing from a plain one."""
    _state, sink, scheduler = full()
    play(scheduler, 200 * SECOND, job(3, 4, "plain", priority=50))
    assert taken(sink) == []
    _state, sink, scheduler = engine(config(), A)
    play(scheduler, 0, job(1, 4, "plain"))
    play(scheduler, 100 * SECOND, job(2, 4, "urgent"))
    assert taken(sink) == []


def test_nobody_leaves_for_a_job_that_starts_by_itself_within_the_grace() -> None:
    """Job 1 ends by its limit in 8 s; a grace of 10 s would not be faster."""
    _state, sink, scheduler = engine(config(grace_s=10), A)
    play(scheduler, 0, job(1, 4, walltime_ms=108 * SECOND))
    play(scheduler, 100 * SECOND, job(2, 4, "urgent"))
    assert taken(sink) == []


def test_what_leaves_already_is_counted_before_anybody_else_is_asked() -> None:
    """Two urgent gangs of one node each take one victim each; a third has nothing left to take."""
    _state, sink, scheduler = full()
    play(scheduler, 200 * SECOND, job(3, 4, "urgent"), job(4, 4, "urgent"), job(5, 4, "urgent"))
    assert taken(sink) == [(2, "requeue", 3), (1, "requeue", 4)]


def test_a_gang_that_leaves_clears_all_its_rows_at_once() -> None:
    """Job 1 holds both nodes; one gang of two takes only it."""
    state, sink, scheduler = engine(config(), A, B)
    play(scheduler, 0, job(1, 2, gang=2), job(2, 2), job(3, 2))
    play(scheduler, 100 * SECOND, job(4, 2, "urgent", gang=2))
    assert taken(sink) == [(1, "requeue", 4)]
    play(scheduler, 101 * SECOND, over((1, 1), requeue=True))
    assert sorted(places(state)[4]) == ["a", "b"]


def test_no_victim_is_taken_that_turns_out_needless() -> None:
    """Small ones come first (they lose least), but once the large one has to go they may stay."""
    _state, sink, scheduler = engine(config(), A)
    play(scheduler, 0, job(1, 3))
    play(scheduler, 50 * SECOND, job(2, 1))
    play(scheduler, 100 * SECOND, job(3, 3, "urgent"))
    assert taken(sink) == [(1, "requeue", 3)]


def test_suspended_work_gives_back_its_cpu_only_and_goes_on_in_its_place() -> None:
    """The urgent job runs at once beside the memory of the suspended one, which goes on before other work starts."""
    state, sink, scheduler = engine(config(PreemptMode.SUSPEND), A)
    play(scheduler, 0, job(1, 4, memory=5, walltime_ms=500 * SECOND))
    play(scheduler, 100 * SECOND, job(2, 4, "urgent", memory=3))
    assert taken(sink) == [(1, "suspend", 2)]
    assert sink.jobs() == [1, 2], "the cpu is free at once"
    play(scheduler, 120 * SECOND, job(3, 1, "plain", priority=5, walltime_ms=1))
    play(scheduler, 150 * SECOND, over((2, 1)))
    resumed = [int(move["job"]) for plan in sink.plans for move in plan.resumes]
    assert resumed == [1]
    assert sink.jobs() == [1, 2], "job 3 waits for a cpu of which job 1 had four"
    run = running(state)[0]
    assert (int(run["job"]), int(run["end_ms"])) == (1, 550 * SECOND), "50 s of suspension do not count"


def test_suspension_is_of_no_use_where_memory_is_short() -> None:
    """The suspended one would keep its memory, so nobody is suspended."""
    _state, sink, scheduler = engine(config(PreemptMode.SUSPEND), A)
    play(scheduler, 0, job(1, 4, memory=6))
    play(scheduler, 100 * SECOND, job(2, 4, "urgent", memory=3))
    assert taken(sink) == []


def test_suspended_work_ends_like_any_other() -> None:
    """Cancelled while suspended: its memory comes free, its cpu is not given back twice."""
    state, _sink, scheduler = engine(config(PreemptMode.SUSPEND), A)
    play(scheduler, 0, job(1, 4, memory=5))
    play(scheduler, 100 * SECOND, job(2, 4, "urgent", memory=3))
    play(scheduler, 110 * SECOND, over((1, 1)))
    assert list(places(state)) == [2]


@pytest.mark.parametrize("change", ["cancel", "hold", "gone"])
def test_a_claim_falls_when_its_owner_goes_or_its_row_is_lost(change: str) -> None:
    """What was freed is then anybody's; a held owner waits at its old place when it is released."""
    state, sink, scheduler = full()
    play(scheduler, 200 * SECOND, job(3, 4, "urgent"))
    ids = np.array([3], np.int64)
    event = {
        "cancel": JobsCancelled(ids),
        "hold": JobsHeld(ids),
        "gone": NodesChanged((NodeSpec("b", {"cpu": 4, "memory": 8}, health=Health.DOWN),)),
    }[change]
    play(scheduler, 201 * SECOND, event)
    play(scheduler, 205 * SECOND, over((2, 1), requeue=True))
    if change == "gone":
        assert taken(sink) == [(2, "requeue", 3), (1, "requeue", 3)], "the other node is cleared instead"
        return
    assert sink.jobs() == [1, 2, 2], "job 2 has its place again"
    play(scheduler, 206 * SECOND, JobsReleased(ids))
    assert taken(sink) == ([(2, "requeue", 3)] + ([(1, "requeue", 3)] if change == "hold" else []))
    assert state.pending_tasks == 0


def test_a_claim_on_a_row_that_is_never_left_falls_after_a_while() -> None:
    """Its victim ignores everything: a minute after its time the search goes on elsewhere, and not there again."""
    state, sink, scheduler = full()
    play(scheduler, 200 * SECOND, job(3, 4, "urgent"))
    step = scheduler.step(200 * SECOND)
    assert step.wake_ms == 270 * SECOND + 1, "10 s of grace, 60 s of patience"
    play(scheduler, step.wake_ms)
    assert taken(sink) == [(2, "requeue", 3), (1, "requeue", 3)]
    play(scheduler, 280 * SECOND, over((1, 1), requeue=True))
    assert places(state)[3] == ["a"]


def test_who_was_taken_back_is_left_alone_for_a_while_twice_as_long_each_time() -> None:
    """One node. The second try of job 1 is safe for a minute, the third for two."""
    _state, sink, scheduler = engine(config(), A)
    now = 0
    urgent = 10
    play(scheduler, now, job(1, 4))
    for attempt, safe_s in ((1, 0), (2, 60), (3, 120)):
        begun = now
        play(scheduler, now + 1 * SECOND, job(urgent, 4, "urgent"))
        if safe_s:
            assert len(taken(sink)) == attempt - 1, "too early"
            play(scheduler, begun + safe_s * SECOND - 1)
            assert len(taken(sink)) == attempt - 1, "still too early"
            play(scheduler, begun + safe_s * SECOND)
        assert len(taken(sink)) == attempt
        now = begun + (safe_s + 5) * SECOND
        play(scheduler, now, over((1, attempt), requeue=True))
        now += 5 * SECOND
        play(scheduler, now, over((urgent, 1)))
        urgent += 1
    assert sink.jobs().count(1) == 4


def test_qos_that_take_from_each_other_are_refused() -> None:
    """They would take turns for ever."""
    loop = Policy(
        qos={
            "a": Qos(name="a", preempts=("b",), preempt_mode=PreemptMode.REQUEUE),
            "b": Qos(name="b", preempts=("a",), preempt_mode=PreemptMode.REQUEUE),
        }
    )
    with pytest.raises(EngineError, match="QOS 'a' preempts itself"):
        new_state(EngineConfig(policy=loop))


def test_a_search_in_slices_finds_what_one_slice_finds() -> None:
    """20 nodes, work of one row check a slice."""
    nodes = tuple(NodeSpec(f"n{i}", {"cpu": 4}) for i in range(20))
    found = []
    for slice_work in (1, 1 << 40):
        _state, sink, scheduler = engine(config(slice_work=slice_work), *nodes)
        for number in range(20):
            play(scheduler, number * SECOND, job(number + 1, 4))
        scheduler.feed(job(50, 4, "urgent", gang=7))
        scheduler.run(100 * SECOND, most_slices=10_000)
        check_invariants(scheduler.state)
        found.append(taken(sink))
    assert found[0] == found[1]
    assert [victim for victim, _, _ in found[0]] == [14, 15, 16, 17, 18, 19, 20]


BEHIND = [Backfill.EASY, Backfill.EASY_SJBF, Backfill.TOP_K, Backfill.CONSERVATIVE]


@pytest.mark.parametrize("backfill", BEHIND)
def test_no_urgent_job_behind_takes_the_nodes_of_one_that_ranks_before(backfill: Backfill) -> None:
    """Job 3 needs both nodes and is promised them at 1000 s, when plain work leaves the second. Job 4 could take the
    first from job 2, and would run until 1100 s."""
    _state, sink, scheduler = engine(config(backfill=backfill), A, B)
    play(scheduler, 0, job(1, 4, "plain", walltime_ms=1_000 * SECOND), job(2, 4, walltime_ms=900 * SECOND))
    play(scheduler, 100 * SECOND, job(3, 4, "urgent", gang=2, walltime_ms=300 * SECOND))
    play(scheduler, 200 * SECOND, job(4, 2, "urgent", walltime_ms=900 * SECOND))
    assert taken(sink) == []
    play(scheduler, 900 * SECOND, over((2, 1)))
    play(scheduler, 1_000 * SECOND, over((1, 1)))
    assert sink.jobs()[:3] == [1, 2, 3]


def test_strict_order_keeps_urgent_jobs_behind_the_first_one() -> None:
    """Backfill none: what competes with the first waiting job waits behind it."""
    _state, sink, scheduler = engine(config(backfill=Backfill.NONE), A, B)
    play(scheduler, 0, job(1, 4, "plain", walltime_ms=1_000 * SECOND), job(2, 4, walltime_ms=2_000 * SECOND))
    play(scheduler, 100 * SECOND, job(3, 4, "urgent", gang=2), job(4, 2, "urgent", walltime_ms=100 * SECOND))
    assert taken(sink) == []
