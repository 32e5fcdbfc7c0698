"""The ends of attempts, read in commit order: pages behind a cursor, waited for where there is nothing yet.

Pages are encoded on the readers' thread. What a power failure could take back is not shown.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec
from msgspec import Struct

from hal.core.model import ConflictError
from hal.daemons.controller.service.parts import Parts
from hal.store import EndedAttempt, EndFilter, Store

ROWS_A_BLOCK: Final = 250
"""Rows that are encoded in one call, during which no other thread runs."""
POLL_EVERY_MS: Final = 100
"""A request that waits for what a filter selects looks again no more often."""

_ENCODER: Final = msgspec.json.Encoder()


class AttemptsPage(Struct, frozen=True, kw_only=True):
    """Ended attempts in commit order."""

    attempts: list[EndedAttempt]
    cursor: str
    """`ended_after` of the next page; always given. What is behind it has not been read."""
    more: bool
    """There is more to read at once; else `wait` for it."""
    lost: list[tuple[int, int]]
    """Ranges [first, last] of sequence numbers before the cursor that are no longer kept; the feed goes on behind them.
    With a filter only those before the oldest attempt kept."""


class EncodedPage(Struct, frozen=True):
    """A page as JSON, in parts that are sent one after the other."""

    parts: list[bytes]
    cursor: int
    complete: bool
    """There is nothing in it, and nothing more to read at once."""


class Attempts:
    """Read what has ended."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def page(
        self,
        wanted: EndFilter,
        after: int,
        limit: int,
        *,
        wait_s: float = 0.0,
        newest: bool = False,
        asked: bool = False,
    ) -> EncodedPage:
        """Read a page behind `after`, or the last ends.

        Args:
            wait_s: how long to wait for the first one where there is none.
            newest: the last ones instead.
            asked: also what their jobs asked for.
        Raises:
            ConflictError: the cursor is ahead of everything that is stored.
            OverloadedError: too many wait.
        """
        runtime, ends = self._parts.runtime, self._parts.ends
        if after > ends.flushed:
            raise ConflictError(
                f"the cursor {after} is ahead of the newest ended attempt, {ends.flushed}: the store was replaced by "
                "another one, or by a backup",
                hint=f"continue from {ends.flushed}; what was read before may not be in this store",
            )
        deadline_ms = runtime.monotonic_ms() + round(wait_s * 1000)
        while True:
            last = ends.flushed
            read = partial(_read, wanted=wanted, after=after, last=last, limit=limit, newest=newest, asked=asked)
            page = await self._parts.committer.read(read)
            left_ms = deadline_ms - runtime.monotonic_ms()
            if not page.complete or left_ms <= 0:
                return page
            if not await ends.wait(last, left_ms / 1000) or ends.closed:
                return page
            after = page.cursor
            if wanted != EndFilter():
                await runtime.sleep(POLL_EVERY_MS)


def _read(store: Store, wanted: EndFilter, after: int, last: int, limit: int, newest: bool, asked: bool) -> EncodedPage:
    page = store.ended(after, wanted, last=last, limit=limit, newest=newest, asked=asked)
    shown = AttemptsPage(attempts=[], cursor=str(page.end), more=page.end < last, lost=page.lost)
    head, tail = _ENCODER.encode(shown).split(b"[]", 1)
    parts = [head + b"["]
    for at in range(0, len(page.rows), ROWS_A_BLOCK):
        comma = b"," if at else b""
        parts.append(comma + _ENCODER.encode(page.rows[at : at + ROWS_A_BLOCK])[1:-1])
    parts.append(b"]" + tail)
    return EncodedPage(parts, page.end, not page.rows and not page.lost and page.end >= last)
