"""What the parts of the keeper need from its loop: the clocks, and notification when a descriptor is ready."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from hal.daemons.agent.keeper.ports import Instant


def read_clocks() -> Instant:
    """Read both clocks."""
    return Instant(time.time_ns() // 1_000_000, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000)


class Watcher(Protocol):
    """The descriptors that the loop waits for."""

    def watch(self, fd: int, ready: Callable[[], None], *, write: bool = False) -> None:
        """Call `ready` whenever the descriptor is readable, or (with `write`) readable or writable."""

    def unwatch(self, fd: int) -> None:
        """Stop watching; harmless if it was not watched."""
