"""Keepers, helpers and recorders that are killed together: the end of a step that went on is not lost. (faults 4)"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper import recorder
from hal.runtime.identity import identify, kill, wait_gone
from hal.wire.frames.agent_keeper import ExitCause, StepTemplate
from tests.daemons.agent.keeper.driving import DEADLINE_S, Keeper

ONE = StepId(1, 0, 1, 0)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    with Keeper(tmp_path / "home") as keeper:
        yield keeper


DEATHS = [
    ("keeper", "helpers"),
    ("helpers", "keeper"),
    ("keeper", "recorders"),
    ("recorders", "keeper"),
    ("helpers",),
    ("recorders",),
    ("recorders", "helpers"),
    ("helpers", "recorders"),
]


CASES = [
    pytest.param(deaths, when, id=f"{' '.join(deaths)}, {when}", marks=() if case == 0 else pytest.mark.slow)
    for case, (deaths, when) in enumerate(itertools.product(DEATHS, ("ends before", "ends after")))
]


@pytest.mark.parametrize(("deaths", "when"), CASES)
def test_safety_the_end_of_a_step_is_known_as_long_as_one_lives_who_can_see_it(
    keeper: Keeper, tmp_path: Path, deaths: tuple[str, ...], when: str
) -> None:
    """Keeper, helpers, recorders killed in any pairs, the step ending before or after the next keeper has come: its own
    exit code is reported, once, its output is kept, and nothing runs again. (faults 4)"""
    script = f"echo >> {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; echo out; exit 7"
    keeper.launch(StepTemplate(command=("sh", "-c", script)), ONE)
    first = identify(keeper.running(ONE))
    helpers = keeper.helpers()
    recorders = [identify(parent_pid(helper.pid)) for helper in helpers]
    for death in deaths:
        if death == "keeper":
            keeper.die()
        else:
            for who in helpers if death == "helpers" else recorders:
                kill(who, signal.SIGKILL)
            for who in helpers if death == "helpers" else recorders:
                assert wait_gone(who, DEADLINE_S)
    if when == "ends before":
        (tmp_path / "go").touch()
        assert wait_gone(first, DEADLINE_S)
    if "keeper" in deaths:
        keeper.start()
    (tmp_path / "go").touch()
    ended = keeper.exit_of(ONE)
    assert (ended.cause, ended.code) == (ExitCause.EXITED, 7)
    assert keeper.log(ONE).data == b"out\n"
    assert (tmp_path / "begun").read_text() == "\n"
    assert keeper.run(StepTemplate(command=("sh", "-c", "exit 3")), StepId(2, 0, 1, 0)).code == 3


def fifo_with_a_writer(path: Path) -> None:
    os.mkfifo(path)
    os.open(path, os.O_RDWR)  # left to the end of the tests: nobody waits for it


def numbers(path: Path) -> None:
    path.write_text(f"P {ONE} \u00b2 1 1 0\nP {ONE} {'9' * 5_000} 1 1 0\nX\nP\n")


@pytest.mark.parametrize("plant", [fifo_with_a_writer, os.mkfifo, Path.mkdir, numbers])
def test_a_recorder_goes_on_whatever_a_step_makes_of_the_journal(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    """It knows of no step then, waits for nothing, and writes nowhere else. (H1, variant)"""
    path = tmp_path / "helper-1.log"
    plant(path)
    assert recorder.unended(str(path)) == {}
    assert path.is_file() or recorder.append(str(path), "X\n")


def parent_pid(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
