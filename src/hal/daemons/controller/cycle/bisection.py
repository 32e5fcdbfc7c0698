"""Why a group failed: the culprit is found by halves, so that one thing that cannot be committed delays nobody.

Pure. A group that fails for the values in it is tried again in halves, until one thing alone fails. That one is
accused; where a group of nothing succeeds, it is to blame and left out. While this lasts nothing else is taken in: some
2 · log2(n) groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from hal.daemons.controller.cycle.inbox import Call, Report

Item = Report | Call[Any]


class Bisection:
    """Of one loop."""

    def __init__(self) -> None:
        self._suspects: deque[Item] = deque()
        """Reports and calls that are to be tried again, in order."""
        self._most = 0
        """How many of them are tried at a time."""
        self._accused: tuple[Item, Exception] | None = None

    @property
    def active(self) -> bool:
        """Groups are to be taken from here."""
        return bool(self._suspects) or self._accused is not None

    @property
    def verifying(self) -> bool:
        """One thing failed alone: it is to blame if a group of nothing succeeds, and that one must be written."""
        return self._accused is not None

    def take(self) -> tuple[list[Report], list[Call[Any]]]:
        """The next group."""
        if self._accused is not None:
            return [], []
        items = [self._suspects.popleft() for _ in range(min(self._most, len(self._suspects)))]
        return [one for one in items if isinstance(one, Report)], [one for one in items if isinstance(one, Call)]

    def failed(self, items: Sequence[Item], error: Exception) -> bool:
        """The group of these failed for what was in it. False: nothing in it is to blame."""
        if not items:
            return False
        if len(items) == 1:
            self._accused = items[0], error
            return True
        self._suspects.extendleft(reversed(items))
        self._most = max(len(items) // 2, 1)
        return True

    def passed(self) -> tuple[Item, Exception] | None:
        """The group was committed: who is to blame for the one before, if that is known now."""
        accused, self._accused = self._accused, None
        return accused

    def abandon(self) -> list[Item]:
        """All that is still to be tried: the store takes nothing now, so nothing can be found out."""
        accused = [] if self._accused is None else [self._accused[0]]
        items = [*accused, *self._suspects]
        self._suspects.clear()
        self._accused = None
        return items
