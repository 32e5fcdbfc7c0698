"""Outputs come into being with their first byte: no file for an empty stream, and no byte lost whoever dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper.helper_process.captures import MAX_SPARES, SPARE, Captures
from hal.daemons.agent.keeper.helper_process.step_files import MAX_DIRECTORY_FDS, Directories
from hal.daemons.agent.keeper.outputs import OutputFiles
from hal.runtime.identity import kill, wait_gone
from hal.wire.frames.agent_keeper import StepTemplate, Stream
from tests.daemons.agent.keeper.driving import DEADLINE_S, Keeper

ONE = StepId(1, 0, 1, 0)
HELPERS = 2


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    with Keeper(tmp_path / "home", helpers=HELPERS) as keeper:
        yield keeper


def sh(script: str) -> StepTemplate:
    return StepTemplate(command=("sh", "-c", script))


def steps_of(keeper: Keeper) -> Path:
    """The directory of all outputs."""
    return keeper.home.node(keeper.node).steps


def waiting(path: Path) -> str:
    """A shell command that waits for a file."""
    return f"while [ ! -e {path} ]; do sleep 0.01; done"


def test_steps_that_write_nothing_leave_no_file(keeper: Keeper) -> None:
    """Neither outputs nor directories of jobs; a few empty files serve all of them. Reading one is no error."""
    steps = [StepId(job, task, 1, 0) for job in (1, 2, 3) for task in range(20)]
    for job in (1, 2, 3):
        keeper.launch(sh("exit 0"), *(step for step in steps if step.job == job))
    for step in steps:
        keeper.exit_of(step)
    assert os.listdir(steps_of(keeper)) == [SPARE]
    assert len(os.listdir(steps_of(keeper) / SPARE)) <= HELPERS * MAX_SPARES
    part = keeper.log(steps[7])
    assert (part.data, part.size, part.ended, part.error) == (b"", 0, True, "")


def test_an_output_comes_into_being_with_its_first_byte(keeper: Keeper, tmp_path: Path) -> None:
    """While the step runs; its other stream stays without a file, also when it has ended."""
    script = f"{waiting(tmp_path / 'go')}; echo first; {waiting(tmp_path / 'end')}; echo last"
    keeper.launch(sh(script), ONE)
    keeper.running(ONE)
    assert not (steps_of(keeper) / "1").exists()
    assert (keeper.log(ONE).data, keeper.log(ONE).ended) == (b"", False)
    (tmp_path / "go").touch()
    keeper.until_log(ONE, b"first\n")
    (tmp_path / "end").touch()
    keeper.exit_of(ONE)
    assert keeper.log(ONE).data == b"first\nlast\n"
    assert os.listdir(steps_of(keeper) / "1") == ["0.1.0.stdout"]


def test_what_a_step_leaves_running_writes_to_its_own_output(keeper: Keeper, tmp_path: Path) -> None:
    """After its first process has ended; the file of the step that came next gets none of it."""
    script = f"({waiting(tmp_path / 'go')}; echo late) & exit 0"
    keeper.launch(sh(script), ONE)
    keeper.poll(lambda: (steps_of(keeper) / "1").exists())
    two = StepId(2, 0, 1, 0)
    (tmp_path / "go").touch()
    keeper.run(sh("echo mine"), two)
    keeper.exit_of(ONE)
    assert keeper.log(two).data == b"mine\n"
    assert keeper.log(ONE).data == b"late\n"
    assert os.listdir(steps_of(keeper) / "1") == ["0.1.0.stdout"]


@pytest.mark.parametrize("keeper_too", [False, True])
def test_no_byte_is_lost_with_a_helper_that_dies_before_the_first(
    keeper: Keeper, tmp_path: Path, keeper_too: bool
) -> None:
    """The step writes to a file without a name, which only the helper's journal knows: the keeper gives it its name."""
    keeper.launch(sh(f"{waiting(tmp_path / 'go')}; echo out; echo err >&2"), ONE)
    keeper.running(ONE)
    if keeper_too:
        keeper.die()
    for helper in keeper.helpers():
        kill(helper, 9)
        wait_gone(helper, DEADLINE_S)
    (tmp_path / "go").touch()
    if keeper_too:
        keeper.start()
    keeper.exit_of(ONE)
    assert [keeper.log(ONE, stream).data for stream in Stream] == [b"out\n", b"err\n"]


def test_a_keeper_deletes_unused_files_of_helpers_that_are_over(keeper: Keeper) -> None:
    """Also those of an earlier boot, whose journal is gone."""
    keeper.run(sh("exit 0"), ONE)
    keeper.die()
    for helper in keeper.helpers():
        wait_gone(helper, DEADLINE_S)
    (steps_of(keeper) / SPARE / "helper-1-1-1.7").touch()
    keeper.start()
    keeper.run(sh("exit 0"), StepId(2, 0, 1, 0))
    alive = {path.stem for path in keeper.journals()}
    assert {name.rpartition(".")[0] for name in os.listdir(steps_of(keeper) / SPARE)} <= alive


def test_outputs_are_kept_of_more_jobs_than_directories_are_held_open(tmp_path: Path) -> None:
    """The directory of files without names is not the one that is closed to make room for a job's."""
    captures = Captures("helper-1", Directories())
    for job in range(1, 2 * MAX_DIRECTORY_FDS):
        opened: list[int] = []
        taken, _ = captures.open(f"{job}.0.1.0", f"{tmp_path}/{job}/0.1.0", opened)
        os.write(opened[0], b"x")
        assert captures.name_written() == []
        assert captures.ended(taken, left=False) == ""
        assert (tmp_path / str(job) / "0.1.0.stdout").read_bytes() == b"x"
        for fd in opened:
            os.close(fd)


def test_without_inotify_an_output_has_its_name_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel gives a user only so many such descriptors. What is empty at the end is deleted by the keeper."""
    captures = Captures("helper-1", Directories())
    monkeypatch.setattr(captures, "fd", -1)
    opened: list[int] = []
    taken, problem = captures.open(str(ONE), f"{tmp_path}/1/0.1.0", opened)
    assert not problem
    os.write(opened[0], b"x")
    assert sorted(os.listdir(tmp_path / "1")) == ["0.1.0.stderr", "0.1.0.stdout"]
    assert captures.ended(taken, left=False) == ""
    assert OutputFiles(tmp_path).settle(ONE, 1_000) == ""
    assert os.listdir(tmp_path / "1") == ["0.1.0.stdout"]
