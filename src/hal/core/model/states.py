"""The states of jobs, tasks, attempts and nodes; `hal.core.lifecycle` alone defines which may follow which.

Pure. The values are stored, sent and shown.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class TaskState(StrEnum):
    """The state of a task, or of a job (which follows from those of its tasks: `lifecycle.job_state`)."""

    PENDING = "pending"
    HELD = "held"
    ALLOCATED = "allocated"
    PREPARING = "preparing"
    RUNNING = "running"
    SUSPENDED = "suspended"
    FINALISING = "finalising"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """No other state follows, except by a person's requeue."""
        return self in ENDED_TASK_STATES

    @property
    def active(self) -> bool:
        """It holds resources on nodes."""
        return self in ACTIVE_TASK_STATES


ENDED_TASK_STATES = frozenset({TaskState.SUCCEEDED, TaskState.FAILED, TaskState.TIMED_OUT, TaskState.CANCELLED})
ACTIVE_TASK_STATES = frozenset(
    {TaskState.ALLOCATED, TaskState.PREPARING, TaskState.RUNNING, TaskState.SUSPENDED, TaskState.FINALISING}
)


class AttemptState(StrEnum):
    """The state of one attempt at running a task."""

    ALLOCATED = "allocated"
    PREPARING = "preparing"
    RUNNING = "running"
    SUSPENDED = "suspended"
    FINALISING = "finalising"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    PREEMPTED = "preempted"
    LOST = "lost"
    OUT_OF_MEMORY = "out-of-memory"

    @property
    def ended(self) -> bool:
        """No other state follows."""
        return self in ENDED_ATTEMPT_STATES


ENDED_ATTEMPT_STATES = frozenset(
    {
        AttemptState.SUCCEEDED,
        AttemptState.FAILED,
        AttemptState.TIMED_OUT,
        AttemptState.CANCELLED,
        AttemptState.REFUSED,
        AttemptState.PREEMPTED,
        AttemptState.LOST,
        AttemptState.OUT_OF_MEMORY,
    }
)


class NodeState(StrEnum):
    """The state of a node: whether new steps may start on it, and whether its agent is connected."""

    UP = "up"
    CORDONED = "cordoned"
    DRAINING = "draining"
    UNREACHABLE = "unreachable"
    STOPPED = "stopped"
    DOWN = "down"
    REMOVED = "removed"


AWAY_NODE_STATES: Final = frozenset({NodeState.UNREACHABLE, NodeState.STOPPED})
"""Its agent is not heard, whether or not it said so before: nothing new starts there, and its steps stay."""
