"""`apply(state, event)`: the only thing that changes the state. An event that cannot be applied changes nothing.

Pure. One kernel call an event; cost is O(log n) a row of the block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from hal.core.engine.errors import EngineError
from hal.core.engine.events import (
    ADOPT,
    CORRECTION,
    END,
    SUBMIT,
    UPDATE,
    AllocationsAdopted,
    AttemptsEnded,
    BookingsChanged,
    ClockAdvanced,
    ConfigChanged,
    EstimatesCorrected,
    Event,
    Health,
    JobsCancelled,
    JobsEligible,
    JobsHeld,
    JobsReleased,
    JobsSubmitted,
    JobsUpdated,
    NodesChanged,
    NodeSpec,
    PlanAssumed,
    RuntimesPredicted,
    SharesLoaded,
    StartsRefused,
)
from hal.core.engine.plan import MOVE, START, Plan
from hal.core.engine.plugins.answers import keys_of
from hal.core.engine.rules.admission import admit_nodes, use_filters
from hal.core.engine.rules.booked_nodes import runs_into, set_bookings, settle_bookings
from hal.core.engine.rules.configuration import policies_of, use_config
from hal.core.engine.rules.interning import intern_classes, intern_owners
from hal.core.engine.rules.policy_tables import load_hours, load_use, renew
from hal.core.engine.rules.predictions import edits, slots_of
from hal.core.engine.state import NO_KEYS, State
from hal.core.engine.tables.bookings import check_bookings
from hal.core.engine.tables.qos import check_qos
from hal.core.engine.tables.work import NO_JOBS, Predictions
from hal.core.engine.views import Cluster, job_view, job_view_of_entries, job_view_of_runs
from hal.core.interfaces.order import Order
from hal.core.interfaces.policy import JobView
from hal.core.kernels.rules.shares import renew_offsets
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.layout import M_VERSION, OK
from hal.core.kernels.work.pending import (
    CHANGE_CANCEL,
    CHANGE_ELIGIBLE,
    CHANGE_HOLD,
    CHANGE_REKEY,
    CHANGE_RELEASE,
    CHANGE_UPDATE,
    rebuild,
)
from hal.core.kernels.work.running import retime

_REFUSALS: Final = {
    L.BAD_CLASS: "class_index is not an index into the event's classes",
    L.BAD_OWNER: "owner_index is not an index into the event's owners",
    L.BAD_TASKS: "tasks and attempt must be at least 1 and first_task at least 0",
    L.BAD_PRIORITY: f"priority must lie in -{L.PRIORITY_LIMIT}..{L.PRIORITY_LIMIT - 1}",
    L.BAD_ORDER: "rows must be sorted by job id, then first_task, without overlap",
    L.BAD_LIVE: "the task waits or runs already; a job id is used once",
    L.BAD_UNKNOWN: "no such attempt is running (it ended before, was refused, or never was assumed)",
    L.BAD_TIME: "walltime_ms must be at least 0",
    L.BAD_NODES: "an attempt must name as many nodes as its class has",
}


def apply(state: State, event: Event) -> None:
    """Change the state by one event.

    Raises EngineError, and changes nothing, when the event contradicts the state; EngineFault when the state
    contradicts itself.
    """
    _APPLY[type(event)](state, event)
    if state.path[L.FAULT]:
        state.check_bounds()


def _call(state: State, event: str, rows: Any, count: int, kernel: str, *arguments: Any) -> None:
    """Call a kernel of an event (see `_settle`)."""
    _settle(state, state.calls[kernel](state.at, *arguments), event, rows, count, kernel, *arguments)


def _settle(state: State, outcome: int, event: str, rows: Any, count: int, kernel: str, *arguments: Any) -> None:
    """Where a kernel asked for larger tables, make them, with room for `count` more records, and call it again.

    Raises EngineError when it refuses one of the event's `rows`: nothing was changed.
    """
    while outcome != OK:
        if outcome > L.GROW_BUCKETS:
            raise _refused(state, event, rows, outcome)
        state.grow(outcome, count)
        outcome = state.calls[kernel](state.at, *arguments)


def _refused(state: State, event: str, rows: Any, outcome: int) -> EngineError:
    row = rows[int(state.meta[L.M_FAULT])]
    named = f"job {int(row['job'])}"
    if rows.dtype.names and "task" in rows.dtype.names:
        named += f" task {int(row['task'])} attempt {int(row['attempt'])}"
    return EngineError(f"{event}: {named}: {_REFUSALS[outcome]}; the event was not applied")


def _block(rows: Any, dtype: np.dtype[Any], event: str) -> Any:
    """The rows as a contiguous block of the dtype that the kernels were compiled for."""
    if rows.dtype is dtype and rows.shape == (1,):
        return rows
    if rows.dtype != dtype or rows.ndim != 1:
        raise EngineError(f"{event}: rows have dtype {rows.dtype}, not hal.core.engine.events.{event}'s block dtype")
    return rows if rows.flags.c_contiguous else np.ascontiguousarray(rows)


def _column(values: Any) -> Any:
    return np.ascontiguousarray(values, np.int64)


def _jobs_submitted(state: State, event: JobsSubmitted) -> None:
    rows = _block(event.rows, SUBMIT, "JobsSubmitted")
    classes = event.classes
    owners = event.owners
    class_ids = state.catalogue.seen_ids if classes is state.catalogue.seen else intern_classes(state, classes)
    owner_ids = state.shares.seen_ids if owners is state.shares.seen else intern_owners(state, owners)
    keys = NO_KEYS if state.plugins.order is None else _plugin_keys(state, rows, class_ids, owner_ids)
    # Jobs ascend in a block and over the engine's life, so only a block that begins with an older one can be at fault.
    if rows.shape[0] and rows["job"][0] <= state.work.newest_job:
        _check_not_running(state, rows)
    outcome = state.calls["submit"](state.at, rows, class_ids, owner_ids, keys)
    if outcome != OK:
        count = rows.shape[0]
        _settle(state, outcome, "JobsSubmitted", rows, count, "submit", rows, class_ids, owner_ids, keys)
    if rows.shape[0]:
        state.work.newest_job = max(state.work.newest_job, int(rows["job"][-1]))


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
                f"JobsSubmitted: job {int(row['job'])}: {_REFUSALS[L.BAD_LIVE]}; the event was not applied"
            )


def _plugin_keys(state: State, rows: Any, class_ids: Any, owner_ids: Any) -> Any:
    assert state.plugins.order is not None
    for name, ids, outcome in (("class_index", class_ids, L.BAD_CLASS), ("owner_index", owner_ids, L.BAD_OWNER)):
        if rows.shape[0] and (rows[name].min() < 0 or rows[name].max() >= ids.shape[0]):
            raise EngineError(f"JobsSubmitted: {_REFUSALS[outcome]}; the event was not applied")
    return keys_of(state.plugins.order, job_view(state, rows, class_ids, owner_ids), Cluster(state))


def _check_attempt_numbers(rows: Any, event: str) -> None:
    """Kernels mark the attempts that a block has named by a negative number; no caller may name one so."""
    if rows.shape[0] > 1 and int(rows["attempt"].min()) < 1:
        row = rows[int(rows["attempt"].argmin())]
        raise EngineError(f"{event}: {_attempt_name(row)}: attempts count from 1; the event was not applied")


def _attempts_ended(state: State, event: AttemptsEnded) -> None:
    rows = _block(event.rows, END, "AttemptsEnded")
    _check_attempt_numbers(rows, "AttemptsEnded")
    outcome = state.calls["end"](state.at, rows)
    if outcome != OK:
        _settle(state, outcome, "AttemptsEnded", rows, rows.shape[0], "end", rows)


def _plan_assumed(state: State, event: PlanAssumed) -> None:
    plan = event.plan
    if plan.plan_version != state.meta[M_VERSION]:
        raise EngineError(
            f"PlanAssumed: the plan was made from state version {plan.plan_version}, the state is at "
            f"{state.version}: assume a plan before applying anything else, or plan again"
        )
    starts = plan.starts
    complete = 0 if plan.cursor is not None else 2 if plan.full else 1
    if len(plan.moves):
        _moves_assumed(state, plan)
        return
    if not plan.replans and not len(starts):
        if complete:
            state.calls["note"](state.at, plan.now_ms, plan.pass_wake, plan.pass_inserts, complete)
        elif not plan.resumed:
            state.meta[L.M_PASS_STARTS] = 0
        return
    if plan.replans:
        promises = plan.promises
        promised = plan.promised
        if len(promises) > len(state.work.reservations) or len(promised) > len(state.work.reserved):
            state.grow_reservations(len(promises), len(promised))
    else:
        promises = promised = _NO_TABLE
    arguments = (
        starts, plan.rows, plan.now_ms, plan.replans, promises, promised, complete, plan.resumed, plan.pass_wake,
        plan.pass_inserts,
    )  # fmt: skip
    outcome = state.calls["assume"](state.at, *arguments)
    if outcome != OK:
        count = max(starts.shape[0], plan.rows.shape[0])
        _settle(state, outcome, "PlanAssumed", starts, count, "assume", *arguments)
    if plan.full and plan.cursor is not None and plan.cursor.begins_anew:
        # It had given promises up and not yet made them again: the pass that begins anew has to look at everybody.
        state.meta[L.M_PARKED_WAKE] = -1
    if state.conservative and plan.cursor is not None and plan.cursor.begins_anew:
        state.meta[L.M_DIRTY], state.meta[L.M_PARKED_WAKE] = 1, -1


def _moves_assumed(state: State, plan: Plan) -> None:
    moves = plan.moves
    count = max(moves.shape[0], plan.rows.shape[0])
    _call(state, "PlanAssumed", moves.view(MOVE).reshape(-1), count, "apply_moves", moves, plan.rows, plan.now_ms)


def cancel_claims(state: State, jobs: Any, *, everyone: bool = False) -> None:
    """Give up the claims of these jobs (part of `apply`): their tasks wait again, as what is about to change."""
    claims = int(state.meta[L.M_CLAIMS])
    if claims:
        _call(state, "", jobs, claims, "cancel", _column(jobs), everyone)


_NO_TABLE: Final = np.zeros((0, 2), np.int64)


def _starts_refused(state: State, event: StartsRefused) -> None:
    starts = _block(event.starts, START, "StartsRefused")
    _check_attempt_numbers(starts, "StartsRefused")
    _call(state, "StartsRefused", starts, starts.shape[0], "refuse", starts, int(event.new_attempt))


def _allocations_adopted(state: State, event: AllocationsAdopted) -> None:
    rows = _block(event.rows, ADOPT, "AllocationsAdopted")
    unknown = sorted({name for name in event.nodes if name not in state.nodes.by_name})
    if unknown:
        raise EngineError(f"AllocationsAdopted: unknown nodes {', '.join(unknown)}: apply NodesChanged for them first")
    row_of = np.array([state.nodes.by_name[name] for name in event.nodes] or [0], np.int64)
    index = _column(event.node_index)
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
        keys = keys_of(state.plugins.order, job_view(state, rows, class_ids, owner_ids), Cluster(state))
    count = max(rows.shape[0], index.shape[0])
    _call(state, "AllocationsAdopted", rows, count, "adopt", rows, row_of[index], class_ids, owner_ids, keys)
    state.work.newest_job = max(state.work.newest_job, int(rows["job"].max(initial=-1)))


def _check_adopted(rows: Any, index: Any) -> None:
    """What the kernel takes for granted of each row, and of the block: each task once, each of its nodes once."""
    for bad, why in (
        ((rows["job"] < 0) | (rows["task"] < 0) | (rows["attempt"] < 1), "job and task count from 0, attempts from 1"),
        ((rows["priority"] >= L.PRIORITY_LIMIT) | (rows["priority"] < -L.PRIORITY_LIMIT), _REFUSALS[L.BAD_PRIORITY]),
        (rows["walltime_ms"] < 0, _REFUSALS[L.BAD_TIME]),
        (~np.isin(rows["state"], (L.RUN_ON, L.RUN_GOING, L.RUN_SUSPENDED)), "it runs, is going or is suspended"),
    ):
        if bad.any():
            row = rows[int(bad.argmax())]
            raise EngineError(f"AllocationsAdopted: {_attempt_name(row)}: {why}; the event was not applied")
    seen: set[tuple[int, int]] = set()
    for row in rows:
        first = int(row["row_offset"])
        nodes = index[first : first + int(row["row_count"])].tolist()
        task = (int(row["job"]), int(row["task"]))
        if task in seen or len(set(nodes)) < len(nodes):
            what = "is named twice" if task in seen else "names a node twice"
            raise EngineError(f"AllocationsAdopted: {_attempt_name(row)} {what}; the event was not applied")
        seen.add(task)


def _attempt_name(row: Any) -> str:
    return f"job {int(row['job'])} task {int(row['task'])} attempt {int(row['attempt'])}"


def _change(state: State, what: int, jobs: Any, one: Any = NO_KEYS, two: Any = NO_KEYS, three: Any = NO_KEYS) -> None:
    cancel_claims(state, jobs)
    _call(state, "", jobs, len(jobs), "change", what, _column(jobs), one, two, three)


def _jobs_eligible(state: State, event: JobsEligible) -> None:
    when = _column(event.eligible_ms)
    if when.shape != np.shape(event.jobs):
        raise EngineError(f"JobsEligible: {len(event.jobs)} jobs but {len(when)} times; the event was not applied")
    _change(state, CHANGE_ELIGIBLE, event.jobs, when)


def _jobs_held(state: State, event: JobsHeld) -> None:
    _change(state, CHANGE_HOLD, event.jobs)


def _jobs_released(state: State, event: JobsReleased) -> None:
    _change(state, CHANGE_RELEASE, event.jobs)


def _jobs_cancelled(state: State, event: JobsCancelled) -> None:
    jobs = _column(event.jobs)
    if event.first_task is None or event.tasks is None:
        first = np.full(jobs.shape[0], -1, np.int64)
        tasks = first
    else:
        first, tasks = _column(event.first_task), _column(event.tasks)
        if first.shape != jobs.shape or tasks.shape != jobs.shape or (first < 0).any() or (tasks < 0).any():
            raise EngineError("JobsCancelled: first_task and tasks must be columns like jobs, and not negative")
    _change(state, CHANGE_CANCEL, jobs, first, tasks)


def _jobs_updated(state: State, event: JobsUpdated) -> None:
    rows = _block(event.rows, UPDATE, "JobsUpdated")
    jobs, priority = _column(rows["job"]), _column(rows["priority"])
    wall, planned = _column(rows["walltime_ms"]), _column(rows["planned_ms"])
    set_priority = priority[priority != L.KEEP]
    if (set_priority >= L.PRIORITY_LIMIT).any() or (set_priority < -L.PRIORITY_LIMIT).any():
        raise EngineError(f"JobsUpdated: {_REFUSALS[L.BAD_PRIORITY]}; the event was not applied")
    if (wall[wall != L.KEEP] < 0).any():
        raise EngineError(f"JobsUpdated: {_REFUSALS[L.BAD_TIME]}; the event was not applied")
    live, rekeyed = _rekeyed(state, jobs, priority, wall, planned)
    _check_bookings_stand(state, live, jobs, wall)
    if state.meta[L.M_CLAIMS]:
        cancel_claims(state, jobs)
        live, rekeyed = _rekeyed(state, jobs, priority, wall, planned)
    _change(state, CHANGE_UPDATE, jobs, priority, wall, planned)
    if live.shape[0]:
        place = {int(job): k for k, job in enumerate(jobs)}
        which = [place[int(job)] for job in state.work.runs[live, L.R_JOB]]
        changed = np.stack([priority[which], wall[which], planned[which]], axis=1)
        retime(state.at, live, np.ascontiguousarray(changed))
    if rekeyed.running.shape[0]:
        state.work.runs[live, L.R_KEY] = rekeyed.running
    if rekeyed.waiting.shape[0]:
        _change(state, CHANGE_REKEY, rekeyed.jobs, rekeyed.waiting)


def _rekeyed(state: State, jobs: Any, priority: Any, wall: Any, planned: Any) -> tuple[Any, _Rekeyed]:
    """Runs of these jobs, and the keys that a plugin's order gives the jobs once they are edited."""
    top = int(state.meta[L.M_RUN_TOP])
    live = np.flatnonzero((state.work.runs[:top, L.R_NODES] > 0) & np.isin(state.work.runs[:top, L.R_JOB], jobs))
    if state.plugins.order is None:
        return live, _Rekeyed(NO_KEYS, NO_KEYS, NO_KEYS)
    slots = _one_entry_of_each(state, jobs)
    entries = _edited(job_view_of_entries(state, slots), jobs, priority, wall, planned)
    runs = _edited(job_view_of_runs(state, live), jobs, priority, wall, planned)
    return live, _Rekeyed(
        entries.job,
        keys_of(state.plugins.order, entries, Cluster(state)),
        keys_of(state.plugins.order, runs, Cluster(state)),
    )


