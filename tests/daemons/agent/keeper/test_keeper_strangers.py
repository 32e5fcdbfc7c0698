"""Journals that are removed or cut off while steps run: the next keeper ends what it does not know before it starts
anything, so that no attempt runs beside the next one. (faults 3)"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper.journal import FileJournal
from hal.daemons.agent.keeper.ports import Accepted
from hal.runtime.identity import ProcessIdentity, alive, identify, kill
from hal.wire.frames.agent_keeper import ExitCause, StepTemplate
from tests.daemons.agent.keeper.driving import Keeper

ONE, TWO = StepId(1, 0, 1, 0), StepId(2, 0, 1, 0)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    with Keeper(tmp_path / "home") as keeper:
        yield keeper


def journal(keeper: Keeper) -> Path:
    return keeper.home.node(keeper.node).journal


def forget(keeper: Keeper, step: StepId) -> None:
    """Take the step out of all journals."""
    path = journal(keeper) / "keeper.log"
    file = FileJournal(path)
    file.replace([one for one in file.load() if not (isinstance(one, Accepted) and one.steps[0].step == step)])
    file.close()
    for helpers in keeper.journals():
        lines = helpers.read_text().splitlines(keepends=True)
        helpers.write_text("".join(line for line in lines if f" {step} " not in line))


def remove_all(keeper: Keeper) -> None:
    for path in journal(keeper).iterdir():
        path.unlink()


def remove_the_keepers(keeper: Keeper) -> None:
    (journal(keeper) / "keeper.log").unlink()


def empty_the_keepers(keeper: Keeper) -> None:
    (journal(keeper) / "keeper.log").write_bytes(b"")


def cut_off_the_keepers(keeper: Keeper) -> None:
    """The records after the first are gone."""
    path = journal(keeper) / "keeper.log"
    path.write_bytes(path.read_bytes()[:60])


def remove_the_directory(keeper: Keeper) -> None:
    remove_all(keeper)
    journal(keeper).rmdir()


LOSSES: list[Callable[[Keeper], None]] = [
    remove_all,
    remove_the_keepers,
    empty_the_keepers,
    cut_off_the_keepers,
    remove_the_directory,
]


@pytest.mark.parametrize("loss", LOSSES)
def test_safety_a_keeper_without_its_journal_has_ended_what_ran_before_it_answers(
    keeper: Keeper, tmp_path: Path, loss: Callable[[Keeper], None]
) -> None:
    """A step that ignores SIGTERM, and a process of it in a session of its own."""
    script = f"trap '' TERM; setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 601' & sleep 600"
    keeper.launch(StepTemplate(command=("sh", "-c", script)), ONE)
    first = identify(keeper.running(ONE))
    keeper.poll(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    second = identify(int((tmp_path / "pid").read_text()))
    keeper.die()
    loss(keeper)
    welcome = keeper.start()
    assert not alive(first)
    assert not alive(second)
    assert welcome.held == ()
    assert keeper.run(StepTemplate(command=("sh", "-c", "exit 3")), TWO).code == 3


@pytest.mark.slow
@pytest.mark.parametrize("env", ["os.environ", "{}"])
def test_safety_a_step_that_calls_itself_a_helper_is_ended_with_the_others(
    keeper: Keeper, tmp_path: Path, env: str
) -> None:
    """Its command line is its own to write, with the journal of a true helper in it: that of another job's step, which
    goes on."""
    keeper.launch(StepTemplate(command=("sleep", "600")), TWO)
    other = identify(keeper.running(TWO))
    words = ["/x/keeper/helper.py", "-c", "import time; time.sleep(600)", *map(str, keeper.journals())]
    sleeper = f"import os, sys; os.execve(sys.executable, {words}, {env})"
    keeper.launch(StepTemplate(command=(sys.executable, "-c", sleeper), cpu_milli=500), ONE)
    first = identify(keeper.running(ONE))
    keeper.poll(lambda: Path(f"/proc/{first.pid}/cmdline").read_bytes().startswith(b"/x/"))
    keeper.die()
    forget(keeper, ONE)
    keeper.start()
    assert (alive(first), alive(other)) == (False, True)


def test_safety_a_step_whose_helpers_journal_is_gone_is_ended_and_lost(keeper: Keeper) -> None:
    """The keeper's own journal names it, so it is reported; its attempt runs again, and this one does not go on."""
    keeper.launch(StepTemplate(command=("sleep", "600")), ONE)
    first = identify(keeper.running(ONE))
    keeper.die()
    for path in keeper.journals():
        path.unlink()
    keeper.start()
    assert not alive(first)
    ended = keeper.exit_of(ONE)
    assert ended.cause is ExitCause.LOST
    assert "the journal of the helper" in ended.message


def test_what_journals_name_goes_on_and_so_does_everything_else(keeper: Keeper, tmp_path: Path) -> None:
    """Only steps that nobody knows are ended: not those that are taken over, nor a person who reads a journal, nor a
    process of another node or HAL."""
    script = f"setsid env -i sh -c 'echo $$ > {tmp_path}/pid; exec sleep 601' & sleep 600"
    keeper.launch(StepTemplate(command=("sh", "-c", script), cpu_milli=500), ONE)
    keeper.running(ONE)
    keeper.poll(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    mine = {"HAL_HOME": str(keeper.home.root), "HAL_ATTEMPT_TOKEN": "t", "HAL_NODE_RANK": "0", "PATH": "/usr/bin:/bin"}
    bystanders = [
        subprocess.Popen(["tail", "-f", str(keeper.journals()[0])], stdout=subprocess.DEVNULL),
        subprocess.Popen(["sleep", "600"], env=mine | {"HAL_NODE": "n11"}),
        subprocess.Popen(["sleep", "600"], env=mine | {"HAL_NODE": keeper.node, "HAL_HOME": "/another"}),
    ]
    who: list[ProcessIdentity] = [identify(one.pid) for one in bystanders]
    who += [identify(keeper.started[ONE]), identify(int((tmp_path / "pid").read_text()))]
    try:
        keeper.die()
        keeper.start()
        assert [alive(one) for one in who] == [True] * len(who)
    finally:
        kill(who[-1], signal.SIGKILL)
        for one in bystanders:
            one.kill()
            one.wait()
