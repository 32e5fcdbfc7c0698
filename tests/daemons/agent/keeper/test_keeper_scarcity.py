"""A node that has run out of processes, memory, descriptors or disk: the start is refused, the job is not to blame."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper.helper_process.programs import explain
from hal.daemons.agent.keeper.helper_process.spawn_failures import CannotSpawnError, CannotSpawnHereError
from hal.wire.frames.agent_keeper import ExitCause, Refused, StepTemplate
from tests.daemons.agent.keeper.driving import DEADLINE_S, LOOK_S, Keeper

ONE, TWO, THREE = StepId(1, 0, 1, 0), StepId(2, 0, 1, 0), StepId(3, 0, 1, 0)
PIDS = Path("/sys/fs/cgroup/pids")


@pytest.fixture
def few_processes(tmp_path: Path) -> Iterator[Path]:
    """A cgroup whose number of processes can be limited."""
    place = PIDS / f"hal-test-{os.getpid()}"
    try:
        place.mkdir()
    except OSError as error:
        pytest.skip(f"no pids cgroup can be made: {error}")
    yield place
    deadline_s = time.monotonic() + DEADLINE_S
    while place.exists():  # what was killed is gone once somebody has waited for it
        assert time.monotonic() < deadline_s, (place / "cgroup.procs").read_text()
        for inner in sorted((path for path in place.rglob("*") if path.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                inner.rmdir()
        with contextlib.suppress(OSError):
            place.rmdir()
        select.select([], [], [], LOOK_S)


def within(place: Path) -> list[str]:
    """The words that start a command in that cgroup."""
    return ["sh", "-c", f'echo $$ > {place}/cgroup.procs && exec "$@"', "sh"]


def test_a_node_out_of_processes_refuses_the_start(few_processes: Path, tmp_path: Path) -> None:
    """(faults 5) EAGAIN at the spawn is a refused start, not a failed task; with processes again, the next one runs."""
    with Keeper(tmp_path / "home", under=within(few_processes)) as keeper:
        keeper.poll(lambda: len(keeper.helpers()) == 2)
        (few_processes / "pids.max").write_text((few_processes / "pids.current").read_text())
        keeper.launch(StepTemplate(command=("true",)), ONE, TWO)
        told = list(keeper.until_frame(Refused).steps)
        if len(told) < 2:
            told += keeper.until_frame(Refused).steps
        assert {one.step for one in told} == {ONE, TWO}
        assert {one.code for one in told} == {"not-started"}
        assert "cannot create more processes" in told[0].message
        assert keeper.exits == {}
        (few_processes / "pids.max").write_text("max")
        assert keeper.run(StepTemplate(command=("true",)), THREE).code == 0


def test_a_keeper_that_follows_knows_that_the_start_was_refused(few_processes: Path, tmp_path: Path) -> None:
    """(faults 5) The helper's journal says so: nobody takes the step for one that was lost while it ran."""
    with Keeper(tmp_path / "home", under=within(few_processes)) as keeper:
        keeper.poll(lambda: len(keeper.helpers()) == 2)
        (few_processes / "pids.max").write_text((few_processes / "pids.current").read_text())
        keeper.launch(StepTemplate(command=("true",)), ONE)
        keeper.poll(lambda: any(f"\nU {ONE}\n" in path.read_text() for path in keeper.journals()))
        keeper.die()
        (few_processes / "pids.max").write_text("max")
        keeper.start()
        assert ONE not in keeper.exits
        assert keeper.run(StepTemplate(command=("true",)), TWO).cause is ExitCause.EXITED


@pytest.mark.parametrize(
    "number",
    [
        errno.EAGAIN,
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.ESTALE,
        errno.ENOTCONN,
    ],
)
def test_what_a_node_lacks_is_the_nodes_fault(number: int) -> None:
    """(faults 5) Any of these may go well elsewhere, or later."""
    assert isinstance(explain(OSError(number, os.strerror(number)), "/bin/true"), CannotSpawnHereError)


@pytest.mark.parametrize(
    "number", [errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.E2BIG, errno.ELOOP, errno.ENAMETOOLONG, errno.EPERM]
)
def test_what_is_wrong_with_the_program_is_the_jobs_fault(number: int) -> None:
    """Arguments that are too long, a program that cannot be run: every node would say the same."""
    assert isinstance(explain(OSError(number, os.strerror(number)), "/bin/true"), CannotSpawnError)
