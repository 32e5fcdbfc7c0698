"""The files of the audit log: a series of small files for each source, so that no source displaces another's entries.

A source is a user, or all strangers together. When all files together exceed their limit, the source that takes most
loses its oldest file: who writes little keeps all entries, whatever others do.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from hal.runtime.privacy import make_private
from hal.runtime.regular_files import NotRegularError, open_own, open_regular

MAX_SOURCES: Final = 1_000
"""Users with files of their own; any beyond share one series."""
FILES: Final = 1_024
"""About so many files fill the space that the log may take."""
LEAST_FILE_BYTES: Final = 1 << 10
MAX_OPEN: Final = 16
"""Files kept open for writing."""
MAX_NAME: Final = 100
"""Characters of a user in a file's name."""
CHUNK_BYTES: Final = 1 << 16
MAX_LINE_BYTES: Final = 1 << 16
STRANGERS: Final = "strangers"
OTHERS: Final = "others"
_USER: Final = "user-"
_NAME: Final = re.compile(r"(strangers|others|user-.+)\.([0-9]{20})\.log")


class AuditFiles:
    """`DIRECTORY/user-alice.00000000000000000042.log`: lines of one source, the first of them number 42."""

    def __init__(self, directory: Path, *, max_bytes: int, days: int) -> None:
        """
        Args:
            max_bytes: of all files together.
            days: files in which nothing was written for so long go; 0: never.
        """
        make_private(directory)
        self.lost = 0
        """Lines that could not be written since the last that could."""
        self._directory = directory
        self._max_bytes = max_bytes
        self._keep_ms = days * 86_400_000
        self._file_bytes = max(max_bytes // FILES, LEAST_FILE_BYTES)
        self._sizes: dict[str, dict[int, int]] = {}
        """Of each source its files, by the number of the first line, ascending: bytes."""
        for source, files in listed(directory).items():
            self._sizes[source] = {first: _size(self._path(source, first)) for first in files}
        self._open: OrderedDict[str, int] = OrderedDict()

    def source_of(self, user: str) -> str:
        """Whose share a line about that user counts against; '': a stranger."""
        if not user:
            return STRANGERS
        name = _USER + quote(user, safe="")[:MAX_NAME]
        return name if name in self._sizes or len(self._sizes) < MAX_SOURCES else OTHERS

    def write(self, source: str, number: int, line: bytes, at_ms: int) -> None:
        """Append a line, larger in number than any before. A full disk costs lines, never the writer."""
        if self.lost:
            line = b'{"level":"warning","event":"audit entries were lost","lines":%d}\n' % self.lost + line
        try:
            self._append(source, number, line, at_ms)
        except OSError:
            self.lost += 1
            self._close(source)
        else:
            self.lost = 0

    def close(self) -> None:
        """Write no more."""
        for source in list(self._open):
            self._close(source)

    def _append(self, source: str, number: int, line: bytes, at_ms: int) -> None:
        files = self._sizes.setdefault(source, {})
        first = next(reversed(files), None)
        if first is None or files[first] + len(line) > self._file_bytes:
            self._close(source)
            first = number
            files[first] = 0
            self._make_room(max(self._file_bytes, len(line)), at_ms)
        fd = self._open.get(source)
        if fd is None:
            fd = self._open[source] = open_own(self._path(source, first), os.O_WRONLY | os.O_APPEND)
            while len(self._open) > MAX_OPEN:
                self._close(next(iter(self._open)))
        self._open.move_to_end(source)
        files[first] += os.write(fd, line)

    def _make_room(self, wanted: int, at_ms: int) -> None:
        """Make room for so many bytes at the cost of the source that takes most; remove what is too old."""
        if self._keep_ms:
            for source, files in self._sizes.items():
                for first in list(files)[:-1]:
                    with contextlib.suppress(OSError):
                        if self._path(source, first).stat().st_mtime_ns // 1_000_000 < at_ms - self._keep_ms:
                            self._remove(source, first)
        taken = {source: sum(files.values()) for source, files in self._sizes.items()}
        while sum(taken.values()) + wanted > self._max_bytes:
            most = max(taken, key=lambda source: taken[source])
            if not taken[most]:
                return
            taken[most] -= self._remove(most, next(iter(self._sizes[most])))

    def _remove(self, source: str, first: int) -> int:
        if first == next(reversed(self._sizes[source])):
            self._close(source)
        self._path(source, first).unlink(missing_ok=True)
        return self._sizes[source].pop(first)

    def _close(self, source: str) -> None:
        fd = self._open.pop(source, None)
        if fd is not None:
            os.close(fd)

    def _path(self, source: str, first: int) -> Path:
        return path_of(self._directory, source, first)


def path_of(directory: Path, source: str, first: int) -> Path:
    """The file of that source whose first line has that number."""
    return directory / f"{source}.{first:020}.log"


def listed(directory: Path) -> dict[str, list[int]]:
    """Of each source the numbers of the first lines of its files, ascending. Reads the disk, from any thread."""
    found: dict[str, list[int]] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(os.listdir(directory)):
            if match := _NAME.fullmatch(name):
                found.setdefault(match[1], []).append(int(match[2]))
    return found


def lines_backwards(file: Path) -> Iterator[bytes]:
    """Lines of a file, the last first; nothing where there is none. Lines over `MAX_LINE_BYTES` are cut into pieces."""
    try:
        opened = os.fdopen(open_regular(file), "rb")
    except (FileNotFoundError, NotRegularError):
        return
    with opened:
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


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
