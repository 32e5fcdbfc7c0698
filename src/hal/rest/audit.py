"""The audit log: who did what, when, from where, and what was refused; JSON lines in files that are bounded in size.

Changes themselves are in the feed of events, in the same transaction as the change and with the same trace id; this log
adds where they came from, and what was refused. A line is written when the answer is known. It holds no body, no
parameter and no token. Lines form a hash chain (`hal.core.model.audit_chain`), so that nobody changes one unnoticed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hal.core.model.audit_chain import (
    CHAIN,
    GENESIS,
    OTHERS,
    USER,
    ChainState,
    Checkpoint,
    End,
    Head,
    digest_of_line,
    read_checkpoint,
    read_link,
)
from hal.core.model.printable import printable_json
from hal.rest.audit_files import MAX_NAME, AuditFiles, flush_files
from hal.runtime.audit_directory import lines_backwards, listed, path_of, rows_of
from hal.runtime.interface import Lane, Runtime
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
MAX_REFUSED_BYTES: Final = 400
"""Longest line about one, its link included; its path is cut, and what it named (nobody has looked at that) is only
counted."""
STREAK_ENTRIES: Final = 10
"""Refusals of one kind and identity that have an entry each within `STREAK_MS`; those behind them share one."""
STREAK_MS: Final = 60_000
MAX_STREAKS: Final = 1_024
"""Streaks counted at once."""
FLUSHED_AT_ONCE: Final = 8
"""Files that are flushed to the disk in one go."""
SERIES_A_LINE: Final = 200
"""Series that one checkpoint of a whole listing names."""


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
    lost: int = 0
    """Entries that could not be written since the last one that could: the disk was full."""
    line: int = 0
    """Number in its series: the entries of the same user. 0: an earlier version wrote it, outside the chain."""
    previous: str = ""
    """SHA-256 of the line before it in its series, as it is in its file."""


class Captured(NamedTuple):
    """What a checkpoint will say, once the lines that it is about are flushed."""

    ends: dict[str, End]
    through: int


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
        self._files = AuditFiles(self._directory, max_bytes=max_bytes, days=days, removing=self._note_removal)
        self._ends: dict[str, End] = {}
        """Of each series the newest line."""
        self._changed: set[str] = set()
        """Series whose end the newest checkpoint does not say."""
        self._begins: dict[str, int] = {}
        """Of each series of which lines were removed: number of the first that is kept."""
        self._head = Head(number=0, at_ms=0, through=0, digest=GENESIS)
        self._lost = 0
        """Entries that could not be written since the last one that could."""
        self._newest_ms = 0
        self._read_ends()
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

    # ── the chain ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def head(self) -> Head:
        """The newest checkpoint; number 0: there is none."""
        return self._head

    async def anchor(self, runtime: Runtime, elsewhere: dict[str, str] | None = None) -> Head:
        """Write a checkpoint for all that was written until now, if there is anything new; returns the newest one. The
        lines that it stands for survive a power failure: nobody will miss them later.

        Args:
            elsewhere: heads of the logs of other controllers, to be noted.
        """
        self.settle(runtime.now_ms())
        if self._changed or elsewhere or not self._head.number:
            captured, head = self._capture(), self._head
            await self._flush(runtime)
            if self._head is not head:  # files were removed meanwhile, and another checkpoint says more
                captured = self._capture()
            self._checkpoint(captured, runtime.now_ms(), elsewhere)
            # Whoever is told the head keeps it: a power failure must not take it from the log.
            await self._flush(runtime)
        return self._head

    async def _flush(self, runtime: Runtime) -> None:
        """In portions: requests that read are answered in between."""
        files = self._files.take_unflushed()
        for at in range(0, len(files), FLUSHED_AT_ONCE):
            await runtime.run_blocking(partial(flush_files, files[at : at + FLUSHED_AT_ONCE]), Lane.READER)

    def close(self) -> None:
        """Write what is still counted and a checkpoint, and no more."""
        while self._streaks:
            self._end(self._streaks.popitem(last=False)[1])
        if self._changed:
            flush_files(self._files.take_unflushed())
            self._checkpoint(self._capture(), max(self._newest_ms, self._head.at_ms))
        self._files.close()
        if self._syslog is not None:
            self._syslog.close()

    def _capture(self) -> Captured:
        ends = {source: self._ends[source] for source in self._changed}
        return Captured(ends, self._last)

    def _checkpoint(
        self,
        captured: Captured,
        at_ms: int,
        elsewhere: dict[str, str] | None = None,
        begins: dict[str, int] | None = None,
    ) -> None:
        """Write one; where the disk is full, what it would have said is said by the next."""
        made = Checkpoint(
            number=self._head.number + 1,
            at_ms=at_ms,
            through=captured.through,
            ends=captured.ends,
            begins=begins or {},
            elsewhere=elsewhere or {},
            previous=self._head.digest,
        )
        line = _encoded(made)
        if self._files.has_room(len(line) + 1):
            written = self._write_checkpoint(made, line)
        else:
            written = self._write_listing(made)
        if written:
            self._changed -= {source for source, end in captured.ends.items() if self._ends.get(source) == end}

    def _write_listing(self, made: Checkpoint) -> bool:
        """Checkpoints that name all series: with these each file of the chain begins, so that older ones may go."""
        kept = {*self._files.sources(), *made.begins}
        for source in self._ends.keys() - kept:  # of these nothing is left: if they come again, they begin again
            del self._ends[source]
            self._changed.discard(source)
        ends = {source: made.ends.get(source, end) for source, end in self._ends.items()}
        self._begins = {source: line for source, line in self._begins.items() if source in ends}
        sources = sorted(ends)
        parts = [sources[at : at + SERIES_A_LINE] for at in range(0, len(sources), SERIES_A_LINE)] or [[]]
        begins_file = True
        for place, part in enumerate(parts):
            one = replace(
                made,
                number=self._head.number + 1,
                ends={source: ends[source] for source in part},
                begins={source: self._begins[source] for source in part if source in self._begins},
                elsewhere=made.elsewhere if place == 0 else {},
                whole=len(parts) - place,
                previous=self._head.digest,
            )
            line = _encoded(one)
            if not self._write_checkpoint(one, line, begins=(len(line) + 1) * len(parts) if begins_file else 0):
                return False
            begins_file = False
        return True

    def _write_checkpoint(self, made: Checkpoint, line: bytes, *, begins: int = 0) -> bool:
        if not self._files.write_checkpoint(made.number, line + b"\n", begins=begins):
            return False
        digest = digest_of_line(line)
        self._head = Head(number=made.number, at_ms=made.at_ms, through=made.through, digest=digest)
        if self._syslog is not None:
            self._syslog.send(msgspec.json.encode({"head": self._head.text, "through": made.through}))
        return True

    def _note_removal(self, first: dict[str, int | None], at_ms: int) -> None:
        """Say so, before the oldest files of these series go."""
        begins = {source: self._first_line(source, file) for source, file in first.items() if source in self._ends}
        self._begins |= begins
        self._checkpoint(self._capture(), at_ms, begins=begins)

    def _first_line(self, source: str, file: int | None) -> int:
        """The number of the first line of that file; without one, of the line that is written next."""
        if file is not None:
            for row in rows_of(path_of(self._directory, source, file)):
                if (link := read_link(row.raw)) is not None:
                    return link.line
        return self._ends[source].line + 1

    def _read_ends(self) -> None:
        """Where the series end, as their files and the newest checkpoints say."""
        files = listed(self._directory)
        state, digest, newest = ChainState(), GENESIS, None
        if chain := files.pop(CHAIN, []):
            for row in rows_of(path_of(self._directory, CHAIN, chain[-1])):
                if (checkpoint := read_checkpoint(row.raw)) is not None:
                    state.read(checkpoint)
                    newest, digest = checkpoint, digest_of_line(row.raw)
        if newest is not None:
            self._head = Head(number=newest.number, at_ms=newest.at_ms, through=newest.through, digest=digest)
            self._begins = dict(state.begins)
            self._last = max(self._last, newest.through)
        for source, firsts in files.items():
            end = self._last_end(source, firsts)
            known = state.ends.get(source)
            # What a checkpoint says is believed: lines that are not as it says are what `hal audit verify` names.
            if known is not None and (end is None or end.line <= known.line):
                end = known
            if end is not None:
                self._ends[source] = end
                if end != known:
                    self._changed.add(source)
        self._ends |= {source: end for source, end in state.ends.items() if source not in self._ends}

    def _last_end(self, source: str, firsts: Sequence[int]) -> End | None:
        for first in reversed(firsts):
            for line in lines_backwards(path_of(self._directory, source, first)):
                if (link := read_link(line)) is not None:
                    return End(link.sequence, link.line, digest_of_line(line))
        return None

    # ── entries ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _end(self, streak: _Streak) -> None:
        if streak.last is not None:
            self._append(replace(streak.last, times=streak.left_out, since_ms=streak.since_ms))

    def _append(self, entry: Entry) -> None:
        source = self._files.source_of(entry.user)
        before = self._ends.get(source)
        sequence, number = self._last + 1, before.line + 1 if before is not None else 1
        previous = before.digest if before is not None else GENESIS
        line = _line(replace(entry, sequence=sequence, lost=self._lost, line=number, previous=previous))
        if self._files.write(source, sequence, line + b"\n", entry.at_ms):
            self._last, self._lost, self._newest_ms = sequence, 0, entry.at_ms
            self._ends[source] = End(sequence, number, digest_of_line(line))
            self._changed.add(source)
        else:
            self._lost += 1
        if self._syslog is not None:
            self._syslog.send(line)
        self._came.set()
        self._came = asyncio.Event()

    def _series(self, user: str) -> Iterator[Iterator[Entry]]:
        """The entries of each source, newest first; of one user's only those files in which they can be."""
        wanted = {USER + quote(user, safe="")[:MAX_NAME], OTHERS} if user else None
        for source, firsts in listed(self._directory).items():
            if source != CHAIN and (wanted is None or source in wanted):
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


def _encoded(made: Checkpoint) -> bytes:
    return printable_json(msgspec.json.encode(made).decode()).encode("utf-8", "backslashreplace")


def _line(entry: Entry) -> bytes:
    """As JSON that acts on no terminal; of a refused request within `MAX_REFUSED_BYTES`."""
    line = printable_json(msgspec.json.encode(entry).decode()).encode("utf-8", "backslashreplace")
    if entry.status < FAILED or len(line) <= MAX_REFUSED_BYTES or not entry.path:
        return line
    return _line(replace(entry, path=entry.path[: len(entry.path) // 2]))