def _runtimes_predicted(state: State, event: RuntimesPredicted) -> None:
    jobs, planned = _column(event.jobs), _column(event.planned_ms)
    if jobs.shape != planned.shape or np.unique(jobs).size != jobs.size or (planned < 1).any():
        raise EngineError("RuntimesPredicted: each job once, with a time of at least 1 ms; the event was not applied")
    if event.version <= state.work.predictions.version:
        return
    rows = edits(state, jobs, planned, state.work.predictions.jobs)
    if len(rows):
        _jobs_updated(state, JobsUpdated(rows))
    state.work.predictions = Predictions(event.version, np.sort(jobs), event.expires_ms)
    state.meta[M_VERSION] += 1


def _estimates_corrected(state: State, event: EstimatesCorrected) -> None:
    if event.rows.dtype != CORRECTION:
        raise EngineError(f"EstimatesCorrected: rows have dtype {event.rows.dtype}; the event was not applied")
    slots = slots_of(state, event.rows)
    if (slots < 0).any():
        row = event.rows[int(np.argmin(slots))]
        raise EngineError(f"EstimatesCorrected: job {row['job']} task {row['task']}: {_REFUSALS[L.BAD_UNKNOWN]}")
    keep = np.full(slots.shape[0], L.KEEP, np.int64)
    retime(state.at, slots, np.ascontiguousarray(np.stack([keep, keep, event.rows["planned_ms"]], axis=1)))


