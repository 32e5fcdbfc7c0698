"""How processes are told apart: by a limit that they inherit, and by what is left when all others are known."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper import processes
from hal.daemons.agent.keeper.helper_process import children as helper_children
from hal.daemons.agent.keeper.processes import MARK_TOP_US, NO_OTHERS, Mark, Others
from tests.attacks.other_user import ALICE, as_user
from tests.daemons.agent.keeper.driving import DEADLINE_S

ONE = StepId(1, 0, 1, 0)
MANY = 1_500
"""Pids of children fill more than one portion."""


class Child:
    """A process like an orphan of a helper, which this process plays: its own session, no environment."""

    def __init__(self, mark: int) -> None:
        self.boot_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        self.pid = os.posix_spawn("/bin/sleep", ["sleep", "600"], {}, setsid=True)
        resource.prlimit(self.pid, resource.RLIMIT_RTTIME, (mark, mark))


@pytest.fixture
def children() -> Iterator[list[Child]]:
    made: list[Child] = []
    yield made
    for child in made:
        os.kill(child.pid, 9)
        os.waitpid(child.pid, 0)


def found(mark: Mark, others: Others | None = None) -> list[int]:
    return [info.pid for info in processes.members({ONE: mark}, (os.getpid(),), others)[ONE]]


def test_a_process_that_has_only_the_mark_is_found(children: list[Child]) -> None:
    """(M8) No session, no environment, no cgroup, no parent of its step."""
    children.append(Child(1000))
    children.append(Child(1001))
    mark = Mark(frozenset(), pid=1, boot_ms=children[0].boot_ms, limit=1000)
    assert found(mark) == [children[0].pid]


def test_an_orphan_of_the_helper_that_may_be_of_a_step_is_taken_for_its_when_that_ends(children: list[Child]) -> None:
    """(M8) It has lowered its mark: not when the step is only signalled, and never what is certainly another's."""
    children.extend([Child(7), Child(2000), Child(8)])
    mark = Mark(frozenset(), pid=1, boot_ms=children[0].boot_ms, limit=1000, helper=os.getpid())
    others = Others(frozenset({children[2].pid}), frozenset({2000}), frozenset())
    assert found(mark) == []
    assert found(mark, others) == [children[0].pid]


def test_a_step_that_is_just_being_spawned_is_nobodys_orphan(children: list[Child]) -> None:
    """Its helper has not told of it yet: its mark is of the moment at which it began."""
    children.append(Child(MARK_TOP_US - time.clock_gettime_ns(time.CLOCK_BOOTTIME)))
    mark = Mark(frozenset(), pid=1, boot_ms=children[0].boot_ms, limit=1000, helper=os.getpid())
    assert found(mark, NO_OTHERS) == []


def test_a_process_older_than_the_step_is_not_of_it(children: list[Child]) -> None:
    """What was there before it began is another's, however it hides."""
    children.append(Child(7))
    later = children[0].boot_ms + 10_000
    assert found(Mark(frozenset(), pid=1, boot_ms=later, limit=1000, helper=os.getpid()), NO_OTHERS) == []


def test_helper_and_keeper_agree_on_marks() -> None:
    """The helper imports nothing of HAL."""
    assert helper_children.MARK_TOP_US == MARK_TOP_US


def test_a_helper_sees_all_of_its_orphans_however_many_they_are() -> None:
    """The kernel gives its list in portions: those of one job must not hide the daemon that another leaves behind."""
    watcher = helper_children.Children()
    children = []
    try:
        for _ in range(MANY):
            children.append(os.posix_spawn("/bin/true", ["true"], {}))  # no fork: this process is large
        assert len(watcher.pids()) >= MANY
    finally:
        for pid in children:
            os.waitpid(pid, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_a_step_that_has_become_another_user_stops_no_keeper() -> None:
    """With sudo a step has processes that its keeper may not signal: they get nothing, and the keeper goes on."""
    boots = processes.read_process(1)
    assert boots is not None
    assert as_user(ALICE, lambda: processes.send([boots], 0)) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: PID namespaces")
def test_in_a_container_process_2_is_one_like_others() -> None:
    """There it may be a keeper, whose children are orphans of steps; elsewhere it is the kernel's."""
    look = "from hal.daemons.agent.keeper.processes import all_processes as a; print(sorted(a()))"
    inside = f'{sys.executable} -c "{look}" < /dev/null; true'
    command = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", inside]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.stdout == "[1, 2]\n"
