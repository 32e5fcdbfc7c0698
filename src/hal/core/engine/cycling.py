"""`cycle(state, now_ms)`: what to start now, as a Plan; the state is as it was afterwards.

Pure; equal inputs give equal plans. One kernel call a slice. The outputs are slices of arenas that are never written
twice, so a plan stays valid and nothing is copied.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hal.core.engine.answers import offsets_of, scores_of
from hal.core.engine.classes import ClassSpec
from hal.core.engine.plan import (
    NO_PROMISED,
    NO_PROMISES,
    NO_ROWS,
    NO_STARTS,
    NO_VERDICTS,
    Cursor,
    Plan,
)
from hal.core.engine.preempting import (
    PHASE_RESUME,
    PHASE_SEARCH,
    between_slices,
    claims_wake_ms,
    next_lender,
    settle_claims,
)
from hal.core.engine.state import State
from hal.core.engine.views import Cluster, bucket_view, node_view, request_of
from hal.core.kernels import easy
from hal.core.kernels import layout as L
from hal.core.kernels.rows import BLOCK, BLOCK_BITS, TOUCHED, follow_rows


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

    Raises:
        EngineFault: the state contradicts itself.
    """
    if cursor is not None and cursor.begins_anew:
        cursor = None
    if cursor is not None and cursor.phase:
        return between_slices(state, now_ms, cursor, state.config.slice_work if budget is None else budget)
    if cursor is None and state.meta[L.M_CLAIMS]:
        moved = settle_claims(state, now_ms)
        if moved is not None:
            return moved
    if cursor is None and state.meta[L.M_RECLAIM]:
        lender, _wake_ms = next_lender(state, now_ms)
        if lender is not None:
            return between_slices(state, now_ms, lender, state.config.slice_work if budget is None else budget)
    if budget is None:
        budget = state.config.slice_work
    elif budget < 1:
        budget = 1
    limit = state.config.slice_starts
    if max_starts is not None and max_starts < limit:
        limit = max_starts if max_starts > 1 else 1
    if state.order is not None and cursor is None:
        _set_offsets(state, now_ms)
    if state.score is not None:
        _score_rows(state)
    start_at, row_at, verdict_at = state.start_at, state.row_at, state.verdict_at
    promise_at, promised_at = state.promise_at, state.promised_at
    if (
        start_at > state.start_last
        or row_at > state.row_last
        or verdict_at > state.verdict_last
        or promise_at > state.promise_last
        or promised_at > state.promise_last
    ):
        state.room_for_plan()
        start_at, row_at, verdict_at = state.start_at, state.row_at, state.verdict_at
        promise_at, promised_at = state.promise_at, state.promised_at
    if cursor is None:
        place = _WITH_SUSPENDED if state.meta[L.M_SUSPENDED] else _FROM_THE_TOP
    else:
        place = (
            True,
            cursor.full,
            cursor.pass_wake,
            cursor.pass_inserts,
            cursor.lane,
            cursor.key,
            cursor.job,
            cursor.task,
            int(state.meta[L.M_SUSPENDED] > 0 and not cursor.attended),
        )
    while True:
        (
            started, used, replans, promises, promised, refusals, unfinished, lane, key, job, task, wake_ms, work,
            pass_wake, pass_inserts, full, changes, version,
        ) = state.cycle_call(
            state.at, state.start_arena, start_at, state.row_arena, row_at, state.promise_arena, promise_at,
            state.promised_arena, promised_at, state.verdict_arena, verdict_at, now_ms, budget, limit, *place,
        )  # fmt: skip
        if started >= 0 or state.path[L.FAULT]:
            break
        state.grow_profile()
        promise_at, promised_at = state.promise_at, state.promised_at
    if state.path[L.FAULT]:
        state.check_bounds()
    starts, rows, reservations, table, verdicts = NO_STARTS, NO_ROWS, NO_PROMISES, NO_PROMISED, NO_VERDICTS
    if started:
        state.start_at = start_at + started
        state.row_at = row_at + used
        starts = state.start_arena[start_at : start_at + started]
        rows = state.row_arena[row_at : row_at + used]
    if replans:
        state.promise_at = promise_at + promises
        state.promised_at = promised_at + promised
        reservations = state.promise_arena[promise_at : promise_at + promises]
        table = state.promised_arena[promised_at : promised_at + promised]
    if refusals:
        state.verdict_at = verdict_at + refusals
        verdicts = state.verdict_arena[verdict_at : verdict_at + refusals]
    going_on = None
    if unfinished:
        wake_ms = now_ms
        attended = cursor is not None and cursor.attended
        going_on = Cursor(
            -1 if unfinished == easy.STOP_ANEW else lane, key, job, task, pass_wake, pass_inserts, full == 1,
            phase=_PHASES[unfinished], attended=attended,
        )  # fmt: skip
        # A new pass must not go on with the count of starts of the one before it: the plan is worth assuming for that.
        changes = changes or int(cursor is None and state.meta[L.M_PASS_STARTS] > 0)
    else:
        if state.meta[L.M_CLAIMS]:
            wake_ms = min(wake_ms, claims_wake_ms(state))
        if state.meta[L.M_RECLAIM]:
            wake_ms = min(wake_ms, _reclaim_wake_ms(state, now_ms, started))
    return Plan(
        now_ms, version, changes == 1, starts, rows, replans == 1, reservations, table, verdicts, wake_ms, going_on,
        work, pass_wake, pass_inserts, cursor is not None, full == 1,
    )  # fmt: skip


