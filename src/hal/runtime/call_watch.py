"""A thread that checks whether a call of the loop returns; until it does, the loop cannot report anything itself.

The watched code must release the interpreter's lock (numba's kernels do). A call costs two assignments and one clock
read; the thread wakes every LOOK_EVERY_S and reports each late call once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

LOOK_EVERY_S: Final = 5.0
LATE_S: Final = 30.0
"""A longer call is reported; a normal one takes a thousandth of this or less."""


class CallWatch:
    """Watches one call at a time; the thread starts with the first and ends with the process."""

    def __init__(
        self, late: Callable[[float], None], *, late_s: float = LATE_S, look_every_s: float = LOOK_EVERY_S
    ) -> None:
        """Args:
        late: called on the thread, once per late call, with the seconds for which it has been running.
        """
        self._late = late
        self._late_s = late_s
        self._look_every_s = look_every_s
        self._since = 0.0
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start watching a call."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="hal-watch", daemon=True)
            self._thread.start()
        self._since = time.monotonic()

    def end(self) -> None:
        """Stop watching: the call returned."""
        self._since = 0.0

    def close(self) -> None:
        """Stop the thread, for processes that create several watches."""
        self._closed.set()

    def _look(self) -> None:
        reported = 0.0
        while not self._closed.wait(self._look_every_s):
            since = self._since
            took_s = time.monotonic() - since
            if since and since != reported and took_s > self._late_s:
                reported = since
                self._late(took_s)


class Unwatched:
    """The watch under virtual time, where a call takes no time."""

    def begin(self) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
