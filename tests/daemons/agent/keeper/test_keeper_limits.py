"""Limits by cgroup and a full disk, for real where this user may make cgroups and mounts; v2 files on a copy."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper.limits import Cgroups
from hal.runtime.identity import wait_gone
from hal.wire.frames.agent_keeper import Done, ExitCause, Refused, Resize, StepTemplate
from tests.daemons.agent.keeper.driving import DEADLINE_S, Keeper

ONE, TWO = StepId(1, 0, 1, 0), StepId(2, 0, 1, 0)
MIB = 1 << 20


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    with Keeper(tmp_path / "home") as keeper:
        yield keeper


def needs(keeper: Keeper, controller: str) -> None:
    """Skip where the keeper says that it cannot limit this."""
    assert keeper.welcome is not None
    reasons = [note for note in keeper.welcome.notes if "limits are not enforced" in note and controller in note]
    if reasons:
        pytest.skip(reasons[0])


def test_a_step_over_its_memory_limit_is_reported_as_such(keeper: Keeper) -> None:
    """The kernel ends it; the cause is out-of-memory, not just a signal. Its neighbour without a limit goes on."""
    needs(keeper, "memory")
    hungry = ("python3", "-c", "a = bytearray(200 << 20); print(len(a))")
    ended = keeper.run(StepTemplate(command=hungry, memory_bytes=64 * MIB), ONE)
    assert ended.cause is ExitCause.OUT_OF_MEMORY
    assert "used more than its limit of 64MiB" in ended.message
    assert keeper.run(StepTemplate(command=hungry, memory_bytes=512 * MIB), TWO).code == 0


def test_an_out_of_memory_child_is_said_even_when_the_step_goes_on(keeper: Keeper) -> None:
    """A shell whose child was ended for memory and that ends well itself: exited, with a remark."""
    needs(keeper, "memory")
    script = "python3 -c 'a = bytearray(200 << 20)'; exit 0"
    ended = keeper.run(StepTemplate(command=("sh", "-c", script), memory_bytes=64 * MIB), ONE)
    assert (ended.cause, ended.code) == (ExitCause.EXITED, 0)
    assert "memory limit was reached" in ended.message


def test_a_slot_is_used_again_and_an_old_kill_is_not_counted_twice(keeper: Keeper) -> None:
    """After a step that ran out of memory the next one in the same cgroup is judged by its own kills only."""
    needs(keeper, "memory")
    for task in range(6):
        step = StepId(3, task, 1, 0)
        size = 200 if task % 2 == 0 else 1
        template = StepTemplate(command=("python3", "-c", f"a = bytearray({size} << 20)"), memory_bytes=64 * MIB)
        expected = ExitCause.OUT_OF_MEMORY if task % 2 == 0 else ExitCause.EXITED
        assert keeper.run(template, step).cause is expected


def test_what_a_step_left_in_memory_does_not_count_against_the_next_one(keeper: Keeper) -> None:
    """Files in /dev/shm outlive their step; the next step of the same limit still gets all of it."""
    needs(keeper, "memory")
    left = Path("/dev/shm") / f"hal-test-{os.getpid()}"
    try:
        script = f"head -c {48 * MIB} /dev/zero > {left}"
        assert keeper.run(StepTemplate(command=("sh", "-c", script), memory_bytes=64 * MIB), ONE).code == 0
        assert left.stat().st_size == 48 * MIB
        template = StepTemplate(command=("python3", "-c", "a = bytearray(32 << 20)"), memory_bytes=64 * MIB)
        assert keeper.run(template, TWO).cause is ExitCause.EXITED
    finally:
        left.unlink(missing_ok=True)


@pytest.mark.parametrize("limit", [1, 100_000, 300_000, MIB])
def test_a_limit_too_small_for_any_process_still_gives_an_end(keeper: Keeper, limit: int) -> None:
    """Somebody who means 12 GiB and writes 12: the step is spawned and ends, its helper lives on."""
    needs(keeper, "memory")
    ended = keeper.run(StepTemplate(command=("true",), memory_bytes=limit), ONE)
    assert ended.cause in (ExitCause.EXITED, ExitCause.OUT_OF_MEMORY)
    assert len(keeper.helpers()) >= 1


def test_cpu_limits_are_set_and_changed_and_the_helper_does_not_stay_inside(keeper: Keeper) -> None:
    """1500 millicores are 150 ms in 100 ms; a resize changes it; only the step is in the cgroup."""
    needs(keeper, "cpu")
    keeper.launch(StepTemplate(command=("sleep", "600"), cpu_milli=1500), ONE)
    pid = keeper.running(ONE)
    home, entries = cgroup_of(pid)
    assert quota_us(home) == 150_000
    assert entries == [pid]
    keeper.send(Resize(epoch=1, steps=(ONE,), cpu_milli=500))
    assert keeper.until_frame(Done).failed == ()
    assert quota_us(home) == 50_000
    for helper in keeper.helpers():
        assert cgroup_of(helper.pid)[0] != home


def cgroup_of(pid: int) -> tuple[Path, list[int]]:
    """Where its cpu is limited, and who is in there."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if "cpu" in names.split(",") or not names:
            mount = Path("/sys/fs/cgroup") / ("cpu" if names else "")
            home = mount / path.strip("/")
            return home, [int(one) for one in (home / "cgroup.procs").read_text().split()]
    raise AssertionError("no cpu cgroup")


def quota_us(home: Path) -> int:
    v1 = home / "cpu.cfs_quota_us"
    return int(v1.read_text() if v1.exists() else (home / "cpu.max").read_text().split()[0])


