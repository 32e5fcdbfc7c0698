"""The memory of a worker's process: what its threads share, and how much of it there may be."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from hal.runtime.task_payloads import decode_value

MAX_LOADED: Final = 512
"""Functions that are kept beside those that tasks use."""
LOOK_S: Final = 0.25
"""How often the process looks how much memory it uses."""


class SharedObjects:
    """Functions and values that the threads of one process have in common."""

    def __init__(self) -> None:
        self._loading = threading.RLock()
        self._loaded: dict[bytes, Callable[..., Any]] = {}
        """Functions by what they were loaded from: tasks of tasks bring the same ones under other ids."""
        self._values: dict[int, list[Any]] = {}
        """By id: the value, and how many threads have it."""

    def function(self, data: bytes) -> Callable[..., Any]:
        """The function that was pickled so.

        Raises: what loading it raises.
        """
        with self._loading:
            function = self._loaded.get(data)
            if function is None:
                if len(self._loaded) >= MAX_LOADED:
                    self._loaded.clear()
                function = self._loaded[data] = decode_value(data)
            return function

    def value(self, ref: int, load: Callable[[], Any]) -> Any:
        """A shared value; a thread asks for it once.

        Raises: what loading it raises.
        """
        with self._loading:
            found = self._values.get(ref)
            if found is None:
                found = self._values[ref] = [load(), 0]
            found[1] += 1
            return found[0]

    def drop_value(self, ref: int) -> None:
        """A thread that has asked for it does not need it any more."""
        with self._loading:
            found = self._values[ref]
            found[1] -= 1
            if not found[1]:
                del self._values[ref]


class MemoryBound:
    """Sees whether the process has more memory than it may; then another process is to take its place.

    Attributes:
        passed: it was seen that it has.
    """

    def __init__(self, most_bytes: int, tell: Callable[[], None] = lambda: None) -> None:
        """
        Args:
            most_bytes: 0: as much as it likes.
            tell: called once when it has more.
        """
        self._most_pages = most_bytes // os.sysconf("SC_PAGE_SIZE")
        self._tell = tell
        self._looked_s = 0.0
        self.passed = False

    def is_passed(self) -> bool:
        """Whether it was just seen, for the first time. Looks now and then."""
        if not self._most_pages or self.passed:
            return False
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_S:
            return False
        self._looked_s = now_s
        self.passed = _resident_pages() > self._most_pages
        return self.passed

    def tell(self) -> None:
        """Tell it."""
        self._tell()


def _resident_pages() -> int:
    """Of this process, without what it shares with others."""
    with open("/proc/self/statm", "rb") as file:
        fields = file.read().split()
    return int(fields[1]) - int(fields[2])