def _check_bookings_stand(state: State, live: Any, jobs: Any, wall: Any) -> None:
    """Raise EngineError where a longer walltime would let a running attempt run into a booking."""
    if not state.bookings.all:
        return
    asked = dict(zip(jobs.tolist(), wall.tolist(), strict=True))
    for run in live.tolist():
        wall_ms = asked[int(state.work.runs[run, L.R_JOB])]
        booking = runs_into(state, run, min(wall_ms, L.INF)) if wall_ms != L.KEEP else None
        if booking is not None:
            raise EngineError(
                f"JobsUpdated: job {int(state.work.runs[run, L.R_JOB])} runs on nodes of booking {booking.name!r}, "
                f"which starts at {booking.start_ms}: its walltime cannot reach beyond; the event was not applied"
            )


class _Rekeyed(NamedTuple):
    """An order plugin's keys of edited work, asked before anything changes: jobs that wait, theirs, those of runs."""

    jobs: Any
    waiting: Any
    running: Any


def _one_entry_of_each(state: State, jobs: Any) -> Any:
    """Slots of waiting entries: the others of a job differ in nothing that an order sees but their attempts."""
    slots = np.flatnonzero(
        (state.work.entries[:, L.E_WHERE] != L.WHERE_FREE) & np.isin(state.work.entries[:, L.E_JOB], jobs)
    )
    return slots[np.unique(state.work.entries[slots, L.E_JOB], return_index=True)[1]]


