"""Registered readers of the feeds: who follows, how far each has read, and keeping that for a restart.

A position that is acknowledged by reading on is kept in memory and stored within `KEEP_EVERY_MS`: what is stored may
lag, so that after a crash more is kept for the reader than it needs, never less.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from hal.core.model import ConflictError, HALError, NotFoundError, OverloadedError, SpecError, shown
from hal.core.model.job import is_name
from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import Submitter
from hal.store import MAX_READERS, PutReaders, ReaderRow

KEEP_EVERY_MS: Final = 5_000
"""How often positions that have moved are stored."""
FEEDS: Final = ("attempts", "events")


class ReaderBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a reader follows."""

    feeds: tuple[str, ...] = FEEDS
    """`attempts`, `events`, or both."""
    begin: str = "now"
    """Where it begins with a feed that it did not follow before: `now`, or `oldest`, what is still kept."""


class ReaderPosition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a reader has read."""

    attempts: str | UnsetType = UNSET
    """Cursor: ended attempts up to it have been read."""
    events: int | UnsetType = UNSET
    """Sequence number: events up to it have been read."""


class FeedPosition(Struct, frozen=True, kw_only=True):
    """How far a reader has read one feed."""

    read: int
    """Sequence number up to which it has read."""
    behind: int
    """How many have come since."""


class ReaderView(Struct, frozen=True, kw_only=True):
    """A registered reader."""

    name: str
    user: str
    """Who registered it."""
    created_ms: int
    heard_ms: int
    """When it last acknowledged something, or was registered."""
    attempts: FeedPosition | None
    """Null where it does not follow ended attempts."""
    events: FeedPosition | None


class ReadersList(Struct, frozen=True, kw_only=True):
    """All readers by name."""

    readers: list[ReaderView]


class Readers:
    """Register, list, remove them; note what they have read."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._book = parts.readers
        self._keeping = asyncio.Lock()

    def all(self) -> ReadersList:
        """All readers by name."""
        return ReadersList(readers=[self._view(row) for _, row in sorted(self._book.rows.items())])

    async def register(self, name: str, asked: ReaderBody, by: Submitter) -> ReaderView:
        """Register a reader, or change what one follows; a feed that it follows already is continued.

        Raises:
            SpecError: no name, or no such feed.
            OverloadedError: there are too many.
            StoreError: it could not be made durable.
        """
        if not is_name(name):
            raise SpecError(f"'{shown(name)}' is not a reader's name", hint="letters, digits, '.', '-', '_'")
        for feed in asked.feeds:
            if feed not in FEEDS:
                raise SpecError(f"feeds: there is no feed '{shown(feed)}'", hint=f"feeds are {', '.join(FEEDS)}")
        if asked.begin not in ("now", "oldest"):
            raise SpecError(f"begin: '{shown(asked.begin)}' is neither 'now' nor 'oldest'")
        if not asked.feeds:
            raise SpecError("feeds: it is empty", hint="`hal reader remove` removes a reader")

        def make(known: ReaderRow | None, now_ms: int) -> ReaderRow:
            if known is None and len(self._book.rows) >= MAX_READERS:
                raise OverloadedError(f"there are {MAX_READERS} readers", hint="remove one: `hal reader remove NAME`")
            row = known or ReaderRow(name=name, user=by.user, created_ms=now_ms, heard_ms=now_ms)
            return replace(
                row,
                heard_ms=now_ms,
                **{
                    feed: None
                    if feed not in asked.feeds
                    else _begin(getattr(row, feed), asked.begin, self._newest(feed))
                    for feed in FEEDS
                },
            )

        return self._view(await self._keep(name, make))

    async def forget(self, name: str) -> ReaderView:
        """Remove a reader: nothing is kept for it any more.

        Raises:
            NotFoundError: there is none of that name.
        """
        async with self._keeping:
            view = self._view(self._find(name))
            await self._parts.loop.inbox.call(lambda _: self._parts.plane.add_operations(PutReaders(forget=(name,))))
            self._book.rows.pop(name, None)
            self._book.moved.discard(name)
            return view

    async def acknowledge(self, name: str, read: Mapping[str, int]) -> ReaderView:
        """Note durably what a reader has read, by feed: all of it, or nothing.

        Raises:
            NotFoundError: there is none of that name.
            ConflictError: it does not follow that feed, or nobody can have read so far.
        """
        for feed, number in read.items():
            self._check(name, feed, number)
        for feed, number in read.items():
            self.note(name, feed, number)
        return self._view(await self._keep(name, lambda known, _: known or self._find(name)))

    def note(self, name: str, feed: str, read: int | None) -> int:
        """Note what a reader has read of a feed; stored soon. A position never goes back.

        Args:
            read: None: nothing new.
        Returns: its position.
        Raises: as `acknowledge`.
        """
        row, before = self._check(name, feed, read)
        if read is not None and read > before:
            self._book.rows[name] = replace(row, **{feed: read}, heard_ms=self._parts.clock.now_ms())
            self._book.moved.add(name)
        return max(before, read or 0)

    def _check(self, name: str, feed: str, read: int | None) -> tuple[ReaderRow, int]:
        row = self._find(name)
        before: int | None = getattr(row, feed)
        if before is None:
            raise ConflictError(f"reader '{name}' does not follow {feed}", hint=f'register it with "feeds": ["{feed}"]')
        newest = self._newest(feed)
        if read is not None and read > newest:
            raise ConflictError(f"{feed}: {read} is ahead of the newest, {newest}: it was never read here")
        return row, before

    def _newest(self, feed: str) -> int:
        return self._parts.ends.flushed if feed == "attempts" else self._parts.watchers.flushed_seq

    async def keep_positions(self) -> None:
        """Store positions that have moved, from time to time, until cancelled."""
        while True:
            await self._parts.runtime.sleep(KEEP_EVERY_MS)
            if self._book.moved:
                try:
                    await self._store_moved()
                except HALError as error:
                    self._parts.runtime.log.warning("positions of readers were not stored", reason=str(error))

    async def _store_moved(self) -> None:
        async with self._keeping:
            rows = tuple(self._book.rows[name] for name in sorted(self._book.moved))
            await self._parts.loop.inbox.call(lambda _: self._parts.plane.add_operations(PutReaders(rows)))
            self._book.moved -= {row.name for row in rows if self._book.rows.get(row.name) == row}

    async def _keep(self, name: str, make: Callable[[ReaderRow | None, int], ReaderRow]) -> ReaderRow:
        """Make a row durable; one after the other, so that no change is lost."""
        async with self._keeping:

            def work(now_ms: int) -> ReaderRow:
                row = make(self._book.rows.get(name), now_ms)
                self._parts.plane.add_operations(PutReaders((row,)))
                return row

            row = await self._parts.loop.inbox.call(work)
            since = self._book.rows.get(name)
            self._book.moved.discard(name)
            if since is not None and (moved := _later(row, since)) != row:
                row = moved
                self._book.moved.add(name)
            self._book.rows[name] = row
            return row

    def _find(self, name: str) -> ReaderRow:
        row = self._book.rows.get(name)
        if row is None:
            raise NotFoundError(f"there is no reader '{shown(name)}'", hint="`hal reader list` lists them")
        return row

    def _view(self, row: ReaderRow) -> ReaderView:
        positions = {
            feed: None if read is None else FeedPosition(read=read, behind=max(self._newest(feed) - read, 0))
            for feed, read in (("attempts", row.attempts), ("events", row.events))
        }
        return ReaderView(name=row.name, user=row.user, created_ms=row.created_ms, heard_ms=row.heard_ms, **positions)


def _begin(known: int | None, begin: str, newest: int) -> int:
    """Where to begin with a feed."""
    if known is not None:
        return known
    return newest if begin == "now" else 0


def _later(row: ReaderRow, since: ReaderRow) -> ReaderRow:
    """The row with positions that were noted while it was being stored."""
    moved = {
        feed: max(getattr(row, feed), getattr(since, feed))
        for feed in FEEDS
        if getattr(row, feed) is not None and getattr(since, feed) is not None
    }
    return replace(row, **moved, heard_ms=max(row.heard_ms, since.heard_ms))
