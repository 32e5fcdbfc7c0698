"""The process that packs what is collected of a step's directory, run as it is run at a node."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from hal.daemons.agent.keeper.file_service import tree_packer

EVERYTHING = {"patterns": ["**"], "files": 100, "size_bytes": 1 << 20}


def work(place: Path, order: dict[str, Any]) -> tuple[int, dict[str, Any], bytes]:
    """Its exit code, its first line, and what follows."""
    ran = subprocess.run(
        [sys.executable, "-I", "-S", tree_packer.__file__, str(os.getuid()), str(os.getgid())],
        input=json.dumps(order).encode() + b"\n",
        cwd=place,
        capture_output=True,
        timeout=60,
    )
    line, _, rest = ran.stdout.partition(b"\n")
    return ran.returncode, json.loads(line), rest


def packed(place: Path, **order: Any) -> dict[str, bytes]:
    """What is in the archive, by name."""
    code, head, data = work(place, EVERYTHING | order)
    assert code == 0, head
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    assert head == {"files": len(found)}
    return found


def test_what_matches_is_packed(tmp_path: Path) -> None:
    for name in ("a.csv", "x/b.csv", "x/y/c.csv", "x/d.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert sorted(packed(tmp_path, patterns=["*.csv"])) == ["a.csv"]
    assert sorted(packed(tmp_path, patterns=["**/*.csv"])) == ["a.csv", "x/b.csv", "x/y/c.csv"]
    assert packed(tmp_path, patterns=["x/y"]) == {"x/y/c.csv": b"x/y/c.csv"}


def test_links_and_special_files_are_not_packed(tmp_path: Path) -> None:
    """A job can put a link to any file, or a FIFO on which a reader would wait for ever."""
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "above").symlink_to("/etc")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_text("x")
    assert packed(tmp_path) == {"file": b"x"}


@pytest.mark.parametrize(
    ("bound", "words"), [({"files": 1}, "more than 1 files match"), ({"size_bytes": 3}, "4 bytes")]
)
def test_too_much_is_an_error_that_says_how_much(tmp_path: Path, bound: dict[str, int], words: str) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("xx")
    code, said, _ = work(tmp_path, EVERYTHING | bound)
    assert code == 1
    assert words in said["error"]
