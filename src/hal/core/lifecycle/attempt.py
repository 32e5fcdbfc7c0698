"""The life of an attempt: one try at running a task.

Pure data. The rules:

1. An attempt exists from its allocation on; it ends once, and its end is final.
2. An attempt that ran is finalised before it ends (running or suspended → finalising → an end). If nothing ran,
finalising is skipped: allocated and preparing may be refused or fail at once.
3. A node that is lost or declared gone, and a cancel with nothing left to finalise, end it from any state.
4. Refused: one of its steps was not begun, by its keeper or by a gate of its node. Other steps of a gang may have
begun; they are ended first (finalising), and the attempt is refused nevertheless.
5. Preempted: the engine needed its resources for other work, or a person evicted it; either way it is finalised first.
Who evicts by cancelling, cancels it.
"""

from __future__ import annotations

from enum import StrEnum

from hal.core.lifecycle.automaton import Automaton
from hal.core.model import AttemptState


class AttemptEvent(StrEnum):
    """What happens to an attempt."""

    PREPARE = "prepare"
    START = "start"
    SUSPEND = "suspend"
    RESUME = "resume"
    FINALISE = "finalise"
    SUCCEED = "succeed"
    FAIL = "fail"
    TIME_OUT = "time-out"
    CANCEL = "cancel"
    REFUSE = "refuse"
    PREEMPT = "preempt"
    LOSE = "lose"
    RUN_OUT_OF_MEMORY = "run-out-of-memory"


_S = AttemptState
_E = AttemptEvent

ATTEMPT: Automaton[AttemptState, AttemptEvent] = Automaton(
    "attempt",
    initial=frozenset({_S.ALLOCATED}),
    table={
        _S.ALLOCATED: {
            _E.PREPARE: _S.PREPARING,
            _E.FINALISE: _S.FINALISING,
            _E.REFUSE: _S.REFUSED,
            _E.FAIL: _S.FAILED,
            _E.CANCEL: _S.CANCELLED,
            _E.PREEMPT: _S.PREEMPTED,
            _E.LOSE: _S.LOST,
        },
        _S.PREPARING: {
            _E.START: _S.RUNNING,
            _E.FINALISE: _S.FINALISING,
            _E.REFUSE: _S.REFUSED,
            _E.FAIL: _S.FAILED,
            _E.CANCEL: _S.CANCELLED,
            _E.PREEMPT: _S.PREEMPTED,
            _E.LOSE: _S.LOST,
        },
        _S.RUNNING: {
            _E.SUSPEND: _S.SUSPENDED,
            _E.FINALISE: _S.FINALISING,
            _E.CANCEL: _S.CANCELLED,
            _E.LOSE: _S.LOST,
        },
        _S.SUSPENDED: {
            _E.RESUME: _S.RUNNING,
            _E.FINALISE: _S.FINALISING,
            _E.CANCEL: _S.CANCELLED,
            _E.LOSE: _S.LOST,
        },
        _S.FINALISING: {
            _E.SUCCEED: _S.SUCCEEDED,
            _E.FAIL: _S.FAILED,
            _E.TIME_OUT: _S.TIMED_OUT,
            _E.CANCEL: _S.CANCELLED,
            _E.REFUSE: _S.REFUSED,
            _E.PREEMPT: _S.PREEMPTED,
            _E.LOSE: _S.LOST,
            _E.RUN_OUT_OF_MEMORY: _S.OUT_OF_MEMORY,
        },
    },
)

END_EVENTS: dict[AttemptState, AttemptEvent] = {
    _S.SUCCEEDED: _E.SUCCEED,
    _S.FAILED: _E.FAIL,
    _S.TIMED_OUT: _E.TIME_OUT,
    _S.CANCELLED: _E.CANCEL,
    _S.REFUSED: _E.REFUSE,
    _S.PREEMPTED: _E.PREEMPT,
    _S.LOST: _E.LOSE,
    _S.OUT_OF_MEMORY: _E.RUN_OUT_OF_MEMORY,
}
"""The event that leads to each end."""
