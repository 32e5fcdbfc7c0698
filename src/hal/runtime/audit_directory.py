"""Reading the files of an audit log, wherever they lie: `user-alice.00000000000000000042.log` and the like."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hal.core.model.audit_chain import file_name, read_file_name
from hal.core.model.audit_verification import Row
from hal.runtime.regular_files import NotRegularError, open_regular

CHUNK_BYTES: Final = 1 << 16
MAX_LINE_BYTES: Final = 1 << 16


def path_of(directory: Path, source: str, first: int) -> Path:
    """The file of that source whose first line has that number."""
    return directory / file_name(source, first)


def listed(directory: Path) -> dict[str, list[int]]:
    """Of each source the numbers of the first lines of its files, ascending. Reads the disk, from any thread."""
    found: dict[str, list[int]] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(os.listdir(directory)):
            if read := read_file_name(name):
                found.setdefault(read[0], []).append(read[1])
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


def rows_of(file: Path) -> Iterator[Row]:
    """Lines of a file, the first first, without their ends; nothing where there is none. Longer ones are cut.

    Raises:
        OSError: it cannot be read.
    """
    try:
        opened = os.fdopen(open_regular(file), "rb")
    except FileNotFoundError:
        return
    with opened:
        number = 0
        while line := opened.readline(MAX_LINE_BYTES):
            number += 1
            if text := line.rstrip(b"\n"):
                yield Row(file.name, number, text)
