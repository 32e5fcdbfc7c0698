"""Events of time and policy: the clock, bookings, the configuration, the use that shares are based on.

Pure.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hal.core.engine.changes.advice import expire_advice
from hal.core.engine.changes.jobs import update_jobs
from hal.core.engine.changes.kernel_calls import cancel_claims
from hal.core.engine.errors import EngineError
from hal.core.engine.events import (
    BookingsChanged,
    ClockAdvanced,
    ConfigChanged,
    JobsUpdated,
    SharesLoaded,
    WholePassDue,
)
from hal.core.engine.plugins.answers import keys_of
from hal.core.engine.rules.admission import use_filters
from hal.core.engine.rules.booked_nodes import set_bookings, settle_bookings
from hal.core.engine.rules.configuration import policies_of, use_config
from hal.core.engine.rules.policy_tables import load_hours, load_use, renew
from hal.core.engine.rules.predictions import edits
from hal.core.engine.state import NO_KEYS, State
from hal.core.engine.tables.bookings import check_bookings
from hal.core.engine.tables.qos import check_qos
from hal.core.engine.tables.work import NO_JOBS, Predictions
from hal.core.engine.views import Cluster, job_view_of_entries, job_view_of_runs
from hal.core.interfaces.order import Order
from hal.core.kernels.rules.shares import renew_offsets
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.layout import M_VERSION
from hal.core.kernels.work.pending import rebuild
from hal.core.kernels.work.running import retime


def advance_clock(state: State, event: ClockAdvanced) -> None:
    state.calls["advance"](state.at, event.now_ms)
    if state.meta[L.M_BOOKING_EDGE] <= state.clock_ms:
        settle_bookings(state)
    if state.accounts is not None:
        renew(state, state.clock_ms)
    expire_advice(state, state.clock_ms)
    if state.advice.moves_offsets:
        state.advice.moves_offsets = False
        state.wake_all()
    predictions = state.work.predictions
    if predictions.expires_ms <= state.clock_ms:
        rows = edits(state, NO_JOBS, NO_JOBS, predictions.jobs)
        if len(rows):
            update_jobs(state, JobsUpdated(rows))
        state.work.predictions = Predictions(predictions.version)


def wake_everything(state: State, event: WholePassDue) -> None:
    state.wake_all()
    state.meta[M_VERSION] += 1


def change_bookings(state: State, event: BookingsChanged) -> None:
    check_bookings(event.bookings)
    set_bookings(state, event.bookings)


def change_config(state: State, event: ConfigChanged) -> None:
    order, _score, _preempt, filters = policies_of(event.config)
    check_qos(event.config.policy)
    expire_advice(state, state.clock_ms)
    slots, live, keys, keys_of_runs = _all_keys(state, order)
    if state.meta[L.M_CLAIMS]:
        cancel_claims(state, NO_KEYS, everyone=True)
        slots, live, keys, keys_of_runs = _all_keys(state, order)
    state.advice.all_done()
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
        state.nodes.rows[state.work.reserved[place, L.Q_NODE], L.N_RESERVED] = -1
    state.meta[L.M_RESERVATIONS] = 0
    state.meta[L.M_RESERVED] = 0
    state.use_time_index()
    # Offsets belong to the order that gave them; an order plugin gives new ones when the next pass begins.
    state.work.buckets[:, L.B_OFFSET] = 0
    rebuild(state.at, slots, keys)
    if state.meta[L.M_ORDER] == L.ORDER_PRIORITY:
        renew_offsets(state.at, state.clock_ms)
    state.rewire()


def load_shares(state: State, event: SharesLoaded) -> None:
    for account, user, units in event.use:
        if not 0.0 <= units < float("inf"):
            raise EngineError(f"SharesLoaded: {units} units for user {user!r} of {account!r}; nothing was applied")
    if state.accounts is not None:
        load_use(state, event.use, event.at_ms)
        load_hours(state, event.hours)
    state.meta[M_VERSION] += 1


def _all_keys(state: State, order: Order | None) -> tuple[Any, Any, Any, Any]:
    """All waiting entries and all runs, and the keys that an order plugin gives them."""
    slots = np.flatnonzero(state.work.entries[: int(state.meta[L.M_ENTRY_TOP]), L.E_WHERE] != L.WHERE_FREE)
    live = np.flatnonzero(state.work.runs[: int(state.meta[L.M_RUN_TOP]), L.R_NODES] > 0)
    if order is None:
        return slots, live, NO_KEYS, NO_KEYS
    return (
        slots,
        live,
        keys_of(order, job_view_of_entries(state, slots, order.info.reads_advice), Cluster(state)),
        keys_of(order, job_view_of_runs(state, live, order.info.reads_advice), Cluster(state)),
    )
