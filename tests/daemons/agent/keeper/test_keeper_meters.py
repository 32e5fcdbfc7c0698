"""What all processes of a step used, as its cgroup counts it: the difference since the last step, or a fallback."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper.meters import Meters, with_counted
from hal.wire.frames.agent_keeper import Counted, StepTemplate, Usage
from tests.daemons.agent.keeper.driving import Keeper

MIB = 1 << 20
FIRST = Usage(user_ms=1, system_ms=1, max_rss_bytes=5, read_bytes=6, written_bytes=7)
"""Of a first process, as wait4 has it."""
ALL = int(Counted.CPU | Counted.MEMORY | Counted.IO)


@pytest.fixture
def slot(tmp_path: Path) -> Path:
    """The directory of a cgroup, its counters as files that a test sets."""
    count(tmp_path, 0, 0, 0, 0, 0)
    return tmp_path


def count(slot: Path, user_ms: int, system_ms: int, peak: int, read: int, written: int) -> None:
    """What version 2 would show then."""
    ms = 1000
    text = f"usage_usec {(user_ms + system_ms) * ms}\nuser_usec {user_ms * ms}\nsystem_usec {system_ms * ms}\n"
    (slot / "cpu.stat").write_text(text)
    (slot / "memory.peak").write_text(f"{peak}\n")
    (slot / "io.stat").write_text(f"8:0 rbytes={read} wbytes={written} rios=1\n8:16 rbytes=1 wbytes=2 wios=1\n")


def meters_of(slot: Path) -> Meters:
    return Meters({"cpu": slot, "memory": slot, "io": slot})


def test_the_usage_of_a_step_is_what_was_counted_since_the_step_before(slot: Path) -> None:
    """CPU and I/O go on, of all devices; the peak begins again."""
    meters = meters_of(slot)
    count(slot, 100, 20, 50 * MIB, 1_000, 2_000)
    assert meters.measure(FIRST, over=True) == Usage(100, 20, 50 * MIB, 1_001, 2_002, cgroup=ALL)
    count(slot, 130, 21, 30 * MIB, 1_000, 2_500)
    assert meters.measure(FIRST, over=True) == Usage(30, 1, 30 * MIB, 0, 500, cgroup=ALL)
    meters.close()


def test_what_a_step_leaves_running_is_counted_when_it_is_gone(slot: Path) -> None:
    """The second reading covers both, and replaces what was known of the first process."""
    meters = meters_of(slot)
    count(slot, 10, 0, MIB, 0, 0)
    first = meters.measure(FIRST, over=False)
    count(slot, 50, 5, 2 * MIB, 0, 0)
    later = meters.measure(Usage(), over=True)
    assert with_counted(first, later) == Usage(50, 5, 2 * MIB, 1, 2, cgroup=ALL)
    assert with_counted(FIRST, Usage()) == with_counted(FIRST, None) == FIRST


def test_a_peak_that_cannot_begin_again_is_reported_only_where_it_was_passed(
    slot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 2 before Linux 6.12: a lower step's own peak is not known, so the first process's is reported."""

    def refuse(fd: int, data: bytes, at: int) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "pwrite", refuse)
    meters = meters_of(slot)
    count(slot, 0, 0, 50 * MIB, 0, 0)
    assert meters.measure(FIRST, over=True).max_rss_bytes == 50 * MIB
    lower = meters.measure(FIRST, over=True)
    assert (lower.max_rss_bytes, lower.cgroup & Counted.MEMORY) == (5, 0)
    count(slot, 0, 0, 60 * MIB, 0, 0)
    assert meters.measure(FIRST, over=True).max_rss_bytes == 60 * MIB


def test_closed_files_are_opened_again_and_go_on_counting(slot: Path) -> None:
    """A keeper holds only so many: whoever opens the peak anew reads that of all steps, which is no later step's."""
    meters = meters_of(slot)
    count(slot, 10, 0, 50 * MIB, 0, 0)
    meters.measure(FIRST, over=True)
    meters.close()
    assert meters.open_files == 0
    count(slot, 15, 0, 50 * MIB, 0, 0)
    again = meters.measure(FIRST, over=True)
    assert (again.user_ms, again.max_rss_bytes, again.cgroup) == (5, 5, int(Counted.CPU | Counted.IO))


def test_without_counters_the_usage_is_that_of_the_first_process(slot: Path) -> None:
    """Version 1 without cpuacct; and a cgroup that its step has removed."""
    assert not Meters({"pids": slot}).available
    meters = meters_of(slot)
    for name in ("cpu.stat", "memory.peak", "io.stat"):
        (slot / name).unlink()
    assert meters.measure(FIRST, over=True) == FIRST


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    with Keeper(tmp_path / "home") as keeper:
        assert keeper.welcome is not None
        if any("memory limits are not enforced" in note for note in keeper.welcome.notes):
            pytest.skip("memory is not limited here")
        yield keeper


def test_the_memory_of_a_step_is_that_of_all_its_processes_together(keeper: Keeper) -> None:
    """Three that hold 20 MiB each at the same time are 60, not 20; the next step in that cgroup is itself again."""
    one = "head -c 20971520 /dev/zero | tail -c 20971520 | (sleep 1; cat > /dev/null)"
    script = f"for i in 1 2 3; do ({one}) & done; wait"
    limits = {"memory_bytes": 512 * MIB}
    big = keeper.run(StepTemplate(command=("sh", "-c", script), **limits), StepId(1, 0, 1, 0)).usage
    if not big.cgroup & Counted.MEMORY:
        pytest.skip("this kernel does not count the peak of memory")
    assert big.max_rss_bytes >= 55 * MIB
    small = keeper.run(StepTemplate(command=("true",), **limits), StepId(2, 0, 1, 0)).usage
    assert small.max_rss_bytes < 50 * MIB
