"""Heads of the audit logs of all controllers, in the store: whoever cuts off or replaces a log does not reach them.

Of each controller the newest head is kept, and the last one of each of the past days.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec
from msgspec import Struct

from hal.core.model import StoreError
from hal.core.model.audit_chain import Head
from hal.daemons.controller.service.parts import Parts
from hal.store import PutMeta, Store

META: Final = "audit-head/"
"""Before the controller: the key of its row in the store."""
DAYS: Final = 30
"""Of so many days on which there was something new the last head is kept."""
DAY_MS: Final = 86_400_000


class KeptHead(Struct, frozen=True, kw_only=True):
    """A head of a controller's audit log, as the store has it."""

    controller: str
    """`HOST:HAL_HOME`"""
    number: int
    at_ms: int
    through: int
    """The log's newest sequence number then."""
    head: str
    """`NUMBER:SHA-256`"""


class AuditHeadView(Struct, frozen=True, kw_only=True):
    """The head of this controller's audit log, and those that the store has."""

    controller: str
    number: int
    at_ms: int
    through: int
    head: str
    """`NUMBER:SHA-256`: stands for all entries up to `through`."""
    kept: list[KeptHead]
    """Of all controllers, oldest first."""


class AuditHeads:
    """Keep and show them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._own: list[Head] | None = None
        """As the store has them, oldest first; None: not read yet."""

    @property
    def controller(self) -> str:
        """How this one is named."""
        row = self._parts.own_row()
        return row.id if row is not None else str(self._parts.runtime.paths.root)

    async def keep(self, head: Head) -> None:
        """Put a head into the store.

        Raises:
            StoreError, OverloadedError: it could not be made durable.
        """
        if not head.number:
            return
        if self._own is None:
            self._own = (await self._read()).get(self.controller, [])
        if self._own and self._own[-1].digest == head.digest:
            return
        own = thinned([*self._own, head])
        row = {META + self.controller: msgspec.json.encode(own).decode()}
        await self._parts.loop.inbox.call(lambda _: self._parts.plane.add_operations(PutMeta(row)))
        self._own = own

    async def elsewhere(self) -> dict[str, str]:
        """The newest heads of other controllers' logs, for the log of the one that takes over."""
        return {
            controller: heads[-1].text
            for controller, heads in (await self._read()).items()
            if controller != self.controller and heads
        }

    async def view(self, head: Head) -> AuditHeadView:
        """What is shown of them.

        Args:
            head: of this controller's log, now.
        """
        kept = [_kept(controller, one) for controller, heads in (await self._read()).items() for one in heads]
        own = _kept(self.controller, head)
        return AuditHeadView(
            controller=own.controller,
            number=own.number,
            at_ms=own.at_ms,
            through=own.through,
            head=own.head,
            kept=sorted(kept, key=lambda one: (one.at_ms, one.controller)),
        )

    async def _read(self) -> dict[str, list[Head]]:
        rows = await self._parts.committer.read(partial(Store.facts, prefix=META))
        try:
            return {key.removeprefix(META): msgspec.json.decode(text, type=list[Head]) for key, text in rows.items()}
        except msgspec.DecodeError as error:
            raise StoreError(f"a row '{META}…' of the store is no list of heads: {error}") from error


def thinned(heads: list[Head]) -> list[Head]:
    """The newest, and the last of each of the `DAYS` last days. Pure."""
    by_day = {head.at_ms // DAY_MS: head for head in heads}
    return list(by_day.values())[-DAYS - 1 :]


def _kept(controller: str, head: Head) -> KeptHead:
    return KeptHead(controller=controller, number=head.number, at_ms=head.at_ms, through=head.through, head=head.text)
