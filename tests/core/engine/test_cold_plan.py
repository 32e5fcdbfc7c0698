"""Conservative backfill on many rows that it knows nothing of: it gets to know them slice by slice, then decides."""

from __future__ import annotations

import numpy as np
import pytest

from hal.core.engine import State, apply, cycle, new_state
from hal.core.engine.checks.digest import state_digest as digest
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.cycling import learn
from hal.core.engine.events import (
    ADOPT,
    AllocationsAdopted,
    ConfigChanged,
    Health,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    PlanAssumed,
    submit_rows,
)
from hal.core.engine.plan import Plan
from hal.core.engine.scheduler import MOST_LEARNT, Scheduler
from hal.core.engine.views import reservations, reserved_rows
from hal.core.kernels.passes.cold_timelines import ATTEMPT_WORK, LINE_SHIFT, NODE_WORK
from hal.core.kernels.structures import layout as L

NODES = 80
A_FIRST = NODE_WORK + 2 * ATTEMPT_WORK
A_LINE = NODES >> LINE_SHIFT
WHOLE = 1 << 40
KINDS = (ClassSpec({"cpu": 2}), ClassSpec({"cpu": 4}), ClassSpec({"cpu": 3}, 7))
MINUTE_MS = 60_000


def full(slice_work: int) -> State:
    """Two attempts on every node, all ending at different times; 30 jobs wait, a third gangs. Nothing is planned."""
    state = new_state(EngineConfig(backfill=Backfill.EASY))
    apply(state, NodesChanged(tuple(NodeSpec(f"n{k}", {"cpu": 4}) for k in range(NODES))))
    rows = submit_rows(2 * NODES)
    rows["job"] = np.arange(1, 2 * NODES + 1)
    rows["walltime_ms"] = MINUTE_MS * (5 + (37 * rows["job"]) % 211)
    apply(state, JobsSubmitted(rows, (ClassSpec({"cpu": 2}),)))
    while state.pending_tasks:
        apply(state, PlanAssumed(cycle(state, 0)))
    rows = submit_rows(30)
    rows["job"] = np.arange(1_000, 1_030)
    rows["class_index"] = rows["job"] % 3
    rows["walltime_ms"] = MINUTE_MS * (1 + (13 * rows["job"]) % 97)
    apply(state, JobsSubmitted(rows, KINDS))
    apply(state, ConfigChanged(EngineConfig(backfill=Backfill.CONSERVATIVE, slice_work=slice_work)))
    return state


def whole_pass(state: State, now_ms: int = 1) -> int:
    """All slices, each assumed; how many they were."""
    plan = cycle(state, now_ms)
    slices = 1
    while plan.cursor is not None:
        if plan.changes:
            apply(state, PlanAssumed(plan))
        plan = cycle(state, now_ms, cursor=plan.cursor)
        slices += 1
    if plan.changes:
        apply(state, PlanAssumed(plan))
    check_invariants(state)
    return slices


def learnt(state: State, now_ms: int = 1) -> list[int]:
    """The work of each slice that only learns, until none is left that is worth a slice."""
    works = []
    while learn(state, now_ms):
        works.append(int(state.pass_record[L.PASS_WORK]))
        assert len(works) < 1_000
    return works


def promises(state: State) -> tuple[list[tuple[object, ...]], list[int]]:
    """Who is promised what, and where; not whether it has yet to look at what others left (V_BEHIND, the last one)."""
    return [promise[:-1] for promise in reservations(state).tolist()], reserved_rows(state).tolist()


@pytest.mark.parametrize("slice_work", [1, 60, 100])
def test_what_it_does_not_know_it_learns_in_slices_that_decide_nothing(slice_work: int) -> None:
    """No slice spends much more than it may; the state and what is decided then are as without them."""
    state, reference = full(slice_work), full(WHOLE)
    before = digest(state)
    works = learnt(state)
    assert digest(state) == before
    assert sum(works) >= NODES * A_FIRST + len(KINDS) * A_LINE - slice_work
    assert all(work < slice_work + max(A_FIRST, A_LINE) for work in works)
    whole_pass(state)
    whole_pass(reference)
    assert promises(state) == promises(reference)


