"""The life of a task, and of a job, whose state follows from those of its tasks.

Pure data. The rules:

1. A task waits as pending or held; only a pending one is allocated.
2. The way to its processes is pending → allocated → preparing → running, none skipped: if no gate is registered on
preparing, PREPARE and START come together.
3. A task that ran is finalised before it ends: running or suspended → finalising → an end (or pending again). If
nothing ran, finalising is skipped: allocated and preparing may fail at once.
4. Any state that is not an end can be cancelled, at once if there is nothing to finalise (its node is gone).
5. A refused start returns allocated → pending. A requeue (retry after a failure, lost node, preemption, a person's
request) returns any active state to pending, for a new attempt.
6. Pending and held tasks fail or are cancelled without an attempt because of a dependency or an admission rule.
7. An end is final, with one exception: a person's requeue, which begins a new attempt.
"""

from __future__ import annotations

from enum import StrEnum

from hal.core.lifecycle.automaton import Automaton
from hal.core.model import TaskState


class TaskEvent(StrEnum):
    """What happens to a task."""

    HOLD = "hold"
    RELEASE = "release"
    ALLOCATE = "allocate"
    REFUSE = "refuse"
    PREPARE = "prepare"
    START = "start"
    SUSPEND = "suspend"
    RESUME = "resume"
    FINALISE = "finalise"
    SUCCEED = "succeed"
    FAIL = "fail"
    TIME_OUT = "time-out"
    CANCEL = "cancel"
    REQUEUE = "requeue"


_S = TaskState
_E = TaskEvent

TASK: Automaton[TaskState, TaskEvent] = Automaton(
    "task",
    initial=frozenset({_S.PENDING, _S.HELD}),
    table={
        _S.PENDING: {
            _E.HOLD: _S.HELD,
            _E.ALLOCATE: _S.ALLOCATED,
            _E.FAIL: _S.FAILED,
            _E.CANCEL: _S.CANCELLED,
        },
        _S.HELD: {
            _E.RELEASE: _S.PENDING,
            _E.FAIL: _S.FAILED,
            _E.CANCEL: _S.CANCELLED,
        },
        _S.ALLOCATED: {
            _E.PREPARE: _S.PREPARING,
            _E.REFUSE: _S.PENDING,
            _E.FINALISE: _S.FINALISING,
            _E.FAIL: _S.FAILED,
            _E.CANCEL: _S.CANCELLED,
            _E.REQUEUE: _S.PENDING,
        },
        _S.PREPARING: {
            _E.START: _S.RUNNING,
            _E.FINALISE: _S.FINALISING,
            _E.FAIL: _S.FAILED,
            _E.CANCEL: _S.CANCELLED,
            _E.REQUEUE: _S.PENDING,
        },
        _S.RUNNING: {
            _E.SUSPEND: _S.SUSPENDED,
            _E.FINALISE: _S.FINALISING,
            _E.CANCEL: _S.CANCELLED,
            _E.REQUEUE: _S.PENDING,
        },
        _S.SUSPENDED: {
            _E.RESUME: _S.RUNNING,
            _E.FINALISE: _S.FINALISING,
            _E.CANCEL: _S.CANCELLED,
            _E.REQUEUE: _S.PENDING,
        },
        _S.FINALISING: {
            _E.SUCCEED: _S.SUCCEEDED,
            _E.FAIL: _S.FAILED,
            _E.TIME_OUT: _S.TIMED_OUT,
            _E.CANCEL: _S.CANCELLED,
            _E.REQUEUE: _S.PENDING,
        },
        _S.SUCCEEDED: {_E.REQUEUE: _S.PENDING},
        _S.FAILED: {_E.REQUEUE: _S.PENDING},
        _S.TIMED_OUT: {_E.REQUEUE: _S.PENDING},
        _S.CANCELLED: {_E.REQUEUE: _S.PENDING},
    },
)
