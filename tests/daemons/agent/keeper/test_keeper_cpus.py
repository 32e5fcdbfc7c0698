"""Steps on CPUs of their own: real keepers, helpers and processes; the kernel says where they may run."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.core.model.cpu_lists import parse_cpus
from hal.daemons.agent.keeper.cpu_claim import cpus_to_bind
from hal.daemons.agent.keeper.limits import Cgroups
from hal.wire.frames.agent_keeper import (
    ExitCause,
    FindStep,
    Resume,
    StepFound,
    StepTemplate,
    Suspend,
)
from tests.daemons.agent.keeper.driving import Keeper
from tests.unix_users import UnixUser, needs_root, unix_users

CPUS = frozenset(os.sched_getaffinity(0))
WHOLE = len(CPUS) * 1000
SAY = "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status; env -u OMP_NUM_THREADS nproc"
"""As programs see it that know nothing of OpenMP; `nproc` itself does."""
WAIT = f"{SAY}; while [ ! -e $GO ]; do sleep 0.02; done; {SAY}"
_jobs = itertools.count(1)


def keeper_at(home: Path, bind: str = "cpus") -> Keeper:
    """A keeper of a node with all CPUs of this machine."""
    home.mkdir(exist_ok=True)
    (home / "hal.toml").write_text(f'[node]\nbind = "{bind}"\n')
    return Keeper(home, more=("--cpu-milli", str(WHOLE)))


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keeper]:
    with keeper_at(tmp_path_factory.mktemp("home")) as one:
        yield one


def new_step() -> StepId:
    return StepId(next(_jobs), 0, 1, 0)


def asking(script: str, cpu_milli: int, go: Path | None = None, user: str = "") -> StepTemplate:
    env = {"PATH": os.environ["PATH"], "GO": str(go or "/")}
    return StepTemplate(command=("sh", "-c", script), cpu_milli=cpu_milli, env=env, user=user)


def begin(keeper: Keeper, cpu_milli: int, go: Path, step: StepId | None = None) -> StepId:
    """A step that waits for a file; returns when it runs."""
    step = step or new_step()
    keeper.launch(asking(WAIT, cpu_milli, go), step)
    keeper.running(step)
    return step


def where(pid: int) -> set[int]:
    return set(os.sched_getaffinity(pid))


def seen(keeper: Keeper, step: StepId) -> list[tuple[set[int], int]]:
    """The CPUs that an ended step saw, and what `nproc` said, each time that it asked."""
    assert keeper.exit_of(step).cause is ExitCause.EXITED
    lines = keeper.log(step).data.decode().split()
    return [(set(parse_cpus(cpus)), int(number)) for cpus, number in zip(lines[::2], lines[1::2], strict=True)]


@pytest.mark.parametrize(("cpu_milli", "count"), [(1000, 1), (WHOLE, len(CPUS)), (500, 1), (0, len(CPUS))])
def test_nproc_says_what_the_job_asked_for(keeper: Keeper, cpu_milli: int, count: int) -> None:
    """Rounded up; all of the node if it asked for nothing."""
    step = new_step()
    keeper.run(asking(SAY, cpu_milli), step)
    (((cpus, number),),) = [seen(keeper, step)]
    assert (len(cpus), number) == (count, count)
    assert cpus <= CPUS


def test_two_steps_at_once_share_no_cpu(keeper: Keeper, tmp_path: Path) -> None:
    go = tmp_path / "go"
    steps = [begin(keeper, 1000, go) for _ in range(2)]
    go.touch()
    first, second = (seen(keeper, step) for step in steps)
    assert not first[0][0] & second[0][0]
    assert (first[0], second[0]) == (first[1], second[1])  # and nothing has moved meanwhile


def test_steps_of_parts_of_a_cpu_share_one(keeper: Keeper, tmp_path: Path) -> None:
    go = tmp_path / "go"
    steps = [begin(keeper, 500, go) for _ in range(2)]
    go.touch()
    first, second = (seen(keeper, step)[0] for step in steps)
    assert (first, first[1]) == (second, 1)


def test_running_steps_of_parts_are_moved_as_their_pool_grows(keeper: Keeper, tmp_path: Path) -> None:
    """0.5 on one CPU; beside 1.5 it may use both."""
    go = tmp_path / "go"
    half = begin(keeper, 500, go)
    pid = keeper.started[half]
    assert len(where(pid)) == 1
    begin(keeper, 1500, go)
    keeper.poll(lambda: len(where(pid)) == 2)
    go.touch()
    keeper.exit_of(half)


def test_cpus_are_free_again_however_steps_end(keeper: Keeper) -> None:
    """Ended, never begun for want of a program, killed: the next gets a CPU of its own each time."""
    for command in (("true",), ("no-such-program",), ("sh", "-c", "kill -9 $$"), ("sh", "-c", "sleep 1000 & exit 0")):
        for _ in range(len(CPUS) + 1):
            keeper.run(StepTemplate(command=command, cpu_milli=1000, env={"PATH": os.environ["PATH"]}), new_step())
    step = new_step()
    keeper.run(asking(SAY, 1000), step)
    assert seen(keeper, step)[0][1] == 1


def test_heirs_begin_on_the_cpus_of_whom_they_follow(keeper: Keeper, tmp_path: Path) -> None:
    """Steps on credit, which their helper begins without asking; a step of somebody else has another CPU."""
    job, go = next(_jobs), tmp_path / "go"
    head = begin(keeper, 1000, go, StepId(job, 0, 1, 0))
    heirs = [StepId(job, task, 1, 0) for task in range(1, 9)]
    keeper.launch(asking(SAY, 1000), *heirs, credit_ms=20_000)
    keeper.stamp()
    go.touch()
    cpus = seen(keeper, head)[0]
    assert [seen(keeper, heir) for heir in heirs] == [[cpus]] * len(heirs)


def test_a_helper_is_bound_to_no_step_in_the_end(keeper: Keeper) -> None:
    """It is on the CPUs of its steps for a moment only."""
    keeper.run(asking("true", 1000), new_step())
    keeper.poll(lambda: all(where(helper.pid) == CPUS for helper in keeper.helpers()))


def test_the_next_keeper_knows_who_has_which_cpus(tmp_path: Path) -> None:
    """From the helpers' journals, heirs included: what begins after a restart shares none with what runs on."""
    go = tmp_path / "go"
    with keeper_at(tmp_path / "home") as keeper:
        job = next(_jobs)
        head, heir = StepId(job, 0, 1, 0), StepId(job, 1, 1, 0)
        keeper.launch(asking("sleep 0.1", 1000), head)
        keeper.running(head)
        keeper.launch(asking(WAIT, 1000, go), heir, credit_ms=20_000)
        keeper.exit_of(head)
        keeper.running(heir)
        others = where(keeper.started[heir])
        keeper.die()
        keeper.start()
        steps = [begin(keeper, 1000, go) for _ in range(len(CPUS) - 1)]
        go.touch()
        for step in steps:
            cpus, number = seen(keeper, step)[0]
            assert number == 1
            assert not cpus & others
            others |= cpus


