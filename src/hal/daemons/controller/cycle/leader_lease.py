"""The leader's lease as the leader sees it: it acts only while the lease holds, counted from when a renewal was sent.

The database counts from when it wrote the renewal, which is later: so this process always stops before another may
begin. Boot time is counted, so that a process or host that was stopped knows at once when it continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from hal.runtime.interface import Lane, Runtime
from hal.store import LEASE_MS, RENEW_EVERY_MS, StaleEpoch, Store, StoreError, StoreUnreachable

DRIFT_MS = 100
"""By how much clocks of this host and of the database may drift apart within one lease."""
RETRY_MS = 200
"""Between two tries to renew while the database does not answer."""
SLACK_MS = 10


class Lease:
    """Of the leadership that this controller holds."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._until_ms: int | None = 0
        """In boot time; None: no lease is needed, the host's lock decides."""
        self._renewed = asyncio.Event()
        self._over: StaleEpoch | None = None

    @property
    def holds(self) -> bool:
        """Whether anything may be decided, written or sent now."""
        if self._over is not None:
            return False
        return self._until_ms is None or self._runtime.boot_ms() < self._until_ms

    def taken(self, sent_boot_ms: int, store: Store) -> None:
        """Count the lease from that instant, at which its renewal, or the request for leadership, was sent."""
        self._until_ms = sent_boot_ms + LEASE_MS - DRIFT_MS if store.leased else None
        self._renewed.set()

    def lost(self, error: StaleEpoch) -> None:
        """End the lease: another controller leads."""
        self._over = error
        self._renewed.set()

    def check(self) -> None:
        """
        Raises:
            StaleEpoch: another controller leads.
            StoreUnreachable: the lease has lapsed and was not renewed yet; it may be tried again.
        """
        if self._over is not None:
            raise self._over
        if not self.holds:
            raise StoreUnreachable(
                "the leader's lease was not renewed in time: nothing may be decided until it is",
                hint="does the database answer?",
            )

    async def held(self) -> None:
        """Return at once while it holds; else wait until it was renewed.

        Raises:
            StaleEpoch: another has taken over.
        """
        while not self.holds:
            if self._over is not None:
                raise self._over
            self._renewed.clear()
            await self._renewed.wait()

    async def keep(self, store: Callable[[], Store], epoch: Callable[[], int]) -> StaleEpoch:
        """Renew it every `RENEW_EVERY_MS`, until another has taken over; returns who did.

        Args:
            store, epoch: those of now.
        """
        if self._until_ms is None:
            await asyncio.Event().wait()
        wait_ms = RENEW_EVERY_MS
        while True:
            await self._runtime.sleep(wait_ms)
            sent_ms, mine = self._runtime.boot_ms(), epoch()
            try:
                await self._runtime.run_blocking(partial(store().renew, mine), Lane.LEASE)
            except StaleEpoch as error:
                # This process may have raised its own epoch meanwhile.
                if epoch() == mine:
                    self.lost(error)
                    return error
                wait_ms = SLACK_MS
            except StoreError as error:
                self._runtime.log.warning("the lease was not renewed", reason=str(error))
                wait_ms = RETRY_MS
            else:
                self.taken(sent_ms, store())
                wait_ms = RENEW_EVERY_MS
