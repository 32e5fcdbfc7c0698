"""Archives that a hostile job, or a lying node, has made: nothing is written elsewhere."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from hal.client.shipping.archive import extract
from hal.core.model import ConflictError, HALError


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for member, content in members:
            member.size = len(content) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(content))
    data.seek(0)
    return data


def file(name: str, content: bytes = b"x", mode: int = 0o644) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.mode = mode
    return member, content


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


def test_plain_files_are_created_below_the_directory(tmp_path: Path) -> None:
    paths = list(extract(archive(file("a/b.txt", b"hello")), tmp_path / "to", replace=False))
    assert [path.read_bytes() for path in paths] == [b"hello"]
    assert paths == [tmp_path / "to" / "a" / "b.txt"]


@pytest.mark.parametrize("name", ["/tmp/x", "../x", "a/../../x", ".."])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(HALError):
        list(extract(archive(file(name)), tmp_path / "to", replace=True))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE]
)
def test_what_is_no_plain_file_is_refused(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(HALError, match="not what a job's archive has"):
        list(extract(archive(special("a", kind, "/etc/passwd")), tmp_path / "to", replace=True))
    assert list((tmp_path / "to").iterdir()) == []


def test_nothing_is_written_through_a_link_that_is_there(tmp_path: Path) -> None:
    to, elsewhere = tmp_path / "to", tmp_path / "elsewhere"
    to.mkdir()
    elsewhere.mkdir()
    (to / "a").symlink_to(elsewhere)
    with pytest.raises(ConflictError, match="leads out"):
        list(extract(archive(file("a/x")), to, replace=True))
    assert list(elsewhere.iterdir()) == []


def test_no_bit_makes_a_file_run_as_another(tmp_path: Path) -> None:
    (path,) = extract(archive(file("a", mode=0o7755)), tmp_path / "to", replace=False)
    assert path.stat().st_mode & 0o7777 == 0o755


def test_a_file_that_is_there_is_replaced_on_request_only(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    with pytest.raises(ConflictError, match="--force"):
        list(extract(archive(file("a")), tmp_path, replace=False))
    assert (tmp_path / "a").read_text() == "mine"
    list(extract(archive(file("a", b"new")), tmp_path, replace=True))
    assert (tmp_path / "a").read_text() == "new"


def test_what_is_no_archive_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HALError, match="cannot be read"):
        list(extract(io.BytesIO(b"x" * 2_000), tmp_path / "to", replace=False))


def test_what_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "to").write_text("a file")
    with pytest.raises(ConflictError, match="cannot be written"):
        list(extract(archive(file("a")), tmp_path / "to", replace=False))
