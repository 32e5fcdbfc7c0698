"""What follows from changes of jobs and was not applied at once: a list of values, in order, applied a slice at a time.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from hal.planes.tasks.live.standings import Phase
from hal.planes.tasks.live.task_sets import TaskSet
from hal.planes.tasks.slices import Work


class JobChanged(Struct, frozen=True, gc=False):
    """Tasks of a live job changed, or whom it waits for: its state follows."""

    job: int
    now_ms: int
    cause: str


class PhaseChanged(Struct, frozen=True, gc=False):
    """A job went from one phase to another: the jobs that wait for it are decided again."""

    job: int
    before: Phase
    after: Phase
    now_ms: int


class TasksChanged(Struct, frozen=True, gc=False):
    """Tasks of an array ended, or wait again: so are the arrays that follow it task by task."""

    job: int
    tasks: TaskSet
    now_ms: int


Consequence = JobChanged | PhaseChanged | TasksChanged


class Worklist:
    """Consequences in order; what applying one of them adds comes last."""

    def __init__(self) -> None:
        self._waiting: deque[Consequence] = deque()
        self._current: Work[None] | None = None
        """Of the first: what is left of it."""
        self._applying = False

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return bool(self._waiting)

    def add(self, consequence: Consequence) -> None:
        """Apply it, too, after all others."""
        self._waiting.append(consequence)

    def clear(self) -> None:
        """Forget all of them."""
        self._waiting.clear()
        self._current = None

    def apply_some(self, apply: Callable[[Consequence], Work[None]], most: int) -> None:
        """One slice of what is left; nothing when it is called in the course of one.

        Args:
            apply: a consequence in steps.
            most: steps and consequences of this slice.
        """
        if self._applying:
            return
        self._applying, left = True, most
        try:
            while self._waiting and left > 0:
                if self._current is None:
                    self._current = apply(self._waiting[0])
                for _ in self._current:
                    left -= 1
                    if left <= 0:
                        return
                self._waiting.popleft()
                self._current = None
                left -= 1
        finally:
            self._applying = False
