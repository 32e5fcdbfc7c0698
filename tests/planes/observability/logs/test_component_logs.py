"""What HAL's processes log, read as it grows: over rotations, over restarts, whatever is in the files."""

from __future__ import annotations

import json
from pathlib import Path

from hal.planes.observability.logs.component_logs import ComponentLogs, read_line
from hal.planes.observability.logs.lines import Source
from hal.planes.observability.logs.store import LogReader, LogWriter, Wanted
from hal.wire.frames.telemetry import Severity

NOW_MS = 1_800_000_000_000


def line(event: str, **values: object) -> str:
    """As a process of HAL writes it."""
    head = {"timestamp": "2026-11-24T20:18:00.003841Z", "level": "info", "process": "controller", "event": event}
    return json.dumps(head | values) + "\n"


class Kept:
    """A store, and what reads into it."""

    def __init__(self, root: Path) -> None:
        self.logs, self.directory = root / "log", root / "store"
        self.logs.mkdir(exist_ok=True)
        self.directory.mkdir(exist_ok=True)
        self.writer = LogWriter(self.directory, max_bytes=1 << 30, keep_ms=0)
        self.components = ComponentLogs(self.logs, lambda source: self.writer.read_to(source, NOW_MS))

    def turn(self) -> None:
        """Read what has been added, and keep it."""
        self.writer.add(self.components.read(), NOW_MS)

    def texts(self) -> list[str]:
        """Of all lines, oldest first."""
        lines = LogReader(self.directory).page(Wanted(), limit=1_000).lines
        return [found.line.text for found in reversed(lines)]


def test_each_line_is_read_once_as_a_file_grows(tmp_path: Path) -> None:
    """A line of which the end has not been written yet is read when it has."""
    kept, file = Kept(tmp_path), tmp_path / "log" / "controller.log"
    file.write_text(line("one") + line("two")[:20])
    kept.turn()
    file.write_text(line("one") + line("two"))
    kept.turn()
    kept.turn()
    assert kept.texts() == ["one", "two"]


def test_a_rotated_file_is_read_to_its_end(tmp_path: Path) -> None:
    """What was added just before the rotation is not left out, and nothing is read twice."""
    kept, file = Kept(tmp_path), tmp_path / "log" / "controller.log"
    file.write_text(line("one"))
    kept.turn()
    file.write_text(line("one") + line("two"))
    file.rename(tmp_path / "log" / "controller.log.1")
    file.write_text(line("three", pid=7))
    kept.turn()
    assert sorted(kept.texts()) == ["one", "three", "two"]


def test_a_collector_that_is_started_again_reads_on(tmp_path: Path) -> None:
    """How far a file was read is in the store."""
    file = tmp_path / "log" / "controller.log"
    first = Kept(tmp_path)
    file.write_text(line("one"))
    first.turn()
    file.write_text(line("one") + line("two"))
    second = Kept(tmp_path)
    second.turn()
    assert second.texts() == ["one", "two"]


def test_a_link_in_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    """Only regular files are read."""
    kept, secret = Kept(tmp_path), tmp_path / "secret"
    secret.write_text(line("secret"))
    (tmp_path / "log" / "agent-n1.log").symlink_to(secret)
    kept.turn()
    assert kept.texts() == []


def test_a_line_says_what_it_comes_from() -> None:
    """Process and node by its name, job and trace by its values; other values follow the event."""
    raw = line("a step failed", process="agent-n1", level="error", job=42, task=7, trace_id="ab" * 16, why="gone")
    source, read = read_line(raw.encode(), "agent-n1", "")
    assert source == Source("n1", "agent", 42, 7, trace_id="ab" * 16)
    assert (read.severity, read.text) == (Severity.ERROR, "a step failed job=42 task=7 why=gone")
    assert read.at_ms == 1_795_551_480_003


def test_a_line_that_is_no_json_is_text() -> None:
    """As it stands; invalid UTF-8 is replaced."""
    source, read = read_line(b"Segmentation fault \xff", "keeper-n2", "")
    assert (source, read.text) == (Source("n2", "keeper"), "Segmentation fault \ufffd")
