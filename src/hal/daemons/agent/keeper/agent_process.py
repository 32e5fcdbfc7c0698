"""The agent's process, kept alive by the keeper: started, and restarted with bounded back-off when it has died."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hal.daemons.agent.keeper.ports import Instant
from hal.runtime.identity import ProcessIdentity, kill, running
from hal.runtime.regular_files import open_own

RESTART_MS: Final = (100, 10_000)
"""First and longest delay before a restart."""
HEALTHY_MS: Final = 30_000
"""An agent that lived this long is restarted at once, and the delay is reset."""
LOOK_MS: Final = 1_000
"""How often to look for an agent that this keeper did not start."""


class AgentProcess:
    """At most one agent of this node."""

    def __init__(self, argv: Sequence[str], pid_file: Path, output: Path) -> None:
        self._argv = list(argv)
        self._pid_file = pid_file
        self._output = output
        self._pid = 0
        """The child's pid, while it runs."""
        self._found: ProcessIdentity | None = None
        """An agent that somebody else started."""
        self._started_ms = 0
        self._delay_ms = 0
        self.next_ms = 0
        """When `turn` is needed, by the boot clock."""

    def turn(self, now: Instant) -> None:
        """Start it if it is due."""
        if self._pid or now.boot_ms < self.next_ms:
            return
        self._found = running(self._pid_file)
        if self._found is not None:
            self.next_ms = now.boot_ms + LOOK_MS
            return
        try:
            sink = open_own(self._output, os.O_WRONLY | os.O_APPEND)
        except OSError:  # no space, or something in its place that cannot be set aside
            sink = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            actions = (
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, sink, 1),
                (os.POSIX_SPAWN_DUP2, sink, 2),
            )
            self._pid = os.posix_spawn(self._argv[0], self._argv, os.environ, file_actions=actions, setsid=True)
            self._started_ms = now.boot_ms
        except OSError:
            self._wait(now)
        finally:
            os.close(sink)

    def child_ended(self, pid: int, now: Instant) -> bool:
        """Handle the end of a child; returns whether it was the agent."""
        if pid != self._pid:
            return False
        self._pid = 0
        if now.boot_ms - self._started_ms >= HEALTHY_MS:
            self._delay_ms = 0
        self._wait(now)
        return True

    def stop(self) -> None:
        """Ask it to end."""
        if self._pid:
            os.kill(self._pid, signal.SIGTERM)
        elif self._found is not None:
            kill(self._found, signal.SIGTERM)

    def _wait(self, now: Instant) -> None:
        self._delay_ms = min(RESTART_MS[1], max(RESTART_MS[0], 2 * self._delay_ms))
        self.next_ms = now.boot_ms + self._delay_ms
