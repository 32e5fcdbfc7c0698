"""What becomes of a job that waits for others, as values: decided here, applied by the table alone.

Values only.
"""

from __future__ import annotations

from msgspec import Struct

from hal.core.lifecycle import TaskEvent
from hal.core.model import Dependency
from hal.planes.tasks.live.task_range import TaskRange


class SetReason(Struct, frozen=True, gc=False):
    """Why the job waits or ended, in words; '' for nothing to say."""

    reason: str


class ApplyEvent(Struct, frozen=True, gc=False):
    """Every waiting task for which the event is declared takes it."""

    event: TaskEvent
    reason: str


class ReleaseHeld(Struct, frozen=True, gc=False):
    """What is held because of a dependency waits for it again, unless a person holds the job."""


class MakeEligible(Struct, frozen=True, gc=False):
    """The dependencies of the whole job are past: from that instant on its tasks wait for resources."""

    eligible_ms: int


class ReplaceRange(Struct, frozen=True, gc=False):
    """`after` instead of `before`, the same tasks, which the engine does not know."""

    before: TaskRange
    after: TaskRange


class SetDependencies(Struct, frozen=True, gc=False):
    """The job waits for these from now on, as they stand now; they are in its spec."""

    dependencies: tuple[Dependency, ...]


class StopWaiting(Struct, frozen=True, gc=False):
    """The job no longer waits for any other."""


Change = SetReason | ApplyEvent | ReleaseHeld | MakeEligible | ReplaceRange | SetDependencies | StopWaiting
