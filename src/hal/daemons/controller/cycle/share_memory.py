"""What accounts have used, kept over restarts.

The engine keeps it in memory. Shares are advice: a snapshot of settled use, a few lines for each user, is written at
most once in `REMEMBER_EVERY_MS`, so a controller that is killed forgets the ends of that long. Hours of limits are a
promise: what has been spent is written in the same transaction as the ends of the attempts that spent it. What runs is
charged again when it is adopted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from hal.core.engine.events import HoursSpent, SharesLoaded

SHARES: str = "settled-use"
"""Name of the stored fact."""
REMEMBER_EVERY_MS = 60_000
HOURS: Final = "hours-spent:"
"""The names of facts about hours begin so; what follows is a JSON list of the ledger's names."""


class SettledUse(Struct, frozen=True):
    """Units of (account, user), decayed to `at_ms`."""

    at_ms: int
    use: tuple[tuple[str, str, float], ...]


def to_text(use: SharesLoaded) -> str:
    """For the store."""
    return msgspec.json.encode(SettledUse(use.at_ms, use.use)).decode()


def from_text(text: str | None) -> SharesLoaded | None:
    """From the store; None when nothing was kept, or by a version that wrote it otherwise (advice, not truth)."""
    if not text:
        return None
    try:
        kept = msgspec.json.decode(text, type=SettledUse)
    except msgspec.DecodeError:
        return None
    return SharesLoaded(kept.use, kept.at_ms)


class HoursMemory:
    """What the store knows to be spent of limits' hours, and what the next commit adds."""

    def __init__(self, facts: Mapping[str, str] | None = None) -> None:
        self._kept = {name: value for name, value in (facts or {}).items() if name.startswith(HOURS)}
        self._staged: dict[str, str] = {}

    def stage(self, spent: Iterable[HoursSpent]) -> dict[str, str]:
        """Facts that are new; true once they are `committed`."""
        facts = dict(map(_fact, spent))
        self._staged = {name: value for name, value in facts.items() if self._kept.get(name) != value}
        return self._staged

    def committed(self) -> None:
        """Note that what was staged is durable."""
        self._kept |= self._staged
        self._staged = {}

    def undone(self) -> None:
        """Drop what was staged: its commit failed."""
        self._staged = {}

    def spent(self) -> tuple[HoursSpent, ...]:
        """What is durable."""
        return tuple(_spent(name, value) for name, value in self._kept.items())

    def over(self, now_ms: int) -> list[str]:
        """Facts of periods that have ended: forgotten here, and to be taken from the store."""
        names = [name for name, value in self._kept.items() if _spent(name, value).ends_ms <= now_ms]
        for name in names:
            del self._kept[name]
        return names


def _fact(spent: HoursSpent) -> tuple[str, str]:
    names = (spent.limit, spent.queue, spent.account, spent.user, spent.qos, spent.resource)
    value = msgspec.json.encode((spent.units, spent.ends_ms))
    return HOURS + msgspec.json.encode(names).decode(), value.decode()


def _spent(name: str, value: str) -> HoursSpent:
    limit, queue, account, user, qos, resource = msgspec.json.decode(
        name.removeprefix(HOURS), type=tuple[str, str, str, str, str, str]
    )
    units, ends_ms = msgspec.json.decode(value, type=tuple[int, int])
    return HoursSpent(limit, queue, account, user, qos, resource, units, ends_ms)