def _edited(view: JobView, jobs: Any, priority: Any, wall: Any, planned: Any) -> JobView:
    """The view (a copy of columns) as it will be after the edits of `jobs`."""
    edits = {job: k for k, job in enumerate(jobs.tolist())}
    for place, job in enumerate(view.job.tolist()):
        edit = edits[job]
        if priority[edit] != L.KEEP:
            view.priority[place] = priority[edit]
        if wall[edit] != L.KEEP:
            if view.planned_ms[place] == view.walltime_ms[place]:
                view.planned_ms[place] = min(wall[edit], L.INF)
            view.walltime_ms[place] = min(wall[edit], L.INF)
        if planned[edit] != L.KEEP:
            view.planned_ms[place] = min(planned[edit], L.INF) if planned[edit] >= 0 else view.walltime_ms[place]
    return view


def _clock_advanced(state: State, event: ClockAdvanced) -> None:
    state.calls["advance"](state.at, event.now_ms)
    if state.meta[L.M_BOOKING_EDGE] <= state.clock_ms:
        settle_bookings(state)
    if state.accounts is not None:
        renew(state, state.clock_ms)
    predictions = state.work.predictions
    if predictions.expires_ms <= state.clock_ms:
        rows = edits(state, NO_JOBS, NO_JOBS, predictions.jobs)
        if len(rows):
            _jobs_updated(state, JobsUpdated(rows))
        state.work.predictions = Predictions(predictions.version)


