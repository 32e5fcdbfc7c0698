"""What comes and goes leaves nothing behind: slots are used again, and counts go back to nothing."""

from __future__ import annotations

import numpy as np
import pytest

from hal.core.engine import State, apply, cycle, new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    INF,
    AttemptsEnded,
    ClockAdvanced,
    JobsCancelled,
    JobsHeld,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    PlanAssumed,
    submit_rows,
)
from hal.core.engine.views import running
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.jit import plain
from hal.core.kernels.work.pending import _check_rows

TOPS = {"entries": L.M_ENTRY_TOP, "runs": L.M_RUN_TOP, "pieces": L.M_PIECE_TOP, "buckets": L.M_BUCKET_TOP}
COUNTS = (L.M_ENTRIES, L.M_PENDING, L.M_RUNS, L.M_PIECES, L.M_ACTIVE, L.M_RESERVATIONS, L.M_UNLISTED)


def a_day(state: State, job: int, now: int) -> None:
    """Three jobs come, of two kinds and two accounts; some of it runs, some is held, all of it goes."""
    rows = submit_rows(3)
    rows["job"], rows["tasks"], rows["class_index"], rows["owner_index"] = [job, job + 1, job + 2], 4, [0, 1, 0], 0
    rows["submit_ms"] = rows["eligible_ms"] = now
    rows["walltime_ms"] = [50, 60, INF]
    rows["owner_index"] = [0, 1, 1]
    kinds = (ClassSpec({"cpu": 1}, 2), ClassSpec({"cpu": 2}))
    apply(state, ClockAdvanced(now))
    apply(state, JobsSubmitted(rows, kinds, (OwnerSpec(account="x"), OwnerSpec(account="y"))))
    plan = cycle(state, now)
    apply(state, PlanAssumed(plan))
    apply(state, JobsHeld(np.array([job + 1])))
    apply(state, JobsCancelled(np.array([job + 1]), np.array([3]), np.array([1])))
    runs = running(state)
    ends = np.zeros(len(runs), END)
    for name in ("job", "task", "attempt"):
        ends[name] = runs[name]
    ends["ended_ms"] = now + 10
    apply(state, AttemptsEnded(ends))
    check_invariants(state)
    apply(state, JobsCancelled(np.arange(job, job + 3)))


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.EASY_SJBF, Backfill.CONSERVATIVE])
def test_ten_days_take_no_more_slots_than_one(backfill: Backfill) -> None:
    """Of entries, attempts, their pieces and buckets."""
    state = new_state(EngineConfig(backfill=backfill))
    apply(state, NodesChanged(tuple(NodeSpec(f"n{k}", {"cpu": 4}) for k in range(2))))
    a_day(state, 1, 0)
    taken = {name: int(state.meta[place]) for name, place in TOPS.items()}
    for day in range(1, 10):
        a_day(state, 1 + 10 * day, 1_000 * day)
    cycle(state, 20_000)
    assert {name: int(state.meta[place]) for name, place in TOPS.items()} == taken
    # Reservations go with the next plan; whose job went names no entry.
    gone = state.work.reservations[: int(state.meta[L.M_RESERVATIONS]), L.V_ENTRY]
    assert (gone < 0).all()
    assert not state.meta[[place for place in COUNTS if place != L.M_RESERVATIONS]].any()
    assert not state.catalogue.classes[:, L.C_REFS].any()


@pytest.mark.parametrize(
    ("column", "value", "outcome"),
    [
        ("class_index", -1, L.BAD_CLASS),
        ("class_index", 2, L.BAD_CLASS),
        ("owner_index", -1, L.BAD_OWNER),
        ("owner_index", 3, L.BAD_OWNER),
        ("tasks", 0, L.BAD_TASKS),
        ("first_task", -1, L.BAD_TASKS),
        ("attempt", 0, L.BAD_TASKS),
        ("priority", L.PRIORITY_LIMIT, L.BAD_PRIORITY),
        ("priority", -L.PRIORITY_LIMIT - 1, L.BAD_PRIORITY),
        ("walltime_ms", -1, L.BAD_TIME),
        ("job", 9, L.BAD_ORDER),
        ("job", 7, L.BAD_LIVE),
        ("class_index", 1, L.OK),
        ("owner_index", 2, L.OK),
        ("priority", L.PRIORITY_LIMIT - 1, L.OK),
        ("priority", -L.PRIORITY_LIMIT, L.OK),
        ("walltime_ms", 0, L.OK),
        ("first_task", 5, L.OK),
    ],
)
def test_a_bad_row_is_told_by_what_is_wrong_with_it(column: str, value: int, outcome: int) -> None:
    """Row 1 of 2, among two classes and three owners; job 7 waits already."""
    state = new_state()
    apply(state, NodesChanged((NodeSpec("n", {"cpu": 1}),)))
    live = submit_rows(1)
    live["job"] = 7
    apply(state, JobsSubmitted(live, (ClassSpec({"cpu": 1}),)))
    rows = submit_rows(2)
    rows["job"], rows["tasks"] = ([6, 10] if column != "job" or value == 7 else [10, 9]), 2
    rows[column][1] = value
    assert plain(_check_rows)(state.tables(), rows, 2, 3) == outcome
    assert state.meta[L.M_FAULT] == 1


@pytest.mark.parametrize(
    ("first", "tasks", "outcome"),
    [(0, 3, L.OK), (2, 2, L.BAD_LIVE), (3, 1, L.BAD_LIVE), (5, 1, L.BAD_LIVE), (5, 9, L.BAD_LIVE), (6, 2, L.OK)],
)
def test_tasks_that_wait_are_live_and_those_beside_them_are_not(first: int, tasks: int, outcome: int) -> None:
    """Tasks 3 to 5 of a job wait."""
    state = new_state()
    apply(state, NodesChanged((NodeSpec("n", {"cpu": 1}),)))
    live = submit_rows(1)
    live["job"], live["first_task"], live["tasks"] = 7, 3, 3
    apply(state, JobsSubmitted(live, (ClassSpec({"cpu": 1}),)))
    rows = submit_rows(1)
    rows["job"], rows["first_task"], rows["tasks"] = 7, first, tasks
    assert plain(_check_rows)(state.tables(), rows, 1, 1) == outcome


def test_tasks_of_one_block_may_follow_each_other_and_not_overlap() -> None:
    state = new_state()
    rows = submit_rows(2)
    rows["job"], rows["first_task"], rows["tasks"] = 7, [0, 2], 2
    assert plain(_check_rows)(state.tables(), rows, 1, 1) == L.OK
    rows["first_task"] = [0, 1]
    assert plain(_check_rows)(state.tables(), rows, 1, 1) == L.BAD_ORDER
