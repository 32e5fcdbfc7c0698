"""Compaction: whose work is moved for a gang that waits, when it pays, and that nothing is moved about for ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from hal.core.engine import State, apply, cycle
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import NODE, ClassSpec, OwnerSpec, Term
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    INF,
    AttemptsEnded,
    ClockAdvanced,
    JobsSubmitted,
    NodeSpec,
    PlanAssumed,
    submit_rows,
)
from hal.core.engine.plan import MOVED, Cursor, Plan
from hal.core.engine.preempting import MOVES
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.tables.qos import MODE_NAMES
from hal.core.model import Duration
from hal.core.model.policy import Policy, PreemptMode, Qos
from tests.core.engine.clusters import Starts, ended, engine, places

SECOND = 1_000
HOUR = 3_600 * SECOND
QOS = {
    "short": Qos(name="short", grace=Duration(10 * SECOND)),
    "saves": Qos(name="saves", preempt_mode=PreemptMode.CHECKPOINT, grace=Duration(10 * SECOND)),
    "gone": Qos(name="gone", preempt_mode=PreemptMode.CANCEL, grace=Duration(10 * SECOND)),
}


def config(**values: Any) -> EngineConfig:
    return EngineConfig(**{"policy": Policy(qos=QOS), "compaction": 2.0, "compaction_nodes": 2, **values})


def job(
    number: int, cpu: int, *, gang: int = 1, movable: bool = True, hours: float = 10, qos: str = "short",
    within: str = "", **columns: Any,
) -> JobsSubmitted:  # fmt: skip
    """One job with a time limit."""
    rows = submit_rows(1)
    rows["job"], rows["walltime_ms"] = number, INF if hours == INF else int(hours * HOUR)
    for name, value in columns.items():
        rows[name] = value
    return JobsSubmitted(rows, (ClassSpec({"cpu": cpu}, gang, within=within, movable=movable),), (OwnerSpec(qos=qos),))


def nodes(count: int, *, racks: str = "") -> list[NodeSpec]:
    """Nodes of 4 cpus; racks: one letter each."""
    return [NodeSpec(f"n{at}", {"cpu": 4}, domains=tuple(racks[at : at + 1])) for at in range(count)]


def scattered(*jobs: JobsSubmitted, racks: str = "", now: int = 0, **values: Any) -> tuple[State, Starts, Scheduler]:
    """Each job on a node of its own, the first on n0; and one node more that is empty."""
    state, sink, scheduler = engine(config(**values), *nodes(len(jobs) + 1, racks=racks))
    for one in jobs:
        number = int(one.rows["job"][0])
        # What fills the rest of the node, then leaves: placement is first-fit.
        scheduler.feed(one)
        left = 4 - int(one.classes[0].request["cpu"])
        scheduler.feed(job(number + 1, left, movable=False))
        scheduler.run(now)
    scheduler.feed(ended(*(int(one.rows["job"][0]) + 1 for one in jobs)))
    scheduler.run(now)
    sink.plans.clear()
    return state, sink, scheduler


def moved(sink: Starts) -> list[tuple[int, str, int]]:
    """(job, mode, for whom) of all that was moved, in order."""
    return [
        (int(move["job"]), MODE_NAMES[int(move["mode"])], int(move["for_job"]))
        for plan in sink.plans
        for move in plan.preemptions
        if move["lent"] == MOVED
    ]


def leave(scheduler: Scheduler, now: int, *attempts: tuple[int, int]) -> None:
    """These (job, attempt) were moved and have left."""
    rows = np.zeros(len(attempts), END)
    rows["job"] = [number for number, _ in attempts]
    rows["attempt"] = [attempt for _, attempt in attempts]
    rows["requeue"] = 1
    scheduler.feed(AttemptsEnded(rows))
    scheduler.run(now)
    check_invariants(scheduler.state)


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.CONSERVATIVE, Backfill.TOP_K])
def test_what_loses_least_is_moved_and_both_run_on(backfill: Backfill) -> None:
    """Jobs 1 and 3 have a quarter of a node each. The gang of two nodes would wait ten hours; job 3 moves to job 1."""
    state, sink, scheduler = scattered(job(1, 1), job(3, 1), backfill=backfill)
    scheduler.feed(job(9, 4, gang=2, movable=False, submit_ms=60 * SECOND))
    scheduler.run(60 * SECOND)
    check_invariants(state)
    assert len(moved(sink)) == 1
    (victim, mode, whom) = moved(sink)[0]
    assert (mode, whom) == ("requeue", 9)
    assert victim in (1, 3)
    leave(scheduler, 65 * SECOND, (victim, 1))
    where = places(state)
    assert set(where) == {1, 3, 9}
    assert where[1] == where[3]
    assert not set(where[9]) & set(where[1])


def test_nothing_moves_where_compaction_is_off() -> None:
    _state, sink, scheduler = scattered(job(1, 1), job(3, 1), compaction=0.0)
    scheduler.feed(job(9, 4, gang=2))
    scheduler.run(SECOND)
    assert not any(len(plan.moves) for plan in sink.plans)


def test_only_movable_work_moves() -> None:
    _state, sink, scheduler = scattered(job(1, 1, movable=False), job(3, 1))
    scheduler.feed(job(9, 4, gang=2))
    scheduler.run(SECOND)
    assert [victim for victim, _, _ in moved(sink)] == [3]
    _state, sink, scheduler = scattered(job(1, 1, movable=False), job(3, 1, movable=False))
    scheduler.feed(job(9, 4, gang=2))
    scheduler.run(SECOND)
    assert not moved(sink)


def test_work_with_terms_of_affinity_stays() -> None:
    """Where it could go depends on what else would be moved."""

    def parted(event: JobsSubmitted) -> JobsSubmitted:
        spec = replace(event.classes[0], labels=("u app=w",), apart=(Term("u app=w", NODE),))
        return JobsSubmitted(event.rows, (spec,), event.owners)

    _state, sink, scheduler = scattered(parted(job(1, 1)), job(3, 1))
    scheduler.feed(job(9, 4, gang=2))
    scheduler.run(SECOND)
    assert [victim for victim, _, _ in moved(sink)] == [3]


def test_no_gang_that_is_too_narrow_moves_anything() -> None:
    _state, sink, scheduler = scattered(job(1, 1), job(3, 1), compaction_nodes=3)
    scheduler.feed(job(9, 4, gang=2))
    scheduler.run(SECOND)
    assert not moved(sink)


def test_what_has_no_room_elsewhere_stays() -> None:
    """Three cpus of each node are taken: neither fits beside the other."""
    _state, sink, scheduler = scattered(job(1, 3), job(3, 3))
    scheduler.feed(job(9, 4, gang=2))
    scheduler.run(SECOND)
    assert not moved(sink)


@pytest.mark.parametrize(("after_h", "pays"), [(3.9, True), (4.1, False)])
def test_what_is_gained_pays_for_what_is_lost(after_h: float, pays: bool) -> None:
    """After h hours the gang of two nodes gains 2 (10 - h) node-hours, and a quarter of a node loses h / 4. Twelve
    times that is 3 h: as much as is gained after 4 hours."""
    _state, sink, scheduler = scattered(job(1, 1), job(3, 1), compaction=12.0)
    now = int(after_h * HOUR)
    scheduler.feed(job(9, 4, gang=2, submit_ms=now))
    scheduler.run(now)
    assert bool(moved(sink)) is pays


def test_when_the_gang_would_have_started_is_told() -> None:
    """In ten hours, when the first of the two jobs ends; never, where neither has a limit."""
    for hours, expected in ((10.0, 10 * HOUR), (float(INF), INF)):
        _state, sink, scheduler = scattered(job(1, 1, hours=hours), job(3, 1, hours=hours))
        scheduler.feed(job(9, 4, gang=2))
        scheduler.run(SECOND)
        (move,) = [move for plan in sink.plans for move in plan.preemptions]
        assert move["at_ms"] == expected


@pytest.mark.parametrize(("qos", "mode"), [("saves", "checkpoint"), ("gone", "requeue"), ("", "requeue")])
def test_moved_work_waits_again_whatever_its_qos_says(qos: str, mode: str) -> None:
    _state, sink, scheduler = scattered(job(1, 1, qos=qos), job(3, 1, movable=False))
    scheduler.feed(job(9, 4, gang=2))
    scheduler.run(SECOND)
    assert moved(sink) == [(1, mode, 9)]


def test_a_gang_within_a_rack_gets_a_whole_rack() -> None:
    """Rack a has jobs 1 and 3, one node each; rack b is empty but for job 5: the gang needs two nodes of one rack."""
    state, sink, scheduler = scattered(job(1, 1), job(3, 1), job(5, 1), racks="aabb", levels=("rack",))
    scheduler.feed(job(9, 4, gang=2, within="rack"))
    scheduler.run(SECOND)
    assert moved(sink) == [(5, "requeue", 9)]
    leave(scheduler, 2 * SECOND, (5, 1))
    assert sorted(places(state)[9]) == ["n2", "n3"]


@pytest.mark.parametrize(("within", "moves"), [("rack", False), ("", True)])
def test_what_must_stay_in_one_rack_finds_one_or_stays(within: str, moves: bool) -> None:
    """Job 1 has rack a. Beside a gang of three whole nodes, one node of each rack would have room for it."""
    _state, sink, scheduler = engine(config(levels=("rack",)), *nodes(6, racks="aabbcc"))
    scheduler.feed(job(1, 3, gang=2, within=within))
    for number, cpu in ((2, 1), (3, 1), (4, 1), (5, 3), (6, 4), (7, 1)):
        scheduler.feed(job(number, cpu, movable=False))
    scheduler.run(0)
    scheduler.feed(ended(2, 3, 5, 6))
    scheduler.run(0)
    scheduler.feed(job(9, 4, gang=3))
    scheduler.run(SECOND)
    assert bool(moved(sink)) is moves


@pytest.mark.parametrize(("wait_s", "moves"), [(59, False), (61, True)])
def test_what_was_moved_is_protected_for_a_minute(wait_s: int, moves: bool) -> None:
    """Job 3 moves to job 1 for job 9, which ends; job 11 comes there, and the next gang could do with job 3's place."""
    state, sink, scheduler = scattered(job(1, 1, movable=False), job(3, 1))
    scheduler.feed(job(9, 4, gang=2))
    scheduler.run(SECOND)
    leave(scheduler, 2 * SECOND, (3, 1))
    assert places(state)[3] == places(state)[1] == ["n0"]
    scheduler.feed(ended(1, 9))
    scheduler.feed(
        job(11, 2, movable=False),
    )
    scheduler.run(2 * SECOND)
    sink.plans.clear()
    now = (2 + wait_s) * SECOND
    scheduler.feed(job(12, 2, gang=3, movable=False, submit_ms=now))
    scheduler.run(now)
    assert bool(moved(sink)) is moves