def _bookings_changed(state: State, event: BookingsChanged) -> None:
    check_bookings(event.bookings)
    set_bookings(state, event.bookings)


def _config_changed(state: State, event: ConfigChanged) -> None:
    order, _score, _preempt, filters = policies_of(event.config)
    check_qos(event.config.policy)
    slots, live, keys, keys_of_runs = _all_keys(state, order)
    if state.meta[L.M_CLAIMS]:
        cancel_claims(state, NO_KEYS, everyone=True)
        slots, live, keys, keys_of_runs = _all_keys(state, order)
    stopped = frozenset(event.config.stopped)
    if filters != state.plugins.filters or stopped != state.plugins.stopped:
        use_filters(state, filters, stopped)
    use_config(state, event.config)
    state.rewire()
    # What runs may wait again one day: at the place that this order gives it.
    retime(state.at, live, np.full((live.shape[0], 3), L.KEEP, np.int64))
    if keys_of_runs.shape[0]:
        state.work.runs[live, L.R_KEY] = keys_of_runs
    for place in range(int(state.meta[L.M_RESERVED])):
        state.nodes.rows[state.work.reserved[place, L.Q_NODE], L.W_RESERVED] = -1
    state.meta[L.M_RESERVATIONS] = 0
    state.meta[L.M_RESERVED] = 0
    state.use_time_index()
    # Offsets belong to the order that gave them; an order plugin gives new ones when the next pass begins.
    state.work.buckets[:, L.B_OFFSET] = 0
    rebuild(state.at, slots, keys)
    if state.meta[L.M_ORDER] == L.ORDER_PRIORITY:
        renew_offsets(state.at, state.clock_ms)
    state.rewire()


