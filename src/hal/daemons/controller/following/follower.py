"""A controller that does not lead: it waits for the end of the leader's lease, informs agents where the leader is, and
knows the API tokens of the database.

Runs on any Runtime; REST of a follower is attached by `__main__`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, NamedTuple

from hal.core.model import DeniedError
from hal.daemons.controller.access.tokens import META, TokenBook
from hal.daemons.controller.cycle.committer import OpenStore
from hal.daemons.controller.following.presence import Presence
from hal.daemons.controller.nodes.certified_port import CertifiedPort, open_port
from hal.planes.tasks import STEP_SECRET
from hal.runtime.authority import Authority
from hal.runtime.interface import Address, Connection, Lane, Listener, Runtime
from hal.store import Leader, Store, StoreError, StoreLed, StoreLost
from hal.store.mark import INSTANCE
from hal.wire.agree import HELLO_TIMEOUT_MS, NOT_LEADER
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.joining import Join, ReadAuthority

LOOK_EVERY_MS: Final = 1_000
"""Who leads is asked at least so often; at the end of a lease at once."""
TRY_AGAIN_MS: Final = 500
"""After the database did not answer."""


class WirePort(NamedTuple):
    """Where agents of other machines dial a follower."""

    authority: Authority
    address: tuple[str, int]


class Follower:
    """One period of following: it begins when another controller leads, and ends when none does."""

    def __init__(
        self, runtime: Runtime, open_store: OpenStore, presence: Presence | None = None, wire: WirePort | None = None
    ) -> None:
        """
        Args:
            presence: what the store shows of this controller.
            wire: where agents of other machines are sent on; None: nowhere.
        """
        self._runtime = runtime
        self._open = open_store
        self._presence = presence
        self._wire = wire
        self._store: Store | None = None
        self.leader: Leader | None = None
        """As it was last seen; None: the database was not asked yet, or does not answer."""
        self.over = asyncio.Event()
        """Set, and replaced by another, when somebody else leads than before, or nobody."""
        self.tokens = TokenBook()
        """Those of the database, as of the last look."""
        self._token_rows: dict[str, str] = {}
        self.instance = ""
        """Names this HAL, as `JobTable.instance`; '' before the database has answered."""
        self._listener: Listener | None = None
        self._port: CertifiedPort | None = None
        self.step_secret = ""
        """By which it knows its steps."""
        if presence is not None:
            presence.set_epoch(0)

    @property
    def store(self) -> Store | None:
        """Open once the database has answered; read from it on the readers' lane."""
        return self._store

    async def look(self) -> None:
        """Find out who leads, before anybody asks."""
        await self._look()

    async def serve(self, address: Address) -> None:
        """Serve agents at `address`, and the port of this controller where it has one.

        Raises:
            ConflictError: another process serves that address.
        """
        self._listener = await self._runtime.listen(address, self._send_on)
        if self._wire is not None:
            self._port = await open_port(self._runtime, self._wire.authority, self._wire.address, self._send_on)

    async def wait(self) -> bool:
        """Until nobody leads; False: this process was asked to stop."""
        while not self._runtime.stopping.is_set():
            wait_ms = await self._look()
            if wait_ms <= 0:
                return True
            stop = asyncio.create_task(self._runtime.stopping.wait())
            timer = self._runtime.call_later(wait_ms, stop.cancel)
            await asyncio.wait((stop,))
            timer.cancel()
        return False

    async def close(self) -> None:
        """Serve no longer; say so in the store where this process stops."""
        self.over.set()
        if self._listener is not None:
            await self._listener.close()
        if self._port is not None:
            await self._port.close()
        store, self._store = self._store, None
        if store is not None:
            if self._presence is not None and self._runtime.stopping.is_set():
                await self._presence.leave(store)
            await self._runtime.run_blocking(store.close)

    async def _look(self) -> int:
        """How long to wait before the next look; 0: nobody leads."""
        try:
            if self._store is None:
                self._store = await self._runtime.run_blocking(self._open)
            if self._presence is not None:
                # First: a leader that does not know this controller refuses what it passes on.
                await self._presence.announce(self._store, 0)
            self._note_leader(*await self._runtime.run_blocking(partial(_read, self._store), Lane.READER))
            if not self.step_secret:
                named = await self._runtime.run_blocking(partial(_read_names, self._store), Lane.READER)
                self.instance, self.step_secret = named.get(INSTANCE, ""), named.get(STEP_SECRET, "")
        except StoreLed:
            return LOOK_EVERY_MS  # by a HAL of another version, whose tables are not changed under it
        except StoreLost:
            raise
        except StoreError as error:
            if self.leader is not None:
                self._runtime.log.warning("the leader cannot be read from the store", reason=str(error))
            self._note_leader(None, self._token_rows)
            return TRY_AGAIN_MS
        return min(self.leader.left_ms, LOOK_EVERY_MS) if self.leader is not None else TRY_AGAIN_MS

    def _note_leader(self, leader: Leader | None, token_rows: dict[str, str]) -> None:
        before, self.leader = self.leader, leader
        if before is not None and (leader is None or leader.epoch != before.epoch):
            self.over.set()
            self.over = asyncio.Event()
        if token_rows != self._token_rows:
            self.tokens.load(token_rows)
            self._token_rows = token_rows

    async def _send_on(self, connection: Connection) -> None:
        """Send whoever dials the address of the leader, if they may know it."""
        first = await connection.receive(timeout_ms=HELLO_TIMEOUT_MS)
        if first is None:
            return
        if connection.peer is None and connection.certified is None and not isinstance(first, ReadAuthority | Join):
            goodbye = Goodbye(code=DeniedError.code, reason="without a certificate nothing but joining is allowed")
        else:
            goodbye = Goodbye(code=NOT_LEADER, reason=self.leader.wire if self.leader else "")
        await connection.send(goodbye)
        connection.close()


def _read(store: Store) -> tuple[Leader, dict[str, str]]:
    return store.leader(), store.facts(META)


def _read_names(store: Store) -> dict[str, str]:
    return store.facts(INSTANCE) | store.facts(STEP_SECRET)
