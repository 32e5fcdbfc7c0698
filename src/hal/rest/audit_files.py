"""The files of the audit log: a series of small files for each source, so that no source displaces another's entries.

A source is a user, or all strangers together; the checkpoints of the chain are one, too. When all files together exceed
their limit, the source that takes most loses its oldest file: who writes little keeps all entries, whatever others do.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

from hal.core.model.audit_chain import CHAIN, OTHERS, STRANGERS, USER
from hal.runtime.audit_directory import listed, path_of
from hal.runtime.privacy import make_private
from hal.runtime.regular_files import open_own

MAX_SOURCES: Final = 1_000
"""Users with files of their own; any beyond share one series."""
FILES: Final = 1_024
"""About so many files fill the space that the log may take."""
LEAST_FILE_BYTES: Final = 1 << 10
MAX_OPEN: Final = 16
"""Files kept open for writing."""
MAX_NAME: Final = 100
"""Characters of a user in a file's name."""

Removal = Callable[[dict[str, int | None], int], None]
"""Told, before the oldest files of these sources go, which file of each is then the first (None: none is left), and the
time."""


class AuditFiles:
    """`DIRECTORY/user-alice.00000000000000000042.log`: lines of one source, the first of them number 42."""

    def __init__(self, directory: Path, *, max_bytes: int, days: int, removing: Removal) -> None:
        """
        Args:
            max_bytes: of all files together.
            days: files in which nothing was written for so long go; 0: never.
            removing: called before files go.
        """
        make_private(directory)
        self._directory = directory
        self._max_bytes = max_bytes
        self._keep_ms = days * 86_400_000
        self._removing = removing
        self.file_bytes: Final = max(max_bytes // FILES, LEAST_FILE_BYTES)
        """After so many bytes a source gets its next file."""
        self._chain_bytes = self.file_bytes
        """Longest file of the chain."""
        self._sizes: dict[str, dict[int, int]] = {}
        """Of each source its files, by the number of the first line, ascending: bytes."""
        for source, files in listed(directory).items():
            self._sizes[source] = {first: _size(self._path(source, first)) for first in files}
        self._open: OrderedDict[str, int] = OrderedDict()
        self._unflushed: set[Path] = set()
        """Written since `take_unflushed`; at most one for each file that there is."""

    def sources(self) -> list[str]:
        """Those that have files."""
        return [source for source, files in self._sizes.items() if files]

    def source_of(self, user: str) -> str:
        """Whose share a line about that user counts against; '': a stranger."""
        if not user:
            return STRANGERS
        name = USER + quote(user, safe="")[:MAX_NAME]
        return name if name in self._sizes or len(self._sizes) < MAX_SOURCES else OTHERS

    def write(self, source: str, number: int, line: bytes, at_ms: int) -> bool:
        """Append a line, larger in number than any before. A full disk costs lines, never the writer: False, then."""
        files = self._sizes.setdefault(source, {})
        first = next(reversed(files), None)
        if first is None or files[first] + len(line) > self.file_bytes:
            self._close(source)
            self._make_room(max(self.file_bytes, len(line)), at_ms)
            first = number
            files[first] = 0
        return self._append(source, first, line)

    def has_room(self, size: int) -> bool:
        """Whether the newest file of the chain takes so many bytes more."""
        files = self._sizes.get(CHAIN)
        return files is not None and bool(files) and next(reversed(files.values())) + size <= self._chain_bytes

    def write_checkpoint(self, number: int, line: bytes, *, begins: int = 0) -> bool:
        """Append to the chain, whatever room there is. False: it could not be written.

        Args:
            begins: not 0: to a new file, whose listing of all series takes so many bytes.
        """
        files = self._sizes.setdefault(CHAIN, {})
        if begins:
            self._close(CHAIN)
            self._chain_bytes = max(self.file_bytes, 8 * begins)
            files[number] = 0
        return self._append(CHAIN, next(reversed(files)), line)

    def take_unflushed(self) -> list[Path]:
        """Files that were written to since the last call."""
        taken, self._unflushed = list(self._unflushed), set()
        return taken

    def close(self) -> None:
        """Write no more."""
        for source in list(self._open):
            self._close(source)

    def _append(self, source: str, first: int, line: bytes) -> bool:
        path = self._path(source, first)
        try:
            fd = self._open.get(source)
            if fd is None:
                fd = self._open[source] = open_own(path, os.O_RDWR | os.O_APPEND)
                _end_torn_line(fd)
                while len(self._open) > MAX_OPEN:
                    self._close(next(iter(self._open)))
            self._open.move_to_end(source)
            written = os.write(fd, line)
            if written < len(line):  # the disk is full: half a line helps nobody
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, os.fstat(fd).st_size - written)
                self._close(source)
                return False
        except OSError:
            self._close(source)
            return False
        self._sizes[source][first] += written
        self._unflushed.add(path)
        return True

    def _make_room(self, wanted: int, at_ms: int) -> None:
        """Make room for so many bytes at the cost of the source that takes most; remove what is too old. The newest
        file of the chain stays."""
        left = {source: dict(files) for source, files in self._sizes.items()}
        victims: list[tuple[str, int]] = []
        if self._keep_ms:
            for source, files in left.items():
                for first in list(files)[:-1]:
                    with contextlib.suppress(OSError):
                        if self._path(source, first).stat().st_mtime_ns // 1_000_000 < at_ms - self._keep_ms:
                            victims.append((source, first))
                            del files[first]
        taken = {source: sum(files.values()) for source, files in left.items()}
        spare = self._max_bytes - wanted - (2 * self._chain_bytes if CHAIN in taken else 0)
        if CHAIN in taken and left[CHAIN]:
            taken[CHAIN] -= left[CHAIN].popitem()[1]
        while sum(taken.values()) > spare:
            most = max(taken, key=lambda source: taken[source])
            if not taken[most]:
                break
            first = next(iter(left[most]))
            taken[most] -= left[most].pop(first)
            victims.append((most, first))
        if not victims:
            return
        self._removing({source: next(iter(left[source]), None) for source, _ in victims if source != CHAIN}, at_ms)
        for source, first in victims:
            if first == next(reversed(self._sizes[source])):
                self._close(source)
            self._path(source, first).unlink(missing_ok=True)
            self._unflushed.discard(self._path(source, first))
            del self._sizes[source][first]

    def _close(self, source: str) -> None:
        fd = self._open.pop(source, None)
        if fd is not None:
            os.close(fd)

    def _path(self, source: str, first: int) -> Path:
        return path_of(self._directory, source, first)


def flush_files(paths: list[Path]) -> None:
    """Make what was written to these files survive a power failure; those that are gone are passed over."""
    for path in paths:
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)


def _end_torn_line(fd: int) -> None:
    """What a power failure left of a line must not become the beginning of the next."""
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        os.write(fd, b"\n")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
