"""Logs: one JSON object a line, secrets hidden, bounded on disk, and never a reason to fail."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hal.runtime.interface import Logger
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.log"


@pytest.fixture
def log(path: Path) -> Iterator[Logger]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    file = LogFile(path)
    yield open_log(file, "controller", level="info")
    file.close()
    root.handlers[:] = before[0]
    root.setLevel(before[1])


def lines(path: Path) -> list[dict[str, object]]:
    return [msgspec.json.decode(line, type=dict[str, object]) for line in path.read_bytes().splitlines()]


def test_a_line_is_one_json_object_with_the_values_as_given(log: Logger, path: Path) -> None:
    """Newlines, quotes and odd characters in values do not break the line."""
    log.info("submitted", job=42, name='a\n"b"\udce4', steps=[1, 2])
    (line,) = lines(path)
    assert line["event"] == "submitted"
    assert line["process"] == "controller"
    assert line["level"] == "info"
    assert line["job"] == 42
    assert line["steps"] == [1, 2]


@pytest.mark.parametrize("name", ["token", "attempt_token", "password", "Authorization", "api_key", "client-secret"])
def test_values_under_names_of_secrets_are_hidden(log: Logger, path: Path, name: str) -> None:
    """At the top and inside tables and lists; only the value goes."""
    log.info("x", **{name: "s3cret"}, env={name: "s3cret", "PATH": "/bin"}, steps=[{name: "s3cret"}])
    assert b"s3cret" not in path.read_bytes()
    assert b"/bin" in path.read_bytes()


def test_names_that_only_resemble_secrets_are_not_hidden(log: Logger, path: Path) -> None:
    """`tokens_left` is a number."""
    log.info("x", tokens_left=3, keyboard="de")
    assert lines(path)[0]["tokens_left"] == 3


def test_debug_lines_are_left_out_unless_asked_for(log: Logger, path: Path) -> None:
    """The level given at the start decides."""
    log.debug("x")
    log.warning("y")
    assert [line["event"] for line in lines(path)] == ["y"]


def test_an_exception_is_logged_with_its_traceback(log: Logger, path: Path) -> None:
    """Inside the one line."""
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("failed")
    (line,) = lines(path)
    assert "ValueError: broken" in str(line["exception"])


def test_what_other_libraries_log_goes_to_the_same_file(log: Logger, path: Path) -> None:
    """uvicorn and SQLAlchemy use the standard library's loggers; of uvicorn's a server of REST hushes one."""
    logging.getLogger("sqlalchemy.pool").warning("port %d", 80)
    (line,) = lines(path)
    assert (line["event"], line["logger"]) == ("port 80", "sqlalchemy.pool")


def test_a_value_of_any_type_can_be_logged(log: Logger, path: Path) -> None:
    """What is no JSON becomes text, and very long text is cut."""
    log.info("x", path=Path("/a"), kinds={1, 2}, long="y" * 100_000, error=ValueError("e"), data=b"\xff", big=2**80)
    assert path.stat().st_size < 20_000
    assert lines(path)[0]["path"] in ("/a", "PosixPath('/a')")


def test_the_files_are_bounded_and_the_newest_lines_are_kept(path: Path) -> None:
    """100 lines of 100 bytes into files of at most 1,000 bytes, 3 of them: at most 3,000 bytes, the last line there."""
    file = LogFile(path, max_bytes=1_000, max_files=3)
    for number in range(100):
        file.write_line(f"{number:03d} {'x' * 95}")
    file.close()
    kept = sorted(path.parent.glob("x.log*"))
    assert [one.name for one in kept] == ["x.log", "x.log.1", "x.log.2"]
    assert sum(one.stat().st_size for one in kept) <= 3_000
    assert path.read_text().splitlines()[-1].startswith("099")


def test_a_full_disk_costs_lines_and_nothing_else(path: Path) -> None:
    """Lines that cannot be written are counted; the count is told once writing works again."""
    file = LogFile(path)
    broken = os.open("/dev/full", os.O_WRONLY)
    good, file._fd = file._fd, broken
    file.write_line("lost 1")
    file.write_line("lost 2")
    assert file.dropped == 2
    file._fd = good
    os.close(broken)
    file.write_line("written")
    file.close()
    assert path.read_text() == '{"level":"warning","event":"log lines were lost","lines":2}\nwritten\n'
