"""Long work cut into slices: generators that yield where others may have a turn, and return their result.

Pure. Whoever drives one in the loop lets the loop turn at each yield; nothing else may be staged before it has ended.
How much a slice does is counted in jobs, dependencies and ranges of tasks, never in time.
"""

from __future__ import annotations

from typing import Any, Final

from hal.planes.interface import Work, finished

__all__ = ["A_SLICE", "CHEAP_A_SLICE", "FREED_A_SLICE", "Pace", "Work", "emptied", "finished"]

A_SLICE: Final = 256
"""Jobs, dependencies or ranges of tasks that one slice looks at: some milliseconds."""
CHEAP_A_SLICE: Final = 4_096
"""The same of what takes a microsecond each."""
FREED_A_SLICE: Final = 1_024
"""Values that are let go of in one slice."""


def emptied(*lists: list[Any]) -> Work[None]:
    """Let go of all that is in these lists, in slices: 100,000 jobs at once would take a tenth of a second."""
    for some in lists:
        while some:
            del some[-FREED_A_SLICE:]
            yield


class Pace:
    """Counts what a slice has done."""

    __slots__ = ("_left", "_most")

    def __init__(self, most: int = A_SLICE) -> None:
        self._most = self._left = most

    def over(self, cost: int = 1) -> bool:
        """Count work that was done; returns whether the slice ends here, and another begins."""
        self._left -= cost
        if self._left > 0:
            return False
        self._left = self._most
        return True
