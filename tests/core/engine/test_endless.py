"""Cycles that once did not end, and engines that once asked to be called for ever while nothing happened."""

from __future__ import annotations

import pytest

from hal.core.engine import new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, Match, OwnerSpec, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import INF, BookingsChanged, JobsSubmitted, NodesChanged, NodeSpec, submit_rows
from hal.core.engine.scheduler import MOST_IDLE, REST_MS, Scheduler
from hal.core.engine.tables.bookings import BookingSpec
from hal.core.model.policy import Policy, PreemptMode, Qos
from tests.core.engine.clusters import Starts
from tests.core.engine.policy_world import alarm

OPENS_MS = 700_000
LASTS_MS = 1_000_000
PART = {"cpu": 2, "memory": 2, "gpu": 1}


def submit(
    scheduler: Scheduler,
    job: int,
    request: dict[str, int],
    walltime_ms: int,
    *,
    tasks: int = 1,
    priority: int = 0,
    booking: str = "",
    qos: str = "",
    own: str = "",
) -> None:
    """One job, at the beginning."""
    rows = submit_rows(1)
    rows["job"], rows["tasks"], rows["priority"], rows["walltime_ms"] = job, tasks, priority, walltime_ms
    where = (Requirement("own", Match.IN, (own,)),) if own else ()
    scheduler.feed(JobsSubmitted(rows, (ClassSpec(request, 1, where, booking),), (OwnerSpec(qos=qos),)))


@pytest.mark.parametrize("backfill", [Backfill.CONSERVATIVE, Backfill.TOP_K])
@pytest.mark.parametrize("walltime_ms", [2 * LASTS_MS, INF])
@pytest.mark.parametrize("claim_after_ms", [0, 600_000])
@pytest.mark.parametrize("tasks", [3, 4])
def test_a_claim_that_finds_rows_later_leaves_the_promises_beside_it(
    backfill: Backfill, walltime_ms: int, claim_after_ms: int, tasks: int
) -> None:
    """Jobs 1, 2 and array 3 wait for the booking, 4 for its end. Two fit at once; the third would begin when it ends:
    it claims rows of which there are none at first. Its place for them was given to its neighbour, and when rows came
    both were on one chain, which led round for ever."""
    state = new_state(EngineConfig(backfill=backfill, claim_after_ms=claim_after_ms))
    sink = Starts()
    scheduler = Scheduler(state, sink)
    scheduler.feed(NodesChanged((NodeSpec("n", {"cpu": 8, "memory": 4, "gpu": 2}),)))
    opens = BookingSpec(name="b", start_ms=OPENS_MS, end_ms=OPENS_MS + LASTS_MS, nodes=("n",))
    scheduler.feed(BookingsChanged((opens,)))
    jobs = {
        1: lambda: submit(scheduler, 1, PART, LASTS_MS, booking="b"),
        2: lambda: submit(scheduler, 2, PART, LASTS_MS, booking="b"),
        3: lambda: submit(scheduler, 3, PART, LASTS_MS, tasks=tasks, priority=5, booking="b"),
        4: lambda: submit(scheduler, 4, {"cpu": 1}, walltime_ms),
    }
    with alarm():
        for come in jobs.values():
            come()
            scheduler.run(0)
        for now_ms in (10_000, 650_000, OPENS_MS, OPENS_MS + 1, OPENS_MS + 10_000):
            assert not scheduler.run(now_ms).more
            check_invariants(state)
    assert sink.jobs() == [3, 3]


@pytest.mark.parametrize("backfill", [Backfill.CONSERVATIVE, Backfill.TOP_K, Backfill.EASY])
@pytest.mark.parametrize("waiting", [60, pytest.param(500, marks=pytest.mark.slow)])
def test_a_search_in_vain_is_not_repeated_while_nothing_happens(backfill: Backfill, waiting: int) -> None:
    """Every node is full of work that nobody may take, and jobs wait that might take other work: once each has been
    searched for, the engine rests. Searches once pushed each other out of a small table, and woke it every millisecond.

    Each job asks for a node of its own pool, so that under EASY there are many first ones.
    """
    qos = {"urgent": Qos(name="urgent", preempts=("low",)), "low": Qos(name="low", preempt_mode=PreemptMode.REQUEUE)}
    state = new_state(EngineConfig(backfill=backfill, policy=Policy(qos=qos), reservations=1 << 20))
    scheduler = Scheduler(state, Starts())
    scheduler.feed(NodesChanged(tuple(NodeSpec(f"n{k}", {"cpu": 4}, {"own": f"{k % 64}"}) for k in range(waiting))))
    for node in range(waiting):
        submit(scheduler, 1 + node, {"cpu": 4}, 3_600_000, own=f"{node % 64}")
    scheduler.run(0)
    for node in range(waiting):
        submit(scheduler, 10_001 + node, {"cpu": 4}, 60_000, qos="urgent", own=f"{node % 64}")
    step = scheduler.run(1, most_slices=20_000)
    wakes = 0
    while not step.more and step.wake_ms < 10_000:
        wakes += 1
        step = scheduler.run(step.wake_ms, most_slices=20_000)
        assert wakes <= 2, f"woken {wakes} times until {step.wake_ms}"
    assert not step.more


def test_an_engine_that_is_woken_for_nothing_rests() -> None:
    """One attempt outlives its plan and nobody says that it ended; what waits is planned right after it, and again each
    time that moves: a wake-up every few milliseconds, for ever. After MOST_IDLE of them there is one a second."""
    state = new_state(EngineConfig(backfill=Backfill.CONSERVATIVE))
    scheduler = Scheduler(state, Starts())
    scheduler.feed(NodesChanged((NodeSpec("n", {"cpu": 4}),)))
    for job in (1, 2, 3):
        submit(scheduler, job, {"cpu": 4}, 2)
    step = scheduler.run(0)
    wakes = 0
    while step.wake_ms < 20_000:
        step = scheduler.run(step.wake_ms)
        wakes += 1
        assert wakes < MOST_IDLE + 2 * 20_000 // REST_MS
    assert step.rests
    submit(scheduler, 4, {"cpu": 4}, 2)
    assert not scheduler.run(step.wake_ms).rests
