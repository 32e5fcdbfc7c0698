"""Qualities of service as the table that kernels read: who may take from whom, how, and after what grace.

Pure. Row 0 is for work without a QOS that the policy knows: it takes from nobody and nobody takes from it. Taking is
transitive: whoever may take from B may take from all that B may take from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from hal.core.engine.config import EngineConfig
from hal.core.engine.errors import EngineError
from hal.core.kernels import layout as L
from hal.core.model.policy import Policy, PreemptMode, Qos, Reclaim

if TYPE_CHECKING:
    from hal.core.engine.state import State

MODES: Final = {
    PreemptMode.OFF: L.MODE_OFF,
    PreemptMode.REQUEUE: L.MODE_REQUEUE,
    PreemptMode.SUSPEND: L.MODE_SUSPEND,
    PreemptMode.CHECKPOINT: L.MODE_CHECKPOINT,
    PreemptMode.CANCEL: L.MODE_CANCEL,
}
LAST_GRACE_MS: Final = 10_000
"""After the grace in which work saves itself, between SIGTERM and SIGKILL."""
MODE_NAMES: Final = {number: mode.value for mode, number in MODES.items()}


def closure(qos: dict[str, Qos]) -> dict[str, set[str]]:
    """For each QOS all that it may take from, directly or through others. Names that do not exist are left out."""
    takes: dict[str, set[str]] = {}
    for name in qos:
        found: set[str] = set()
        ahead = list(qos[name].preempts)
        while ahead:
            other = ahead.pop()
            if other in qos and other not in found:
                found.add(other)
                ahead.extend(qos[other].preempts)
        takes[name] = found
    return takes


def check_qos(policy: Policy | None) -> None:
    """Raise EngineError when a QOS could take from itself: two of them would take turns for ever."""
    for name, others in closure(policy.qos if policy is not None else {}).items():
        if name in others:
            raise EngineError(
                f"QOS '{name}' preempts itself, directly or through others: work of it would be taken back for work "
                "of it for ever; take one of the names out of `preempts`"
            )


def set_qos(state: State, config: EngineConfig) -> None:
    """Fill the table from a configuration (part of `apply`). Raises EngineError as `check_qos`."""
    check_qos(config.policy)
    qos = config.policy.qos if config.policy is not None else {}
    takes = closure(qos)
    names = sorted(qos)
    state.qos_ids = {name: place + 1 for place, name in enumerate(names)}
    state.qos = np.zeros((1 + len(names), L.K_TAKES + 1 + len(names)), np.int64)
    for name, row in state.qos_ids.items():
        state.qos[row, L.K_MODE] = MODES[qos[name].preempt_mode]
        state.qos[row, L.K_GRACE] = int(qos[name].grace)
        if qos[name].preempt_mode is PreemptMode.CHECKPOINT:
            state.qos[row, L.K_GRACE] += LAST_GRACE_MS
        for other in takes[name]:
            if qos[other].preempt_mode is not PreemptMode.OFF:
                state.qos[row, L.K_TAKES + state.qos_ids[other]] = 1
                state.qos[row, L.K_PREEMPTS] = 1
    limits = config.policy.limits.values() if config.policy is not None else ()
    state.meta[L.M_RECLAIM] = int(any(limit.cohort and limit.reclaim is Reclaim.PREEMPT for limit in limits))
    if state.meta[L.M_RECLAIM]:
        state.qos[0, L.K_GRACE] = int(Qos().grace)  # work without a QOS may have borrowed
    state.meta[L.M_PREEMPTING] = int(state.qos[:, L.K_PREEMPTS].any() or state.meta[L.M_RECLAIM])
    state.searched = np.zeros((L.SEARCHED if state.meta[L.M_PREEMPTING] else 1, L.SEARCHED_SIZE), np.int64)
    state.meta[L.M_SEARCH_EVERY] = config.preempt_every_ms
    state.meta[L.M_MIN_RUN] = config.min_run_ms
    state.meta[L.M_PATIENCE] = config.claim_patience_ms
    state.meta[L.M_MOST_CLAIMS] = config.most_claims
