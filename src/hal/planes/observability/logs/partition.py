"""One file of the store of log lines: the lines of a time, and the index of their words.

Retention removes whole files, so nothing is ever deleted inside one. Ids of lines ascend over all files in the order in
which lines came, without gaps in a file: neighbouring numbers make the index a third smaller than numbers made of
times would. The index has no positions (`detail=none`) and no copy of the text (`content=''`): a phrase is looked up by
its words and checked in the text (benchmarks/observability_logs.py has what each choice costs).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from hal.core.model import StoreError
from hal.planes.observability.logs.lines import STEP, Batch, Line, Source
from hal.planes.observability.logs.words import TAG, indexable
from hal.wire.frames.telemetry import Severity

FORM: Final = 1
"""Of the file; another one is left alone."""
SUFFIX: Final = ".sqlite"
BUSY_TIMEOUT_S: Final = 5.0
WAL_BYTES: Final = 32 << 20
CACHE_KIB: Final = 16 << 10
READ_CACHE_KIB: Final = 4 << 10
MERGED_ROWS: Final = 1_000
"""Lines for which the store notes their earliest and latest time together."""
MAX_TASK: Final = (1 << 63) - 1
MAX_KNOWN_SOURCES: Final = 20_000
"""Sources whose number is in memory; the others are looked up."""

_TABLES: Final = f"""
CREATE TABLE file (begun_ms INTEGER NOT NULL);
INSERT INTO file VALUES ({{begun_ms}});
CREATE TABLE sources (
  id INTEGER PRIMARY KEY, node TEXT, component TEXT, job INTEGER, task INTEGER, attempt INTEGER, rank INTEGER,
  stream TEXT, user TEXT, trace_id TEXT, read_to INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX sources_by_job ON sources (job, task, attempt, rank, stream, node, component, user, trace_id);
CREATE TABLE lines (
  id INTEGER PRIMARY KEY, source INTEGER, at_ms INTEGER, severity INTEGER, "offset" INTEGER, text TEXT
);
CREATE TABLE times (first INTEGER PRIMARY KEY, last INTEGER, earliest_ms INTEGER, latest_ms INTEGER);
CREATE VIRTUAL TABLE words USING fts5 (
  text, content='', columnsize=0, detail=none, tokenize="unicode61 remove_diacritics 2"
);
PRAGMA user_version={FORM};
"""


class Found(NamedTuple):
    """A line of the store."""

    id: int
    source: Source
    line: Line


def first_id_of(path: Path) -> int:
    """The id of the first line in a file, by its name; -1: the name is none of a file of the store."""
    stem = path.name.removesuffix(SUFFIX)
    return int(stem) if path.name.endswith(SUFFIX) and stem.isascii() and stem.isdigit() else -1


class TaskAttempt(NamedTuple):
    """An attempt of a task."""

    task: int
    attempt: int


class PartitionWriter:
    """The file to which lines are added. Blocking; used by one thread at a time."""

    def __init__(self, path: Path, now_ms: int) -> None:
        """
        Raises:
            sqlite3.Error: it cannot be opened.
            StoreError: another HAL has written it.
        """
        self.path = path
        self._open = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            for pragma in (
                "journal_mode=WAL", "synchronous=NORMAL", f"journal_size_limit={WAL_BYTES}", f"cache_size=-{CACHE_KIB}"
            ):  # fmt: skip
                self._open.execute(f"PRAGMA {pragma}")
            (form,) = self._open.execute("PRAGMA user_version").fetchone()
            if form == 0:
                self._open.executescript(f"BEGIN IMMEDIATE;{_TABLES.format(begun_ms=now_ms)}COMMIT;")
            elif form != FORM:
                raise _newer(path)
            (last,) = self._open.execute("SELECT max(id) FROM lines").fetchone()
            (self.begun_ms,) = self._open.execute("SELECT begun_ms FROM file").fetchone()
        except BaseException:
            self._open.close()
            raise
        self.next_id: int = max(first_id_of(path), 0) if last is None else last + 1
        self.lines = self.next_id - max(first_id_of(path), 0)
        """How many it has."""
        self._known: dict[Source, tuple[int, int]] = {}
        """Number of a source, and where it was read to."""

    def add(self, batches: Sequence[Batch]) -> int:
        """Add lines in one transaction; what was read before of an output is passed over. Returns how many were added.

        Raises:
            sqlite3.Error: it cannot be written; nothing was.
        """
        rows: list[tuple[int, int, int, int, int, str]] = []
        texts: list[tuple[int, str]] = []
        known = dict[Source, tuple[int, int]]()
        self._open.execute("BEGIN IMMEDIATE")
        try:
            number = self.next_id
            for batch in batches:
                source, (id_, read_to) = batch.source, known.get(batch.source) or self._number(batch.source)
                tags = _tags(source)
                for line in batch.lines:
                    if batch.end and line.offset < read_to:
                        continue
                    severity = int(line.severity)
                    # The end of a line is in the sign of its severity: most lines have one.
                    stored = severity if line.whole else -severity
                    rows.append((number, id_, line.at_ms, stored, line.offset, line.text))
                    texts.append((number, f"{indexable(line.text)}{tags}{TAG}v{severity}"))
                    number += 1
                known[source] = (id_, max(read_to, batch.end))
            if rows:
                self._open.executemany("INSERT INTO lines VALUES (?, ?, ?, ?, ?, ?)", rows)
                self._open.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", texts)
                self._note_times(rows)
            self._open.executemany(
                "UPDATE sources SET read_to=? WHERE id=? AND read_to<?",
                [(end, id_, end) for id_, end in known.values() if end],
            )
            self._open.execute("COMMIT")
        except BaseException:
            if self._open.in_transaction:
                self._open.execute("ROLLBACK")
            self._known.clear()
            raise
        self.next_id, self.lines = number, self.lines + len(rows)
        self._known |= known
        while len(self._known) > MAX_KNOWN_SOURCES:
            del self._known[next(iter(self._known))]
        return len(rows)

    def read_to(self, source: Source) -> int:
        """Where an output was read to, as far as this file knows."""
        known = self._known.get(source)
        return known[1] if known else _read_to(self._open, source)

    def carry(self, source: Source, read_to: int) -> None:
        """Note where an output was read to in an earlier file."""
        self._open.execute("BEGIN IMMEDIATE")
        id_, _ = self._number(source)
        self._open.execute("UPDATE sources SET read_to=max(read_to, ?) WHERE id=?", (read_to, id_))
        self._open.execute("COMMIT")

    def close(self) -> None:
        """Close the file; its write-ahead log goes into it."""
        self._open.close()

    def _number(self, source: Source) -> tuple[int, int]:
        found = self._known.get(source)
        if found is not None:
            return found
        row = self._open.execute(f"SELECT id, read_to FROM sources WHERE {_SAME}", _key(source)).fetchone()
        if row is None:
            made = self._open.execute(
                "INSERT INTO sources (job, task, attempt, rank, stream, node, component, user, trace_id) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                _key(source),
            )
            assert made.lastrowid is not None
            return made.lastrowid, 0
        return row[0], row[1]

    def _note_times(self, rows: Sequence[tuple[int, int, int, int, int, str]]) -> None:
        first, last = rows[0][0], rows[-1][0]
        earliest, latest = min(row[2] for row in rows), max(row[2] for row in rows)
        newest = self._open.execute("SELECT first, last FROM times ORDER BY first DESC LIMIT 1").fetchone()
        if newest is not None and last - newest[0] < MERGED_ROWS:
            self._open.execute(
                "UPDATE times SET last=?, earliest_ms=min(earliest_ms, ?), latest_ms=max(latest_ms, ?) WHERE first=?",
                (last, earliest, latest, newest[0]),
            )
            return
        self._open.execute("INSERT INTO times VALUES (?, ?, ?, ?)", (first, last, earliest, latest))


class PartitionReader:
    """A file from which lines are read, while it may be written. Blocking; used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            sqlite3.Error: it cannot be opened.
            StoreError: another HAL has written it.
        """
        self.path = path
        self._open = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None,
            check_same_thread=False,
        )  # fmt: skip
        try:
            self._open.execute(f"PRAGMA cache_size=-{READ_CACHE_KIB}")
            (form,) = self._open.execute("PRAGMA user_version").fetchone()
            if form != FORM:
                raise _newer(path)
        except BaseException:
            self._open.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._open.close()

    def range_of(self, since_ms: int | None, until_ms: int | None) -> tuple[int, int] | None:
        """The first and last id between which all lines of that time are; None: there are none."""
        first, last = self._open.execute(
            "SELECT min(first), max(last) FROM times WHERE latest_ms >= ? AND earliest_ms < ?",
            (0 if since_ms is None else since_ms, 1 << 60 if until_ms is None else until_ms),
        ).fetchone()
        return None if first is None else (first, last)

    def newest(self, expression: str, first: int, last: int, limit: int) -> list[Found]:
        """The newest lines that match, newest first, with ids from `first` to `last`.

        Args:
            expression: for the index; '': all lines.
        """
        return self._found(expression, first, last, limit, "DESC")

    def oldest(self, expression: str, first: int, last: int, limit: int) -> list[Found]:
        """The oldest lines that match, oldest first."""
        return self._found(expression, first, last, limit, "ASC")

    def outputs(self, job: int) -> Iterator[Source]:
        """The outputs of a job."""
        rows = self._open.execute(f"SELECT {_COLUMNS} FROM sources WHERE job=? AND component=?", (job, STEP))
        return (Source(*row) for row in rows)

    def later_attempts(self, job: int, tasks: tuple[int, int] | None, user: str | None) -> list[TaskAttempt]:
        """The newest attempt of each task that has had more than one, by its outputs; of a user's alone."""
        first, last = tasks or (0, MAX_TASK)
        rows = self._open.execute(
            "SELECT task, max(attempt) FROM sources WHERE job=? AND task BETWEEN ? AND ? AND component=? "
            "AND user=coalesce(?, user) GROUP BY task HAVING max(attempt) > 1",
            (job, first, last, STEP, user),
        )
        return [TaskAttempt(*row) for row in rows]

    def read_to(self, source: Source) -> int:
        """Where an output was read to, as far as this file knows."""
        return _read_to(self._open, source)

    def _found(self, expression: str, first: int, last: int, limit: int, order: str) -> list[Found]:
        if expression:
            matching = (
                f"SELECT rowid AS id FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? "
                f"ORDER BY rowid {order} LIMIT ?"
            )
            bound: tuple[str | int, ...] = (expression, first, last, limit)
        else:
            matching = f"SELECT id FROM lines WHERE id BETWEEN ? AND ? ORDER BY id {order} LIMIT ?"
            bound = (first, last, limit)
        rows = self._open.execute(
            f'SELECT l.id, l.at_ms, l.severity, l.text, l."offset", {_COLUMNS} FROM ({matching}) m '
            f"CROSS JOIN lines l ON l.id = m.id CROSS JOIN sources s ON s.id = l.source ORDER BY l.id {order}",
            bound,
        )
        return list(_lines(rows))


_COLUMNS: Final = "node, component, job, task, attempt, rank, stream, user, trace_id"
"""As `Source` has them."""
_SAME: Final = (
    "job=? AND task=? AND attempt=? AND rank=? AND stream=? AND node=? AND component=? AND user=? AND trace_id=?"
)


def _key(source: Source) -> tuple[int | str, ...]:
    """As `_SAME` has them."""
    return (
        source.job, source.task, source.attempt, source.rank, source.stream, source.node, source.component, source.user,
        source.trace_id,
    )  # fmt: skip


def _read_to(connection: sqlite3.Connection, source: Source) -> int:
    row = connection.execute(f"SELECT read_to FROM sources WHERE {_SAME}", _key(source)).fetchone()
    return 0 if row is None else int(row[0])


def _lines(rows: Iterator[tuple[int, int, int, str, int, *tuple[int | str, ...]]]) -> Iterator[Found]:
    for id_, at_ms, severity, text, offset, *source in rows:
        line = Line(at_ms, Severity(abs(severity)), text, offset, severity > 0)
        yield Found(id_, Source(*source), line)  # type: ignore[arg-type]


def tag_of(kind: str, value: str | int) -> str:
    """The word of the index that all lines with a property have; names are written so that each is one word.

    Args:
        kind: `j` job, `u` user, `n` node, `c` component, `v` severity.
    """
    return f"{kind}{value}" if isinstance(value, int) else f"{kind}{value.encode().hex()}"


def _tags(source: Source) -> str:
    """The tags of all lines of a source, each after what begins it."""
    tags = [tag_of("c", source.component)]
    if source.job:
        tags += [tag_of("j", source.job), tag_of("u", source.user)]
    if source.node:
        tags.append(tag_of("n", source.node))
    return "".join(f" {TAG}{tag}" for tag in tags) + " "


def _newer(path: Path) -> StoreError:
    return StoreError(
        f"{path} was written by another version of HAL", hint="move it away: what is in it is then not searched"
    )
