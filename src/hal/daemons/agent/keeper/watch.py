"""What the parts of the keeper ask of its loop: the clocks, and to be told when a descriptor can be read or written."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from hal.daemons.agent.keeper.ports import Instant


def read_clocks() -> Instant:
    """Both clocks, now."""
    return Instant(time.time_ns() // 1_000_000, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000)


class Watcher(Protocol):
    """Descriptors that the loop waits for."""

    def watch(self, fd: int, ready: Callable[[], None], *, write: bool = False) -> None:
        """Call `ready` whenever the descriptor can be read, or (with `write`) read or written."""

    def unwatch(self, fd: int) -> None:
        """No more; harmless when it was not watched."""
