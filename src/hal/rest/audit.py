"""The audit log: who did what, when, from where, and what was refused; JSON lines in files that are bounded in size.

Changes themselves are in the feed of events, in the same transaction as the change and with the same trace id; this log
adds where they came from, and what was refused. A line is written when the answer is known. It holds no body, no
parameter and no token.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hal.core.model.printable import printable_json
from hal.rest.audit_files import (
    MAX_NAME,
    OTHERS,
    AuditFiles,
    lines_backwards,
    listed,
    path_of,
)
from hal.runtime.syslog import Syslog

MAX_AUDIT_BYTES: Final = 64 << 20
"""Of all files together, where `[audit]` says nothing: some 200,000 entries."""
OLD_FILES: Final = 8
"""Files that earlier versions kept."""
MAX_TARGETS: Final = 20
"""Things named in one entry; `more` counts the rest."""
MAX_TARGET: Final = 64
"""Longest of them."""
MAX_METHOD: Final = 16
MAX_TEXT: Final = 200
"""Longest text of an entry."""
FAILED: Final = 400
"""The least status of a request that was refused."""
MAX_REFUSED_BYTES: Final = 300
"""Longest line about one; its path is cut, and what it named (nobody has looked at that) is only counted."""
STREAK_ENTRIES: Final = 10
"""Refusals of one kind and identity that have an entry each within `STREAK_MS`; those behind them share one."""
STREAK_MS: Final = 60_000
MAX_STREAKS: Final = 1_024
"""Streaks counted at once."""


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request that changed something, failed, or was refused."""

    sequence: int
    """Ascending from 1."""
    at_ms: int
    user: str = ""
    """Empty: unknown."""
    role: str = ""
    peer: str = ""
    """Where from: `uid 1000` on a Unix socket, else the address."""
    token: str = ""
    """Id of the token that was shown."""
    method: str
    path: str
    status: int
    """Of the HTTP answer; 0: the connection broke before one."""
    refused: str = ""
    """Why, where it was: `unauthorized`, `denied`, `too-many`, `not-own` (somebody else's job), `lied` (a node, put in
    quarantine)."""
    targets: tuple[str, ...] = ()
    """What it was about, as far as the path does not say: ids, filters, nodes."""
    more: int = 0
    """Further targets that are not listed."""
    trace_id: str = ""
    """The same in the events that follow from it."""
    times: int = 1
    """How many requests it stands for: of a streak those that have no entry of their own."""
    since_ms: int = 0
    """Of a streak: when it began; the rest is of its last request."""


class _Streak:
    """Requests of one identity that were refused in the same way, or repeated, one after the other."""

    __slots__ = ("count", "last", "left_out", "own", "since_ms")

    def __init__(self, at_ms: int, own: int) -> None:
        self.since_ms = at_ms
        self.own = own
        """How many of the first have an entry each."""
        self.count = 0
        self.left_out = 0
        """Of them, how many have no entry of their own."""
        self.last: Entry | None = None


