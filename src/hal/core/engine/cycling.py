"""`cycle(state, now_ms)`: what to start now, as a Plan; the state is as it was afterwards.

Pure; equal inputs give equal plans. One kernel call a slice, described by the state's pass record: the cursor goes in,
what the slice gave comes out by name. A plan owns slices of tables that are never written twice (see `outputs`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hal.core.engine.classes import ClassSpec
from hal.core.engine.plan import (
    NO_RESERVATIONS,
    NO_RESERVED,
    NO_ROWS,
    NO_STARTS,
    NO_VERDICTS,
    Cursor,
    Plan,
)
from hal.core.engine.plugins.answers import offsets_of, scores_of
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
from hal.core.kernels.nodes.rows import follow_rows
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.layout import (
    BLOCK,
    BLOCK_BITS,
    PASS_CHANGES,
    PASS_EPOCH,
    PASS_FIRST_NODE,
    PASS_FIRST_RESERVATION,
    PASS_FIRST_RESERVED,
    PASS_FIRST_START,
    PASS_FIRST_VERDICT,
    PASS_FULL,
    PASS_INSERTS,
    PASS_JOB,
    PASS_KEY,
    PASS_LANE,
    PASS_NODES,
    PASS_REPLANS,
    PASS_RESERVATIONS,
    PASS_RESERVED,
    PASS_STARTS,
    PASS_STOP,
    PASS_TASK,
    PASS_VERDICTS,
    PASS_VERSION,
    PASS_WAKE,
    PASS_WORK,
    PLANNED,
    STOP_RESTART,
    TOUCHED,
)


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
    if budget is None:
        budget = state.config.slice_work
    if cursor.phase if cursor is not None else state.meta[L.M_CLAIMS] or state.meta[L.M_RECLAIM]:
        plan = _plan_between_slices(state, now_ms, cursor, budget)
        if plan is not None:
            return plan
    limit = state.config.slice_starts
    if max_starts is not None and max_starts < limit:
        limit = max_starts if max_starts > 1 else 1
    if state.plugins.order is not None and cursor is None:
        _set_offsets(state, now_ms)
    if state.plugins.score is not None:
        _score_rows(state)
    given = _run_slice(state, now_ms, cursor, budget if budget > 1 else 1, limit)
    return _plan_of_slice(state, now_ms, cursor, given)


def _plan_between_slices(state: State, now_ms: int, cursor: Cursor | None, budget: int) -> Plan | None:
    """What comes before the slice: a search that the pass was stopped for, claims that start, what was lent."""
    if cursor is not None:
        return between_slices(state, now_ms, cursor, budget)
    if state.meta[L.M_CLAIMS]:
        moved = settle_claims(state, now_ms)
        if moved is not None:
            return moved
    if state.meta[L.M_RECLAIM]:
        lender, _wake_ms = next_lender(state, now_ms)
        if lender is not None:
            return between_slices(state, now_ms, lender, budget)
    return None


def _run_slice(state: State, now_ms: int, cursor: Cursor | None, budget: int, limit: int) -> list[int]:
    """The pass record of the slice. What is too small for it is made larger first: by doubling, so a few times."""
    resumed = cursor is not None
    attends = bool(state.meta[L.M_SUSPENDED]) and not (cursor is not None and cursor.attended)
    while True:
        if cursor is not None:
            state.pass_record[L.PASS_LANE : L.PASS_FULL + 1] = (
                cursor.lane, cursor.key, cursor.job, cursor.task, cursor.pass_wake, cursor.pass_inserts, cursor.full
            )  # fmt: skip
        outcome = state.cycle_call(state.at, now_ms, budget, limit, resumed, attends)
        if state.path[L.FAULT]:
            state.check_bounds()
        if outcome == PLANNED:
            given: list[int] = state.given.tolist()
            return given
        state.room_for_slice(outcome)


def _plan_of_slice(state: State, now_ms: int, cursor: Cursor | None, given: list[int]) -> Plan:
    """The plan that a pass record describes: slices of the output tables, and where the pass goes on."""
    outputs = state.outputs
    starts, rows, reservations, table, verdicts = NO_STARTS, NO_ROWS, NO_RESERVATIONS, NO_RESERVED, NO_VERDICTS
    if given[PASS_STARTS]:
        first = given[PASS_FIRST_START]
        starts = outputs.start_records[first : first + given[PASS_STARTS]]
        first = given[PASS_FIRST_NODE]
        rows = outputs.start_nodes[first : first + given[PASS_NODES]]
    replans = given[PASS_REPLANS] == 1
    if replans:
        first = given[PASS_FIRST_RESERVATION]
        reservations = outputs.plan_reservations[first : first + given[PASS_RESERVATIONS]]
        first = given[PASS_FIRST_RESERVED]
        table = outputs.plan_nodes[first : first + given[PASS_RESERVED]]
    if given[PASS_VERDICTS]:
        first = given[PASS_FIRST_VERDICT]
        verdicts = outputs.verdict_records[first : first + given[PASS_VERDICTS]]
    changes = given[PASS_CHANGES] == 1
    full = given[PASS_FULL] == 1
    stop = given[PASS_STOP]
    onward = None
    if stop:
        wake_ms = now_ms
        onward = Cursor(
            -1 if stop == STOP_RESTART else given[PASS_LANE], given[PASS_KEY], given[PASS_JOB], given[PASS_TASK],
            given[PASS_EPOCH], given[PASS_INSERTS], full, phase=_PHASES[stop],
            attended=cursor is not None and cursor.attended,
        )  # fmt: skip
        # A new pass must not go on with the count of starts of the one before it: the plan is worth assuming for that.
        changes = changes or bool(cursor is None and state.meta[L.M_PASS_STARTS] > 0)
    else:
        wake_ms = given[PASS_WAKE]
        if state.meta[L.M_CLAIMS]:
            wake_ms = min(wake_ms, claims_wake_ms(state))
        if state.meta[L.M_RECLAIM]:
            wake_ms = min(wake_ms, _reclaim_wake_ms(state, now_ms, given[PASS_STARTS]))
    return Plan(
        now_ms, given[PASS_VERSION], changes, starts, rows, replans, reservations, table, verdicts, wake_ms, onward,
        given[PASS_WORK], given[PASS_EPOCH], given[PASS_INSERTS], cursor is not None, full,
    )  # fmt: skip


def learn(state: State, now_ms: int) -> bool:
    """Before a new pass under conservative backfill: bring what is kept about nodes up to date, a slice's work at most.

    Returns whether it took a slice, and is worth calling again. It decides nothing and changes no decision: without it
    the first slice of the pass does the same at once, which takes long where nothing is kept yet.
    """
    if not state.conservative:
        return False
    budget = state.config.slice_work
    while True:
        work = state.calls["learn"](state.at, now_ms, budget)
        state.check_bounds()
        if work >= 0:
            return bool(2 * work >= budget)
        state.room_for_slice(L.GROW_TIMELINES)


def _reclaim_wake_ms(state: State, now_ms: int, started: int) -> int:
    """When to look for what cohorts have borrowed: at once where this pass may have made somebody wait for it."""
    job, _task, wake_ms = state.calls["lender"](state.at, now_ms)
    return now_ms if started or job >= 0 else int(wake_ms)


MOST_LINES_KEPT: Final = 64
"""Answers about shapes that are gone, beyond as many as there are shapes, before all are asked for anew."""
_PHASES: Final = {
    L.STOP_BUDGET: 0,
    L.STOP_RESTART: 0,
    L.STOP_SEARCH: PHASE_SEARCH,
    L.STOP_RESUME: PHASE_RESUME,
}


def _set_offsets(state: State, now_ms: int) -> None:
    """Ask an order plugin how far each waiting bucket stands from its keys."""
    assert state.plugins.order is not None
    buckets = state.work.active[: int(state.meta[L.M_ACTIVE])]
    if buckets.shape[0]:
        offsets = offsets_of(state.plugins.order, bucket_view(state, buckets), Cluster(state), now_ms)
        state.work.buckets[buckets, L.B_OFFSET] = offsets


def _score_rows(state: State) -> None:
    """Ask a score plugin, once a slice: about shapes that are new here, and where it reads what is free, about rows
    that were touched since it last was asked."""
    score = state.plugins.score
    assert score is not None
    rows = len(state.nodes.names)
    if state.plugins.scored_at < 0 or len(state.plugins.scored_shapes) > MOST_LINES_KEPT + 2 * len(
        state.catalogue.shape_ids
    ):
        state.catalogue.shapes[:, L.S_SCORES] = -1
        state.plugins.scored_shapes = []
        follow_rows(state.at)
    elif score.info.reads_free and state.plugins.scored_shapes:
        touched = _touched_rows(state)
        if touched.shape[0]:
            view = node_view(state, touched)
            for line, shape in enumerate(state.plugins.scored_shapes):
                if state.catalogue.shapes[shape, L.S_SCORES] != line:
                    continue  # its place belongs to another shape now
                state.scratch.scores[line, touched] = scores_of(score, request_of(state, _spec(state, shape)), view)
            _touch(state, touched)
    state.plugins.scored_at = int(state.ticks[L.TICK_TOUCHED])
    buckets = state.work.active[: int(state.meta[L.M_ACTIVE])]
    waiting = np.unique(state.catalogue.classes[state.work.buckets[buckets, L.B_CLASS], L.C_SHAPE])
    fresh = waiting[state.catalogue.shapes[waiting, L.S_SCORES] < 0].tolist()
    if not fresh:
        return
    state.room_for_scores(len(state.plugins.scored_shapes) + len(fresh))
    view = node_view(state)
    for shape in fresh:
        line = len(state.plugins.scored_shapes)
        state.scratch.scores[line, :rows] = scores_of(score, request_of(state, _spec(state, shape)), view)
        state.catalogue.shapes[shape, L.S_SCORES] = line
        state.catalogue.shapes[shape, L.S_FOLLOWED] = -1
        state.plugins.scored_shapes.append(shape)


def _spec(state: State, shape: int) -> ClassSpec:
    spec = state.catalogue.shape_specs[shape]
    assert spec is not None
    return spec


def _touched_rows(state: State) -> NDArray[np.int64]:
    """Rows touched since the plugin was last asked: one by one, or all of the touched blocks when these were many."""
    place = int(state.ticks[L.TICK_TOUCHED])
    if place - state.plugins.scored_at <= TOUCHED:
        return np.unique(state.scratch.touched[np.arange(state.plugins.scored_at, place) & (TOUCHED - 1)])
    blocks = np.flatnonzero(state.scratch.block_touched >= state.plugins.scored_at)
    rows = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()
    return rows[rows < len(state.nodes.names)]


def _touch(state: State, rows: NDArray[np.int64]) -> None:
    """Let every shape look at these rows again."""
    place = int(state.ticks[L.TICK_TOUCHED])
    last = place + rows.shape[0]
    ring = np.arange(max(place, last - TOUCHED), last)
    state.scratch.touched[ring & (TOUCHED - 1)] = rows[rows.shape[0] - ring.shape[0] :]
    state.scratch.block_touched[rows >> BLOCK_BITS] = last - 1
    state.ticks[L.TICK_TOUCHED] = last
