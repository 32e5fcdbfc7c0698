"""What accounts have used, kept over restarts: a snapshot of settled use in the store, a few lines for each user.

The engine keeps shares in memory. A snapshot is written at most once in `REMEMBER_EVERY_MS`, so a controller that is
killed forgets the ends of that long; what runs is charged again when it is adopted.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from hal.core.engine.events import SharesLoaded

SHARES: str = "settled-use"
"""Name of the stored fact."""
REMEMBER_EVERY_MS = 60_000


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
