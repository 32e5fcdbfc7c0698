"""How far tasks have come, in one line that is written over while they run.

Shown on a terminal or in a notebook (`hal.client.progress_line`); elsewhere no thread is started and nobody is asked.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Future, as_completed
from typing import Any, Final, NamedTuple

from hal.client.progress_line import ProgressLine
from hal.client.sessions.questions import ask_numbers
from hal.core.model.errors import HALError
from hal.runtime.session_file import SessionFile
from hal.runtime.task_context import waiting

SHOW_S: Final = 0.25
"""How often the line is written."""
ASK_S: Final = 1.0
"""How often the broker is asked for the number of slots."""
RATE_S: Final = 10.0
"""The rate is that of the last so many seconds."""


class Progress(NamedTuple):
    """Counts of tasks.

    Attributes:
        done: tasks that have ended, failed ones included.
        total: how many there will be; None: nobody knows.
    """

    done: int
    failed: int
    total: int | None


class ProgressDisplay:
    """Shows counts until it is closed.

    Args:
        session: whose slots are shown.
        title: begins the line.
        counted: returns the counts as they are now; called by another thread.
    """

    def __init__(self, session: SessionFile, title: str, counted: Callable[[], Progress]) -> None:
        self._session, self._title, self._counted = session, title, counted
        self._line = ProgressLine()
        self._seen: deque[tuple[float, int]] = deque()
        self._slots: int | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def shown(self) -> bool:
        """Whether anybody sees it."""
        return self._line.shown

    def begin(self) -> None:
        """Begin to show; where nobody sees it nothing happens."""
        if self.shown:
            self._show()
            self._thread = threading.Thread(target=self._run, name="hal-progress", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Show it a last time, and take the line off the terminal."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
            self._show()
            self._line.clear()

    def _run(self) -> None:
        asked_s = 0.0
        while not self._stop.wait(SHOW_S):
            if time.monotonic() - asked_s >= ASK_S:
                asked_s = time.monotonic()
                with contextlib.suppress(HALError):
                    self._slots = ask_numbers(self._session).slots
            self._show()

    def _show(self) -> None:
        now_s, counts = time.monotonic(), self._counted()
        self._seen.append((now_s, counts.done))
        while len(self._seen) > 2 and self._seen[0][0] < now_s - RATE_S:
            self._seen.popleft()
        (since_s, before) = self._seen[0]
        rate = (counts.done - before) / (now_s - since_s) if now_s > since_s else 0.0
        part = counts.done / counts.total if counts.total else None
        self._line.show(line_of(self._title, counts, rate, self._slots), part)


def line_of(title: str, counts: Progress, rate: float, slots: int | None) -> str:
    """`fit: 340 of 1,000 tasks, 2 failed, 85 a second, 4 slots, 0:08 left`. Pure.

    Args:
        rate: tasks a second.
        slots: None: not known yet.
    """
    done, failed, total = counts
    parts = [f"{done:,} tasks" if total is None else f"{done:,} of {total:,} tasks"]
    if failed:
        parts.append(f"{failed:,} failed")
    if rate > 0:
        parts.append(f"{rate:,.0f} a second" if rate >= 10 else f"{rate:.1f} a second")
    if slots is not None:
        parts.append(f"{slots} slot{'s' * (slots != 1)}")
    if total is not None and rate > 0 and done < total:
        left = round((total - done) / rate)
        hours, minutes = left // 3_600, left // 60 % 60
        parts.append(f"{hours}:{minutes:02}:{left % 60:02} left" if hours else f"{minutes}:{left % 60:02} left")
    return (f"{title}: " if title else "") + ", ".join(parts)


def length_of(iterables: Iterable[Iterable[Any]]) -> int | None:
    """How many items they have together, item by item; None: one of them does not say."""
    lengths = [len(one) if isinstance(one, Sized) else None for one in iterables]
    known = [length for length in lengths if length is not None]
    return min(known, default=0) if len(known) == len(lengths) else None


def as_completed_shown(
    session: SessionFile, futures: Iterable[Future[Any]], title: str, timeout: float | None
) -> Iterator[Future[Any]]:
    """Yield futures as they complete, and show how many have.

    Raises:
        TimeoutError: not all have completed in time.
    """
    waited = list(dict.fromkeys(futures))
    done = failed = 0
    counting = threading.Lock()

    def note(future: Future[Any]) -> None:
        nonlocal done, failed
        bad = not future.cancelled() and future.exception() is not None
        with counting:
            done += 1
            failed += bad

    display = ProgressDisplay(session, title, lambda: Progress(done, failed, len(waited)))
    if display.shown:
        for future in waited:
            future.add_done_callback(note)
    display.begin()
    try:
        completed = as_completed(waited, timeout)
        for _ in waited:
            with waiting():
                future = next(completed)
            yield future
    finally:
        display.close()