class AuditLog:
    """Appends entries, and reads them back. Written from the loop; `page` may be called on another thread."""

    def __init__(
        self, path: Path, *, max_bytes: int = MAX_AUDIT_BYTES, days: int = 0, syslog: Syslog | None = None
    ) -> None:
        """
        Args:
            path: `log/audit.log`, where earlier versions wrote, and which is still read; files are in `log/audit/`.
            max_bytes, days: how much is kept, and for how long; 0 days: as long as there is room.
            syslog: takes a copy of each entry.
        """
        self._old = path
        self._directory = path.with_suffix("")
        self._last = max((entry.sequence for series in self._series("") for entry in islice(series, 1)), default=0)
        self._files = AuditFiles(self._directory, max_bytes=max_bytes, days=days)
        self._syslog = syslog
        self._streaks: OrderedDict[_Key, _Streak] = OrderedDict()
        self._came = asyncio.Event()

    def write(
        self,
        *,
        at_ms: int,
        user: str,
        role: str,
        peer: str,
        token: str,
        method: str,
        path: str,
        status: int,
        refused: str = "",
        targets: Sequence[str] = (),
        trace_id: str = "",
        repeated: bool = False,
    ) -> None:
        """Write an entry; in a streak of refusals the first few have one each, the others one for all of them.

        Args:
            repeated: programs send this request again and again, like advice each second: of those that succeed alike
                the first has an entry, and the others one a minute.
        """
        self.settle(at_ms)
        failed = status >= FAILED
        entry = Entry(
            sequence=0,
            at_ms=at_ms,
            user=user,
            role=role,
            peer=peer,
            token=token,
            method=method[:MAX_METHOD],
            path=path[:MAX_TEXT],
            status=status,
            refused=refused,
            targets=() if failed else tuple(target[:MAX_TARGET] for target in targets[:MAX_TARGETS]),
            more=len(targets) if failed else max(len(targets) - MAX_TARGETS, 0),
            trace_id=trace_id,
        )
        if failed or repeated:
            # Of refusals any path: who guesses paths would have an entry for each.
            about = () if failed else (entry.path, str(entry.more), *entry.targets)
            key = (user, peer, token, entry.method, status, refused, about)
            streak = self._streaks.get(key)
            if streak is None:
                if len(self._streaks) == MAX_STREAKS:
                    self._end(self._streaks.popitem(last=False)[1])
                streak = self._streaks[key] = _Streak(at_ms, STREAK_ENTRIES if failed else 1)
            streak.count += 1
            if streak.count > streak.own:
                streak.left_out += 1
                streak.last = entry
                return
        self._append(entry)

    def settle(self, now_ms: int) -> None:
        """Write the entry of each streak that began long enough ago."""
        while self._streaks:
            key, streak = next(iter(self._streaks.items()))
            if 0 <= now_ms - streak.since_ms < STREAK_MS:
                return
            del self._streaks[key]
            self._end(streak)
            if streak.left_out and key[-1]:
                self._streaks[key] = _Streak(now_ms, 0)  # what is repeated goes on: its next entry is again of many

    async def wait(self, after: int, timeout_s: float) -> None:
        """Wait until there is an entry after that one, or for `timeout_s`."""
        if self._last > after:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._came.wait()
        except TimeoutError:
            return

    def page(
        self, *, limit: int, user: str = "", since_ms: int = 0, before: int | None = None, after: int | None = None
    ) -> list[Entry]:
        """Entries that match: newest first from before `before`, or, with `after`, oldest first behind it. O(all)"""
        found: list[Entry] = []
        for entry in merge(*self._series(user), key=lambda entry: -entry.sequence):
            if entry.at_ms < since_ms or (after is not None and entry.sequence <= after):
                break
            if (before is None or entry.sequence < before) and (not user or entry.user == user):
                found.append(entry)
                if after is None and len(found) == limit:
                    break
        return found if after is None else found[::-1][:limit]

    def close(self) -> None:
        """Write what is still counted, and no more."""
        while self._streaks:
            self._end(self._streaks.popitem(last=False)[1])
        self._files.close()
        if self._syslog is not None:
            self._syslog.close()

    def _end(self, streak: _Streak) -> None:
        if streak.last is not None:
            self._append(replace(streak.last, times=streak.left_out, since_ms=streak.since_ms))

    def _append(self, entry: Entry) -> None:
        self._last += 1
        line = _line(replace(entry, sequence=self._last))
        self._files.write(self._files.source_of(entry.user), self._last, line + b"\n", entry.at_ms)
        if self._syslog is not None:
            self._syslog.send(line)
        self._came.set()
        self._came = asyncio.Event()

    def _series(self, user: str) -> Iterator[Iterator[Entry]]:
        """The entries of each source, newest first; of one user's only those files in which they can be."""
        wanted = {f"user-{quote(user, safe='')[:MAX_NAME]}", OTHERS} if user else None
        for source, firsts in listed(self._directory).items():
            if wanted is None or source in wanted:
                yield _entries([path_of(self._directory, source, first) for first in reversed(firsts)])
        old = [self._old, *(self._old.with_name(f"{self._old.name}.{number}") for number in range(1, OLD_FILES))]
        yield _entries(old)


_Key = tuple[str, str, str, str, int, str, tuple[str, ...]]
"""Of a streak; the last part is what successes were about, () for refusals."""


def _entries(files: Sequence[Path]) -> Iterator[Entry]:
    """Yield the entries of files, newest first; incomplete ones (a power failure) are skipped."""
    newest: int | None = None
    for file in files:
        for line in lines_backwards(file):
            try:
                entry = msgspec.json.decode(line, type=Entry)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            if newest is None or entry.sequence < newest:
                newest = entry.sequence
                yield entry


def _line(entry: Entry) -> bytes:
    """As JSON that acts on no terminal; of a refused request within `MAX_REFUSED_BYTES`."""
    line = printable_json(msgspec.json.encode(entry).decode()).encode("utf-8", "backslashreplace")
    if entry.status < FAILED or len(line) <= MAX_REFUSED_BYTES or not entry.path:
        return line
    return _line(replace(entry, path=entry.path[: len(entry.path) // 2]))
