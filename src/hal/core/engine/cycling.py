"""`cycle(state, now_ms)`: what to start now, as a Plan; the state is as it was afterwards.

Pure; equal inputs give equal plans. One kernel call a slice, described by the state's pass record: the cursor goes in,
what the slice gave comes out by name. A plan owns slices of tables that are never written twice (see `outputs`).
"""

from __future__ import annotations

from typing import Final

from hal.core.engine.advice_weights import weigh_advice
from hal.core.engine.domain_scoring import score_domains
from hal.core.engine.plan import (
    NO_RESERVATIONS,
    NO_RESERVED,
    NO_ROWS,
    NO_STARTS,
    NO_VERDICTS,
    Cursor,
    Plan,
)
from hal.core.engine.plugins.answers import offsets_of
from hal.core.engine.preempting import (
    PHASE_RESUME,
    PHASE_SEARCH,
    between_slices,
    claims_wake_ms,
    next_lender,
    settle_claims,
)
from hal.core.engine.scoring import read_advice, score_nodes
from hal.core.engine.state import State
from hal.core.engine.typical_work import note_typical_work
from hal.core.engine.views import Cluster, bucket_view
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.layout import (
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
        if cursor is None:
            read_advice(state)
        score_nodes(state)
    if state.plugins.domain_score is not None:
        score_domains(state)
    if state.catalogue.weighing:
        weigh_advice(state)
    if state.meta[L.M_PLACEMENT] == L.PLACE_FGD:
        note_typical_work(state)
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
    """Before a new pass: bring what is kept about nodes up to date, a slice's work at most.

    That is a score plugin's answers where advice has changed, and timelines under conservative backfill. Returns
    whether it took a slice, and is worth calling again. It decides nothing. Without it the first slice of the pass does
    the same for timelines at once, which takes long where nothing is kept yet, and for some of the answers.
    """
    if read_advice(state):
        return True
    if not state.keeps_timelines:
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
        view = bucket_view(state, buckets, state.plugins.order.info.reads_advice)
        offsets = offsets_of(state.plugins.order, view, Cluster(state), now_ms)
        state.work.buckets[buckets, L.B_OFFSET] = offsets