def _all_keys(state: State, order: Order | None) -> tuple[Any, Any, Any, Any]:
    """All waiting entries and all runs, and the keys that an order plugin gives them."""
    slots = np.flatnonzero(state.work.entries[: int(state.meta[L.M_ENTRY_TOP]), L.E_WHERE] != L.WHERE_FREE)
    live = np.flatnonzero(state.work.runs[: int(state.meta[L.M_RUN_TOP]), L.R_NODES] > 0)
    if order is None:
        return slots, live, NO_KEYS, NO_KEYS
    return (
        slots,
        live,
        keys_of(order, job_view_of_entries(state, slots), Cluster(state)),
        keys_of(order, job_view_of_runs(state, live), Cluster(state)),
    )


def _shares_loaded(state: State, event: SharesLoaded) -> None:
    for account, user, units in event.use:
        if not 0.0 <= units < float("inf"):
            raise EngineError(f"SharesLoaded: {units} units for user {user!r} of {account!r}; nothing was applied")
    if state.accounts is not None:
        load_use(state, event.use, event.at_ms)
        load_hours(state, event.hours)
    state.meta[M_VERSION] += 1


def _nodes_changed(state: State, event: NodesChanged) -> None:
    _check_nodes(state, event)
    state.intern_resources([name for node in event.nodes for name, amount in node.capacity.items() if amount])
    state.make_room_for_nodes(len(state.nodes.names) + len(event.nodes))
    before = _nodes_now(state) if state.plugins.filters else None
    touched = [_remove_node(state, name) for name in event.removed]
    touched += [_put_node(state, node) for node in event.nodes]
    state.meta[L.M_NODES] = len(state.nodes.names)
    try:
        admit_nodes(state, touched)
    except EngineError:
        if before is not None:
            _put_back(state, before)
        raise
    state.touch(range(len(state.nodes.names)) if state.plugins.filters else touched)
    state.recount(0, int(state.meta[L.M_SHAPES]))
    state.set_charge()
    state.wake_all()
    state.meta[M_VERSION] += 1
    if state.bookings.all:
        settle_bookings(state)


def _remove_node(state: State, name: str) -> int:
    row = state.nodes.by_name.pop(name)
    state.nodes.rows[row, L.W_STATE] = L.NODE_GONE
    state.nodes.labels[row] = {}
    state.plugins.forget_node(row)
    state.nodes.free[row] -= state.nodes.capacity[row]
    state.nodes.capacity[row] = 0
    return row


