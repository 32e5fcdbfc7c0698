"""The threads of a worker that run tasks: as many as wait inside of tasks, and one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

MAX_RUNNERS: Final = 1_000
"""Threads of a worker that run tasks, or wait inside of one."""


class Runners:
    """Starts a thread when all others wait, and parks those that are too many.

    Args:
        work: what a thread runs; it calls `stay` before it looks for more.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._changed = threading.Condition()
        self._active = 1
        self._started = 1
        self._parked = 0
        self._wakes = 0
        self._over = False

    @property
    def full(self) -> bool:
        """No other thread would run while this one waits."""
        return self._started >= MAX_RUNNERS and not self._parked

    def wait_begins(self) -> None:
        """The calling thread runs nothing for a while: another one takes its place."""
        with self._changed:
            self._active -= 1
            if self._active:
                return
            self._active += 1
            if self._parked > self._wakes:
                self._wakes += 1
                self._changed.notify()
                return
            self._started += 1
        threading.Thread(target=self._work, name="hal-runner", daemon=True).start()

    def wait_ends(self) -> None:
        """The calling thread goes on."""
        with self._changed:
            self._active += 1

    def stay(self) -> None:
        """Park the calling thread as long as another one looks for work."""
        with self._changed:
            if self._active <= 1 or self._over:
                return
            self._active -= 1
            self._parked += 1
            while not self._wakes and not self._over:
                self._changed.wait()
            self._parked -= 1
            if not self._over:
                self._wakes -= 1

    def end(self) -> None:
        """Wake all that are parked: there is no more work."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
