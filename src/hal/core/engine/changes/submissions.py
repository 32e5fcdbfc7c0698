"""Events that bring work into the engine: submitted jobs, and allocations whose tasks run already.

Pure. One kernel call an event.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hal.core.engine.changes.kernel_calls import REFUSALS, as_block, as_column, attempt_name, call_kernel, settle_call
from hal.core.engine.errors import EngineError
from hal.core.engine.events import ADOPT, SUBMIT, AllocationsAdopted, JobsSubmitted
from hal.core.engine.plugins.answers import keys_of
from hal.core.engine.rules.interning import intern_classes, intern_owners
from hal.core.engine.state import NO_KEYS, State
from hal.core.engine.views import Cluster, job_view
from hal.core.interfaces.order import Order
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.layout import OK


def submit_jobs(state: State, event: JobsSubmitted) -> None:
    rows = as_block(event.rows, SUBMIT, "JobsSubmitted")
    classes = event.classes
    owners = event.owners
    class_ids = state.catalogue.seen_ids if classes is state.catalogue.seen else intern_classes(state, classes)
    owner_ids = state.shares.seen_ids if owners is state.shares.seen else intern_owners(state, owners)
    keys = NO_KEYS
    if state.plugins.order is not None:
        _check_indices(rows, class_ids, owner_ids)
        keys = _plugin_keys(state.plugins.order, state, rows, class_ids, owner_ids)
    # Jobs ascend in a block and over the engine's life, so only a block that begins with an older one can be at fault.
    if rows.shape[0] and rows["job"][0] <= state.work.newest_job:
        _check_not_running(state, rows)
    outcome = state.calls["submit"](state.at, rows, class_ids, owner_ids, keys)
    if outcome != OK:
        count = rows.shape[0]
        settle_call(state, outcome, "JobsSubmitted", rows, count, "submit", rows, class_ids, owner_ids, keys)
    if rows.shape[0]:
        state.work.newest_job = max(state.work.newest_job, int(rows["job"][-1]))


def adopt_allocations(state: State, event: AllocationsAdopted) -> None:
    rows = as_block(event.rows, ADOPT, "AllocationsAdopted")
    unknown = sorted({name for name in event.nodes if name not in state.nodes.by_name})
    if unknown:
        raise EngineError(f"AllocationsAdopted: unknown nodes {', '.join(unknown)}: apply NodesChanged for them first")
    row_of = np.array([state.nodes.by_name[name] for name in event.nodes] or [0], np.int64)
    index = as_column(event.node_index)
    if index.shape[0] and (index.min() < 0 or index.max() >= len(event.nodes)):
        raise EngineError("AllocationsAdopted: node_index holds an index outside nodes; the event was not applied")
    reach = (rows["row_offset"] + rows["row_count"]).max(initial=0)
    if reach > index.shape[0] or (rows["row_offset"] < 0).any() or (rows["row_count"] < 1).any():
        raise EngineError("AllocationsAdopted: row_offset and row_count reach outside node_index; nothing was applied")
    for name, count in (("class_index", len(event.classes)), ("owner_index", len(event.owners))):
        if rows.shape[0] and (rows[name].min() < 0 or rows[name].max() >= count):
            raise EngineError(f"AllocationsAdopted: {name} is out of range; the event was not applied")
    _check_adopted(rows, index)
    class_ids = intern_classes(state, event.classes)
    owner_ids = intern_owners(state, event.owners)
    keys = NO_KEYS
    if state.plugins.order is not None:
        keys = _plugin_keys(state.plugins.order, state, rows, class_ids, owner_ids)
    count = max(rows.shape[0], index.shape[0])
    call_kernel(state, "AllocationsAdopted", rows, count, "adopt", rows, row_of[index], class_ids, owner_ids, keys)
    state.work.newest_job = max(state.work.newest_job, int(rows["job"].max(initial=-1)))


def _check_not_running(state: State, rows: Any) -> None:
    """Raise EngineError when a submitted task runs already. The kernel looks only at what waits."""
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    runs = runs[(runs[:, L.R_NODES] > 0) & np.isin(runs[:, L.R_JOB], rows["job"])]
    if not runs.shape[0]:
        return
    for row in rows[np.isin(rows["job"], runs[:, L.R_JOB])]:
        since = runs[runs[:, L.R_JOB] == row["job"], L.R_TASK] - row["first_task"]
        if ((since >= 0) & (since < row["tasks"])).any():
            raise EngineError(
                f"JobsSubmitted: job {int(row['job'])}: {REFUSALS[L.BAD_LIVE]}; the event was not applied"
            )


def _check_indices(rows: Any, class_ids: Any, owner_ids: Any) -> None:
    for name, ids, outcome in (("class_index", class_ids, L.BAD_CLASS), ("owner_index", owner_ids, L.BAD_OWNER)):
        if rows.shape[0] and (rows[name].min() < 0 or rows[name].max() >= ids.shape[0]):
            raise EngineError(f"JobsSubmitted: {REFUSALS[outcome]}; the event was not applied")


def _plugin_keys(order: Order, state: State, rows: Any, class_ids: Any, owner_ids: Any) -> Any:
    view = job_view(state, rows, class_ids, owner_ids, order.info.reads_advice)
    return keys_of(order, view, Cluster(state))


def _check_adopted(rows: Any, index: Any) -> None:
    """What the kernel takes for granted of each row, and of the block: each task once, each of its nodes once."""
    for bad, why in (
        ((rows["job"] < 0) | (rows["task"] < 0) | (rows["attempt"] < 1), "job and task count from 0, attempts from 1"),
        ((rows["priority"] >= L.PRIORITY_LIMIT) | (rows["priority"] < -L.PRIORITY_LIMIT), REFUSALS[L.BAD_PRIORITY]),
        (rows["walltime_ms"] < 0, REFUSALS[L.BAD_TIME]),
        (~np.isin(rows["state"], (L.RUN_ON, L.RUN_GOING, L.RUN_SUSPENDED)), "it runs, is going or is suspended"),
    ):
        if bad.any():
            row = rows[int(bad.argmax())]
            raise EngineError(f"AllocationsAdopted: {attempt_name(row)}: {why}; the event was not applied")
    seen: set[tuple[int, int]] = set()
    for row in rows:
        first = int(row["row_offset"])
        nodes = index[first : first + int(row["row_count"])].tolist()
        task = (int(row["job"]), int(row["task"]))
        if task in seen or len(set(nodes)) < len(nodes):
            what = "is named twice" if task in seen else "names a node twice"
            raise EngineError(f"AllocationsAdopted: {attempt_name(row)} {what}; the event was not applied")
        seen.add(task)
