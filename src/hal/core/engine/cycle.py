"""`cycle(state, now_ms)`: what to start now, as a Plan; the state is as it was afterwards.

Pure; equal inputs give equal plans. One kernel call a slice. The outputs are slices of arenas that are never written
twice, so a plan stays valid and nothing is copied.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from hal.core.engine.plan import (
    NO_PROMISED,
    NO_RESERVATIONS,
    NO_ROWS,
    NO_STARTS,
    NO_VERDICTS,
    Cursor,
    Plan,
)
from hal.core.engine.state import State
from hal.core.engine.views import node_view, request_of
from hal.core.kernels import layout as L
from hal.core.kernels.layout import M_VERSION

_SCORE_ONE: Final = 1_000_000
ANY_WORK: Final = 1 << 62


def cycle(
    state: State,
    now_ms: int,
    *,
    budget: int | None = None,
    cursor: Cursor | None = None,
    max_starts: int | None = None,
) -> Plan:
    """Plan one slice of a pass at `now_ms`.

    Args:
        budget: work units (row checks and candidates) for this slice; None = the configuration's. At least one
            candidate is considered whatever the budget.
        cursor: where an unfinished pass goes on (after its last plan was assumed); None = a new pass.
        max_starts: at most so many starts (None = the configuration's slice_starts).
    """
    config = state.config
    if budget is None:
        budget = config.slice_work
    limit = config.slice_starts if max_starts is None else min(max_starts, config.slice_starts)
    state.room_for_plan()
    if state.order is not None and cursor is None:
        _set_offsets(state, now_ms)
    if state.score is not None:
        _score_rows(state)
    start_at, row_at = state.start_at, state.row_at
    promise_at, promised_at, verdict_at = state.promise_at, state.promised_at, state.verdict_at
    if cursor is None:
        place = (False, False, 0, 0, 0, 0, 0)
    else:
        place = (True, cursor.full, cursor.pass_wake, cursor.pass_inserts, cursor.lane, cursor.key, cursor.job)
    conservative = config.backfill == "conservative"
    while True:
        call = state.calls["conservative" if conservative else "easy"]
        (
            started, used, replans, promises, promised, refusals, unfinished, lane, key, job, wake_ms, work, pass_wake,
            pass_inserts, full, changes,
        ) = call(
            *(state.conservative_args if conservative else state.easy_args), state.start_arena, start_at,
            state.row_arena, row_at, state.promise_arena, promise_at, state.promised_arena, promised_at,
            state.verdict_arena, verdict_at, now_ms, max(budget, 1), max(limit, 1), *place,
        )  # fmt: skip
        if started >= 0:
            break
        state.grow_profile()
        promise_at, promised_at = state.promise_at, state.promised_at
    starts, rows, reservations, table, verdicts = NO_STARTS, NO_ROWS, NO_RESERVATIONS, NO_PROMISED, NO_VERDICTS
    if started:
        state.start_at = start_at + started
        state.row_at = row_at + used
        starts = state.start_arena[start_at : start_at + started]
        rows = state.row_arena[row_at : row_at + used]
    if replans:
        state.promise_at = promise_at + promises
        state.promised_at = promised_at + promised
        reservations = state.promise_records[promise_at : promise_at + promises]
        table = state.promised_arena[promised_at : promised_at + promised]
    if refusals:
        state.verdict_at = verdict_at + refusals
        verdicts = state.verdict_arena[verdict_at : verdict_at + refusals]
    return Plan(
        now_ms,
        int(state.meta[M_VERSION]),
        changes == 1,
        starts,
        rows,
        replans == 1,
        reservations,
        table,
        verdicts,
        now_ms if unfinished else wake_ms,
        Cursor(lane, key, job, pass_wake, pass_inserts, full == 1) if unfinished else None,
        work,
        pass_wake,
        pass_inserts,
    )


def _set_offsets(state: State, now_ms: int) -> None:
    """Ask an order plugin how far each waiting bucket stands from its keys."""
    assert state.order is not None
    buckets = state.active[: int(state.meta[L.M_ACTIVE])]
    if buckets.shape[0]:
        table = state.buckets[buckets]
        offsets = state.order.offset(table[:, L.B_CLASS], table[:, L.B_OWNER], now_ms)
        state.buckets[buckets, L.B_OFFSET] = np.asarray(offsets, np.int64)


def _score_rows(state: State) -> None:
    """Ask a score plugin about every shape that waits, once a slice."""
    assert state.score is not None
    buckets = state.active[: int(state.meta[L.M_ACTIVE])]
    shapes = np.unique(state.classes[state.buckets[buckets, L.B_CLASS], L.C_SHAPE])
    rows = len(state.row_names)
    if state.scores.shape[0] < shapes.shape[0] or state.scores.shape[1] < rows:
        state.scores = np.zeros((2 * shapes.shape[0] + 1, state.free.shape[0]), np.int64)
        state.rewire()
    view = node_view(state)
    for line, shape in enumerate(shapes.tolist()):
        spec = state.shape_specs[shape]
        assert spec is not None
        score = np.asarray(state.score.score(request_of(state, spec), view), np.float64)
        state.scores[line, :rows] = np.rint(np.clip(score, 0.0, 1.0) * _SCORE_ONE).astype(np.int64)
        state.shapes[shape, L.S_SCORES] = line
