"""This controller's row in the store that several share: that it runs, since when, and where.

Nothing is decided by it. The row has the hash of a secret: requests that this controller passes on while it follows
carry the secret, which proves to the leader that the caller was authenticated here.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from hal.daemons.controller.access.tokens import digest_of
from hal.runtime.interface import Lane, Runtime
from hal.store import HEARD_EVERY_MS, ControllerRow, Store, StoreError


class Presence:
    """Of one process."""

    def __init__(self, runtime: Runtime, *, host: str, version: str, rest: str, wire: str, secret: str) -> None:
        """
        Args:
            host: of this machine, for people.
            version: of this HAL.
            rest, wire: where this controller is reached.
            secret: what it shows with requests that it passes on; its hash is in the store.
        """
        self._runtime = runtime
        self._row = ControllerRow(
            id=f"{host}:{runtime.paths.root}",
            version=version,
            rest=rest,
            wire=wire,
            pid=runtime.pid,
            secret_hash=digest_of(secret),
        )
        self._announced_ms: int | None = None

    @property
    def row(self) -> ControllerRow:
        """As it was last reported."""
        return self._row

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch under which it leads; 0: it follows."""
        self._row = replace(self._row, epoch=epoch, since_ms=self._runtime.now_ms())
        self._announced_ms = None

    async def announce(self, store: Store, epoch: int) -> None:
        """Write it once in `HEARD_EVERY_MS`, however often this is called; never into a store that is not shared.

        Args:
            epoch: as it is now, which may have been raised.
        """
        now_ms = self._runtime.monotonic_ms()
        if not store.leased or (self._announced_ms is not None and now_ms < self._announced_ms + HEARD_EVERY_MS):
            return
        self._row = replace(self._row, epoch=epoch)
        if await self._try(lambda: store.announce(self._row)):
            self._announced_ms = now_ms

    async def keep_announcing(self, store: Callable[[], Store], epoch: Callable[[], int]) -> None:
        """Announce it for ever."""
        while True:
            await self.announce(store(), epoch())
            await self._runtime.sleep(HEARD_EVERY_MS)

    async def leave(self, store: Store) -> None:
        """It stops in good order."""
        if store.leased:
            await self._try(lambda: store.forget_controller(self._row.id))

    async def _try(self, call: Callable[[], None]) -> bool:
        try:
            await self._runtime.run_blocking(call, Lane.LEASE)
        except StoreError as error:
            self._runtime.log.warning("this controller could not be recorded in the store", reason=str(error))
            return False
        return True
