"""The audit log: who did what, when, from where, and what was refused; JSON lines in files that are bounded in size.

Changes themselves are in the feed of events, in the same transaction as the change and with the same trace id; this log
adds where they came from, and what was refused. A line is written when the answer is known. It holds no body, no
parameter and no token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from hal.runtime.logfile import LogFile
from hal.runtime.regular_files import NotRegularError, open_regular

MAX_AUDIT_BYTES: Final = 8 << 20
"""Size of one file."""
MAX_AUDIT_FILES: Final = 8
"""How many are kept: some 200,000 entries."""
MAX_TARGETS: Final = 20
"""Things named in one entry; `more` counts the rest."""
MAX_TEXT: Final = 200
"""Longest text of an entry."""
CHUNK_BYTES: Final = 1 << 16
MAX_LINE_BYTES: Final = 1 << 16


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request that changed something, tried to, or was refused."""

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
    """Why, where it was: `unauthorized`, `denied`, `too-many`, `not-own` (somebody else's job)."""
    targets: tuple[str, ...] = ()
    """What it was about, as far as the path does not say: ids, filters, nodes."""
    more: int = 0
    """Further targets that are not listed."""
    trace_id: str = ""
    """The same in the events that follow from it."""


class AuditLog:
    """Appends entries, and reads them back. Written from the loop; `page` may be called on another thread."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_AUDIT_BYTES, max_files: int = MAX_AUDIT_FILES) -> None:
        self._path = path
        self._max_files = max_files
        self._last = next((entry.sequence for entry in self._backwards()), 0)
        self._file = LogFile(path, max_bytes=max_bytes, max_files=max_files)
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
    ) -> None:
        """One more entry."""
        self._last += 1
        entry = Entry(
            sequence=self._last,
            at_ms=at_ms,
            user=user,
            role=role,
            peer=peer,
            token=token,
            method=method[:MAX_TEXT],
            path=path[:MAX_TEXT],
            status=status,
            refused=refused,
            targets=tuple(target[:MAX_TEXT] for target in targets[:MAX_TARGETS]),
            more=max(len(targets) - MAX_TARGETS, 0),
            trace_id=trace_id,
        )
        self._file.write_line(msgspec.json.encode(entry).decode())
        self._came.set()
        self._came = asyncio.Event()

    async def wait(self, after: int, timeout_s: float) -> None:
        """Until there is an entry behind that one, or the time is over."""
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
        for entry in self._backwards():
            if entry.at_ms < since_ms or (after is not None and entry.sequence <= after):
                break
            if (before is None or entry.sequence < before) and (not user or entry.user == user):
                found.append(entry)
                if after is None and len(found) == limit:
                    break
        return found if after is None else found[::-1][:limit]

    def close(self) -> None:
        """Write no more."""
        self._file.close()

    def _backwards(self) -> Iterator[Entry]:
        """All entries, newest first; what is not a whole entry (a power failure) is passed over."""
        newest: int | None = None
        for number in range(self._max_files):
            file = self._path if number == 0 else self._path.with_name(f"{self._path.name}.{number}")
            for line in lines_backwards(file):
                try:
                    entry = msgspec.json.decode(line, type=Entry)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue
                # A file that is set aside meanwhile is seen twice.
                if newest is None or entry.sequence < newest:
                    newest = entry.sequence
                    yield entry


def lines_backwards(file: Path) -> Iterator[bytes]:
    """Lines of a file, the last first; nothing where there is none. Lines over `MAX_LINE_BYTES` are cut into pieces."""
    try:
        fd = open_regular(file)
    except (FileNotFoundError, NotRegularError):
        return
    with open(fd, "rb") as opened:
        place = opened.seek(0, 2)
        tail = b""
        while place > 0:
            size = min(CHUNK_BYTES, place)
            place -= size
            opened.seek(place)
            lines = (opened.read(size) + tail).split(b"\n")
            tail = lines.pop(0)[-MAX_LINE_BYTES:]
            yield from (line for line in reversed(lines) if line)
        if tail:
            yield tail
