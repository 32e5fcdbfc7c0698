"""Kernels of old versions leave the cache; those that are new, used or held by a process stay."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hal.runtime.kernel_cache import KEPT, hold_kernels, mark_used, remove_old_versions

DAY_S = 86_400


def version(cache: Path, number: int, days: float) -> Path:
    """The stamp of a version of the kernels that was last used so many days ago."""
    root = cache / f"kernels-{number:016x}"
    inner = root / "kernels_of_a_tree"
    inner.mkdir(parents=True)
    stamp = root / "all-of-python-3.11"
    for file in (stamp, inner / "easy.cycle-1.py311.nbi"):
        file.touch()
    aged(root, days)
    return stamp


def aged(root: Path, days: float) -> None:
    """Everything in it was last read and written then."""
    then_s = time.time() - days * DAY_S
    for path in (*root.rglob("*"), root):
        os.utime(path, (then_s, then_s))


def left(cache: Path) -> list[int]:
    """Numbers of the versions that are there."""
    return sorted(int(path.name.partition("-")[2], 16) for path in cache.glob("kernels-*"))


def test_the_newest_versions_stay_and_older_ones_go(tmp_path: Path) -> None:
    """Six were used 10 to 15 days ago: with the one just compiled, the first three of them make four."""
    new = version(tmp_path, 0, 0)
    for number in range(1, 7):
        version(tmp_path, number, 9 + number)
    assert [path.name[-1] for path in remove_old_versions(new)] == ["4", "5", "6"]
    assert left(tmp_path) == [0, 1, 2, 3]
    assert len(left(tmp_path)) == KEPT
    assert remove_old_versions(new) == []


def test_what_was_used_within_a_week_stays(tmp_path: Path) -> None:
    """However many: a file was read, a file was written, a process said so. The rest is old."""
    new = version(tmp_path, 0, 0)
    stamps = [version(tmp_path, number, 30) for number in range(1, 9)]
    read, written = (stamps[k].parent / "kernels_of_a_tree" / "easy.cycle-1.py311.nbi" for k in (0, 1))
    os.utime(read, (time.time(), time.time() - 30 * DAY_S))
    os.utime(written)
    mark_used(stamps[2])
    mark_used(stamps[3])
    remove_old_versions(new)
    assert left(tmp_path) == [0, 1, 2, 3, 4]


def test_what_a_process_holds_stays_until_it_ends(tmp_path: Path) -> None:
    """A controller that has run for a month may load another kernel at any time; a week after its end they are old."""
    new = version(tmp_path, 0, 0)
    held = version(tmp_path, 9, 30)
    for number in range(1, 4):
        version(tmp_path, number, 3)
    with hold_kernels(held):
        assert remove_old_versions(new) == []
    assert remove_old_versions(new) == []
    aged(held.parent, 30)
    assert remove_old_versions(new) == [held.parent]


def test_only_directories_of_kernels_are_touched(tmp_path: Path) -> None:
    """A cache may lie beside other things; what an earlier removal left behind goes."""
    new = version(tmp_path, 0, 0)
    others = [tmp_path / name for name in ("kernels-of-mine", "kernels-00000000000000zz", "other")]
    target = tmp_path / "elsewhere"
    for path in (*others, target, tmp_path / "kernels-00000000000000ff.going"):
        path.mkdir()
        aged(path, 90)
    (tmp_path / "kernels-00000000000000aa").symlink_to(target)
    for number in range(1, 4):
        version(tmp_path, number, 10)
    assert remove_old_versions(new) == []
    assert not (tmp_path / "kernels-00000000000000ff.going").exists()
    assert all(path.exists() for path in (*others, target, tmp_path / "kernels-00000000000000aa"))


def test_a_cache_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    """Kernels that are compiled in memory have none."""
    nowhere = tmp_path / "none" / "kernels-0000000000000000" / "all-of-python-3.11"
    mark_used(nowhere)
    with hold_kernels(nowhere):
        assert remove_old_versions(nowhere) == []