def test_cpus_of_a_suspended_step_may_be_used(keeper: Keeper, tmp_path: Path) -> None:
    """Resumed, it has its own again once they are free."""
    go = tmp_path / "go"
    whole = begin(keeper, WHOLE, go)
    keeper.send(Suspend(epoch=1, steps=(whole,)))
    keeper.stamp()
    one = new_step()
    keeper.run(asking(SAY, 1000), one)
    assert seen(keeper, one)[0][1] == 1
    keeper.send(Resume(epoch=1, steps=(whole,)))
    go.touch()
    assert seen(keeper, whole) == [(set(CPUS), len(CPUS))] * 2


def test_whoever_enters_a_step_is_told_its_cpus(keeper: Keeper, tmp_path: Path) -> None:
    """Also when its first process has bound itself to fewer."""
    go, step = tmp_path / "go", new_step()
    keeper.launch(asking(f"taskset -pc {min(CPUS)} $$ >/dev/null; {WAIT}", WHOLE, go), step)
    keeper.poll(lambda: where(keeper.running(step)) == {min(CPUS)})
    keeper.send(FindStep(request=1, step=step))
    assert keeper.until_frame(StepFound).cpus == tuple(sorted(CPUS))
    go.touch()
    keeper.exit_of(step)


def test_without_binding_a_step_may_use_all(tmp_path: Path) -> None:
    with keeper_at(tmp_path / "home", "none") as keeper:
        step = new_step()
        keeper.run(asking(SAY, 1000), step)
        assert seen(keeper, step) == [(set(CPUS), len(CPUS))]


