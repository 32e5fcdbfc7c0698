"""Making groups durable: one at a time, in order, and never guessing how a commit went.

A commit whose outcome is unknown is looked up by its id after the store was opened again; where that fails too, the
process ends and starts again from what is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from hal.core.model import DeniedError, InternalError
from hal.daemons.controller.cycle.leader_lease import Lease
from hal.runtime.interface import Lane, Runtime
from hal.store import Claim, Committed, CommitUnknown, Group, Operation, Store, StoreBusy, StoreError, StoreUnreachable
from hal.wire.bounds import MAX_EPOCH_AHEAD

T = TypeVar("T")

OpenStore = Callable[[], Store]
"""Opens the one store of this controller; may be called again when the connection was lost."""

SETTLE_EVERY_MS = 500
MAX_SETTLES = 1_200
"""How often, and how many times, a commit is looked up while the database does not answer: ten minutes."""


class Committer:
    """The store as the controller uses it: writes on the writer's thread, reads on the readers'."""

    def __init__(self, runtime: Runtime, open_store: OpenStore) -> None:
        self._runtime = runtime
        self._open = open_store
        self._claim = Claim(f"{runtime.name}, process {runtime.pid}")
        self.lease = Lease(runtime)
        self._store: Store | None = None
        self._writing = asyncio.Lock()
        """A commit names the epoch that holds when it is written: the epoch is never raised beside one."""
        self.epoch = 0

    @property
    def store(self) -> Store:
        """The open store.

        Raises:
            InternalError: it was not opened yet.
        """
        if self._store is None:
            raise InternalError("the store is not open")
        return self._store

    async def open(self, now_ms: int, *, rest: str = "", wire: str = "") -> None:
        """Open the store and become the one who writes.

        Args:
            rest, wire: where this controller is reached.
        Raises:
            StoreBusy: another controller leads.
        """
        self._claim = replace(self._claim, rest=rest, wire=wire)
        self._store = await self._runtime.run_blocking(self._open)
        self.epoch = await self._runtime.run_blocking(partial(self._take, now_ms))

    def _take(self, now_ms: int, past: int = 0) -> int:
        sent_ms = self._runtime.boot_ms()
        epoch = self.store.take_leadership(self._claim, now_ms, own=self.epoch, past=past)
        self.lease.taken(sent_ms, self.store)
        return epoch

    async def resign(self) -> None:
        """Write nothing any more: a follower need not wait for the end of the lease."""
        if self.store.leased and self.lease.holds:
            try:
                await self._runtime.run_blocking(partial(self.store.resign, self.epoch))
            except StoreError as error:
                self._runtime.log.warning("the lease was not given up", reason=str(error))

    async def raise_epoch(self, seen: int, now_ms: int) -> None:
        """Pass an epoch that an agent has seen: the store that gave it was replaced by an older one, or a new one.

        Raises:
            DeniedError: it is further away than `MAX_EPOCH_AHEAD`.
        """
        if seen - self.epoch > MAX_EPOCH_AHEAD:
            raise DeniedError(
                f"an agent has seen epoch {seen}, this store is at {self.epoch}: they do not belong together",
                hint="is this the right HAL_HOME? stop the agents of the other one",
            )
        async with self._writing:
            if self.epoch <= seen:
                self.epoch = await self._runtime.run_blocking(partial(self._take, now_ms, seen))

    async def commit(self, operations: list[Operation], now_ms: int) -> Committed:
        """Write all of it or nothing; it is flushed later (see `flusher`).

        Raises:
            StoreError: nothing was written; what was asked may be tried again.
            StaleEpoch: another controller has taken over.
        """
        group = Group(self._runtime.new_id(), now_ms, operations)
        async with self._writing:
            self.lease.check()
            try:
                return await self._runtime.run_blocking(
                    partial(self.store.commit, group, epoch=self.epoch, flush=False)
                )
            except CommitUnknown as error:
                self._runtime.log.error("the outcome of a commit is unknown; looking it up", reason=str(error))
                return await self._settled(group)

    async def read(self, call: Callable[[Store], T]) -> T:
        """Read on the readers' thread."""
        return await self._runtime.run_blocking(partial(call, self.store), Lane.READER)

    async def close(self) -> None:
        """Close the store; another controller may lead."""
        if self._store is not None:
            await self._runtime.run_blocking(self._store.close)
            self._store = None

    async def _settled(self, group: Group) -> Committed:
        """Nothing else is decided until it is known how the commit went.

        Raises:
            StaleEpoch: another controller has led in between.
            StoreError: the group is certainly not written.
            InternalError: the database did not answer for too long; the process must end.
        """
        for _ in range(MAX_SETTLES):
            try:
                return await self._runtime.run_blocking(partial(self._settle, group))
            except (CommitUnknown, StoreUnreachable, StoreBusy) as error:
                self._runtime.log.warning("the database does not say yet how a commit went", reason=str(error))
            await self._runtime.sleep(SETTLE_EVERY_MS)
        raise InternalError(f"it could not be found out whether group {group.commit_id} is durable")

    def _settle(self, group: Group) -> Committed:
        """Open the store again and write the group unless it is there: the commit id makes that safe."""
        self.store.close()
        self._store = self._open()
        # A transaction that may still be under way at the server is waited for: what is found then is final.
        self.epoch = self._take(group.now_ms)
        return self._store.commit(group, epoch=self.epoch)
