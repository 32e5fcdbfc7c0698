"""Files that commands write: whole, or not at all; what is no file is written to, and stays what it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hal.cli.kit.output_files import written_whole
from hal.core.model import SpecError


def test_a_file_is_replaced_when_all_is_written_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    with written_whole(path) as unfinished:
        unfinished.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    with pytest.raises(UnicodeEncodeError), written_whole(path) as unfinished:
        unfinished.write_text("half \N{BULLET}", encoding="ascii")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_safety_a_pipe_gets_all_of_it_and_is_a_pipe_afterwards(tmp_path: Path) -> None:
    """As /dev/null does, which root's reports replaced by a file: then nothing on that machine could use it."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with written_whole(path) as unfinished:
            unfinished.write_text("whole")
        assert os.read(reading, 100) == b"whole"
    finally:
        os.close(reading)
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot write"), written_whole(tmp_path / "none" / "file") as unfinished:
        unfinished.write_text("x")
