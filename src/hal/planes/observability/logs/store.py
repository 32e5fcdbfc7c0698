"""The store of log lines: files by time, the newest written, the oldest removed when there is too much.

Blocking. `LogWriter` and `LogReader` are used by one thread each, and share nothing but the directory: a flood of lines
never makes a search wait. Files are read newest first, so a page costs what it shows, however much there is.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from hal.core.model import SpecError, StoreError
from hal.planes.observability.logs.lines import STEP, Batch, Source
from hal.planes.observability.logs.partition import (
    SUFFIX,
    Found,
    PartitionReader,
    PartitionWriter,
    first_id_of,
    tag_of,
)
from hal.planes.observability.logs.words import Search, expression_of
from hal.wire.frames.telemetry import Severity

T = TypeVar("T")

DAY_MS: Final = 86_400_000
FILES: Final = 16
"""A full store has about so many files; the oldest is what retention removes at once."""
MIN_FILE_BYTES: Final = 1 << 20
PAGE_ROWS: Final = 100
MAX_PAGE_ROWS: Final = 1_000
CHUNK_ROWS: Final = 2_000
MAX_SCANNED: Final = 50_000
"""Lines whose text one page looks at; a page that ends for this has a cursor to go on from."""
MAX_SEEN: Final = 100_000
"""Outputs of which the writer remembers that it has looked in the file before."""
MAX_ID: Final = (1 << 62) - 1
LAST: Final = f"{MAX_ID}"


class Wanted(NamedTuple):
    """Which lines."""

    search: Search = Search()
    job: int = 0
    """0: of any, or of none."""
    tasks: tuple[int, int] | None = None
    """First and last."""
    user: str | None = None
    """Only lines of jobs of this user."""
    node: str = ""
    component: str = ""
    severity: Severity = Severity.TRACE
    """At least."""
    since_ms: int | None = None
    until_ms: int | None = None
    """Before."""

    def expression(self) -> str:
        """For the index.

        Raises:
            SpecError: it only says what must not be there.
        """
        tags: list[tuple[str, ...]] = []
        if self.job:
            tags.append((tag_of("j", self.job),))
        if self.user is not None:
            tags.append((tag_of("u", self.user),))
        if self.node:
            tags.append((tag_of("n", self.node),))
        if self.component:
            tags.append((tag_of("c", self.component),))
        if self.severity > Severity.TRACE:
            tags.append(tuple(tag_of("v", int(one)) for one in Severity if one >= self.severity))
        return expression_of(self.search, tags)

    def admits(self, found: Found) -> bool:
        """Whether a line that the index has found is one of these."""
        at_ms = found.line.at_ms
        return (
            (self.since_ms is None or at_ms >= self.since_ms)
            and (self.until_ms is None or at_ms < self.until_ms)
            and (self.tasks is None or self.tasks[0] <= found.source.task <= self.tasks[1])
            and self.search.admits(found.line.text)
        )


class Page(NamedTuple):
    """Lines, newest first."""

    lines: list[Found]
    before: int
    """Asks for what follows; 0: there is no more."""


class Outputs(NamedTuple):
    """Which outputs of a job."""

    user: str | None = None
    """Only of this user."""
    tasks: tuple[int, int] | None = None
    """First and last."""
    attempt: int | None = None
    """None: of the newest attempt of each task."""
    rank: int | None = None
    stream: str = ""
    newest: Mapping[int, int] = {}
    """By task, where that attempt is not the first."""

    def admit(self, one: Source) -> bool:
        """Whether an output is one of them."""
        attempt = self.newest.get(one.task, 1) if self.attempt is None else self.attempt
        return (
            (self.user is None or one.user == self.user)
            and one.component == STEP
            and (self.tasks is None or self.tasks[0] <= one.task <= self.tasks[1])
            and one.attempt == attempt
            and (self.rank is None or one.rank == self.rank)
            and self.stream in ("", one.stream)
        )


class FoundOutputs(NamedTuple):
    """What is known of outputs of a job."""

    there: bool
    """There are some of the job, whoever may see them."""
    mine: bool
    """There are some of the user."""
    outputs: Outputs
    """With the newest attempts."""
    number: int
    """How many tasks and ranks they are of; 2: several."""


class LogWriter:
    """Adds lines and removes the oldest."""

    def __init__(self, directory: Path, *, max_bytes: int, keep_ms: int) -> None:
        """
        Args:
            directory: of its files; exists.
            max_bytes: of all files together, about.
            keep_ms: how long lines are kept after they came; 0: as long as there is room.
        """
        self._directory, self._max_bytes, self._keep_ms = directory, max_bytes, keep_ms
        self._file_bytes = max(MIN_FILE_BYTES, max_bytes // FILES)
        self._writer: PartitionWriter | None = None
        self._before: PartitionReader | None = None
        """The file before it, which knows where outputs were read to."""
        self._seen: set[Source] = set()
        """Outputs whose state in that file is known."""
        self.bytes = 0
        """Of all files, when last looked at."""
        self.files = 0

    def add(self, batches: Sequence[Batch], now_ms: int) -> int:
        """Add lines in one transaction; returns how many there were that had not been read before.

        Raises:
            StoreError: it cannot be written; nothing was.
        """
        try:
            writer = self._ready(now_ms)
            self._carry(writer, batches)
            return writer.add(batches)
        except sqlite3.Error as error:
            self._drop()
            raise _failed(self._directory, error, "written") from error

    def read_to(self, source: Source, now_ms: int) -> int:
        """Where an output, or a file, was read to.

        Raises:
            StoreError: it cannot be read.
        """
        try:
            writer = self._ready(now_ms)
            return writer.read_to(source) or (self._before.read_to(source) if self._before is not None else 0)
        except sqlite3.Error as error:
            self._drop()
            raise _failed(self._directory, error, "read") from error

    def tend(self, now_ms: int) -> int:
        """Begin a new file when the newest is large or a day old, and remove the oldest beyond the bounds. Returns how
        many files were removed.

        Raises:
            StoreError: a file cannot be removed.
        """
        if self._writer is not None and self._is_full(self._writer, now_ms):
            self._drop()
        files = paths_of(self._directory)
        sizes = [_size(path) for path in files]
        removed = 0
        # The newest stays: it is being written.
        while removed < len(files) - 1:
            too_much = sum(sizes[removed:]) > self._max_bytes
            too_old = self._keep_ms and _changed_ms(files[removed]) < now_ms - self._keep_ms
            if not (too_much or too_old):
                break
            _remove(files[removed])
            removed += 1
        self.bytes, self.files = sum(sizes[removed:]), len(files) - removed
        return removed

    def close(self) -> None:
        """Close the file; the next call opens it again."""
        self._drop()

    def _ready(self, now_ms: int) -> PartitionWriter:
        if self._writer is None:
            files = paths_of(self._directory)
            newest = files[-1] if files else None
            if newest is not None and not self._is_full(writer := PartitionWriter(newest, now_ms), now_ms):
                self._writer, older = writer, files[:-1]
            else:
                first = 1
                if newest is not None:
                    first = writer.next_id
                    writer.close()
                path = self._directory / f"{first:016d}{SUFFIX}"
                os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_WRONLY, 0o600))
                self._writer, older = PartitionWriter(path, now_ms), files
            self._before = PartitionReader(older[-1]) if older else None
            self._seen.clear()
        return self._writer

    def _is_full(self, writer: PartitionWriter, now_ms: int) -> bool:
        """Whether the next lines belong into another file; an empty one takes some first."""
        return writer.lines > 0 and (_size(writer.path) >= self._file_bytes or now_ms - writer.begun_ms >= DAY_MS)

    def _carry(self, writer: PartitionWriter, batches: Sequence[Batch]) -> None:
        """Take over from the file before where outputs were read to."""
        if self._before is None:
            return
        for batch in batches:
            if not batch.end or batch.source in self._seen:
                continue
            if len(self._seen) >= MAX_SEEN:
                self._seen.clear()
            self._seen.add(batch.source)
            read_to = self._before.read_to(batch.source)
            if read_to:
                writer.carry(batch.source, read_to)

    def _drop(self) -> None:
        for one in (self._writer, self._before):
            if one is not None:
                with contextlib.suppress(sqlite3.Error):
                    one.close()
        self._writer = self._before = None


class LogReader:
    """Finds lines."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: dict[Path, PartitionReader] = {}

    def page(self, wanted: Wanted, *, limit: int = PAGE_ROWS, before: int = 0) -> Page:
        """The newest lines that match, newest first.

        Args:
            before: of the page before; 0: from the newest.
        Raises:
            SpecError: the search cannot be carried out.
            StoreError: the store cannot be read.
        """
        expression = wanted.expression()
        last, scanned = (before - 1 if before else MAX_ID), 0
        lines: list[Found] = []
        for file in reversed(self._files()):
            first = max(first_id_of(file), 0)
            if first > last:
                continue
            between = self._read(file, lambda one: one.range_of(wanted.since_ms, wanted.until_ms))
            if between is None:
                continue
            lowest, highest = between[0], min(between[1], last)
            while lowest <= highest:
                # Grows where few of what the index finds are wanted.
                rows = min(CHUNK_ROWS, max(limit - len(lines), scanned))
                found = self._read(file, _newest(expression, lowest, highest, rows))
                scanned += len(found)
                for one in found:
                    if wanted.admits(one):
                        lines.append(one)
                        if len(lines) == limit:
                            return Page(lines, one.id)
                if len(found) < rows:
                    break
                highest = found[-1].id - 1
                if scanned >= MAX_SCANNED:
                    return Page(lines, found[-1].id)
        return Page(lines, 0)

    def of_job(self, wanted: Wanted, after: int) -> list[Found]:
        """The next lines that match, oldest first: at most a chunk; none: there are no more.

        Args:
            after: the last one of the chunk before; 0: from the oldest.
        Raises:
            StoreError: the store cannot be read.
        """
        expression = wanted.expression()
        for file in self._files():
            first = after + 1
            while found := self._read(file, _oldest(expression, first, MAX_ID, CHUNK_ROWS)):
                admitted = [one for one in found if wanted.admits(one)]
                if admitted:
                    return admitted
                first = found[-1].id + 1
        return []

    def outputs(self, job: int, asked: Outputs) -> FoundOutputs:
        """Which outputs of a job there are. Memory follows tasks that ran again, not all of an array."""
        newest: dict[int, int] = {}
        there = mine = False
        files = self._files()
        for file in files:
            for one in self._read(file, lambda reader: reader.later_attempts(job, asked.tasks, asked.user)):
                newest[one.task] = max(one.attempt, newest.get(one.task, 1))
        found = asked._replace(newest=newest)
        of: set[tuple[int, int]] = set()

        def look(reader: PartitionReader) -> None:
            nonlocal there, mine
            for one in reader.outputs(job):
                there = True
                mine = mine or asked.user is None or one.user == asked.user
                if found.admit(one):
                    of.add((one.task, one.rank))
                if len(of) > 1:
                    return

        for file in files:
            self._read(file, look)
        return FoundOutputs(there, mine, found, len(of))

    def close(self) -> None:
        """Close all files."""
        for one in self._open.values():
            one.close()
        self._open.clear()

    def _files(self) -> list[Path]:
        files = paths_of(self._directory)
        for path in self._open.keys() - set(files):
            self._open.pop(path).close()
        return files

    def _read(self, path: Path, call: Callable[[PartitionReader], T]) -> T:
        try:
            reader = self._open.get(path)
            if reader is None:
                reader = self._open[path] = PartitionReader(path)
            return call(reader)
        except sqlite3.OperationalError as error:
            if "phrase queries" in str(error) or "fts5: syntax" in str(error):
                raise SpecError("the search has signs that cannot be searched", hint="leave them out") from error
            self._forget(path)
            raise _failed(path, error, "read") from error
        except sqlite3.Error as error:
            self._forget(path)
            raise _failed(path, error, "read") from error

    def _forget(self, path: Path) -> None:
        reader = self._open.pop(path, None)
        if reader is not None:
            reader.close()


