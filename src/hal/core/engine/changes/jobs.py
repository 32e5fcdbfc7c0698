"""Events of jobs: held, released, cancelled, eligible from a time on, updated, and their predicted runtimes.

Pure.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hal.core.engine.changes.kernel_calls import REFUSALS, as_block, as_column, cancel_claims, change_jobs
from hal.core.engine.errors import EngineError
from hal.core.engine.events import (
    CORRECTION,
    UPDATE,
    EstimatesCorrected,
    JobsCancelled,
    JobsEligible,
    JobsHeld,
    JobsReleased,
    JobsUpdated,
    RuntimesPredicted,
)
from hal.core.engine.plugins.answers import keys_of
from hal.core.engine.rules.booked_nodes import runs_into
from hal.core.engine.rules.predictions import edits, slots_of
from hal.core.engine.state import NO_KEYS, State
from hal.core.engine.tables.work import Predictions
from hal.core.engine.views import Cluster, job_view_of_entries, job_view_of_runs
from hal.core.interfaces.policy import JobView
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.layout import M_VERSION
from hal.core.kernels.work.pending import (
    CHANGE_CANCEL,
    CHANGE_ELIGIBLE,
    CHANGE_HOLD,
    CHANGE_REKEY,
    CHANGE_RELEASE,
    CHANGE_UPDATE,
)
from hal.core.kernels.work.running import retime


def set_eligible_times(state: State, event: JobsEligible) -> None:
    when = as_column(event.eligible_ms)
    if when.shape != np.shape(event.jobs):
        raise EngineError(f"JobsEligible: {len(event.jobs)} jobs but {len(when)} times; the event was not applied")
    change_jobs(state, CHANGE_ELIGIBLE, event.jobs, when)


def hold_jobs(state: State, event: JobsHeld) -> None:
    change_jobs(state, CHANGE_HOLD, event.jobs)


def release_jobs(state: State, event: JobsReleased) -> None:
    change_jobs(state, CHANGE_RELEASE, event.jobs)


def cancel_jobs(state: State, event: JobsCancelled) -> None:
    jobs = as_column(event.jobs)
    if event.first_task is None or event.tasks is None:
        first = np.full(jobs.shape[0], -1, np.int64)
        tasks = first
    else:
        first, tasks = as_column(event.first_task), as_column(event.tasks)
        if first.shape != jobs.shape or tasks.shape != jobs.shape or (first < 0).any() or (tasks < 0).any():
            raise EngineError("JobsCancelled: first_task and tasks must be columns like jobs, and not negative")
    change_jobs(state, CHANGE_CANCEL, jobs, first, tasks)


def update_jobs(state: State, event: JobsUpdated) -> None:
    rows = as_block(event.rows, UPDATE, "JobsUpdated")
    jobs, priority = as_column(rows["job"]), as_column(rows["priority"])
    wall, planned = as_column(rows["walltime_ms"]), as_column(rows["planned_ms"])
    set_priority = priority[priority != L.KEEP]
    if (set_priority >= L.PRIORITY_LIMIT).any() or (set_priority < -L.PRIORITY_LIMIT).any():
        raise EngineError(f"JobsUpdated: {REFUSALS[L.BAD_PRIORITY]}; the event was not applied")
    if (wall[wall != L.KEEP] < 0).any():
        raise EngineError(f"JobsUpdated: {REFUSALS[L.BAD_TIME]}; the event was not applied")
    live, rekeyed = _rekeyed(state, jobs, priority, wall, planned)
    _check_bookings_stand(state, live, jobs, wall)
    if state.meta[L.M_CLAIMS]:
        cancel_claims(state, jobs)
        live, rekeyed = _rekeyed(state, jobs, priority, wall, planned)
    change_jobs(state, CHANGE_UPDATE, jobs, priority, wall, planned)
    if live.shape[0]:
        place = {int(job): k for k, job in enumerate(jobs)}
        which = [place[int(job)] for job in state.work.runs[live, L.R_JOB]]
        changed = np.stack([priority[which], wall[which], planned[which]], axis=1)
        retime(state.at, live, np.ascontiguousarray(changed))
    if rekeyed.running.shape[0]:
        state.work.runs[live, L.R_KEY] = rekeyed.running
    if rekeyed.waiting.shape[0]:
        change_jobs(state, CHANGE_REKEY, rekeyed.jobs, rekeyed.waiting)


def use_predictions(state: State, event: RuntimesPredicted) -> None:
    jobs, planned = as_column(event.jobs), as_column(event.planned_ms)
    if jobs.shape != planned.shape or np.unique(jobs).size != jobs.size or (planned < 1).any():
        raise EngineError("RuntimesPredicted: each job once, with a time of at least 1 ms; the event was not applied")
    if event.version <= state.work.predictions.version:
        return
    rows = edits(state, jobs, planned, state.work.predictions.jobs)
    if len(rows):
        update_jobs(state, JobsUpdated(rows))
    state.work.predictions = Predictions(event.version, np.sort(jobs), event.expires_ms)
    state.meta[M_VERSION] += 1


def correct_estimates(state: State, event: EstimatesCorrected) -> None:
    if event.rows.dtype != CORRECTION:
        raise EngineError(f"EstimatesCorrected: rows have dtype {event.rows.dtype}; the event was not applied")
    slots = slots_of(state, event.rows)
    if (slots < 0).any():
        row = event.rows[int(np.argmin(slots))]
        raise EngineError(f"EstimatesCorrected: job {row['job']} task {row['task']}: {REFUSALS[L.BAD_UNKNOWN]}")
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


def _rekeyed(state: State, jobs: Any, priority: Any, wall: Any, planned: Any) -> tuple[Any, _Rekeyed]:
    """Runs of these jobs, and the keys that a plugin's order gives the jobs once they are edited."""
    top = int(state.meta[L.M_RUN_TOP])
    live = np.flatnonzero((state.work.runs[:top, L.R_NODES] > 0) & np.isin(state.work.runs[:top, L.R_JOB], jobs))
    if state.plugins.order is None:
        return live, _Rekeyed(NO_KEYS, NO_KEYS, NO_KEYS)
    reads = state.plugins.order.info.reads_advice
    slots = _one_entry_of_each(state, jobs)
    entries = _edited(job_view_of_entries(state, slots, reads), jobs, priority, wall, planned)
    runs = _edited(job_view_of_runs(state, live, reads), jobs, priority, wall, planned)
    return live, _Rekeyed(
        entries.job,
        keys_of(state.plugins.order, entries, Cluster(state)),
        keys_of(state.plugins.order, runs, Cluster(state)),
    )


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
