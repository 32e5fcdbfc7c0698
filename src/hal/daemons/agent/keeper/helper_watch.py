"""Whether helpers answer, and what their steps have left with them.

A step can stop the helper that began it, or make it wait for a work directory; others must not wait too. And a daemon
that cleared its environment carries no mark of its step: it ends with the last step that it may belong to.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Final

from hal.daemons.agent.keeper import processes
from hal.daemons.agent.keeper.helper_link import HelperLink

LOOK_MS: Final = 1_000
STRAY_LOOK_MS: Final = 50
WAKE_LOOKS: Final = 5
"""Checks of a busy helper that does not answer after which it gets SIGCONT, in case it was stopped."""
MAX_SILENT_LOOKS: Final = 15
"""Checks after which it is killed, because it hangs. Checks are counted, not time, which passes while a host is
suspended."""
MAX_WAKES: Final = 2
"""How often it gets SIGCONT; one that is stopped again and again is killed. One is forgotten after GOOD_LOOKS."""
GOOD_LOOKS: Final = 60


class HelperWatch:
    """Watches all helpers of a keeper."""

    def __init__(
        self,
        helpers: Callable[[], list[HelperLink]],
        end_unanswering: Callable[[HelperLink], bool],
        is_idle: Callable[[HelperLink], bool],
    ) -> None:
        """Args:
        end_unanswering: whether a helper has not become its user yet, and is dealt with.
        is_idle: whether no step may own what a helper has as children.
        """
        self._helpers = helpers
        self._end_unanswering = end_unanswering
        self._is_idle = is_idle
        self._next_look_ms = 0
        self._next_stray_ms = 0

    def is_due(self, boot_ms: int) -> bool:
        """Whether it is time for the next check; then it is counted as done."""
        if boot_ms < self._next_look_ms:
            return False
        self._next_look_ms = boot_ms + LOOK_MS
        return True

    def next_ms(self) -> list[int]:
        """When to look again, by the boot clock."""
        times = [self._next_look_ms] if self._next_look_ms else []
        if any(link.strays and self._is_idle(link) for link in self._helpers()):
            times.append(self._next_stray_ms)
        return times

    def check(self) -> None:
        """Check that those answer which have something to do."""
        for link in self._helpers():
            if self._end_unanswering(link):
                continue
            if link.heard or not link.busy:
                link.heard, link.silent_looks = False, 0
                link.good_looks += 1
                if link.good_looks % GOOD_LOOKS == 0:
                    link.wakes = max(0, link.wakes - 1)
                continue
            if link.silent_looks == 0:
                link.ask()
            elif link.silent_looks >= MAX_SILENT_LOOKS or (link.silent_looks >= WAKE_LOOKS and link.wakes >= MAX_WAKES):
                _send_to(link, signal.SIGKILL)
            elif link.silent_looks == WAKE_LOOKS:
                _send_to(link, signal.SIGCONT)
                link.wakes += 1
            link.silent_looks += 1

    def end_strays(self, boot_ms: int) -> None:
        """Kill what carries no mark once no step that may own it is left."""
        if boot_ms < self._next_stray_ms:
            return
        for link in self._helpers():
            if link.strays and self._is_idle(link):
                infos = [processes.read_process(pid) for pid in processes.child_pids(link.worker)]
                alive = [info for info in infos if info is not None and info.state != "Z"]
                processes.send(alive, signal.SIGKILL)
                link.strays = bool(alive)
                self._next_stray_ms = boot_ms + STRAY_LOOK_MS


def _send_to(link: HelperLink, number: int) -> None:
    """Signal a helper, which is this process's child, or its child's."""
    if link.process is not None:
        processes.send([link.process], number)
        return
    with contextlib.suppress(OSError):
        os.kill(link.worker, number)
