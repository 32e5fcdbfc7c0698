"""Conservative backfill on many rows that it knows nothing of: it gets to know them slice by slice, then decides."""

from __future__ import annotations

import numpy as np
import pytest

from hal.core.engine import State, apply, cycle
from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.cycling import learn
from hal.core.engine.digest import state_digest as digest
from hal.core.engine.events import (
    ConfigChanged,
    Health,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    PlanAssumed,
    submit_rows,
)
from hal.core.engine.invariants import check_invariants
from hal.core.engine.plan import Plan
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import reservations, reserved_rows
from hal.core.kernels import layout as L
from hal.core.kernels.conservative import ATTEMPT_WORK, LINE_SHIFT, ROW_WORK

NODES = 80
A_ROW = ROW_WORK + 2 * ATTEMPT_WORK
A_LINE = NODES >> LINE_SHIFT
WHOLE = 1 << 40
KINDS = (ClassSpec({"cpu": 2}), ClassSpec({"cpu": 4}), ClassSpec({"cpu": 3}, 7))
MINUTE_MS = 60_000


def full(slice_work: int) -> State:
    """Two attempts on every node, all ending at different times; 30 jobs wait, a third gangs. Nothing is planned."""
    state = State(EngineConfig(backfill=Backfill.EASY))
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
        works.append(int(state.ticks[L.TICK_WORK]))
        assert len(works) < 1_000
    return works


def promises(state: State) -> tuple[list[tuple[object, ...]], list[int]]:
    """Who is promised what, and where."""
    return reservations(state).tolist(), reserved_rows(state).tolist()


@pytest.mark.parametrize("slice_work", [1, 60, 100])
def test_what_it_does_not_know_it_learns_in_slices_that_decide_nothing(slice_work: int) -> None:
    """No slice spends much more than it may; the state and what is decided then are as without them."""
    state, reference = full(slice_work), full(WHOLE)
    before = digest(state)
    works = learnt(state)
    assert digest(state) == before
    assert sum(works) >= NODES * A_ROW + len(KINDS) * A_LINE - slice_work
    assert all(work < slice_work + max(A_ROW, A_LINE) for work in works)
    whole_pass(state)
    whole_pass(reference)
    assert promises(state) == promises(reference)


def test_a_promise_that_cannot_be_kept_is_noticed_after_it_has_learnt() -> None:
    """All rows are new to it, for a job wants a resource that nobody had named, and the first promised node goes down:
    who was promised it gets another one, as in one slice."""
    told = []
    for slice_work in (60, WHOLE):
        state = full(slice_work)
        whole_pass(state)
        lost = int(reserved_rows(state)[0])
        rows = submit_rows(1)
        rows["job"] = 2_000
        apply(state, JobsSubmitted(rows, (ClassSpec({"cpu": 1, "gpu": 1}),)))
        apply(state, NodesChanged((NodeSpec(state.row_name(lost), {"cpu": 4}, health=Health.DOWN),)))
        assert bool(learnt(state, 2)) == (slice_work < WHOLE)
        whole_pass(state, 2)
        told.append(promises(state))
        assert lost not in told[-1][1]
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
