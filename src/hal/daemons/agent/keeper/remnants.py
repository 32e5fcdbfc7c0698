"""End what is left of steps: watch or kill until nothing is left; one pass over /proc for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from hal.core.model import StepId
from hal.daemons.agent.keeper import processes
from hal.daemons.agent.keeper.ports import Gone
from hal.daemons.agent.keeper.processes import Mark, Others
from hal.daemons.agent.keeper.slot import thaw
from hal.daemons.agent.keeper.step import SIGKILL

FIRST_LOOK_MS: Final = 5
LONGEST_LOOK_MS: Final = 250
UNINTERRUPTIBLE: Final = "D"
"""State of a process that waits for a disk, or is frozen."""
MAX_KILL_MS: Final = 10_000
"""Processes that SIGKILL has not ended by then (stuck in the kernel) are reported and left."""


class _Case:
    __slots__ = ("delay_ms", "force", "killed", "look_ms", "since_ms")

    def __init__(self, now_ms: int) -> None:
        self.force = False
        self.look_ms = now_ms
        self.delay_ms = FIRST_LOOK_MS
        self.since_ms = now_ms
        """When SIGKILL was first sent."""
        self.killed: set[int] = set()


class Remnants:
    """The steps that are being watched or killed."""

    def __init__(
        self,
        marks: Callable[[Iterable[StepId]], Mapping[StepId, Mark]],
        spare: Callable[[], list[int]],
        others: Callable[[Iterable[StepId]], Others],
    ) -> None:
        self._marks = marks
        self._spare = spare
        self._others = others
        self._cases: dict[StepId, _Case] = {}

    def begin(self, steps: Iterable[StepId], *, force: bool, now_ms: int) -> None:
        for step in steps:
            case = self._cases.setdefault(step, _Case(now_ms))
            if force and not case.force:
                case.force, case.since_ms, case.delay_ms, case.look_ms = True, now_ms, FIRST_LOOK_MS, now_ms

    def end(self, step: StepId) -> None:
        """Stop: nothing is left of the step."""
        self._cases.pop(step, None)

    def next_ms(self) -> int | None:
        """When to look again, by the boot clock."""
        return min((case.look_ms for case in self._cases.values()), default=None)

    def look(self, now_ms: int) -> Sequence[Gone]:
        """Check the steps that are due; returns those of which nothing is left, or nothing more can be killed."""
        due = [step for step, case in self._cases.items() if case.look_ms <= now_ms]
        if not due:
            return ()
        gone: list[Gone] = []
        marks = self._marks(due)
        found = processes.members(marks, self._spare(), self._others(due))
        for step in due:
            case, alive = self._cases[step], found[step]
            left = bool(alive) or processes.is_left(marks[step])
            if left and case.force:
                if now_ms - case.since_ms >= MAX_KILL_MS:
                    which = ", ".join(f"{info.pid} (state {info.state})" for info in alive[:5]) or "of changing pids"
                    gone.append(Gone(step, len(case.killed), f"processes that could not be killed are left: {which}"))
                    continue
                processes.send(alive, SIGKILL)
                for info in alive:
                    if info.state == UNINTERRUPTIBLE:
                        thaw(info.pid)
                processes.chase(marks[step])
                case.killed.update(info.pid for info in alive)
            if not left:
                gone.append(Gone(step, len(case.killed)))
            case.look_ms = now_ms + case.delay_ms
            case.delay_ms = min(LONGEST_LOOK_MS, 2 * case.delay_ms)
        return gone
