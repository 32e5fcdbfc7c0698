"""Helpers and recorders that a step stops: its node goes on, and the ends of steps are known. (H1, variants)"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.runtime.identity import identify, kill, wait_gone
from hal.wire.frames.agent_keeper import ExitCause, StepTemplate
from tests.daemons.agent.keeper.driving import DEADLINE_S, Keeper
from tests.daemons.agent.keeper.test_keeper_recorder import parent_pid

ONE, TWO, THREE = (StepId(job, 0, 1, 0) for job in (1, 2, 3))


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    with Keeper(tmp_path / "home", helpers=1) as keeper:
        yield keeper


def shell(script: str) -> StepTemplate:
    return StepTemplate(command=("sh", "-c", script))


@pytest.mark.slow
def test_a_step_that_stops_its_helper_stops_nobody_else(keeper: Keeper) -> None:
    """The helper is made to go on: the step's own end is told, and the next step begins."""
    keeper.launch(shell("kill -STOP $PPID; exit 5"), ONE)
    keeper.launch(shell("exit 3"), TWO)
    assert (keeper.exit_of(ONE).code, keeper.exit_of(TWO).code) == (5, 3)


@pytest.mark.slow
def test_a_helper_that_is_stopped_again_and_again_is_replaced(keeper: Keeper, tmp_path: Path) -> None:
    """Another takes what it had been given, and the end of a step that ran there before is known. Of the step that did
    it, and of one that was being spawned when the helper was killed, it may be lost: their pids were not told."""
    keeper.launch(shell(f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; exit 5"), ONE)
    keeper.running(ONE)
    script = f"while [ ! -e {tmp_path}/go ]; do kill -STOP $PPID; sleep 0.01; done"
    keeper.launch(shell(script), THREE)
    keeper.launch(shell("exit 3"), TWO)
    two = keeper.exit_of(TWO)
    assert two.code == 3 or two.cause is ExitCause.LOST
    (tmp_path / "go").touch()
    assert keeper.exit_of(ONE).code == 5
    keeper.exit_of(THREE)


@pytest.mark.slow
def test_the_end_of_a_step_is_known_although_its_recorder_is_stopped(keeper: Keeper, tmp_path: Path) -> None:
    """Its helper is killed besides: the recorder is made to go on, and writes down the end."""
    keeper.launch(shell(f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; exit 5"), ONE)
    keeper.running(ONE)
    (helper,) = keeper.helpers()
    os.kill(parent_pid(helper.pid), signal.SIGSTOP)
    kill(helper, signal.SIGKILL)
    assert wait_gone(helper, DEADLINE_S)
    (tmp_path / "go").touch()
    ended = keeper.exit_of(ONE)
    assert (ended.cause, ended.code) == (ExitCause.EXITED, 5)
    assert identify(keeper.process.pid)
