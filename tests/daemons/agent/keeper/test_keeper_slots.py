"""Slots on real cgroups: whatever a step changes, makes or leaves in its own, the next step's is as it should be."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper.limits import Cgroups
from hal.daemons.agent.keeper.slot import Slot
from hal.runtime.identity import start_ticks
from hal.wire.frames.agent_keeper import ExitCause, StepTemplate
from tests.daemons.agent.keeper.driving import Keeper

ONE, TWO = StepId(1, 0, 1, 0), StepId(2, 0, 1, 0)
MIB = 1 << 20
LIMITS = (1500, 64 * MIB)


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    made = Cgroups(f"hal-test-slots-{os.getpid()}", max_processes=64)
    if made.notes:
        made.close()
        pytest.skip(made.notes[0])
    yield made
    made.close()


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    with Keeper(tmp_path / "home") as keeper:
        assert keeper.welcome is not None
        if any("process limits are not enforced" in note for note in keeper.welcome.notes):
            pytest.skip("processes are not limited here")
        yield keeper


def value(slot: Slot, *names: str) -> list[str]:
    """What these files of it say, those that there are."""
    paths = [Path(place) / name for place in slot.places for name in names]
    return [path.read_text().strip() for path in paths if path.exists()]


def set_as_by_a_step(slot: Slot, name: str, text: str) -> bool:
    """As a step would that may write to cgroup files; false: this kernel has no such file, or does not let it be."""
    paths = [path for place in slot.places if (path := Path(place) / name).exists()]
    try:
        return any(path.write_text(text) for path in paths)
    except OSError:
        return False


SETTINGS = (
    ("memory.limit_in_bytes", "-1"),
    ("memory.memsw.limit_in_bytes", "-1"),
    ("memory.soft_limit_in_bytes", "4096"),
    ("memory.swappiness", "0"),
    ("memory.oom_control", "1"),
    ("memory.max", "max"),
    ("memory.high", "4096"),
    ("memory.swap.max", "max"),
    ("memory.oom.group", "1"),
    ("cpu.cfs_quota_us", "-1"),
    ("cpu.cfs_quota_us", "1000"),
    ("cpu.cfs_period_us", "1000000"),
    ("cpu.shares", "2"),
    ("cpu.idle", "1"),
    ("cpu.max", "max 100000"),
    ("cpu.weight", "1"),
    ("pids.max", "max"),
    ("pids.max", "1"),
    ("notify_on_release", "1"),
    ("cgroup.freeze", "1"),
    ("cgroup.subtree_control", "+pids"),
)
"""Of cgroups of both versions; no kernel has all of them."""


def test_what_a_step_sets_in_its_cgroup_ends_with_it(cgroups: Cgroups) -> None:
    """(M7, attempt 95) The slot is thrown away, the next step's is as it was to be. Everything that can be set here."""
    found = set()
    for name, text in SETTINGS:
        first = cgroups.acquire(*LIMITS)
        assert first is not None
        fresh = first.settings
        assert fresh is not None
        was_set = set_as_by_a_step(first, name, text)
        cgroups.release(first)
        second = cgroups.acquire(*LIMITS)
        assert second is not None
        assert second.read_settings() == fresh, name
        assert (second.name != first.name) is was_set, name
        assert value(second, "memory.limit_in_bytes", "memory.max") == [str(64 * MIB)]
        assert value(second, "pids.max") == ["64"]
        cgroups.release(second)
        found |= {name.split(".")[0]} if was_set else set()
    assert {"memory", "cpu", "pids"} <= found


def test_a_slot_that_nobody_touched_is_used_again(cgroups: Cgroups) -> None:
    """Making one costs a hundred times what reading it does."""
    first = cgroups.acquire(*LIMITS)
    assert first is not None
    cgroups.release(first)
    assert cgroups.acquire(*LIMITS) is first


def test_a_slot_with_a_cgroup_made_in_it_is_removed_with_that(cgroups: Cgroups) -> None:
    """(M7) The next step gets another; nothing of the nested ones is left."""
    first = cgroups.acquire(*LIMITS)
    assert first is not None
    for place in first.places:
        (Path(place) / "a" / "b").mkdir(parents=True)
    cgroups.release(first)
    second = cgroups.acquire(*LIMITS)
    assert second is not None
    assert second.name != first.name
    assert not any(os.path.exists(place) for place in first.places)


