"""Events of attempts: a plan is assumed, some of its starts are refused, attempts end.

Pure. One kernel call an event.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hal.core.engine.changes.kernel_calls import as_block, attempt_name, call_kernel, settle_call
from hal.core.engine.errors import EngineError
from hal.core.engine.events import END, AttemptsEnded, PlanAssumed, StartsRefused
from hal.core.engine.plan import MOVE, START, Plan
from hal.core.engine.state import State
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.layout import M_VERSION, OK

_NO_TABLE: Final = np.zeros((0, 2), np.int64)


def assume_plan(state: State, event: PlanAssumed) -> None:
    plan = event.plan
    if plan.plan_version != state.meta[M_VERSION]:
        raise EngineError(
            f"PlanAssumed: the plan was made from state version {plan.plan_version}, the state is at "
            f"{state.version}: assume a plan before applying anything else, or plan again"
        )
    starts = plan.starts
    complete = 0 if plan.cursor is not None else 2 if plan.full else 1
    if len(plan.moves):
        _assume_moves(state, plan)
        return
    if not plan.replans and not len(starts):
        if complete:
            state.calls["note"](state.at, plan.now_ms, plan.pass_wake, plan.pass_inserts, complete)
        elif not plan.resumed:
            state.meta[L.M_PASS_STARTS] = 0
        return
    if plan.replans:
        reservations = plan.reservation_table
        reserved = plan.reserved_table
        if len(reservations) > len(state.work.reservations) or len(reserved) > len(state.work.reserved):
            state.grow_reservations(len(reservations), len(reserved))
    else:
        reservations = reserved = _NO_TABLE
    arguments = (
        starts, plan.rows, plan.now_ms, plan.replans, reservations, reserved, complete, plan.resumed, plan.pass_wake,
        plan.pass_inserts,
    )  # fmt: skip
    outcome = state.calls["assume"](state.at, *arguments)
    if outcome != OK:
        count = max(starts.shape[0], plan.rows.shape[0])
        settle_call(state, outcome, "PlanAssumed", starts, count, "assume", *arguments)
    if plan.full and plan.cursor is not None and plan.cursor.begins_anew:
        # It had given reservations up and not yet made them again: the pass that begins anew has to look at everybody.
        state.meta[L.M_PARKED_WAKE] = -1
    if state.keeps_timelines and plan.cursor is not None and plan.cursor.begins_anew:
        state.meta[L.M_DIRTY], state.meta[L.M_PARKED_WAKE] = 1, -1


def refuse_starts(state: State, event: StartsRefused) -> None:
    starts = as_block(event.starts, START, "StartsRefused")
    _check_attempt_numbers(starts, "StartsRefused")
    call_kernel(state, "StartsRefused", starts, starts.shape[0], "refuse", starts, int(event.new_attempt))


def end_attempts(state: State, event: AttemptsEnded) -> None:
    rows = as_block(event.rows, END, "AttemptsEnded")
    _check_attempt_numbers(rows, "AttemptsEnded")
    outcome = state.calls["end"](state.at, rows)
    if outcome != OK:
        settle_call(state, outcome, "AttemptsEnded", rows, rows.shape[0], "end", rows)


def _assume_moves(state: State, plan: Plan) -> None:
    moves = plan.moves
    count = max(moves.shape[0], plan.rows.shape[0])
    call_kernel(state, "PlanAssumed", moves.view(MOVE).reshape(-1), count, "apply_moves", moves, plan.rows, plan.now_ms)


def _check_attempt_numbers(rows: Any, event: str) -> None:
    """Kernels mark the attempts that a block has named by a negative number; no caller may name one so."""
    if rows.shape[0] > 1 and int(rows["attempt"].min()) < 1:
        row = rows[int(rows["attempt"].argmin())]
        raise EngineError(f"{event}: {attempt_name(row)}: attempts count from 1; the event was not applied")