def search_slices(state: State, now: int, budget: int) -> tuple[list[Plan], list[Cursor]]:
    """One pass in slices of so much work: its plans, and where the search for work to move stopped in between."""
    plans: list[Plan] = []
    stops: list[Cursor] = []
    cursor: Cursor | None = None
    for _ in range(10_000):
        plan = cycle(state, now, budget=budget, cursor=cursor)
        plans.append(plan)
        if plan.changes:
            apply(state, PlanAssumed(plan))
        cursor = plan.cursor
        if cursor is None:
            return plans, stops
        if cursor.phase in MOVES and cursor.row:
            stops.append(cursor)
    raise AssertionError("no end of slices")


def test_room_is_looked_for_in_slices() -> None:
    """A gang of six takes six of seven nodes with a small job each; the last node has room for three beside its own, so
    one of them is empty to begin with. At one unit a slice, each of the victims after the first has a slice of its own,
    and what is found is what is found at once."""
    found = []
    for budget in (1, 1 << 40):
        state, _, scheduler = scattered(*(job(2 * at + 1, 1) for at in range(4)))
        gang = job(19, 4, gang=3, movable=False, submit_ms=60 * SECOND)
        for event in (gang, ClockAdvanced(60 * SECOND)):
            apply(state, event)
        plans, stops = search_slices(state, 60 * SECOND, budget)
        victims = [int(move["job"]) for plan in plans for move in plan.preemptions]
        claimed = [plan.rows[: int(claim["row_count"])].tolist() for plan in plans for claim in plan.claims]
        found.append((victims, claimed))
        beyond = [stop for stop in stops if stop.row > len(state.nodes.names)]
        assert len(beyond) == (len(victims) - 1 if budget == 1 else 0)
        assert scheduler is not None
    assert found[0] == found[1]
    assert len(found[0][0]) == 2
