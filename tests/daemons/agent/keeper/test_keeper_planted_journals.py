"""What a step does to the journals of helpers: the keeper goes on, and no step runs twice. (H1, variants)"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.runtime.identity import alive, boot_id, identify, kill, wait_gone
from hal.wire.frames.agent_keeper import StepTemplate
from tests.daemons.agent.keeper.driving import DEADLINE_S, Keeper

ONE, TWO = StepId(1, 0, 1, 0), StepId(2, 0, 1, 0)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    with Keeper(tmp_path / "home", helpers=1) as keeper:
        yield keeper


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    os.truncate(path, 0)


def replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def fill_with_numbers(path: Path) -> None:
    with path.open("a") as file:
        file.write(f"P {ONE} {1 << 70} {1 << 70} {1 << 70} {1 << 70}\nX 1 {ONE} {'9' * 400} 1 1 1 1 1 1 0\n")
        file.write(f"I {ONE} s1:x\nI 1.0.{1 << 80}.0 -\nP {TWO} -1 -1 -1 -1\n")


PLANTS: list[Callable[[Path], None]] = [
    remove,
    empty,
    replace_by_fifo,
    replace_by_directory,
    replace_by_loop,
    fill_with_numbers,
]


@pytest.mark.parametrize("plant", [PLANTS[0], *(pytest.param(plant, marks=pytest.mark.slow) for plant in PLANTS[1:])])
def test_safety_a_step_whose_helper_lost_its_journal_and_died_runs_once(
    keeper: Keeper, tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    """A job can do both to its own helper: its task must not begin again beside it, and the keeper must not end."""
    script = f"echo >> {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done"
    keeper.launch(StepTemplate(command=("sh", "-c", script)), ONE)
    first = identify(keeper.running(ONE))
    (helper,) = keeper.helpers()
    (journal,) = keeper.journals()
    plant(journal)
    kill(helper, signal.SIGKILL)
    assert wait_gone(helper, DEADLINE_S)
    assert keeper.run(StepTemplate(command=("sh", "-c", "exit 3")), TWO).code == 3
    assert (keeper.process.poll(), alive(first)) == (None, True)
    (tmp_path / "go").touch()
    keeper.exit_of(ONE)
    assert (tmp_path / "begun").read_text() == "\n"
    assert keeper.process.poll() is None


def sparse(path: Path) -> None:
    path.write_text(f"H {1 << 21} 1 {boot_id()} 1 0 0\n")
    os.truncate(path, 1 << 40)


def closed_to_its_owner(path: Path) -> None:
    path.write_text(f"H {1 << 21} 1 {boot_id()} 1 0 0\n")
    path.chmod(0)


@pytest.mark.slow
@pytest.mark.parametrize("plant", [os.mkfifo, Path.mkdir, sparse, closed_to_its_owner])
def test_a_keeper_starts_whatever_lies_among_its_journals(
    keeper: Keeper, tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    """A step can leave anything there: it stops no start, and does not take the keeper's memory."""
    journals = keeper.home.node(keeper.node).journal
    keeper.die()
    plant(journals / "helper-1-1-1.log")
    keeper.start()
    assert keeper.run(StepTemplate(command=("sh", "-c", "exit 3")), TWO).code == 3


def test_a_keeper_ends_no_process_only_because_a_journal_calls_it_a_helper(keeper: Keeper) -> None:
    """A keeper of root would end whatever a step has named there; another could not, and would not start."""
    keeper.die()
    planted = keeper.home.node(keeper.node).journal / "helper-1-1-1.log"
    with subprocess.Popen(["sleep", "600"]) as bystander:
        who = identify(bystander.pid)
        planted.write_text(f"H {who.pid} {who.start_ticks} {boot_id()} 1 0 0\n")
        keeper.start()
        assert alive(who)
        bystander.kill()


@pytest.mark.slow
@pytest.mark.parametrize("tag", ["s1:x", "s1:" + "9" * 5_000, "s/../../..:0", "s1:\u0663", "x:1"])
def test_a_keeper_starts_whatever_slot_a_journal_names(keeper: Keeper, tag: str) -> None:
    """The step that it was written for goes on, and is ended with those processes that are its own."""
    keeper.launch(StepTemplate(command=("sleep", "600")), ONE)
    first = identify(keeper.running(ONE))
    keeper.die()
    (journal,) = keeper.journals()
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join(f"I {ONE} {tag}" if line.startswith("I ") else line for line in lines) + "\n")
    keeper.start()
    assert alive(first)
    keeper.stop(ONE, grace_ms=0)
    keeper.exit_of(ONE)
    assert not alive(first)