def learn(state: State, now_ms: int) -> bool:
    """Before a new pass under conservative backfill: bring what is kept about nodes up to date, a slice's work at most.

    Returns whether it took a slice, and is worth calling again. It decides nothing and changes no decision: without it
    the first slice of the pass does the same at once, which takes long where nothing is kept yet.
    """
    if not state.conservative:
        return False
    state.room_for_plan()
    budget = state.config.slice_work
    while True:
        work = state.calls["learn"](
            state.at, state.promise_arena, state.promise_at, state.promised_arena, state.promised_at, now_ms, budget
        )
        state.check_bounds()
        if work >= 0:
            return bool(2 * work >= budget)
        state.grow_profile()


def _reclaim_wake_ms(state: State, now_ms: int, started: int) -> int:
    """When to look for what cohorts have borrowed: at once where this pass may have made somebody wait for it."""
    job, _task, wake_ms = state.calls["lender"](state.at, now_ms)
    return now_ms if started or job >= 0 else int(wake_ms)


MOST_LINES_KEPT: Final = 64
"""Answers about shapes that are gone, beyond as many as there are shapes, before all are asked for anew."""
_FROM_THE_TOP: Final = (False, False, 0, 0, 0, 0, 0, 0, 0)
_WITH_SUSPENDED: Final = (False, False, 0, 0, 0, 0, 0, 0, 1)
_PHASES: Final = {1: 0, easy.STOP_ANEW: 0, easy.STOP_SEARCH: PHASE_SEARCH, easy.STOP_RESUME: PHASE_RESUME}


def _set_offsets(state: State, now_ms: int) -> None:
    """Ask an order plugin how far each waiting bucket stands from its keys."""
    assert state.order is not None
    buckets = state.active[: int(state.meta[L.M_ACTIVE])]
    if buckets.shape[0]:
        offsets = offsets_of(state.order, bucket_view(state, buckets), Cluster(state), now_ms)
        state.buckets[buckets, L.B_OFFSET] = offsets


def _score_rows(state: State) -> None:
    """Ask a score plugin, once a slice: about shapes that are new here, and where it reads what is free, about rows
    that were touched since it last was asked."""
    score = state.score
    assert score is not None
    rows = len(state.row_names)
    if state.scored_at < 0 or len(state.scored_shapes) > MOST_LINES_KEPT + 2 * len(state.shape_ids):
        state.shapes[:, L.S_SCORES] = -1
        state.scored_shapes = []
        follow_rows(state.at)
    elif score.info.reads_free and state.scored_shapes:
        touched = _touched_rows(state)
        if touched.shape[0]:
            view = node_view(state, touched)
            for line, shape in enumerate(state.scored_shapes):
                if state.shapes[shape, L.S_SCORES] != line:
                    continue  # its place belongs to another shape now
                state.scores[line, touched] = scores_of(score, request_of(state, _spec(state, shape)), view)
            _touch(state, touched)
    state.scored_at = int(state.ticks[L.TICK_TOUCHED])
    buckets = state.active[: int(state.meta[L.M_ACTIVE])]
    waiting = np.unique(state.classes[state.buckets[buckets, L.B_CLASS], L.C_SHAPE])
    fresh = waiting[state.shapes[waiting, L.S_SCORES] < 0].tolist()
    if not fresh:
        return
    state.room_for_scores(len(state.scored_shapes) + len(fresh))
    view = node_view(state)
    for shape in fresh:
        line = len(state.scored_shapes)
        state.scores[line, :rows] = scores_of(score, request_of(state, _spec(state, shape)), view)
        state.shapes[shape, L.S_SCORES] = line
        state.shapes[shape, L.S_FOLLOWED] = -1
        state.scored_shapes.append(shape)


def _spec(state: State, shape: int) -> ClassSpec:
    spec = state.shape_specs[shape]
    assert spec is not None
    return spec


def _touched_rows(state: State) -> NDArray[np.int64]:
    """Rows touched since the plugin was last asked: one by one, or all of the touched blocks when these were many."""
    place = int(state.ticks[L.TICK_TOUCHED])
    if place - state.scored_at <= TOUCHED:
        return np.unique(state.touched[np.arange(state.scored_at, place) & (TOUCHED - 1)])
    blocks = np.flatnonzero(state.block_touched >= state.scored_at)
    rows = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()
    return rows[rows < len(state.row_names)]


def _touch(state: State, rows: NDArray[np.int64]) -> None:
    """Let every shape look at these rows again."""
    place = int(state.ticks[L.TICK_TOUCHED])
    last = place + rows.shape[0]
    ring = np.arange(max(place, last - TOUCHED), last)
    state.touched[ring & (TOUCHED - 1)] = rows[rows.shape[0] - ring.shape[0] :]
    state.block_touched[rows >> BLOCK_BITS] = last - 1
    state.ticks[L.TICK_TOUCHED] = last
