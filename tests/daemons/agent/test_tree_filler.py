"""The process that fills a step's directory, run as it is run at a node."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hal.daemons.agent.keeper.file_service import tree_filler
from hal.daemons.agent.keeper.file_service.tree_filler import DONE, encode_order

Entry = tuple[str, str, int, str]


def ran(place: Path, given: bytes) -> tuple[int, bytes]:
    """Its exit code and what it says."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", tree_filler.__file__, str(os.getuid()), str(os.getgid())],
        input=given,
        cwd=place,
        capture_output=True,
        timeout=60,
    )
    assert done.stderr == b""
    return done.returncode, done.stdout


def fill(place: Path, *entries: Entry, contents: bytes = b"") -> tuple[int, bytes]:
    return ran(place, encode_order(entries) + contents)


def file(path: str, size: int = 1) -> Entry:
    return (path, "f", size, "")


def test_a_directory_is_filled(tmp_path: Path) -> None:
    entries = (
        file("a", 2),
        ("b/c", "x", 3, ""),
        ("d", "d", 0, ""),
        file("empty é\n", 0),
        ("l", "l", 0, "b/c"),
    )
    assert fill(tmp_path, *entries, contents=b"aabbb") == (0, DONE)
    assert (tmp_path / "a").read_bytes() == b"aa"
    assert (tmp_path / "l").read_bytes() == b"bbb"
    assert (tmp_path / "b" / "c").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "d").is_dir()
    assert (tmp_path / "empty é\n").read_bytes() == b""


def test_what_is_empty_is_an_empty_directory(tmp_path: Path) -> None:
    assert fill(tmp_path) == (0, DONE)


def test_files_of_any_length_are_filled(tmp_path: Path) -> None:
    sizes = (1, tree_filler.READ_BYTES - 1, 3 * tree_filler.READ_BYTES + 5, 7)
    contents = os.urandom(sum(sizes))
    assert fill(tmp_path, *(file(f"{at}", size) for at, size in enumerate(sizes)), contents=contents) == (0, DONE)
    assert b"".join((tmp_path / f"{at}").read_bytes() for at in range(len(sizes))) == contents


@pytest.mark.parametrize("path", ["../x", "/tmp/hal-x", "a/../../x", "", "a//x", "./x"])
def test_nothing_is_created_outside_whoever_sends_the_order(tmp_path: Path, path: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    code, said = fill(place, file(path), contents=b"x")
    assert code == 1
    assert b"leads out" in said
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == []


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    """Links come last, so a file below one finds a directory in its place, and the link then fails."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place = tmp_path / "place"
    place.mkdir()
    code, _ = fill(place, ("a", "l", 0, str(elsewhere)), file("a/x"), contents=b"x")
    assert code == 1
    assert list(elsewhere.iterdir()) == []


def test_contents_that_end_early_are_an_error(tmp_path: Path) -> None:
    assert fill(tmp_path, file("a", 10), contents=b"short") == (1, b"[Errno 5] the contents ended early\n")


@pytest.mark.parametrize("given", [b"", b"x\n", b"100\na", b"3\na\0f", b"12345678901234567890123\n"])
def test_what_is_no_order_is_an_error(tmp_path: Path, given: bytes) -> None:
    code, said = ran(tmp_path, given)
    assert code == 1
    assert said.count(b"\n") == 1
    assert list(tmp_path.iterdir()) == []
