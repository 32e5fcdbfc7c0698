"""Heads of the audit logs of all controllers, in the store: whoever cuts off or replaces a log does not reach them.

Of each controller the newest head is kept, and the last one of each of the past days. If the numbers go back, the log
was replaced by an older one: then the last head of the one before is kept for good, whatever comes later.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hal.core.model.audit_chain import Head
from hal.daemons.controller.service.parts import Parts
from hal.store import PutMeta, Store

META: Final = "audit-head/"
"""Before the controller: the key of its row in the store."""
DAYS: Final = 30
"""Of so many days on which there was something new the last head is kept."""
DAY_MS: Final = 86_400_000
MAX_REPLACED: Final = 100
"""Heads of logs that were replaced; the oldest ones stay."""


class Stored(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A head, as it is in the store's row."""

    head: Head
    replaced: bool = False
    """The next one had no greater number: it was of another log."""


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
        self._own: list[Stored] | None = None
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
        if self._own and self._own[-1].head.digest == head.digest:
            return
        own = with_head(self._own, head)
        row = {META + self.controller: msgspec.json.encode(own).decode()}
        await self._parts.loop.inbox.call(lambda _: self._parts.plane.add_operations(PutMeta(row)))
        self._own = own

    async def elsewhere(self) -> dict[str, str]:
        """The newest heads of other controllers' logs, for the log of the one that takes over."""
        return {
            controller: heads[-1].head.text
            for controller, heads in (await self._read()).items()
            if controller != self.controller and heads
        }

    async def view(self, head: Head) -> AuditHeadView:
        """What is shown of them.

        Args:
            head: of this controller's log, now.
        """
        kept = [_kept(controller, one.head) for controller, heads in (await self._read()).items() for one in heads]
        own = _kept(self.controller, head)
        return AuditHeadView(
            controller=own.controller,
            number=own.number,
            at_ms=own.at_ms,
            through=own.through,
            head=own.head,
            kept=sorted(kept, key=lambda one: (one.at_ms, one.controller)),
        )

    async def _read(self) -> dict[str, list[Stored]]:
        rows = await self._parts.committer.read(partial(Store.facts, prefix=META))
        found: dict[str, list[Stored]] = {}
        for key, text in rows.items():
            try:
                found[key.removeprefix(META)] = msgspec.json.decode(text, type=list[Stored])
            except msgspec.DecodeError as error:  # no log is worth more than a controller that leads
                self._parts.runtime.log.warning("heads of an audit log cannot be read", row=key, reason=str(error))
        return found


def with_head(stored: list[Stored], head: Head) -> list[Stored]:
    """What is stored when this head comes: it, the last of each of the `DAYS` last days, and the last of each log that
    was replaced. Pure."""
    before = list(stored)
    if before and head.number <= before[-1].head.number:
        before[-1] = replace(before[-1], replaced=True)
    replaced = [one for one in before if one.replaced][:MAX_REPLACED]
    by_day = {one.head.at_ms // DAY_MS: one for one in before if not one.replaced}
    by_day.pop(head.at_ms // DAY_MS, None)
    days = list(by_day.values())[-DAYS:]
    return [*(one for one in before if one in replaced or one in days), Stored(head=head)]


def _kept(controller: str, head: Head) -> KeptHead:
    return KeptHead(controller=controller, number=head.number, at_ms=head.at_ms, through=head.through, head=head.text)
