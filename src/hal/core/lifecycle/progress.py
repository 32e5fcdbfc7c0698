"""The state of a job from the states of its tasks.

Pure. While a task is live, the job has the state of its furthest live task (running before allocated before pending);
it is held only if every live task is held. When all have ended, the worst end is the job's: failed, timed-out,
cancelled, succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from operator import attrgetter
from typing import Final

from msgspec import Struct

from hal.core.model import InternalError, TaskState


class TaskCounts(Struct, gc=False):
    """How many tasks of a job are in each state; fields are named like the states (timed-out: `timed_out`)."""

    pending: int = 0
    held: int = 0
    allocated: int = 0
    preparing: int = 0
    running: int = 0
    suspended: int = 0
    finalising: int = 0
    succeeded: int = 0
    failed: int = 0
    timed_out: int = 0
    cancelled: int = 0

    @property
    def active(self) -> int:
        """Tasks that have an attempt; one on credit holds nothing of its own, a suspended one no cores."""
        return self.allocated + self.preparing + self.running + self.suspended + self.finalising

    @property
    def live(self) -> int:
        """Tasks that have not ended."""
        return self.pending + self.held + self.active

    @property
    def total(self) -> int:
        """All tasks."""
        return self.live + self.succeeded + self.failed + self.timed_out + self.cancelled

    def of(self, state: TaskState) -> int:
        """Number of tasks in that state."""
        count: int = getattr(self, _FIELDS[state])
        return count

    def move(self, before: TaskState | None, after: TaskState, count: int = 1) -> None:
        """Move `count` tasks from one state to another (None: they are new).

        Raises:
            InternalError: fewer than `count` are in `before`.
        """
        if before is not None:
            field = _FIELDS[before]
            have: int = getattr(self, field)
            if have < count:
                raise InternalError(f"{count} tasks should leave '{before}', where {have} are")
            setattr(self, field, have - count)
        field = _FIELDS[after]
        setattr(self, field, getattr(self, field) + count)


_FIELDS: Final = {state: state.value.replace("-", "_") for state in TaskState}

_FURTHEST_FIRST: Final = (
    TaskState.RUNNING,
    TaskState.SUSPENDED,
    TaskState.FINALISING,
    TaskState.PREPARING,
    TaskState.ALLOCATED,
    TaskState.PENDING,
    TaskState.HELD,
    TaskState.FAILED,
    TaskState.TIMED_OUT,
    TaskState.CANCELLED,
    TaskState.SUCCEEDED,
)


def counts_of(states: Sequence[TaskState]) -> Callable[[TaskCounts], tuple[int, ...]]:
    """What reads the numbers of tasks in these states, two at least, in this order and at once."""
    return attrgetter(*(_FIELDS[state] for state in states))


_counts_furthest_first: Final = counts_of(_FURTHEST_FIRST)


def job_state(counts: TaskCounts) -> TaskState:
    """Return the job's state.

    Raises:
        InternalError: there is no task at all.
    """
    found = next(compress(_FURTHEST_FIRST, _counts_furthest_first(counts)), None)
    if found is None:
        raise InternalError("a job without tasks has no state")
    return found