def _put_node(state: State, node: NodeSpec) -> int:
    row = state.nodes.by_name.get(node.name, -1)
    if row < 0:
        row = _free_node(state)
        state.nodes.by_name[node.name] = row
        state.nodes.names[row] = node.name
    used = state.nodes.capacity[row] - state.nodes.free[row]
    state.nodes.capacity[row] = 0
    for resource, amount in node.capacity.items():
        if amount:
            state.nodes.capacity[row, state.nodes.resources.index(resource)] = amount
    state.nodes.free[row] = state.nodes.capacity[row] - used
    state.nodes.labels[row] = dict(node.labels)
    state.nodes.health[row] = str(node.health)
    state.nodes.rows[row, L.W_STATE] = L.NODE_UP if node.health is Health.UP else L.NODE_CLOSED
    return row


class _Nodes(NamedTuple):
    """All of the nodes' tables, to be put back when a filter refuses to answer."""

    tables: tuple[Any, ...]
    names: list[str]
    labels: list[dict[str, str]]
    health: list[str]
    by_name: dict[str, int]
    masks: dict[tuple[str, tuple[object, ...]], Any]


def _nodes_now(state: State) -> _Nodes:
    tables = (state.nodes.free.copy(), state.nodes.capacity.copy(), state.nodes.rows.copy())
    return _Nodes(
        tables, list(state.nodes.names), list(state.nodes.labels), list(state.nodes.health), dict(state.nodes.by_name),
        dict(state.plugins.masks),
    )  # fmt: skip


def _put_back(state: State, before: _Nodes) -> None:
    state.nodes.free[:], state.nodes.capacity[:], state.nodes.rows[:] = before.tables
    state.nodes.names, state.nodes.labels, state.nodes.health = before.names, before.labels, before.health
    state.nodes.by_name, state.plugins.masks = before.by_name, before.masks
    state.meta[L.M_NODES] = len(state.nodes.names)


def _check_nodes(state: State, event: NodesChanged) -> None:
    for name in event.removed:
        if name not in state.nodes.by_name:
            raise EngineError(f"NodesChanged: node {name!r} cannot leave, it is not here; the event was not applied")
    names = [node.name for node in event.nodes]
    if (
        len(set(names)) != len(names)
        or len(set(event.removed)) != len(event.removed)
        or set(names) & set(event.removed)
    ):
        raise EngineError("NodesChanged: a node is named twice; the event was not applied")
    for node in event.nodes:
        _check_node(node)


def _check_node(node: NodeSpec) -> None:
    for resource, amount in node.capacity.items():
        if not 0 <= amount < L.INF:
            raise EngineError(
                f"NodesChanged: node {node.name!r} has {amount} of {resource!r}; amounts are 0..2**60 base units; "
                "the event was not applied"
            )


def _free_node(state: State) -> int:
    """A tombstone that nothing runs on any more, else a new row."""
    rows = len(state.nodes.names)
    if len(state.nodes.by_name) < rows:
        taken = set(state.nodes.by_name.values())
        for row in range(rows):
            if row not in taken and state.nodes.rows[row, L.W_PIECES] == 0:
                return row
    state.nodes.names.append("")
    state.nodes.labels.append({})
    state.nodes.health.append("")
    return rows


_APPLY: Final[dict[type, Callable[[State, Any], None]]] = {
    JobsSubmitted: _jobs_submitted,
    AttemptsEnded: _attempts_ended,
    PlanAssumed: _plan_assumed,
    StartsRefused: _starts_refused,
    AllocationsAdopted: _allocations_adopted,
    JobsEligible: _jobs_eligible,
    JobsHeld: _jobs_held,
    JobsReleased: _jobs_released,
    JobsCancelled: _jobs_cancelled,
    JobsUpdated: _jobs_updated,
    RuntimesPredicted: _runtimes_predicted,
    EstimatesCorrected: _estimates_corrected,
    ClockAdvanced: _clock_advanced,
    BookingsChanged: _bookings_changed,
    ConfigChanged: _config_changed,
    SharesLoaded: _shares_loaded,
    NodesChanged: _nodes_changed,
}