def test_who_hides_in_a_nested_cgroup_is_found_there(cgroups: Cgroups) -> None:
    """(M8) Members are those of the whole tree; while one is left the slot is not used again, later it is removed."""
    first = cgroups.acquire(*LIMITS)
    assert first is not None
    with subprocess.Popen(["sleep", "600"]) as hidden:
        for place in first.places:
            (Path(place) / "a").mkdir()
            (Path(place) / "a" / "cgroup.procs").write_text(str(hidden.pid))
        assert first.pids() == (hidden.pid,)
        cgroups.release(first)
        second = cgroups.acquire(*LIMITS)
        assert second is not None
        assert second.name != first.name
        hidden.kill()
    third = cgroups.acquire(*LIMITS)
    assert third is not None
    assert not any(os.path.exists(place) for place in first.places)


def test_a_slot_that_is_killed_lets_nothing_fork(cgroups: Cgroups) -> None:
    """(M8) Whatever its step hides behind forks, one pass ends it."""
    slot = cgroups.acquire(*LIMITS)
    assert slot is not None
    script = "read go; sh -c : || exit 3"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as step:
        assert step.stdin is not None
        for place in slot.places:
            (Path(place) / "cgroup.procs").write_text(str(step.pid))
        slot.kill([step.pid])  # of HAL itself: not ended at once
        step.stdin.write(b"go\n")
        step.stdin.close()
        assert step.wait(30) != 0
    cgroups.release(slot)


def test_a_step_that_asks_for_nothing_may_not_have_more_processes_than_the_limit(tmp_path: Path) -> None:
    """(M9, attempt 93) A fork bomb ends at its own bound, and says so; another step goes on beside it."""
    bomb = "i=0; while [ $i -lt 200 ]; do sleep 600 & i=$((i+1)); done; wait"
    with Keeper(tmp_path / "home", more=("--max-processes", "40")) as keeper:
        assert keeper.welcome is not None
        if any("process limits are not enforced" in note for note in keeper.welcome.notes):
            pytest.skip("processes are not limited here")
        keeper.launch(StepTemplate(command=("sh", "-c", bomb)), ONE)
        keeper.running(ONE)
        keeper.poll(lambda: len(keeper.survivors()) >= 39)
        assert keeper.run(StepTemplate(command=("sh", "-c", "sleep 0 & wait; exit 5")), TWO).code == 5
        assert len(keeper.survivors()) <= 40
        keeper.stop(ONE, grace_ms=0)
        keeper.exit_of(ONE)
        assert keeper.survivors() == []


def test_what_a_step_leaves_in_a_nested_cgroup_is_found_and_killed(keeper: Keeper, tmp_path: Path) -> None:
    """(M8) It has left its session, its environment and the slot's own cgroups; those above it have not lost it."""
    script = """
import os, sys, time
for line in open("/proc/self/cgroup"):
    _, names, path = line.strip().split(":", 2)
    place = f"/sys/fs/cgroup/{names.split(',')[0]}{path}"
    if "/hal-" not in path:
        continue
    os.mkdir(place + "/inner")
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        open(place + "/inner/cgroup.procs", "w").write("0")
        open(sys.argv[1] + "." + names, "w").write(str(os.getpid()))
        os.execve("/bin/sleep", ["sleep", "600"], {})
    while not os.path.exists(sys.argv[1] + "." + names):
        time.sleep(0.01)
"""
    told = tmp_path / "hidden"
    keeper.launch(StepTemplate(command=("sleep", "600")), TWO)
    ended = keeper.run(StepTemplate(command=("python3", "-c", script, str(told)), cpu_milli=1000), ONE)
    assert ended.cause is ExitCause.EXITED, ended
    hidden = [int(path.read_text()) for path in tmp_path.glob("hidden.*")]
    assert hidden
    assert [pid for pid in hidden if start_ticks(pid) is not None] == []
    assert start_ticks(keeper.running(TWO)) is not None


def test_limits_are_set_again_after_a_step_removed_the_keepers_own_cgroups(cgroups: Cgroups) -> None:
    """Else all steps after it would run without any."""
    slot = cgroups.acquire(*LIMITS)
    assert slot is not None
    cgroups.release(slot)
    for place in slot.places:
        os.rmdir(place)
        os.rmdir(Path(place).parent)
    again = cgroups.acquire(*LIMITS)
    assert again is not None
    assert value(again, "pids.max") == ["64"]


def test_names_of_slots_that_a_step_has_taken_beforehand_are_passed_over(cgroups: Cgroups) -> None:
    """In one of the kernel's hierarchies, too: none is half made then."""
    first = cgroups.acquire(*LIMITS)
    assert first is not None
    bases = [Path(place).parent for place in first.places]
    taken = [bases[number % len(bases)] / f"s{number}" for number in range(2, 9)]
    for path in taken:
        path.mkdir()
    second = cgroups.acquire(*LIMITS)
    assert second is not None
    assert second.name == "s9"
    assert [path for base in bases for path in base.glob("s[2-8]") if path not in taken] == []
