"""Events of advice: updated in parts, withdrawn, expired; and keys of jobs that are asked for again because of it.

Pure. An update marks what the policies in use read of it, and the next pass reads: what no policy reads costs nothing
more. A score's answers are brought up to date before a pass (`scoring`), an order's keys by `KeysRenewed`.
"""

from __future__ import annotations

import numpy as np

from hal.core.engine.changes.kernel_calls import as_column, call_kernel
from hal.core.engine.errors import EngineError
from hal.core.engine.events import AdviceUpdated, AdviceWithdrawn, KeysRenewed
from hal.core.engine.plugins.answers import keys_of
from hal.core.engine.state import NO_KEYS, State
from hal.core.engine.tables.advice import Changed
from hal.core.engine.views import Cluster, job_view_of_entries, job_view_of_runs
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.layout import M_VERSION
from hal.core.kernels.structures.slots import look_up
from hal.core.kernels.work.pending import CHANGE_REKEY
from hal.core.model.advice import KeySpace


def update_advice(state: State, event: AdviceUpdated) -> None:
    advice = state.advice
    if event.values.shape != (len(event.keys),) or event.values.dtype != np.float64 or np.isinf(event.values).any():
        raise EngineError(
            f"AdviceUpdated: '{event.kind}' needs one float64 for each of its {len(event.keys)} keys, finite or NaN; "
            "the event was not applied"
        )
    held = advice.kinds.get(event.kind)
    if held is not None and event.version <= held.version:
        return
    refusal = advice.refusal(event.kind, event.space, len(event.keys))
    if refusal:
        raise EngineError(f"AdviceUpdated: {refusal}; the event was not applied")
    advice.stage(event.kind, event.space, event.version, event.keys, event.values)
    if not event.more:
        _mark(state, event.kind, advice.complete(event.kind, event.expires_ms, whole=event.whole))
    state.meta[M_VERSION] += 1


def withdraw_advice(state: State, event: AdviceWithdrawn) -> None:
    for kind in event.kinds:
        if kind in state.advice.kinds:
            _mark(state, kind, state.advice.withdraw(kind))
        else:
            state.advice.drop_staged(kind)
    state.meta[M_VERSION] += 1


def expire_advice(state: State, now_ms: int) -> None:
    """Forget the kinds whose time is over (part of `apply`)."""
    for kind in state.advice.expired(now_ms):
        _mark(state, kind, state.advice.withdraw(kind))


def renew_keys(state: State, event: KeysRenewed) -> None:
    """Ask the order for the keys of these jobs, as far as they wait or run, and use those that are others now.

    Jobs that hold a claim keep theirs: work is being preempted for them, and advice is no reason to give that up.
    """
    jobs, order = as_column(event.jobs), state.plugins.order
    if order is not None:
        runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
        live = np.flatnonzero((runs[:, L.R_NODES] > 0) & np.isin(runs[:, L.R_JOB], jobs))
        claiming = runs[live[runs[live, L.R_STATE] == L.RUN_CLAIM], L.R_JOB]
        live = live[~np.isin(runs[live, L.R_JOB], claiming)]
        found = [_waiting(state, job) for job in jobs[~np.isin(jobs, claiming)].tolist()]
        slots = np.array([slot for slot in found if slot >= 0], np.int64)
        waiting = keys_of(order, job_view_of_entries(state, slots, order.info.reads_advice), Cluster(state))
        running = keys_of(order, job_view_of_runs(state, live, order.info.reads_advice), Cluster(state))
        moved = waiting != state.work.entries[slots, L.E_KEY]
        if moved.any():
            rekeyed = as_column(state.work.entries[slots[moved], L.E_JOB])
            call_kernel(state, "", rekeyed, 0, "change", CHANGE_REKEY, rekeyed, waiting[moved], NO_KEYS, NO_KEYS)
        # What runs may wait again one day: where this order then puts it.
        state.work.runs[live, L.R_KEY] = running
    state.advice.set_done(jobs)
    state.meta[M_VERSION] += 1


def _waiting(state: State, job: int) -> int:
    """The first entry of a job, -1 where nothing of it waits: an order sees no difference between its entries."""
    return int(look_up(state.work.job_index, state.work.entries, L.E_JOB, job))


def _mark(state: State, kind: str, changed: Changed) -> None:
    """Note what of a change the order in use reads."""
    order = state.plugins.order
    if order is None or kind not in order.info.reads_advice or not changed.slots.size:
        return
    if changed.space is KeySpace.JOBS:
        state.advice.set_due(changed.slots)
    elif changed.space is not KeySpace.NODES:
        state.advice.moves_offsets = True
