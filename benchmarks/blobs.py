"""The blob store against plain files on the same disk, in the same run: MB/s written and read, and time per small
object.

Small: 4 KiB, each another. Large: 64 MiB of random bytes. `plain` writes the bytes to a file under another name, moves
it into its place, and reads it back: what a program would do by itself, without names by content, counts, pins or
verification. Neither flushes. The files are in the page cache when they are read. The order of the two alternates.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hal.blobs import Blobs, open_blobs
from hal.runtime.real_directory import open_private_directory

RUNS: Final = 5
SMALL_BYTES: Final = 4 << 10
SMALLS: Final = 2_000
LARGE_BYTES: Final = 64 << 20
PIECE_BYTES: Final = 1 << 20
FILES_TO_EVICT: Final = 20_000
PART_OF_HASHING: Final = {"write": 0.5, "read": 0.7}
"""Targets at 64 MiB, as a part of the rate of SHA-256 alone: every byte is hashed once, so nothing can be faster."""


def write_plain(path: Path, data: bytes) -> None:
    staged = path.with_suffix(".new")
    with staged.open("xb", buffering=0) as file:
        for at in range(0, len(data), PIECE_BYTES):
            file.write(data[at : at + PIECE_BYTES])
    staged.rename(path)


def read_plain(path: Path) -> int:
    size = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(4 * PIECE_BYTES):
            size += len(piece)
    return size


def write_blob(store: Blobs, data: bytes) -> str:
    with store.writer() as writer:
        for at in range(0, len(data), PIECE_BYTES):
            writer.write(data[at : at + PIECE_BYTES])
        return writer.commit()


def timed(work: Callable[[], object]) -> float:
    before = time.perf_counter()
    work()
    return time.perf_counter() - before


def report(name: str, value: float, unit: str, **more: object) -> None:
    print(json.dumps({"bench": name, "value": round(value, 3), "unit": unit, **more}), flush=True)


def measure(root: Path, objects: list[list[bytes]]) -> dict[str, list[float]]:
    """Seconds of each kind of work, one entry a run."""
    store = open_blobs(open_private_directory(root / "blobs"), "bench", max_bytes=4 << 30, max_files=100_000)
    plain = root / "plain"
    plain.mkdir()
    seconds: dict[str, list[float]] = {}
    for run, batch in enumerate(objects):
        names: list[str] = []
        paths = [plain / f"{run}-{number}" for number in range(len(batch))]

        def store_all(batch: list[bytes] = batch, names: list[str] = names) -> None:
            names += [write_blob(store, data) for data in batch]

        def copy_all(batch: list[bytes] = batch, paths: list[Path] = paths) -> None:
            for path, data in zip(paths, batch, strict=True):
                write_plain(path, data)

        def read_all(names: list[str] = names) -> None:
            for name in names:
                for _ in store.chunks(name):
                    pass

        def read_all_plain(paths: list[Path] = paths) -> None:
            for path in paths:
                read_plain(path)

        writes = [("blob write", store_all), ("plain write", copy_all)]
        reads = [("blob read", read_all), ("plain read", read_all_plain)]
        for pair in (writes, reads):
            for kind, work in pair if run % 2 else reversed(pair):
                seconds.setdefault(kind, []).append(timed(work))
        seconds.setdefault("blob again", []).append(timed(store_all))
        for path in paths:
            path.unlink()
        store.evict(0)
    store.close()
    return seconds


def evicting(root: Path) -> tuple[float, float]:
    """Seconds to open a store of many files, and to make room in it when it is full."""
    bounds = {"max_bytes": 4 << 30, "max_files": FILES_TO_EVICT}
    store = open_blobs(open_private_directory(root / "many"), "bench", **bounds)
    for number in range(FILES_TO_EVICT):
        store.put(number.to_bytes(8, "little"))
    opening = timed(lambda: open_blobs(open_private_directory(root / "many"), "again", **bounds).close())
    return opening, timed(lambda: store.put(b"one more"))


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="hal-blobs-") as directory:
        root = Path(directory)
        (root / "small").mkdir()
        (root / "large").mkdir()
        small = measure(root / "small", [[os.urandom(SMALL_BYTES) for _ in range(SMALLS)] for _ in range(RUNS)])
        large = measure(root / "large", [[os.urandom(LARGE_BYTES)] for _ in range(RUNS)])
        data = os.urandom(LARGE_BYTES)
        hashing = statistics.median(timed(lambda: hashlib.sha256(data)) for _ in range(RUNS))
        report("blobs-sha256", LARGE_BYTES / hashing / 1e6, "MB/s", note="of one core; every byte is hashed once")
        for kind in ("write", "read"):
            ours, theirs = (statistics.median(large[f"{which} {kind}"]) for which in ("blob", "plain"))
            report(
                f"blobs-{kind}-64MiB",
                LARGE_BYTES / ours / 1e6,
                "MB/s",
                plain=round(LARGE_BYTES / theirs / 1e6),
                target=round(PART_OF_HASHING[kind] * LARGE_BYTES / hashing / 1e6),
            )
            ours, theirs = (statistics.median(small[f"{which} {kind}"]) / SMALLS for which in ("blob", "plain"))
            report(f"blobs-{kind}-4KiB", ours * 1e6, "us", better="lower", plain=round(theirs * 1e6, 1))
        report("blobs-write-64MiB-again", LARGE_BYTES / statistics.median(large["blob again"]) / 1e6, "MB/s")
        opening, making_room = evicting(root)
        note = f"a store of {FILES_TO_EVICT} files"
        report("blobs-open", opening * 1e3, "ms", better="lower", note=note)
        report("blobs-make-room", making_room * 1e3, "ms", better="lower", note=f"{note}; an eighth of it is evicted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
