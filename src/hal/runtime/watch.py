"""A thread that looks whether a call of the loop comes back: while it does not, the loop can report nothing itself.

What it watches must release the interpreter's lock (numba's kernels do). A call costs two assignments and one look at
the clock; the thread wakes every LOOK_EVERY_S and reports each late call once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

LOOK_EVERY_S: Final = 5.0
LATE_S: Final = 30.0
"""A call that takes longer is reported: thousands of times what one takes."""


class CallWatch:
    """Watches one call at a time; the thread starts with the first and ends with the process."""

    def __init__(
        self, late: Callable[[float], None], *, late_s: float = LATE_S, look_every_s: float = LOOK_EVERY_S
    ) -> None:
        """late: told on the thread, once for each call, after how many seconds it is still running."""
        self._late = late
        self._late_s = late_s
        self._look_every_s = look_every_s
        self._since = 0.0
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """A call begins."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="hal-watch", daemon=True)
            self._thread.start()
        self._since = time.monotonic()

    def end(self) -> None:
        """It came back."""
        self._since = 0.0

    def close(self) -> None:
        """Look no more; for who has several in one process."""
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
    """Where time is virtual: a call takes none."""

    def begin(self) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""
