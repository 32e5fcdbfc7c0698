"""How many log lines an outside source may cause: a token bucket; what exceeds it is counted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import ceil
from typing import Any, Final

from hal.runtime.interface import Logger

LINES: Final = 30
"""In a burst."""
LINES_PER_S: Final = 0.2
"""Sustained."""
MAX_SOURCES: Final = 1_024
"""Sources that are tracked separately; the one that was silent for longest is forgotten."""


class Bucket:
    """A token bucket: refills at a steady rate, up to its size."""

    __slots__ = ("_at_ms", "_left", "_now_ms", "_per_s", "_size")

    def __init__(self, now_ms: Callable[[], int], size: int, per_s: float) -> None:
        """`now_ms`: a clock that never goes back."""
        self._now_ms = now_ms
        self._size = size
        self._per_s = per_s
        self._left = float(size)
        self._at_ms = now_ms()

    def take(self, cost: int = 1) -> bool:
        """Spend `cost`; False, and nothing is spent, if the budget does not cover it."""
        self._refill()
        if self._left < cost:
            return False
        self._left -= cost
        return True

    def charge(self, cost: int = 1) -> None:
        """Spend `cost` whatever is left: what is missing is a debt, which later refills pay."""
        self._refill()
        self._left -= cost

    def wait_ms(self) -> int:
        """How long until there is no debt any more; 0: there is none."""
        self._refill()
        return ceil(-self._left * 1_000 / self._per_s) if self._left < 0 else 0

    def _refill(self) -> None:
        now_ms = self._now_ms()
        self._left = min(self._left + (now_ms - self._at_ms) * self._per_s / 1_000, float(self._size))
        self._at_ms = now_ms


class BudgetedLog:
    """A log within a budget; the number of omitted lines is logged before the next line that is written."""

    def __init__(self, log: Logger, now_ms: Callable[[], int], *, lines: int = LINES) -> None:
        self._log = log
        self._bucket = Bucket(now_ms, lines, LINES_PER_S)
        self._left_out = 0

    def info(self, event: str, **values: Any) -> None:
        """As `Logger.info`, within the budget."""
        if self._may():
            self._log.info(event, **values)

    def warning(self, event: str, **values: Any) -> None:
        """As `Logger.warning`, within the budget."""
        if self._may():
            self._log.warning(event, **values)

    def error(self, event: str, **values: Any) -> None:
        """As `Logger.error`, within the budget."""
        if self._may():
            self._log.error(event, **values)

    def _may(self) -> bool:
        if not self._bucket.take():
            self._left_out += 1
            return False
        if self._left_out:
            self._log.warning("lines of this kind were omitted", lines=self._left_out)
            self._left_out = 0
        return True


class BudgetedLogs:
    """A log in which each source of lines has its own budget: a user, a node, all strangers together."""

    def __init__(self, log: Logger, now_ms: Callable[[], int]) -> None:
        self._log = log
        self._now_ms = now_ms
        self._of: OrderedDict[str, BudgetedLog] = OrderedDict()

    def __len__(self) -> int:
        return len(self._of)

    def of(self, source: str) -> BudgetedLog:
        """The log of one source."""
        found = self._of.get(source)
        if found is None:
            if len(self._of) >= MAX_SOURCES:
                self._of.popitem(last=False)
            found = self._of[source] = BudgetedLog(self._log, self._now_ms)
        self._of.move_to_end(source)
        return found