def test_limits_hold_across_keepers(keeper: Keeper) -> None:
    """A step adopted by the next keeper that then runs out of memory is still reported as such."""
    needs(keeper, "memory")
    script = "while [ ! -e go ]; do sleep 0.01; done; exec python3 -c 'a = bytearray(200 << 20)'"
    work = keeper.home.root.parent
    keeper.launch(StepTemplate(command=("sh", "-c", script), memory_bytes=64 * MIB, workdir=str(work)), ONE)
    keeper.running(ONE)
    keeper.die()
    keeper.start()
    (work / "go").touch()
    assert keeper.exit_of(ONE).cause is ExitCause.OUT_OF_MEMORY


def test_a_node_that_cannot_limit_says_so(tmp_path: Path) -> None:
    """No cgroup file system, or none that may be written: a note in plain words, and no limits."""
    none = Cgroups("hal-x", root=tmp_path, own="0::/\n")
    assert none.notes == ["memory, cpu and process limits are not enforced: no cgroup file system is mounted"]
    assert none.acquire(1000, MIB) is None
    missing = Cgroups("hal-x", root=tmp_path, own="3:cpuset:/\n2:cpu:/\n")
    assert any("this kernel has no memory cgroup controller" in note for note in missing.notes)


def test_cgroup_v2_files_are_written_as_the_kernel_wants_them(tmp_path: Path) -> None:
    """On a copy of a delegated v2 tree: limits and the quota, swap off, kills counted from memory.events."""
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    home = tmp_path / "user"
    home.mkdir()
    (home / "cgroup.controllers").write_text("cpu memory pids\n")
    (home / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (home / "hal-x").mkdir()
    (home / "hal-x" / "cgroup.subtree_control").touch()
    slot_dir = home / "hal-x" / "s1"
    cgroups = Cgroups("hal-x", root=tmp_path, own="0::/user\n")
    assert (cgroups.version, cgroups.notes) == (2, [])
    with pytest.raises(FileNotFoundError):
        cgroups.acquire(1500, 64 * MIB)  # a plain directory has no such files: nothing is half made
    assert not slot_dir.exists()
    slot_dir = home / "hal-x" / "s2"
    slot_dir.mkdir()
    for name in ("memory.max", "memory.swap.max", "cpu.max", "cpu.weight"):
        (slot_dir / name).touch()
    (slot_dir / "memory.events").write_text("low 0\noom 2\noom_kill 2\n")
    slot = cgroups.known("s2:1")
    assert slot is not None
    assert cgroups.resize(slot, 1500, 64 * MIB) == ""
    assert (slot_dir / "memory.max").read_text() == str(64 * MIB)
    assert (slot_dir / "memory.swap.max").read_text() == "0"
    assert (slot_dir / "cpu.max").read_text() == "150000 100000"
    assert (slot_dir / "cpu.weight").read_text() == "150"
    assert cgroups.moves(slot) == [(f"{slot_dir}/cgroup.procs", f"{home}/cgroup.procs")]
    assert cgroups.out_of_memory(slot)


# ── a full disk ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB and 64 files."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=64", "hal-test", str(place)], check=False, capture_output=True
    )
    if done.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_for_outputs_costs_output_not_the_step(tmp_path: Path, small_disk: Path) -> None:
    """One step fills the disk and goes on; the next cannot even have a file: both end by themselves, and it is said."""
    with contextlib.ExitStack() as umounted, Keeper(tmp_path / "home") as keeper:
        steps = keeper.home.node("n1").steps
        subprocess.run(["mount", "--bind", str(small_disk), str(steps)], check=True)
        umounted.callback(subprocess.run, ["umount", "-l", str(steps)], check=True)
        script = "head -c 2000000 /dev/zero; echo went on > $OUT; exit 0"
        out = tmp_path / "proof"
        ended = keeper.run(StepTemplate(command=("sh", "-c", script), env={"OUT": str(out)}), ONE)
        assert (ended.cause, ended.code, out.read_text()) == (ExitCause.EXITED, 0, "went on\n")
        assert "output may be missing: the disk of" in ended.message
        (small_disk / "inodes").mkdir()
        fill_inodes(small_disk / "inodes")
        ended = keeper.run(StepTemplate(command=("true",)), TWO)
        assert (ended.cause, ended.code) == (ExitCause.EXITED, 0)
        assert "its output was not kept" in ended.message
        assert "No space left on device" in ended.message


def fill_inodes(place: Path) -> None:
    try:
        for number in range(1_000):
            (place / str(number)).touch()
    except OSError:
        return


def test_a_full_disk_for_the_journal_starts_nothing_and_says_why(tmp_path: Path, small_disk: Path) -> None:
    """What cannot be remembered is not started: refused with the reason; when there is room again it runs."""
    with Keeper(tmp_path / "home") as keeper:
        assert keeper.run(StepTemplate(command=("true",)), ONE).code == 0
        keeper.poll(lambda: len(keeper.helpers()) == 2)
        helpers = keeper.helpers()
        keeper.end()
        for helper in helpers:
            assert wait_gone(helper, DEADLINE_S)
        journal = keeper.home.node("n1").journal
        for path in journal.iterdir():
            shutil.move(path, small_disk)
        journal.rmdir()
        journal.symlink_to(small_disk)
        keeper.start()
        filler = small_disk / "filler"
        with filler.open("wb", buffering=0) as file:
            while file.write(b"x" * 4096) == 4096:
                if os.statvfs(small_disk).f_bfree == 0:
                    break
        many = [StepId(7, task, 1, 0) for task in range(500)]
        keeper.launch(StepTemplate(command=("true",)), *many)
        refusals = keeper.until_frame(Refused).steps
        assert {one.code for one in refusals} <= {"journal-full", "not-started"}
        assert "No space left on device" in refusals[0].message
        filler.unlink()
        assert keeper.run(StepTemplate(command=("true",)), TWO).code == 0
