"""Whether an audit log is as it was written: which line was changed, removed or inserted first, and up to where it is
intact.

Pure: lines come from whoever reads the files. O(lines) in time; memory grows with checkpoints, not with lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple

from msgspec import Struct

from hal.core.model.audit_chain import (
    CHAIN,
    ChainState,
    Checkpoint,
    Link,
    digest_of_line,
    read_checkpoint,
    read_link,
)

MAX_FINDINGS: Final = 100
"""Findings that are kept; what was changed after so many is not named."""
MAX_TAIL: Final = 1_000_000
"""Entries behind the last checkpoint that are counted one by one."""


class Row(NamedTuple):
    """One line of a file."""

    file: str
    number: int
    """In the file, from 1."""
    raw: bytes
    """Without its end."""


class What(StrEnum):
    """What is wrong."""

    CHANGED = "changed"
    REMOVED = "removed"
    INSERTED = "inserted"
    HEAD = "head"
    """A head that was kept elsewhere is not in this log."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that is not as it was written."""

    what: What
    text: str
    file: str
    row: int
    """In the file, from 1; of lines that were removed, the one behind them; 0: none."""
    sequence: int
    """Of that line; 0: not known."""
    intact_sequence: int
    """The last line before it in its series that is intact; 0: none."""
    intact_ms: int


class Verdict(Struct, frozen=True, kw_only=True):
    """The answer."""

    intact: bool
    """Nothing was found, and there is a chain."""
    lines: int
    """In the chain."""
    unchained: int
    """Lines that an earlier version wrote, before the chain begins: nobody can say whether they were changed."""
    fragments: int
    """Pieces that are no entry, as a power failure or a full disk leaves them."""
    chained_from_ms: int | None
    """Time of the first line in the chain; null: there is none."""
    first_sequence: int | None
    last_sequence: int | None
    last_ms: int | None
    """Of the newest line."""
    intact_sequence: int
    """All lines up to this one are as they were written."""
    intact_ms: int
    checkpoints: int
    head: str
    """The newest checkpoint; empty: there is none, and so the ends of the series are not verified."""
    head_sequence: int
    heads_found: tuple[str, ...]
    """Of those that were kept elsewhere, those that this log contains."""
    heads_older: tuple[str, ...]
    """Those of checkpoints that were removed for room or age."""
    elsewhere: dict[str, str]
    """Heads of other controllers' logs that it contains."""
    findings: tuple[Finding, ...]


class _At(NamedTuple):
    """A line of a series that was read."""

    row: Row
    link: Link
    digest: str


