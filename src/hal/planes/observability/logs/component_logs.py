"""Reads what HAL's processes on this host log: the files of HAL_HOME/log, as they grow.

A file is known by its first line, which begins with an instant: so it is the same after a rotation has renamed it. How
far each was read is in the store beside its lines: after a restart nothing is read twice, and nothing that is still
there is left out. Blocking; one thread.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from hal.planes.observability.logs.lines import SEVERITIES, Batch, Line, Source
from hal.runtime.regular_files import open_regular
from hal.wire.frames.telemetry import Severity

KEY_BYTES: Final = 512
"""Of the first line, by which a file is known; one that has no whole line is read later."""
READ_BYTES: Final = 1 << 20
"""Of one file in one turn."""
MAX_FILES: Final = 1_000
MAX_TEXT: Final = 8_192
MARK: Final = ".log"
LEFT_OUT: Final = frozenset({"timestamp", "level", "process", "event", "pid", "trace_id", "job", "task", "attempt"})
"""Values of a line that are not repeated in its text."""
MAX_ID: Final = (1 << 53) - 1

_DECODER: Final = msgspec.json.Decoder(dict[str, Any])


class ComponentLogs:
    """Of one HAL_HOME."""

    def __init__(self, directory: Path, read_to: Callable[[Source], int], *, node: str = "", only: str = "") -> None:
        """
        Args:
            read_to: how far a file was read, by the store.
            node: of the processes whose name says none.
            only: a node: the logs of its processes alone; empty: all.
        """
        self._directory, self._read_to, self._node = directory, read_to, node
        self._mark = f"-{only}{MARK}" if only else MARK
        self._known: dict[tuple[int, int], tuple[Source, int]] = {}
        """By device and inode: what stands for the file, and how far it was read."""
        self.unread_bytes = 0
        """Of all files, after the last turn."""

    def read(self) -> list[Batch]:
        """What has been added since, a part of each file at most."""
        batches: list[Batch] = []
        seen: set[tuple[int, int]] = set()
        self.unread_bytes = 0
        for name in self._names():
            with contextlib.suppress(OSError):  # rotated away, or not ours: the next turn looks again
                fd = open_regular(self._directory / name)
                try:
                    info = os.fstat(fd)
                    key = (info.st_dev, info.st_ino)
                    seen.add(key)
                    batches += self._read(fd, name, key, info.st_size)
                finally:
                    os.close(fd)
        for gone in self._known.keys() - seen:
            del self._known[gone]
        return batches

    def forget(self) -> None:
        """Ask the store again how far each file was read: what was read last has not been kept."""
        self._known.clear()

    def _names(self) -> list[str]:
        try:
            found = sorted(name for name in os.listdir(self._directory) if self._mark in name)
        except OSError:
            return []
        return found[:MAX_FILES]

    def _read(self, fd: int, name: str, key: tuple[int, int], size: int) -> list[Batch]:
        known = self._known.get(key)
        if known is None or size < known[1]:
            head, whole, _ = os.pread(fd, KEY_BYTES, 0).partition(b"\n")
            if not (whole or len(head) == KEY_BYTES):
                return []
            process = name.partition(MARK)[0]
            file = Source("", process, stream=f"{zlib.crc32(head):08x}")
            known = (file, self._read_to(file))
        file, at = known
        data = os.pread(fd, READ_BYTES, at)
        end = data.rfind(b"\n") + 1
        if not end and len(data) == READ_BYTES:
            end = len(data)  # no log of HAL's has such a line
        self._known[key] = (file, at + end)
        self.unread_bytes += max(0, size - at - end)
        if not end:
            return []
        batches = _batches(data[:end], file.component, self._node)
        # Last, and without lines: notes how far the file was read, in the transaction of its lines.
        return [*batches, Batch(file, [], at + end)]


def _batches(data: bytes, process: str, node: str) -> list[Batch]:
    """The lines, those of one source together."""
    found: dict[Source, list[Line]] = {}
    for raw in data.split(b"\n"):
        if raw:
            source, line = read_line(raw, process, node)
            found.setdefault(source, []).append(line)
    return [Batch(source, lines) for source, lines in found.items()]


def read_line(raw: bytes, process: str, node: str) -> tuple[Source, Line]:
    """A line of a log of HAL; what is none of its form is text.

    Args:
        process: by the name of the file: `agent-n1`.
        node: where, if the process's name does not say it.
    """
    try:
        values = _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        component, of = _component(process)
        return Source(of or node, component), Line(0, Severity.INFO, raw.decode("utf-8", "replace")[:MAX_TEXT])
    component, of = _component(_text(values, "process") or process)
    where = _text(values, "node") if component == "controller" else ""
    source = Source(
        of or where or node,
        component,
        job=_number(values, "job"),
        task=_number(values, "task"),
        attempt=_number(values, "attempt"),
        trace_id=_text(values, "trace_id"),
    )
    severity = SEVERITIES.get(_text(values, "level"), Severity.INFO)
    return source, Line(_instant(_text(values, "timestamp")), severity, _shown(values))


def _component(process: str) -> tuple[str, str]:
    """The kind of process, and its node: `agent-n1` is the agent of `n1`."""
    kind, _, node = process.partition("-")
    return (kind, node) if kind in ("agent", "keeper", "files", "streams") else (process, "")


def _shown(values: Mapping[str, Any]) -> str:
    """The event in words, and what goes with it."""
    rest = [f"{key}={_word(value)}" for key, value in values.items() if key not in LEFT_OUT]
    job = [f"{key}={values[key]}" for key in ("job", "task", "attempt") if key in values]
    return " ".join([str(values.get("event", "")), *job, *rest])[:MAX_TEXT]


def _word(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _text(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    return value[:200] if isinstance(value, str) else ""


def _number(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 17:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_ID else 0


def _instant(text: str) -> int:
    """Milliseconds since 1970; 0: not said."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return 0
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000)
