"""Several processes use one store, and are killed in the middle of it."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from hal.blobs import Blobs
from hal.core.interfaces.blobs import CHUNK_BYTES
from hal.core.model.errors import NotFoundError
from hal.runtime.real_directory import open_private_directory
from tests.blobs.places import opened

WRITER: Final = [sys.executable, "-m", "tests.blobs.busy_writer"]
BOUNDS: Final = {"max_bytes": 4 * CHUNK_BYTES, "max_files": 64}


def start(root: Path, name: str, rounds: int = 0) -> subprocess.Popen[str]:
    """A writer; 0 rounds: until it is killed."""
    return subprocess.Popen([*WRITER, str(root), name, str(rounds)], stdout=subprocess.PIPE, text=True)


def reopened(root: Path) -> Blobs:
    return opened(open_private_directory(root), **BOUNDS)


def check_whole(root: Path, store: Blobs, said: list[str]) -> None:
    """Nothing is damaged, over the bounds or left over; what can be read is what was written."""
    assert store.scrub(limit_bytes=1 << 40).damaged == ()
    usage = store.usage()
    files = [path for kind in ("chunks", "manifests") for path in (root / kind).iterdir()]
    assert (usage.files, usage.size_bytes) == (len(files), sum(path.stat().st_size for path in files))
    assert usage.size_bytes <= 4 * CHUNK_BYTES
    assert usage.files <= 64
    assert [*(root / "staging").iterdir(), *(root / "leases").iterdir()] == []
    for line in said:
        blob, size = line.split()
        try:
            assert store.read(blob) == bytes([int(size) % 7]) * int(size)
        except NotFoundError:
            assert store.find(blob) is None  # evicted


@pytest.mark.parametrize("rounds", [pytest.param(3, id="few"), pytest.param(10, id="many", marks=pytest.mark.slow)])
def test_safety_a_killed_writer_leaves_whole_blobs_only(tmp_path: Path, rounds: int) -> None:
    """Two writers, of which one is killed by SIGKILL at a random point; the other one goes on."""
    root = tmp_path / "blobs"
    rng = random.Random(7)
    said: list[str] = []
    for number in range(rounds):
        victim, other = start(root, f"v{number}"), start(root, f"o{number}", rounds=60)
        assert victim.stdout is not None
        lines = [victim.stdout.readline() for _ in range(rng.randrange(1, 40))]
        victim.kill()
        rest, others = victim.communicate()[0], other.communicate()[0]
        assert other.returncode == 0
        said = [*lines, *(line for line in rest.splitlines(keepends=True) if line.endswith("\n")), *others.splitlines()]
        store = reopened(root)
        assert {pin.holder for pin in store.pins()} <= {f"{kind}{n}" for kind in "vo" for n in range(number + 1)}
        check_whole(root, store, said)
        for pin in store.pins():
            assert store.find(pin.blob) is not None
            store.unpin(pin.blob, pin.holder)
        store.close()


def test_safety_writers_of_the_same_blobs_store_them_once(tmp_path: Path) -> None:
    """Three processes at once write what the others write, into a store that evicts."""
    root = tmp_path / "blobs"
    writers = [start(root, f"w{number}", rounds=40) for number in range(3)]
    said = [line for writer in writers for line in writer.communicate()[0].splitlines()]
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert len(said) == 120
    check_whole(root, reopened(root), said)
