"""What a directory is shipped as, and what is remembered of it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from hal.client.shipping.directory import list_directory
from hal.client.shipping.pack import Memory, Pack, pack, remembered
from hal.core.model import ConflictError, NotFoundError, SpecError
from hal.core.model.bundle import SEGMENT_BYTES, parse_manifest

LONG_AGO_NS = 10**18


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with some files; what is remembered is in a place of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "place"
    (path / "sub").mkdir(parents=True)
    (path / "a.txt").write_text("a")
    (path / "sub" / "b.sh").write_text("b")
    (path / "sub" / "b.sh").chmod(0o755)
    return path


def paths_of(place: Path) -> list[str]:
    return [one.path for one in list_directory(str(place)).entries]


def packed(place: Path, memory: Memory | None = None) -> Pack:
    return pack(list_directory(str(place)), memory or Memory())


def test_files_links_and_empty_directories_are_shipped(place: Path) -> None:
    (place / "empty").mkdir()
    (place / "link").symlink_to("sub")
    entries = parse_manifest(packed(place).manifest).entries
    assert [(one.path, one.kind.value, one.target) for one in entries] == [
        ("a.txt", "f", ""),
        ("empty", "d", ""),
        ("link", "l", "sub"),
        ("sub/b.sh", "x", ""),
    ]


def test_version_control_and_caches_are_left_out(place: Path) -> None:
    for name in (".git", "__pycache__", "sub/__pycache__"):
        (place / name).mkdir()
        (place / name / "x").write_text("x")
    assert paths_of(place) == ["a.txt", "sub/b.sh"]


def test_halignore_leaves_out_and_brings_back(place: Path) -> None:
    (place / ".git").mkdir()
    (place / ".git" / "HEAD").write_text("x")
    (place / ".halignore").write_text("*.txt\n!.git/\n")
    assert paths_of(place) == [".git/HEAD", "sub/b.sh"]


def test_a_socket_is_refused_by_name(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(place / "s"))
        with pytest.raises(SpecError, match="s is neither a file nor a directory nor a link"):
            list_directory(str(place))


def test_what_is_no_directory_is_refused(place: Path) -> None:
    with pytest.raises(NotFoundError, match="not a directory"):
        list_directory(str(place / "a.txt"))


def test_a_name_that_is_not_text_is_refused(place: Path) -> None:
    (place / os.fsdecode(b"\xff")).write_text("x")
    with pytest.raises(SpecError, match="not valid Unicode"):
        list_directory(str(place))


def test_equal_directories_are_equal_bundles(place: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "sub").mkdir(parents=True)
    (other / "sub" / "b.sh").write_text("b")
    (other / "sub" / "b.sh").chmod(0o700)
    (other / "a.txt").write_text("a")
    assert packed(other).name == packed(place).name


def test_the_segments_are_the_contents(place: Path) -> None:
    (place / "large").write_bytes(os.urandom(2 * SEGMENT_BYTES + 7))
    made = packed(place)
    read = b"".join(made.read(at) for at in range(len(made.segments)))
    assert read == b"a" + (place / "large").read_bytes() + b"b"


def test_a_change_of_one_file_changes_one_segment(place: Path) -> None:
    for number in range(300):
        (place / f"{number:03}").write_text(f"{number}" * 100)
    before = {segment.digest for segment, _ in packed(place).segments}
    (place / "150").write_text("x" * 300)
    after = {segment.digest for segment, _ in packed(place).segments}
    assert len(before) > 3
    assert len(after - before) == 1


def age(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock be far behind the changes of these files."""
    monkeypatch.setattr("time.time_ns", lambda: max(os.stat(place / "a.txt").st_ctime_ns, LONG_AGO_NS) + 10**12)


def test_an_unchanged_directory_is_known_without_reading(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    age(place, monkeypatch)
    made = packed(place)
    monkeypatch.setattr("hal.client.shipping.pack._read", None)
    name, memory = remembered(list_directory(str(place)))
    assert name == made.name
    assert packed(place, memory) == made._replace(held={})


def test_a_changed_directory_is_not_taken_for_the_former(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    age(place, monkeypatch)
    packed(place)
    (place / "a.txt").write_text("b")
    assert remembered(list_directory(str(place)))[0] == ""


def test_what_was_changed_just_now_is_not_remembered(place: Path) -> None:
    """It might be changed again within the same tick of the clock of its file system."""
    packed(place)
    assert remembered(list_directory(str(place)))[0] == ""


def test_what_was_read_is_sent_as_it_was(place: Path) -> None:
    """It need not be read again, and what is written meanwhile is for the next submission."""
    made = packed(place)
    (place / "a.txt").write_text("b")
    assert made.read(0) == b"ab"


def test_a_file_that_changes_while_it_is_shipped_is_an_error(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is too long to stay in memory."""
    monkeypatch.setattr("hal.client.shipping.pack.MAX_HELD_BYTES", 0)
    made = packed(place)
    (place / "a.txt").write_text("b")
    with pytest.raises(ConflictError, match="change while they are shipped"):
        made.read(0)
