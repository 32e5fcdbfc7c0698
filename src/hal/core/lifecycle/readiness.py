"""Whether a task of a service is ready, from the answers to its probes.

Pure. The rules:

1. A task is starting until enough answers in a row agree: `successes` of them make it ready, `failures` of them make it
not ready. The same changes it later.
2. A probe that could not be asked, which is nobody's answer, changes nothing of a task whose standing is known. While
it is not known, it counts as a failure, so that people see why nothing becomes ready.
3. Before a task was ready for the first time it is asked more often: after `FIRST_DELAY_MS`, then twice as long each
time, up to its interval.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

FIRST_DELAY_MS: Final = 100
"""Before the first probe."""
_MAX_DOUBLINGS: Final = 16


class ReadinessWatch(Struct, frozen=True, kw_only=True):
    """How one task stands; every answer returns a new watch."""

    successes: int
    failures: int
    ready: bool | None = None
    """None: starting, as far as is known."""
    reason: str = ""
    """For people: why it is not ready."""
    in_a_row: int = 0
    """Answers in a row that say otherwise than `ready`."""
    answers: int = 0
    """So far, until it was ready for the first time."""

    def passed(self) -> ReadinessWatch:
        """It answered that it can serve."""
        if self.ready:
            return self if not self.in_a_row else replace(self, in_a_row=0)
        streak = self.in_a_row + 1 if self.in_a_row > 0 else 1
        if streak >= self.successes:
            return replace(self, ready=True, reason="", in_a_row=0)
        return replace(self, in_a_row=streak, answers=self.answers + 1)

    def failed(self, reason: str) -> ReadinessWatch:
        """It answered that it cannot serve, or did not answer, and why."""
        if self.ready is False:
            return replace(self, in_a_row=0, reason=reason, answers=self.answers + 1)
        streak = self.in_a_row - 1 if self.in_a_row < 0 else -1
        if -streak >= self.failures:
            return replace(self, ready=False, reason=reason, in_a_row=0, answers=self.answers + 1)
        return replace(self, in_a_row=streak, answers=self.answers + 1)

    def unasked(self, reason: str) -> ReadinessWatch:
        """It could not be asked, and why."""
        return self.failed(reason) if self.ready is None else self

    def delay_ms(self, interval_ms: int, *, was_ready: bool) -> int:
        """Milliseconds until the next probe.

        Args:
            was_ready: it was ready before, in this attempt.
        """
        if was_ready:
            return interval_ms
        return min(FIRST_DELAY_MS << min(self.answers, _MAX_DOUBLINGS), interval_ms)
