"""The helpers of the keeper's own user, and those of guarded steps: started beforehand, and again when they die."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hal.daemons.agent.keeper.helper_link import AccountWords, HelperLink, Receive
from hal.daemons.agent.keeper.lease_memory import LeaseMemory
from hal.daemons.agent.keeper.ports import Instant, KeeperConfig
from hal.daemons.agent.keeper.watch import Watcher, read_clocks

MAX_HELPERS: Final = 16
RESPAWN_MS: Final = (100, 5_000)
"""First and longest delay before a dead helper is replaced; it doubles while helpers keep dying."""
HEALTHY_MS: Final = 10_000
"""After this long without a death the delay is reset."""
MAX_GUARDS: Final = 4
"""Helpers of guarded steps: each is two processes."""


class OwnHelpers:
    """Those of one keeper; it also starts the helpers of users (`user_helpers` keeps those)."""

    def __init__(
        self,
        *,
        config: KeeperConfig,
        journal_dir: Path,
        watcher: Watcher,
        receive: Receive,
        helpers: int,
        log_fd: int,
    ) -> None:
        self._config = config
        self._journal_dir = journal_dir
        self._watcher = watcher
        self._receive = receive
        self._log_fd = log_fd
        self.wanted = max(1, min(MAX_HELPERS, helpers))
        self.links: dict[int, HelperLink] = {}
        """By the pid of their recorder."""
        self.guards: dict[int, HelperLink] = {}
        """Helpers of guarded steps, started when the first guarded step arrives."""
        self.lease = LeaseMemory()
        self._serial = 0
        self._respawn_ms = 0
        self._respawn_delay_ms = RESPAWN_MS[0]
        self._last_death_ms = 0

    def start_missing(self, now: Instant) -> None:
        """Start missing helpers; one that cannot be started is retried later."""
        while len(self.links) < self.wanted and now.boot_ms >= self._respawn_ms:
            if not self._start(now.boot_ms, guarded=False):
                return
        while 0 < len(self.guards) < self._wanted_guards and now.boot_ms >= self._respawn_ms:
            if not self._start(now.boot_ms, guarded=True):
                return

    def next_ms(self) -> int | None:
        """When a missing one is to be started, by the boot clock; None: none is missing."""
        missing = len(self.links) < self.wanted or 0 < len(self.guards) < self._wanted_guards
        return self._respawn_ms if missing else None

    def started_guards(self) -> dict[int, HelperLink]:
        """Return the helpers of guarded steps, at least one; none if it cannot be started, or the last one has just
        died."""
        if not self.guards:
            boot_ms = read_clocks().boot_ms
            if boot_ms >= self._respawn_ms:
                self._start(boot_ms, guarded=True)
        return self.guards

    def start_for_user(self, user: str, guarded: bool, ways_back: Sequence[str]) -> HelperLink | None:
        """Start a helper that becomes that user; None if that failed.

        Args:
            ways_back: the files by which it returns from the cgroups of its steps.
        """
        config = self._config
        account = AccountWords(user, config.least_uid, config.no_new_privileges, tuple(ways_back))
        return self._new(guarded=guarded, account=account)

    def died(self, boot_ms: int) -> None:
        """Handle the death of one: the next is started later the more often that happens."""
        if boot_ms - self._last_death_ms > HEALTHY_MS:
            self._respawn_delay_ms = RESPAWN_MS[0]
        self._last_death_ms = boot_ms
        self._respawn_ms = boot_ms + self._respawn_delay_ms
        self._respawn_delay_ms = min(RESPAWN_MS[1], 2 * self._respawn_delay_ms)

    @property
    def _wanted_guards(self) -> int:
        return min(self.wanted, MAX_GUARDS)

    def _start(self, boot_ms: int, *, guarded: bool) -> bool:
        link = self._new(guarded=guarded)
        if link is None:
            self.died(boot_ms)
            return False
        (self.guards if guarded else self.links)[link.pid] = link
        return True

    def _new(self, *, guarded: bool, account: AccountWords | None = None) -> HelperLink | None:
        """Start a helper; None if no process or no descriptor could be created."""
        self._serial += 1
        path = self._journal_dir / f"helper-{os.getpid()}-{read_clocks().boot_ms}-{self._serial}.log"
        lease_fd = self.lease.fd if guarded else -1
        try:
            return HelperLink(path, self._watcher, self._receive, self._log_fd, lease_fd=lease_fd, account=account)
        except (OSError, ValueError):
            return None
