"""Top-K backfill lies between EASY and conservative; work that shares nothing with other work is not moved by it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine import apply, cycle, new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, Match, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    INF,
    AttemptsEnded,
    ClockAdvanced,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    PlanAssumed,
    submit_rows,
)
from tests.examples import examples

MANY = 1 << 20
LAST_MS = 4_000


class Work(NamedTuple):
    """A job: when it comes, what it asks for, its limit and how long it runs, its priority."""

    submit: int
    kind: ClassSpec
    limit: int
    run: int
    priority: int


def works(kinds: list[ClassSpec], priorities: list[int], most: int = 25) -> st.SearchStrategy[list[Work]]:
    """Jobs by rising submit time, gaps of 0 to 6."""
    rows = st.tuples(
        st.integers(0, 6), st.sampled_from(kinds), st.integers(1, 20), st.integers(1, 20), st.sampled_from(priorities)
    )
    return st.lists(rows, min_size=1, max_size=most).map(
        lambda rows: [
            Work(sum(gap for gap, *_ in rows[: k + 1]), kind, limit, min(run, limit), priority)
            for k, (_gap, kind, limit, run, priority) in enumerate(rows)
        ]
    )


def starts_of(jobs: dict[int, Work], nodes: tuple[NodeSpec, ...], **config: Any) -> dict[int, tuple[int, list[str]]]:
    """When and where each job starts, by its id."""
    state = new_state(EngineConfig(claim_after_ms=INF, **config))
    apply(state, NodesChanged(nodes))
    kinds: tuple[ClassSpec, ...] = ()
    for job in jobs.values():
        kinds += () if job.kind in kinds else (job.kind,)
    started: dict[int, tuple[int, list[str]]] = {}
    wake = 0
    for now in range(LAST_MS):
        gone = [k for k, (at, _) in started.items() if at + jobs[k].run == now]
        new = sorted(k for k, job in jobs.items() if job.submit == now)
        if not (gone or new or now >= wake):
            continue
        apply(state, ClockAdvanced(now))
        if gone:
            ends = np.zeros(len(gone), END)
            ends["job"], ends["attempt"] = gone, 1
            apply(state, AttemptsEnded(ends))
        if new:
            rows = submit_rows(len(new))
            rows["job"] = new
            rows["class_index"] = [kinds.index(jobs[k].kind) for k in new]
            rows["priority"] = [jobs[k].priority for k in new]
            rows["submit_ms"] = rows["eligible_ms"] = now
            rows["walltime_ms"] = [jobs[k].limit for k in new]
            apply(state, JobsSubmitted(rows, kinds))
        cursor = None
        while True:
            plan = cycle(state, now, cursor=cursor)
            for start in plan.starts:
                first = int(start["row_offset"])
                where = plan.rows[first : first + int(start["row_count"])].tolist()
                started[int(start["job"])] = now, sorted(state.node_name(row) for row in where)
            if plan.changes:
                apply(state, PlanAssumed(plan))
            check_invariants(state)
            cursor, wake = plan.cursor, plan.wake_ms
            if cursor is None:
                break
        if len(started) == len(jobs):
            return started
    raise AssertionError(f"jobs {set(jobs) - set(started)} have not started")


NODES = tuple(NodeSpec(f"n{k}", {"cpu": 4, "memory": 4 + 2 * (k % 2)}) for k in range(3))
ONE_NODE = [ClassSpec({"cpu": cpu}) for cpu in (1, 2, 3, 4)]
GANGS = [*ONE_NODE, ClassSpec({"cpu": 2}, 2), ClassSpec({"cpu": 1, "memory": 5}), ClassSpec({"cpu": 3}, 3)]


@given(jobs=works(ONE_NODE, [0, 0, 0, 4]))
@settings(max_examples=examples(80), deadline=None)
def test_one_reservation_on_the_pool_is_easy(jobs: list[Work]) -> None:
    """The same starts at the same times."""
    pool = (NodeSpec("pool", {"cpu": 6}),)
    named = dict(enumerate(jobs))
    assert starts_of(named, pool, backfill=Backfill.TOP_K, reservations=1) == starts_of(
        named, pool, backfill=Backfill.EASY
    )


@pytest.mark.parametrize("placement", ["first-fit", "best-fit"])
@given(jobs=works(ONE_NODE, [0, 0, 0, 4]))
@settings(max_examples=examples(60), deadline=None)
def test_one_reservation_for_jobs_of_one_node_is_easy(placement: str, jobs: list[Work]) -> None:
    """The same starts at the same times on the same nodes."""
    named = dict(enumerate(jobs))
    top = starts_of(named, NODES, backfill=Backfill.TOP_K, reservations=1, placement=placement)
    assert top == starts_of(named, NODES, backfill=Backfill.EASY, placement=placement)


@given(jobs=works(GANGS, [0, 0, 0, 4]), slice_work=st.sampled_from([1, 20, MANY]), parking=st.booleans())
@settings(max_examples=examples(40), deadline=None)
def test_with_reservations_for_all_it_is_conservative(jobs: list[Work], slice_work: int, parking: bool) -> None:
    """Whatever the slices, with or without parking."""
    named = dict(enumerate(jobs))
    config: dict[str, Any] = {"slice_work": slice_work, "parking": parking}
    assert starts_of(named, NODES, backfill=Backfill.TOP_K, reservations=MANY, **config) == starts_of(
        named, NODES, backfill=Backfill.CONSERVATIVE
    )


@given(
    jobs=works(GANGS, [0, 0, 0, 4]),
    reservations=st.integers(1, 4),
    slice_work=st.sampled_from([1, 20, MANY]),
)
@settings(max_examples=examples(60), deadline=None)
def test_slices_and_parking_change_no_start(jobs: list[Work], reservations: int, slice_work: int) -> None:
    """A pass cut into slices of any size, and one that looks at everything, start the same jobs."""
    named = dict(enumerate(jobs))
    config: dict[str, Any] = {"backfill": Backfill.TOP_K, "reservations": reservations}
    whole = starts_of(named, NODES, **config)
    assert starts_of(named, NODES, slice_work=slice_work, **config) == whole
    assert starts_of(named, NODES, parking=False, **config) == whole


RACKS = tuple(NodeSpec(f"{rack}{k}", {"cpu": 4}, {"rack": rack}) for rack in "ab" for k in range(2))


def on(rack: str) -> list[ClassSpec]:
    """What jobs of one rack ask for."""
    there = (Requirement("rack", Match.IN, (rack,)),)
    return [ClassSpec({"cpu": cpu}, gang, there) for cpu, gang in ((1, 1), (2, 1), (4, 1), (3, 2), (1, 2))]


@pytest.mark.parametrize("backfill", list(Backfill))
@given(
    mine=works(on("a"), [0, 0, 0, 4], most=12),
    others=works(on("b"), [0, 0, 3, 9], most=40),
    reservations=st.integers(1, 4),
)
@settings(max_examples=examples(40), deadline=None)
def test_work_that_shares_no_node_changes_no_start(
    backfill: Backfill, mine: list[Work], others: list[Work], reservations: int
) -> None:
    """Any number of jobs of one rack, before, between and after those of the other: all of these start as without."""
    named = {2 * k + 1: job for k, job in enumerate(mine)}
    config: dict[str, Any] = {"backfill": backfill, "reservations": reservations, "max_reservations": 8 * reservations}
    alone = starts_of(named, RACKS, **config)
    together = starts_of({**named, **{2 * k: job for k, job in enumerate(others)}}, RACKS, **config)
    assert {k: together[k] for k in named} == alone
