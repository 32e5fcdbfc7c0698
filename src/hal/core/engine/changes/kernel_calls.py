"""Calls of the kernels that apply an event: tables grow on request, and a refusal becomes an EngineError."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hal.core.engine.errors import EngineError
from hal.core.engine.state import NO_KEYS, State
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.layout import OK

REFUSALS: Final = {
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


def call_kernel(state: State, event: str, rows: Any, count: int, kernel: str, *arguments: Any) -> None:
    """Call a kernel of an event (see `settle_call`)."""
    settle_call(state, state.calls[kernel](state.at, *arguments), event, rows, count, kernel, *arguments)


def settle_call(state: State, outcome: int, event: str, rows: Any, count: int, kernel: str, *arguments: Any) -> None:
    """While a kernel asks for larger tables, make them, with room for `count` more records, and call it again.

    Raises EngineError when it refuses one of the event's `rows`: nothing was changed.
    """
    while outcome != OK:
        if outcome > L.GROW_BUCKETS:
            raise _refused(state, event, rows, outcome)
        state.grow(outcome, count)
        outcome = state.calls[kernel](state.at, *arguments)


def as_block(rows: Any, dtype: np.dtype[Any], event: str) -> Any:
    """Return the rows as a contiguous block of the dtype that the kernels were compiled for."""
    if rows.dtype is dtype and rows.shape == (1,):
        return rows
    if rows.dtype != dtype or rows.ndim != 1:
        raise EngineError(f"{event}: rows have dtype {rows.dtype}, not hal.core.engine.events.{event}'s block dtype")
    return rows if rows.flags.c_contiguous else np.ascontiguousarray(rows)


def as_column(values: Any) -> Any:
    return np.ascontiguousarray(values, np.int64)


def attempt_name(row: Any) -> str:
    return f"job {int(row['job'])} task {int(row['task'])} attempt {int(row['attempt'])}"


def cancel_claims(state: State, jobs: Any, *, everyone: bool = False) -> None:
    """Give up the claims of these jobs: their tasks wait again before they change."""
    claims = int(state.meta[L.M_CLAIMS])
    if claims:
        call_kernel(state, "", jobs, claims, "cancel", as_column(jobs), everyone)


def change_jobs(
    state: State, what: int, jobs: Any, one: Any = NO_KEYS, two: Any = NO_KEYS, three: Any = NO_KEYS
) -> None:
    """Change what waits of these jobs; `what` says how, and what the columns `one` to `three` are."""
    cancel_claims(state, jobs)
    call_kernel(state, "", jobs, len(jobs), "change", what, as_column(jobs), one, two, three)


def _refused(state: State, event: str, rows: Any, outcome: int) -> EngineError:
    row = rows[int(state.meta[L.M_FAULT])]
    named = f"job {int(row['job'])}"
    if rows.dtype.names and "task" in rows.dtype.names:
        named += f" task {int(row['task'])} attempt {int(row['attempt'])}"
    return EngineError(f"{event}: {named}: {REFUSALS[outcome]}; the event was not applied")