class Verifier:
    """Of one log."""

    def __init__(self, sources: Iterable[str], read: Callable[[str], Iterator[Row]], newest: int) -> None:
        """
        Args:
            sources: the series that are there.
            read: yields the lines of a series, oldest first.
            newest: the newest sequence number that was there before anything is read: what is written meanwhile is
                not missed.
        """
        self._sources = sorted(set(sources) - {CHAIN})
        self._read = read
        self._at_begin = newest
        self._findings: list[Finding] = []
        self._state = ChainState()
        self._expected: dict[str, dict[int, str]] = {}
        """By series: hashes of its lines that checkpoints name, by number."""
        self._through = 0
        self._lines = self._unchained = self._fragments = 0
        self._first: Link | None = None
        self._newest: Link | None = None
        self._tail: set[int] = set()

    def verify(self, heads: Sequence[tuple[int, str]] = ()) -> Verdict:
        """
        Args:
            heads: numbers and hashes of checkpoints that were kept elsewhere.
        """
        digests, elsewhere = self._read_chain()
        found, older = self._compare(heads, digests)
        for source in self._sources:
            self._verify_series(source)
        for source, of in self._state.ends.items():
            if source not in self._sources and self._state.begins.get(source, 1) <= of.line:
                self._find(What.REMOVED, f"all lines of {source} up to {of.line}", None, source, 0, None)
        if digests:
            self._verify_tail()
        last = max(digests, default=0)
        findings = tuple(sorted(self._findings, key=lambda one: one.sequence or one.intact_sequence))
        first = findings[0] if findings else None
        end = self._newest
        return Verdict(
            intact=not findings and self._lines > 0,
            lines=self._lines,
            unchained=self._unchained,
            fragments=self._fragments,
            chained_from_ms=self._first.at_ms if self._first else None,
            first_sequence=self._first.sequence if self._first else None,
            last_sequence=end.sequence if end else None,
            last_ms=end.at_ms if end else None,
            intact_sequence=first.intact_sequence if first else end.sequence if end else 0,
            intact_ms=first.intact_ms if first else end.at_ms if end else 0,
            checkpoints=len(digests),
            head=f"{last}:{digests[last]}" if last else "",
            head_sequence=self._through,
            heads_found=found,
            heads_older=older,
            elsewhere=elsewhere,
            findings=findings,
        )

    def _find(self, what: What, text: str, row: Row | None, source: str, sequence: int, intact: Link | None) -> None:
        known = self._findings[-1] if self._findings else None
        if row is not None and known is not None and (known.file, known.row) == (row.file, row.number):
            return  # two signs of one change
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(
                Finding(
                    what=what,
                    text=text,
                    file=row.file if row else source,
                    row=row.number if row else 0,
                    sequence=sequence,
                    intact_sequence=intact.sequence if intact else 0,
                    intact_ms=intact.at_ms if intact else 0,
                )
            )

    # ── checkpoints ───────────────────────────────────────────────────────────────────────────────────────────────

    def _read_chain(self) -> tuple[dict[int, str], dict[str, str]]:
        """Hashes of all checkpoints by number, and heads of other logs."""
        digests: dict[int, str] = {}
        elsewhere: dict[str, str] = {}
        before: Checkpoint | None = None
        digest = ""
        for row in self._read(CHAIN):
            checkpoint = read_checkpoint(row.raw)
            if checkpoint is None:
                self._fragments += 1
                continue
            intact = Link(before.through, before.at_ms) if before else None
            if before is not None and checkpoint.number > before.number + 1:
                lost = f"checkpoints {before.number + 1} to {checkpoint.number - 1}"
                self._find(What.REMOVED, lost, row, CHAIN, checkpoint.through, intact)
            elif before is not None and checkpoint.number <= before.number:
                text = f"checkpoint {checkpoint.number} is there a second time"
                self._find(What.INSERTED, text, row, CHAIN, checkpoint.through, intact)
                continue
            elif before is not None and checkpoint.previous != digest:
                text = f"checkpoint {before.number}, or the one behind it"
                self._find(What.CHANGED, text, row, CHAIN, before.through, None)
            before, digest = checkpoint, digest_of_line(row.raw)
            digests[checkpoint.number] = digest
            elsewhere |= checkpoint.elsewhere
            self._through = max(self._through, checkpoint.through)
            for source in self._state.read(checkpoint):
                self._expected.pop(source, None)
            for source, end in checkpoint.ends.items():
                if end.line:
                    self._expected.setdefault(source, {}).setdefault(end.line, end.digest)
        return digests, elsewhere

    def _compare(
        self, heads: Sequence[tuple[int, str]], digests: Mapping[int, str]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        found: list[str] = []
        older: list[str] = []
        for number, digest in heads:
            text = f"{number}:{digest}"
            if digests.get(number) == digest:
                found.append(text)
            elif digests and number < min(digests):
                older.append(text)
            elif number in digests:
                self._find(What.HEAD, f"checkpoint {number} is another one than the head {text}", None, CHAIN, 0, None)
            else:
                last = max(digests, default=0)
                text = f"the log ends with checkpoint {last}, before the head {text}"
                self._find(What.HEAD, text, None, CHAIN, 0, None)
        return tuple(found), tuple(older)

    # ── series ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _verify_series(self, source: str) -> None:
        expected = self._expected.get(source, {})
        before: _At | None = None
        older: _At | None = None
        """The line before `before`."""
        named: _At | None = None
        """The line that the last finding named."""
        unchained = ""
        for at in self._links(source):
            if not at.link.previous:
                if before is not None:
                    self._wrong(What.INSERTED, f"{source}: a line without a link", at, before)
                    self._tail.add(at.link.sequence)
                else:
                    self._unchained += 1
                    unchained = at.digest
                    self._note(at.link)
                continue
            if before is None:
                self._check_first(source, at, unchained)
            elif at.link.line > before.link.line + 1:
                self._gap(source, before.link, at)
            elif at.link.line <= before.link.line:
                if older is not None and at.link.previous == older.digest:
                    self._wrong(What.INSERTED, f"{source}: line {before.link.line}", before, older)
                else:
                    self._wrong(What.INSERTED, f"{source}: line {at.link.line}", at, before)
                    continue
            elif at.link.previous != before.digest and expected.get(before.link.line) == before.digest:
                self._wrong(What.CHANGED, f"{source}: line {at.link.line}", at, before)
            elif at.link.previous != before.digest and before is not named:
                self._wrong(What.CHANGED, f"{source}: line {before.link.line}", before, older)
            if expected.get(at.link.line, at.digest) != at.digest:
                self._wrong(What.CHANGED, f"{source}: line {at.link.line}", at, before)
                named = at
            self._lines += 1
            if self._first is None or at.link.sequence < self._first.sequence:
                self._first = at.link
            self._note(at.link)
            older, before = before, at
        self._check_end(source, before)

    def _links(self, source: str) -> Iterator[_At]:
        for row in self._read(source):
            link = read_link(row.raw)
            if link is None:
                self._fragments += 1
                continue
            yield _At(row, link, digest_of_line(row.raw))

    def _note(self, link: Link) -> None:
        if self._newest is None or link.sequence > self._newest.sequence:
            self._newest = link
        if link.sequence > self._through and len(self._tail) < MAX_TAIL:
            self._tail.add(link.sequence)

    def _wrong(self, what: What, text: str, at: _At, intact: _At | None) -> None:
        self._find(what, text, at.row, "", at.link.sequence, intact.link if intact else None)

    def _check_first(self, source: str, at: _At, unchained: str) -> None:
        """The first line in the chain: what is before it was removed for room or age, or there never was anything."""
        begins = max(self._state.begins.get(source, 1), 1)
        if at.link.line > begins and self._state.known:
            lost = f"{source}: lines {begins} to {at.link.line - 1}"
            self._find(What.REMOVED, lost, at.row, source, at.link.sequence, None)
        elif at.link.line == 1 and unchained and at.link.previous != unchained:
            self._wrong(What.CHANGED, f"{source}: the last line before the chain begins", at, None)

    def _gap(self, source: str, before: Link, at: _At) -> None:
        first, last = before.line + 1, at.link.line - 1
        lost = f"{source}: line {first}" if first == last else f"{source}: lines {first} to {last}"
        self._find(What.REMOVED, lost, at.row, source, at.link.sequence, before)

    def _check_end(self, source: str, last: _At | None) -> None:
        """Against the newest checkpoint: nothing is cut off at the end, and nothing was added that it does not know."""
        end = self._state.ends.get(source)
        line, link = (last.link.line, last.link) if last else (0, None)
        if end is not None and line < end.line and self._state.begins.get(source, 1) <= end.line:
            text = f"{source}: lines {line + 1} to {end.line}, at the end"
            self._find(What.REMOVED, text, last.row if last else None, source, end.sequence, link)
        elif last is None or not self._state.known or last.link.sequence > self._through:
            return
        elif end is None or line > end.line:
            self._wrong(What.INSERTED, f"{source}: line {line}", last, None)

    def _verify_tail(self) -> None:
        """Behind the last checkpoint nothing was removed for room or age: each number is there."""
        first = self._through + 1
        if self._at_begin - first >= MAX_TAIL:
            return
        missing = (number for number in range(first, self._at_begin + 1) if number not in self._tail)
        for number in islice(missing, MAX_FINDINGS):
            self._find(What.REMOVED, f"entry {number}", None, "", number, Link(number - 1, 0))


def verify_log(
    files: Mapping[str, Sequence[str]],
    rows: Callable[[str], Iterator[Row]],
    newest: int,
    heads: Sequence[tuple[int, str]] = (),
) -> Verdict:
    """
    Args:
        files: of each series, oldest first.
        rows: yields the lines of a file.
        newest, heads: as for `Verifier`.
    """
    return Verifier(files, lambda source: (row for file in files.get(source, ()) for row in rows(file)), newest).verify(
        heads
    )
