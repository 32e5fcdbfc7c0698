"""Steps whose helper died before it could say that it had spawned them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper import processes
from hal.daemons.agent.keeper.adoption import SECOND_LOOK_MS, Orphans
from hal.daemons.agent.keeper.helper_journal import HelperJournal
from hal.daemons.agent.keeper.loop import Descriptors
from hal.daemons.agent.keeper.ports import Ended, Instant, Spawned, SpawnerEvent, Vanished
from hal.daemons.agent.keeper.processes import Mark
from hal.daemons.agent.keeper.watch import read_clocks
from hal.runtime.identity import boot_id

ONE = StepId(1, 0, 1, 0)


class Watch:
    """The orphans of one node, and what they told."""

    def __init__(self, directory: Path) -> None:
        self.now = read_clocks()
        self.events: list[SpawnerEvent] = []
        self.began: list[Spawned] = []
        self.token = f"{directory}-{os.getpid()}"
        mark = Mark(processes.marking(str(directory), "n1", self.token, 0))
        self.home = str(directory)
        path = directory / "helper-1.log"
        # A helper whose pid is nobody's now: it meant to spawn the step, and nothing after that is known.
        path.write_text(f"H 4194303 1 {boot_id()} 1\nI {ONE} -\n")
        self.journal = HelperJournal(path)
        self.journal.read()
        self.orphans = Orphans(Descriptors(), self.events, lambda steps: {ONE: mark}, lambda: [os.getpid()], [])
        self.orphans.set_callbacks(finished=self._never, over=lambda step: None, began=self.began.append)
        self.orphans.follow(ONE, self.journal, None)

    def look(self, later_ms: int) -> None:
        self.orphans.look(Instant(self.now.wall_ms + later_ms, self.now.boot_ms + later_ms))

    def _never(self, ended: Ended) -> None:
        raise AssertionError(f"nobody saw it end: {ended}")


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(tmp_path)


def test_a_step_that_begins_after_the_first_look_is_found_by_the_second(watch: Watch) -> None:
    """Its process carries no mark before it has begun: the first look cannot see it."""
    watch.look(0)
    assert watch.events == []
    env = {"HAL_ATTEMPT_TOKEN": watch.token, "HAL_NODE_RANK": "0", "HAL_NODE": "n1", "HAL_HOME": watch.home}
    pipe = subprocess.PIPE
    with subprocess.Popen(["/bin/cat"], env=env, start_new_session=True, stdin=pipe, stdout=pipe) as late:
        assert late.stdin is not None
        assert late.stdout is not None
        try:
            # `Popen` returns a moment before the kernel shows the new process's environment.
            late.stdin.write(b"here\n")
            late.stdin.flush()
            assert late.stdout.readline() == b"here\n"
            watch.look(SECOND_LOOK_MS)
            assert [(one.step, one.pid) for one in watch.began] == [(ONE, late.pid)]
            assert watch.events == []
        finally:
            late.kill()


def test_a_step_that_two_looks_do_not_find_is_lost(watch: Watch) -> None:
    """Not before the second: 100 ms later."""
    watch.look(0)
    watch.look(SECOND_LOOK_MS - 1)
    assert watch.events == []
    watch.look(SECOND_LOOK_MS)
    (lost,) = watch.events
    assert isinstance(lost, Vanished)
