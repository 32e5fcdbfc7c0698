"""Expected run times: what the plan uses instead of walltimes, and what becomes of an expectation that was too short.

Pure. The engine learns nothing by itself: a signal (`RuntimesPredicted`) tells it. An attempt that runs longer than
expected is planned to run as long again, up to its walltime, as soon as that shows (after Tsafrir, Etsion and Feitelson
2007, "Backfilling using system-generated predictions rather than user runtime estimates": a prediction must be
corrected while the job runs, or the plan believes at every instant that it ends the next). Nothing is ended by it.
"""

from __future__ import annotations

import numpy as np

from hal.core.engine.events import CORRECTION, INF, UpdateRows, update_rows
from hal.core.engine.state import State
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints, Records


def edits(state: State, jobs: Ints, planned_ms: Ints, withdrawn: Ints) -> UpdateRows:
    """What a signal changes: jobs that live get `planned_ms` (at most their walltime), `withdrawn` their walltime."""
    withdrawn = np.setdiff1d(withdrawn, jobs)
    walls = _walltimes(state, np.concatenate([jobs, withdrawn]))
    rows = update_rows(len(walls))
    expected = dict(zip(jobs.tolist(), planned_ms.tolist(), strict=True))
    for row, (job, wall_ms) in zip(rows, walls.items(), strict=True):
        row["job"] = job
        row["planned_ms"] = min(expected.get(job, wall_ms), wall_ms)
    return rows


def _walltimes(state: State, jobs: Ints) -> dict[int, int]:
    """Of those that live, by id, ascending."""
    walls: dict[int, int] = {}
    entries = state.work.entries[: int(state.meta[L.M_ENTRY_TOP])]
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    for table, live, job, wall in (
        (entries, entries[:, L.E_WHERE] != L.WHERE_FREE, L.E_JOB, L.E_WALL),
        (runs, runs[:, L.R_NODES] > 0, L.R_JOB, L.R_WALL),
    ):
        found = table[live & np.isin(table[:, job], jobs)]
        walls.update(zip(found[:, job].tolist(), found[:, wall].tolist(), strict=True))
    return dict(sorted(walls.items()))


def overdue(state: State, now_ms: int) -> Records | None:
    """Attempts whose projected end has come before their walltime has, with twice as long (dtype CORRECTION)."""
    late = _expected(state)
    late = late[late[:, L.R_END] <= now_ms]
    if not len(late):
        return None
    longer = 2 * np.maximum(late[:, L.R_PLANNED], now_ms - late[:, L.R_START])
    rows = np.zeros(len(late), CORRECTION)
    rows["job"], rows["task"] = late[:, L.R_JOB], late[:, L.R_TASK]
    rows["planned_ms"] = np.minimum(np.maximum(longer, 1), late[:, L.R_WALL])
    return np.sort(rows)


def next_look_ms(state: State, now_ms: int) -> int:
    """When an attempt may next turn out to run longer than a signal said, or the signal ends; INF without one."""
    ends = _expected(state)[:, L.R_END]
    return min(state.work.predictions.expires_ms, int(ends[ends > now_ms].min(initial=INF)))


def _expected(state: State) -> Ints:
    """Runs that a signal has end before their walltime; not what was told to leave or stands still."""
    if not state.work.predictions.jobs.size:
        return state.work.runs[:0]
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    on = (runs[:, L.R_NODES] > 0) & (runs[:, L.R_STATE] == L.RUN_ON)
    expected: Ints = runs[on & (runs[:, L.R_PLANNED] < runs[:, L.R_WALL])]
    return expected


def slots_of(state: State, rows: Records) -> Ints:
    """The run of each row; -1 where there is none."""
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    live = np.flatnonzero((runs[:, L.R_NODES] > 0) & np.isin(runs[:, L.R_JOB], rows["job"]))
    known = {(int(runs[slot, L.R_JOB]), int(runs[slot, L.R_TASK])): int(slot) for slot in live}
    return np.array([known.get((int(row["job"]), int(row["task"])), -1) for row in rows], np.int64)
