"""Jobs of a log that wait for one domain for some time: when each gives up, and what it asks for then.

As the controller does it: what waits is withdrawn and submitted again in a class of no level, with its old place in the
order. All jobs of a replay wait equally long, so they give up in the order in which they were submitted.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hal.core.engine.events import INF, JobsCancelled, SubmitRows

IntArray = NDArray[np.int64]


class PackWaits:
    """Which jobs still wait for one domain."""

    def __init__(self, submits: SubmitRows, wait_ms: int, later: IntArray) -> None:
        """
        Args:
            submits: one row for each job, in the order of their submission. wait_ms: 0: none gives up.
            later: by class index: that of what it asks for afterwards, itself where it asks for no domain.
        """
        self._submits = submits
        self._later = later[submits["class_index"]]
        asks = self._later != submits["class_index"]
        self._waiting: list[int] = np.flatnonzero(asks).tolist() if wait_ms else []
        self._due_ms: list[int] = (submits["eligible_ms"] + wait_ms).tolist()
        self._next = 0

    def next_ms(self, starts: Callable[[int], bool]) -> int:
        """When the next job gives up; INF: none does.

        Args:
            starts: whether the job of that index has started.
        """
        while self._next < len(self._waiting) and starts(self._waiting[self._next]):
            self._next += 1
        return self._due_ms[self._waiting[self._next]] if self._next < len(self._waiting) else INF

    def give_up(self, now_ms: int, starts: Callable[[int], bool]) -> tuple[JobsCancelled, SubmitRows]:
        """What is withdrawn and submitted again at an instant that `next_ms` gave."""
        over: list[int] = []
        while self._next < len(self._waiting) and self._due_ms[self._waiting[self._next]] <= now_ms:
            if not starts(self._waiting[self._next]):
                over.append(self._waiting[self._next])
            self._next += 1
        rows = self._submits[over].copy()
        rows["class_index"] = self._later[over]
        return JobsCancelled(rows["job"].copy()), rows
