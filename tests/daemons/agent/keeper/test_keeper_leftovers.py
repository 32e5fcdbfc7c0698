"""What a step left behind, when keepers and helpers die before it is gone."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.runtime.identity import kill, start_ticks
from hal.wire.frames.agent_keeper import ExitCause, StepTemplate
from tests.daemons.agent.keeper.driving import Keeper
from tests.daemons.agent.keeper.test_keeper_crashes import recorder_of

ONE = StepId(1, 0, 1, 0)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    with Keeper(tmp_path / "home") as started:
        yield started


def leaving(directory: Path) -> StepTemplate:
    """A step that leaves a process behind, names it in `left`, and ends with 7 once there is a file `go`."""
    wait = f"while [ ! -e {directory}/go ]; do sleep 0.01; done"
    script = f"trap '' TERM; sleep 600 & echo $! > {directory}/new; mv {directory}/new {directory}/left; {wait}; exit 7"
    return StepTemplate(command=("sh", "-c", script))


def left(directory: Path) -> int:
    """Pid of the process left behind."""
    return int((directory / "left").read_text())


def test_an_end_is_not_forgotten_while_something_of_the_step_is_left(keeper: Keeper, tmp_path: Path) -> None:
    """Keeper after keeper dies while the leftover is being cleared: the true exit is told, and nothing is left."""
    keeper.launch(leaving(tmp_path), ONE)
    keeper.running(ONE)
    keeper.poll(lambda: (tmp_path / "left").exists())
    keeper.die()
    (tmp_path / "go").touch()
    for _ in range(3):
        welcome = keeper.start()
        assert [held.step for held in welcome.held] == [ONE]
        keeper.die()
    keeper.start()
    ended = keeper.exit_of(ONE)
    assert (ended.cause, ended.code) == (ExitCause.EXITED, 7)
    assert start_ticks(left(tmp_path)) is None


def test_a_lost_step_does_not_live_on_in_what_it_left_behind(keeper: Keeper, tmp_path: Path) -> None:
    """Keeper and helpers died, then the first process ended: the rest is killed, and the step is lost."""
    keeper.launch(leaving(tmp_path), ONE)
    keeper.running(ONE)
    keeper.poll(lambda: (tmp_path / "left").exists())
    helpers = keeper.helpers()
    recorders = [recorder_of(helper) for helper in helpers]
    keeper.die()
    for one in (*recorders, *helpers):
        kill(one, signal.SIGKILL)
    keeper.start()
    (tmp_path / "go").touch()
    assert keeper.exit_of(ONE).cause is ExitCause.LOST
    assert start_ticks(left(tmp_path)) is None


def test_a_helper_that_died_before_it_told_the_pid_leaves_nothing_either(keeper: Keeper, tmp_path: Path) -> None:
    """As above, and the helper's journal does not name the first process: it died between the spawn and the line."""
    keeper.launch(leaving(tmp_path), ONE)
    keeper.running(ONE)
    keeper.poll(lambda: (tmp_path / "left").exists())
    helpers = keeper.helpers()
    recorders = [recorder_of(helper) for helper in helpers]
    keeper.die()
    for one in (*recorders, *helpers):
        kill(one, signal.SIGKILL)
    for journal in (tmp_path / "home").rglob("helper-*.log"):
        journal.write_text("".join(line for line in journal.read_text().splitlines(True) if line[0] != "P"))
    (tmp_path / "go").touch()
    keeper.start()
    assert keeper.exit_of(ONE).cause is ExitCause.LOST
    assert start_ticks(left(tmp_path)) is None
