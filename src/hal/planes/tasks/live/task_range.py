"""One range of tasks that are alike.

Pure.
"""

from __future__ import annotations

from msgspec import Struct

from hal.core.model.states import TaskState


class TaskRange(Struct, frozen=True, gc=False):
    """`count` tasks from `first` on that have no active attempt and did not end through one.

    `state` is pending, held, cancelled or failed (by a dependency).
    """

    first: int
    count: int
    state: TaskState = TaskState.PENDING
    attempt: int = 1
    """Number of the next attempt."""
    eligible_ms: int = 0
    retries: int = 0
    """Retries used so far."""
    reason: str = ""

    @property
    def end(self) -> int:
        """One past the last task."""
        return self.first + self.count

    def alike(self, other: TaskRange) -> bool:
        """Whether the two may be one range where they touch."""
        return (
            self.state is other.state
            and self.attempt == other.attempt
            and self.eligible_ms == other.eligible_ms
            and self.retries == other.retries
            and self.reason == other.reason
        )
