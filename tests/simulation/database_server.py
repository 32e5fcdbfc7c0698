"""A database server of the virtual world that several hosts reach, as they do PostgreSQL: it can be cut off from them.

Only the way to it is virtual; tables, transactions, epochs and leases are those of the store. What is committed is on
its disk. While answers are lost, what a host writes takes effect and the host does not hear of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Final

from sqlalchemy import Connection

from hal.runtime.virtual_world import VirtualWorld
from hal.store import CommitUnknown, MemoryDatabase, Store, StoreUnreachable
from hal.store.sqlite import SqliteDatabase, open_memory

PLACE: Final = "postgresql://virtual/hal"


class _Way(Enum):
    """What a host has of the server when it does not have all."""

    NO_ANSWERS = auto()
    NOTHING = auto()


class DatabaseServer:
    """One server; it has a clock of its own.

    Args:
        drift: how far the rate of its clock may be from one.
    """

    def __init__(self, world: VirtualWorld, drift: float) -> None:
        self._world = world
        rate = 1 + world.rng("database").uniform(-drift, drift)
        self.memory = MemoryDatabase(clock=lambda: round(world.loop.time() * rate * 1000) + 1)
        self._ways: dict[str, _Way] = {}
        self._awaited = ""
        """What is being done when the next cut begins."""
        self._came: asyncio.Future[str] | None = None
        self.open().close()

    def open(self) -> Store:
        """As a person opens it who sits beside it."""
        return Store.open(self.memory)

    def open_from(self, host: str) -> Store:
        """As a process of that host does.

        Raises:
            StoreUnreachable: it is cut off.
        """
        store = Store(_FarDatabase(self, host))
        store.leader()
        return store

    async def cut_off_when(self, doing: str, others: list[str], seconds: float, patience_s: float) -> None:
        """As `cut_off` of the next host that does that, and of others: it is done, and the host does not hear of it.

        Args:
            doing: what the store calls it, or the beginning of that.
            patience_s: without it for so long nothing happens.
        """
        self._awaited, self._came = doing, asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(patience_s):
                who = await self._came
        except TimeoutError:
            return
        finally:
            self._awaited = ""
        await self.cut_off(sorted({who, *others}), seconds)

    async def cut_off(self, hosts: list[str], seconds: float) -> None:
        """These hosts do not reach it for so long; what they were writing when that began may have been written."""
        for way, share in ((_Way.NO_ANSWERS, 0.1), (_Way.NOTHING, 0.9)):
            for host in hosts:
                self._ways[host] = way
            self._world.note("database", way.name, " ".join(hosts))
            await asyncio.sleep(share * seconds)
        for host in hosts:
            self._ways.pop(host, None)
        self._world.note("database", "reached", " ".join(hosts))

    def asked(self, host: str, doing: str) -> None:
        """A request comes from that host.

        Raises:
            StoreUnreachable: it does not arrive.
        """
        if self._ways.get(host) is _Way.NOTHING:
            raise StoreUnreachable(f"{doing}: the store {PLACE} does not answer", hint="is its server running?")

    def answers(self, host: str, doing: str) -> bool:
        """Whether that host hears that it is done."""
        if self._awaited and doing.startswith(self._awaited) and self._came is not None:
            self._awaited = ""
            self._ways[host] = _Way.NO_ANSWERS
            self._came.set_result(host)
        return host not in self._ways


class _FarDatabase(SqliteDatabase):
    """The server's database as one host reaches it."""

    def __init__(self, server: DatabaseServer, host: str) -> None:
        near = open_memory(server.memory)
        super().__init__(near.writer, near.reader, PLACE, None)
        self.clock, self.leased = near.clock, near.leased
        self._server = server
        self._host = host

    @contextmanager
    def writing(self, doing: str) -> Iterator[Connection]:
        self._server.asked(self._host, doing)
        with super().writing(doing) as connection:
            yield connection
        if not self._server.answers(self._host, doing):
            raise CommitUnknown(f"{doing}: the connection was lost in COMMIT", hint="look up the commit id")

    @contextmanager
    def renewing(self, doing: str) -> Iterator[Connection]:
        self._server.asked(self._host, doing)
        with super().renewing(doing) as connection:
            yield connection
        self._answered(doing)

    @contextmanager
    def reading(self, doing: str) -> Iterator[Connection]:
        self._server.asked(self._host, doing)
        with super().reading(doing) as connection:
            yield connection
        self._answered(doing)

    def _answered(self, doing: str) -> None:
        if not self._server.answers(self._host, doing):
            raise StoreUnreachable(f"{doing}: the connection was lost", hint="commits continue when it answers again")