def _newest(expression: str, first: int, last: int, rows: int) -> Callable[[PartitionReader], list[Found]]:
    return partial(PartitionReader.newest, expression=expression, first=first, last=last, limit=rows)


def _oldest(expression: str, first: int, last: int, rows: int) -> Callable[[PartitionReader], list[Found]]:
    return partial(PartitionReader.oldest, expression=expression, first=first, last=last, limit=rows)


def paths_of(directory: Path) -> list[Path]:
    """The files of a store, oldest first.

    Raises:
        StoreError: the directory cannot be read.
    """
    try:
        found = [path for path in directory.iterdir() if first_id_of(path) >= 0]
    except OSError as error:
        raise StoreError(f"{directory} cannot be read: {error.strerror or error}") from error
    return sorted(found, key=first_id_of)


def cursor_of(text: str) -> int:
    """
    Raises:
        SpecError: it is none.
    """
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= len(LAST) and 0 < int(text) <= MAX_ID):
        raise SpecError("the cursor is not one of this collector", hint="leave it out to begin at the newest line")
    return int(text)


def _files_of(path: Path) -> Iterator[Path]:
    return (path.with_name(path.name + end) for end in ("", "-wal", "-shm"))


def _size(path: Path) -> int:
    total = 0
    for one in _files_of(path):
        with contextlib.suppress(OSError):
            total += one.stat().st_size
    return total


def _changed_ms(path: Path) -> int:
    try:
        return int(path.stat().st_mtime * 1_000)
    except OSError:
        return 0


def _remove(path: Path) -> None:
    for one in _files_of(path):
        try:
            one.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"{one} cannot be removed: {error.strerror or error}") from error


def _failed(path: Path, error: sqlite3.Error, what: str) -> StoreError:
    return StoreError(
        f"{path} cannot be {what}: {error}",
        hint="if the disk is full, make room; if a file is damaged, move it away: the collector goes on without it",
    )
