"""A controller that does not lead: it waits for the end of the leader's lease, and tells agents where the leader is.

Runs on any Runtime; REST of a follower is attached by `__main__`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from hal.daemons.controller.committing import OpenStore
from hal.runtime.interface import Address, Connection, Lane, Runtime
from hal.store import Leader, Store, StoreError, StoreLed
from hal.wire.agree import NOT_LEADER
from hal.wire.frames import Goodbye

LOOK_EVERY_MS: Final = 1_000
"""Who leads is asked at least so often; at the end of a lease at once."""
TRY_AGAIN_MS: Final = 500
"""After the database did not answer."""
HELLO_MS: Final = 5_000


class Follower:
    """One time of waiting: made when somebody else leads, over when nobody does."""

    def __init__(self, runtime: Runtime, open_store: OpenStore) -> None:
        self._runtime = runtime
        self._open = open_store
        self._store: Store | None = None
        self.leader: Leader | None = None
        """As it was last seen; None: the database was not asked yet, or does not answer."""

    @property
    def store(self) -> Store | None:
        """Open once the database has answered; read from it on the readers' lane."""
        return self._store

    async def wait(self, address: Address) -> bool:
        """Until nobody leads, meanwhile serving agents at `address`; False: this process was asked to stop.

        Raises:
            ConflictError: another process serves that address.
        """
        listener = await self._runtime.listen(address, self._send_on)
        try:
            return await self._vacant()
        finally:
            await listener.close()
            store, self._store = self._store, None
            if store is not None:
                await self._runtime.run_blocking(store.close)

    async def _vacant(self) -> bool:
        while not self._runtime.stopping.is_set():
            wait_ms = await self._look()
            if wait_ms <= 0:
                return True
            stop = asyncio.create_task(self._runtime.stopping.wait())
            timer = self._runtime.call_later(wait_ms, stop.cancel)
            await asyncio.wait((stop,))
            timer.cancel()
        return False

    async def _look(self) -> int:
        """How long to wait before the next look; 0: nobody leads."""
        try:
            if self._store is None:
                self._store = await self._runtime.run_blocking(self._open)
            self.leader = await self._runtime.run_blocking(self._store.leader, Lane.READER)
        except StoreLed:
            return LOOK_EVERY_MS  # by a HAL of another version, whose tables are not changed under it
        except StoreError as error:
            if self.leader is not None:
                self._runtime.log.warning("who leads cannot be asked", reason=str(error))
            self.leader = None
            return TRY_AGAIN_MS
        return min(self.leader.left_ms, LOOK_EVERY_MS)

    async def _send_on(self, connection: Connection) -> None:
        """Whoever dials is told where the leader is."""
        if await connection.receive(timeout_ms=HELLO_MS) is not None:
            await connection.send(Goodbye(code=NOT_LEADER, reason=self.leader.wire if self.leader else ""))
        connection.close()
