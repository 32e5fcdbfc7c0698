"""Ctrl-C kept until it can be handled: one between submitting a job and waiting for it must not orphan the job."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType


class Interrupts:
    """A context in which SIGINT raises KeyboardInterrupt only inside `raised()`; an earlier one is raised then."""

    def __init__(self) -> None:
        self._raising = False
        self._came = False
        self._before: signal._HANDLER = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self._came and kind is None:
            raise KeyboardInterrupt

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Inside, SIGINT raises KeyboardInterrupt at once.

        Raises:
            KeyboardInterrupt: one came before.
        """
        self._raising = True
        try:
            if self._came:
                raise KeyboardInterrupt
            yield
        except KeyboardInterrupt:
            self._came = False
            raise
        finally:
            self._raising = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        if self._raising:
            raise KeyboardInterrupt