def begun_again(slice_work: int, at_once: int) -> State:
    """As a controller begins: nodes first, then so many attempts on each, then what waits."""
    state = new_state(EngineConfig(backfill=Backfill.CONSERVATIVE, slice_work=slice_work))
    names = tuple(f"n{k}" for k in range(NODES))
    apply(state, NodesChanged(tuple(NodeSpec(name, {"cpu": at_once}) for name in names)))
    rows = np.zeros(at_once * NODES, ADOPT)
    rows["job"] = np.arange(1, len(rows) + 1)
    rows["attempt"] = 1
    rows["walltime_ms"] = rows["planned_ms"] = MINUTE_MS * (5 + (37 * rows["job"]) % 211)
    rows["row_offset"] = np.arange(len(rows))
    rows["row_count"] = 1
    node_index = np.arange(len(rows)) % NODES
    apply(state, AllocationsAdopted(rows, node_index, names, (ClassSpec({"cpu": 1}),)))
    waiting = submit_rows(30)
    waiting["job"] = np.arange(10_000, 10_030)
    waiting["walltime_ms"] = MINUTE_MS * (1 + (13 * waiting["job"]) % 97)
    apply(state, JobsSubmitted(waiting, (ClassSpec({"cpu": 2}),)))
    return state


@pytest.mark.parametrize("at_once", [2, 10, 40])
def test_a_controller_that_begins_again_learns_however_much_runs(at_once: int) -> None:
    """Room for what is kept is made when more runs than was known of when the nodes came."""
    state, reference = begun_again(100, at_once), begun_again(WHOLE, at_once)
    assert sum(learnt(state)) >= NODES * (NODE_WORK + at_once * ATTEMPT_WORK)
    assert state.counts[L.COUNT_STALE] == 0
    whole_pass(state)
    whole_pass(reference)
    assert promises(state) == promises(reference)


@pytest.mark.parametrize("lost", ["first", "middle", "last"])
@pytest.mark.parametrize("slice_work", [20, 60])
def test_a_promise_that_cannot_be_kept_is_noticed_after_it_has_learnt(slice_work: int, lost: str) -> None:
    """All rows are new to it, for a job wants a resource that nobody had named, and a promised node goes down: all
    others are learnt, and who was promised it gets another one, as in one slice."""
    told = []
    for work in (slice_work, WHOLE):
        state = full(work)
        whole_pass(state)
        promised = np.unique(reserved_rows(state))
        row = int(promised[{"first": 0, "middle": len(promised) // 2, "last": -1}[lost]])
        rows = submit_rows(1)
        rows["job"] = 2_000
        apply(state, JobsSubmitted(rows, (ClassSpec({"cpu": 1, "gpu": 1}),)))
        apply(state, NodesChanged((NodeSpec(state.node_name(row), {"cpu": 4}, health=Health.DOWN),)))
        if work < WHOLE:
            assert sum(learnt(state, 2)) >= (NODES - 1) * A_FIRST
            assert state.counts[L.COUNT_STALE] == 1
            assert state.counts[L.COUNT_LINES] == len(KINDS)
        whole_pass(state, 2)
        told.append(promises(state))
        assert row not in told[-1][1]
    assert told[0] == told[1]


class Plans:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []

    def accept(self, plan: Plan) -> None:
        self.plans.append(plan)


def test_the_loop_learns_first_and_decides_the_same() -> None:
    """Steps that only learn ask to be called again at once; then the same promises are made."""
    state, reference = full(60), full(WHOLE)
    scheduler = Scheduler(state, Plans())
    first = scheduler.step(1)
    assert (first.more, first.wake_ms, first.starts, int(state.meta[L.M_RESERVATIONS])) == (True, 1, 0, 0)
    assert not scheduler.run(1).more
    whole_pass(reference)
    assert promises(state) == promises(reference)


def test_learning_gives_way_to_deciding_in_the_end() -> None:
    """However little a slice may learn, and however much there is, at most so many in a row only learn."""
    state = full(1)
    apply(state, NodesChanged(tuple(NodeSpec(f"m{k}", {"cpu": 1}) for k in range(MOST_LEARNT))))
    scheduler = Scheduler(state, Plans())
    steps = 0
    while not state.meta[L.M_RESERVATIONS]:
        scheduler.step(1)
        steps += 1
        assert steps <= MOST_LEARNT + 1
    assert steps == MOST_LEARNT + 1


def test_who_counts_slices_may_do_without_learning() -> None:
    """The first step decides then."""
    state = full(60)
    Scheduler(state, Plans(), learns=False).step(1)
    assert state.meta[L.M_RESERVATIONS] > 0
