"""What the engine's tables mean, by value: tasks one by one, buckets as lists, amounts by name.

The only place of the reference tests that knows the tables; whoever changes a table changes its reading here.
"""

from __future__ import annotations

from typing import Any

from hal.core.engine import State
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.views import pending, reservations, reserved_rows, rows_of_run, running
from hal.core.kernels.structures import layout as L
from tests.core.kernels.reference_state import ASIDE, IN_LINE, ON_TIMER, Amounts, Line, Promise, Task

WHERE = {L.WHERE_BUCKET: IN_LINE, L.WHERE_TIMER: ON_TIMER, L.WHERE_ASIDE: ASIDE}


def kind_of(state: State, class_id: int) -> ClassSpec:
    """The class of an id."""
    spec = state.catalogue.class_specs[class_id]
    assert spec is not None, f"class {class_id} was forgotten and is in use"
    return spec


def waiting(state: State) -> dict[Task, tuple[Any, ...]]:
    """Each waiting task: attempt, shape, gang size, owner, numbers, where it is."""
    found: dict[Task, tuple[Any, ...]] = {}
    for entry in pending(state):
        kind = kind_of(state, int(entry["class_id"]))
        for task in range(int(entry["first_task"]), int(entry["first_task"] + entry["tasks"])):
            found[int(entry["job"]), task] = (
                int(entry["attempt"]),
                kind.shape_key(),
                kind.nodes,
                state.shares.owner_specs[entry["owner_id"]],
                int(entry["priority"]),
                int(entry["submit_ms"]),
                int(entry["eligible_ms"]),
                bool(entry["held"]),
                int(entry["walltime_ms"]),
                int(entry["planned_ms"]),
                WHERE[int(entry["where"])],
            )
    return found


def running_tasks(state: State) -> dict[Task, tuple[Any, ...]]:
    """Each running attempt: attempt, shape, gang size, owner, numbers, its rows in rank order."""
    found: dict[Task, tuple[Any, ...]] = {}
    for run in running(state):
        kind = kind_of(state, int(run["class_id"]))
        found[int(run["job"]), int(run["task"])] = (
            int(run["attempt"]),
            kind.shape_key(),
            kind.nodes,
            state.shares.owner_specs[run["owner_id"]],
            int(run["priority"]),
            int(run["submit_ms"]),
            int(run["walltime_ms"]),
            int(run["planned_ms"]),
            int(run["start_ms"]),
            int(run["end_ms"]),
            rows_of_run(state, int(run["run"])),
        )
    return found


def free(state: State, row: int) -> Amounts:
    """What a row has left, without zeros."""
    amounts = {name: int(state.nodes.free[row, r]) for r, name in enumerate(state.nodes.resources)}
    return {name: amount for name, amount in amounts.items() if amount}


def fits(state: State) -> dict[Any, tuple[ClassSpec, tuple[int, int]]]:
    """For each shape: an example of it, on how many rows it fits now, on how many it ever could."""
    found: dict[Any, tuple[ClassSpec, tuple[int, int]]] = {}
    for key, shape in state.catalogue.shape_ids.items():
        example = state.catalogue.shape_specs[shape]
        assert example is not None
        found[key] = (
            example,
            (int(state.catalogue.shapes[shape, L.S_FIT]), int(state.catalogue.shapes[shape, L.S_EVER])),
        )
    return found


def in_order(tree: Any, root: int) -> list[int]:
    """Slots of a tree from first to last."""
    if root < 0:
        return []
    return [*in_order(tree, int(tree[root, L.T_LEFT])), root, *in_order(tree, int(tree[root, L.T_RIGHT]))]


def tasks_of(state: State, slot: int) -> range:
    """The tasks of a waiting entry."""
    first = int(state.work.entries[slot, L.E_FIRST])
    return range(first, first + int(state.work.entries[slot, L.E_TASKS]))


def lines(state: State, *, shortest_first: bool = False) -> dict[Line, list[Task]]:
    """Each bucket's tasks in the order in which a cycle looks at them."""
    found: dict[Line, list[Task]] = {}
    for bucket in state.work.active[: int(state.meta[L.M_ACTIVE])].tolist():
        kind = kind_of(state, int(state.work.buckets[bucket, L.B_CLASS]))
        owner: OwnerSpec = state.shares.owner_specs[state.work.buckets[bucket, L.B_OWNER]]
        tree, root = (state.work.by_time, L.B_TIME_ROOT) if shortest_first else (state.work.rank, L.B_ROOT)
        found[kind.shape_key(), kind.nodes, owner] = [
            (int(state.work.entries[slot, L.E_JOB]), task)
            for slot in in_order(tree, int(state.work.buckets[bucket, root]))
            for task in range(
                int(state.work.entries[slot, L.E_FIRST]),
                int(state.work.entries[slot, L.E_FIRST] + state.work.entries[slot, L.E_TASKS]),
            )
        ]
    return found


def timers(state: State) -> list[tuple[int, int, int]]:
    """What enters its bucket by itself, in order: instant, job, task."""
    return [
        (int(state.work.rank[slot, L.T_KEY]), int(state.work.entries[slot, L.E_JOB]), task)
        for slot in in_order(state.work.rank, int(state.meta[L.M_TIMER_ROOT]))
        for task in tasks_of(state, slot)
    ]


def releases(state: State) -> list[tuple[int, int, int]]:
    """Planned ends in order: instant, job, task."""
    listed = [
        (int(state.work.ends[slot, L.T_KEY]), int(state.work.runs[slot, L.R_JOB]), int(state.work.runs[slot, L.R_TASK]))
        for slot in in_order(state.work.ends, int(state.meta[L.M_END_ROOT]))
    ]
    assert listed == sorted(listed)
    waiting = state.work.runs[state.work.unlisted[1, : int(state.meta[L.M_UNLISTED])]]
    return sorted(listed + [tuple(map(int, run)) for run in waiting[:, [L.R_END, L.R_JOB, L.R_TASK]]])


def promises(state: State) -> dict[Task, Promise]:
    """What waiting tasks are promised; promises of work that went away or changed are left out."""
    rows = reserved_rows(state)
    found: dict[Task, Promise] = {}
    for promise in reservations(state):
        if promise["entry"] >= 0:
            first = int(promise["row_offset"])
            found[int(promise["job"]), int(promise["task"])] = Promise(
                int(promise["start_ms"]), int(promise["kind"]), rows[first : first + int(promise["row_count"])].tolist()
            )
    return found
