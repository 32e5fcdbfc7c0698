"""Signals collected for a loop that waits for descriptors, instead of what they would do."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

READ_BYTES: Final = 1 << 16


class CaughtSignals:
    """Signals that have come and were not taken yet."""

    def __init__(self) -> None:
        self._came: list[int] = []

    @contextmanager
    def catching(self, wanted: Iterable[int]) -> Iterator[int]:
        """Collect these; gives a descriptor that is readable when one has come."""
        wake, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        before = {number: signal.signal(number, self._caught) for number in wanted}
        waker = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        try:
            yield wake
        finally:
            signal.set_wakeup_fd(waker)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(wake)
            os.close(write)

    @property
    def first(self) -> int:
        """The first one that was not taken yet; 0: none."""
        return self._came[0] if self._came else 0

    def take(self, wake: int) -> list[int]:
        """Return those that have come, in order.

        Args:
            wake: the descriptor; emptied.
        """
        with contextlib.suppress(BlockingIOError):
            os.read(wake, READ_BYTES)
        came, self._came = self._came, []
        return came

    def _caught(self, number: int, frame: FrameType | None) -> None:
        self._came.append(number)