@pytest.mark.parametrize(
    ("bind", "cpu_milli", "bound"),
    [("none", WHOLE, False), ("auto", WHOLE - 1000, False), ("cpus", WHOLE - 500, True), ("cpus", WHOLE + 1000, False)],
)
def test_only_a_node_that_has_its_cpus_binds(bind: str, cpu_milli: int, bound: bool) -> None:
    """By itself where it is the whole machine; never where it has more than that."""
    sets, note = cpus_to_bind(bind, cpu_milli)
    assert (sets is not None) == bound
    assert bool(note) == (cpu_milli > WHOLE)


@pytest.fixture(scope="module")
def user() -> Iterator[UnixUser]:
    with unix_users(1) as made:
        yield made[0]


@needs_root
def test_a_step_of_another_user_is_bound_too(tmp_path: Path, user: UnixUser) -> None:
    """By that user's helper."""
    keeper = keeper_at(tmp_path / "home")
    try:
        keeper.start({"HAL_RUN_AS_OWNER": "0"})
        step = new_step()
        keeper.run(asking(SAY, 1000, user=user.name), step)
        assert seen(keeper, step)[0][1] == 1
    finally:
        keeper.__exit__(None, None, None)


# ── cgroups ───────────────────────────────────────────────────────────────────────────────────────────────────────


@needs_root
def test_no_process_gets_beyond_the_cpus_of_its_cgroup() -> None:
    """Not what runs, not what it begins, whatever they ask for; and what leads them back is still there."""
    cgroups = Cgroups(f"hal-test-cpus-{os.getpid()}", binds=True)
    try:
        if not cgroups.can_confine:
            pytest.skip("this kernel has no cpuset controller, or it is not ours")
        slot = cgroups.acquire(1000, 0)
        assert slot is not None
        script = f"sleep 1000 & read line; taskset -pc {min(CPUS)}-{max(CPUS)} $$ >&2; {SAY}; kill $!; wait"
        enter = "; ".join(f"echo $$ > {into}" for into, _ in cgroups.moves(slot))
        shell = subprocess.Popen(
            ["sh", "-c", f"{enter}; {script}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        while len(slot.pids()) < 2:  # until it has begun `sleep`
            assert shell.poll() is None
        assert cgroups.confine(slot, (max(CPUS),))
        assert {cpu for pid in slot.pids() for cpu in where(pid)} == {max(CPUS)}
        assert shell.communicate("\n", timeout=30)[0].split() == [str(max(CPUS)), "1"]
        cgroups.release(slot)
        assert not any(os.path.exists(place) for place in slot.places)
    finally:
        cgroups.close()


def test_version_2_has_the_cpus_in_the_slot_itself(tmp_path: Path) -> None:
    """On a copy of a delegated tree: `cpuset.cpus`, as a list of ranges."""
    home = tmp_path / "user"
    (home / "hal-x" / "s1").mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (home / "cgroup.controllers").write_text("cpuset cpu memory pids\n")
    (home / "cgroup.subtree_control").write_text("cpuset cpu memory pids\n")
    (home / "hal-x" / "cgroup.subtree_control").touch()
    (home / "hal-x" / "s1" / "cpuset.cpus").touch()
    cgroups = Cgroups("hal-x", binds=True, root=tmp_path, own="0::/user\n")
    slot = cgroups.known("s1:0")
    assert slot is not None
    assert cgroups.confine(slot, (0, 1, 5))
    assert (home / "hal-x" / "s1" / "cpuset.cpus").read_text() == "0-1,5"
