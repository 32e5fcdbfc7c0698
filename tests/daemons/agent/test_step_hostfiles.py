"""The files that tell bases of elastic jobs which nodes there are: whole, current, and gone with their steps."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.secret_files import HOSTS_PREFIX, Account, SecretFiles
from hal.daemons.agent.step_hostfiles import HOSTS, StepHostfiles
from hal.runtime.line_budget import BudgetedLog
from hal.runtime.real_runtime import RealRuntime
from hal.wire.frames.agent_keeper import (
    ExitCause,
    Exits,
    Refusal,
    Refused,
    Start,
    StepExit,
    StepStart,
    StepTemplate,
    Usage,
)
from hal.wire.frames.controller_agent import JobNodes
from hal.wire.frames.conversation import Frame
from tests.runtime.real_runtime import run_real

BASE, PEER, PLAIN = StepId(7, 0, 1, 0), StepId(7, 0, 1, 1), StepId(8, 0, 1, 0)


def files_at(path: Path, *, each_as_itself: bool = False) -> SecretFiles:
    """With a directory of the test in place of a tmpfs."""
    return SecretFiles(path / "node" / "hosts", [str(path)], each_as_itself=each_as_itself, prefix=HOSTS_PREFIX)


def hostfiles(directory: Path, files: SecretFiles, account: Account | None = None) -> StepHostfiles:
    """Of a node on which everybody has this account."""

    async def accounts(users: Collection[str]) -> Mapping[str, Account | None]:
        return dict.fromkeys(users, account)

    async def made(runtime: RealRuntime) -> StepHostfiles:
        return StepHostfiles(files, accounts, BudgetedLog(runtime.log, runtime.monotonic_ms))

    return run_real(directory, made)


def started(node: StepHostfiles, slots: int = 2) -> Path:
    """Its base begins, with a peer and a job that asks for nothing; returns the base's file."""
    steps = (
        StepStart(BASE, 0, "t", ("n1", "n2"), 0, 3, 1),
        StepStart(PEER, 0, "t", ("n1", "n2"), 0, 3, 1),
        StepStart(PLAIN, 1, "t", ("n1",), 0, 1, 1),
    )
    templates = (StepTemplate(command=("x",), user="ann", hostfile=slots), StepTemplate(command=("x",), user="ann"))
    frame = asyncio.run(node.put(Start(epoch=4, stamp_boot_ms=1, templates=templates, steps=steps)))
    asked, plain = frame.templates
    assert plain.hostfile_dir == ""
    assert len(frame.steps) == 3
    return Path(asked.hostfile_dir) / str(BASE) / HOSTS


def now(*nodes: str) -> JobNodes:
    return JobNodes(epoch=4, step=BASE, nodes=nodes, slots=2, signal="WINCH")


def test_a_base_finds_its_own_nodes_when_it_begins(tmp_path: Path) -> None:
    """Only the step of rank 0 has a file."""
    path = started(hostfiles(tmp_path, files_at(tmp_path)))
    assert path.read_text() == "n1 slots=2\nn2 slots=2\n"
    assert [entry.name for entry in path.parent.parent.iterdir()] == [str(BASE)]


def test_the_file_is_replaced_and_the_signal_follows(tmp_path: Path) -> None:
    """Whoever has the old file open reads all of it."""
    node = hostfiles(tmp_path, files_at(tmp_path))
    path = started(node)
    with path.open() as old:
        signal = node.renew(now("n1", "n2", "n3"))
        assert signal is not None
        assert (signal.name, signal.steps, signal.epoch) == ("WINCH", (BASE,), 4)
        assert old.read() == "n1 slots=2\nn2 slots=2\n"
    assert path.read_text() == "n1 slots=2\nn2 slots=2\nn3 slots=2\n"
    assert os.listdir(path.parent) == [HOSTS]


def test_what_its_file_says_already_is_no_news(tmp_path: Path) -> None:
    """From the same agent, and from the next one."""
    node = hostfiles(tmp_path, files_at(tmp_path))
    started(node)
    assert node.renew(now("n1", "n2")) is None
    assert node.renew(now("n1", "n2", "n3")) is not None
    assert node.renew(now("n1", "n2", "n3")) is None
    later = hostfiles(tmp_path, files_at(tmp_path))
    later.sweep({BASE})
    assert later.renew(now("n1", "n2", "n3")) is None
    assert later.renew(now("n1", "n2")) is not None


@pytest.mark.parametrize(
    "report",
    [
        Exits(exits=(StepExit(BASE, ExitCause.EXITED, 0, 0, 1, 2, Usage(), ""),)),
        Refused(steps=(Refusal(BASE, "no-lease", ""),)),
    ],
)
def test_nothing_is_left_of_a_step_that_is_over(tmp_path: Path, report: Frame) -> None:
    node = hostfiles(tmp_path, files_at(tmp_path))
    path = started(node)
    node.record_ends(report)
    assert not path.parent.exists()


def test_without_files_in_memory_the_base_has_its_signal_alone(tmp_path: Path) -> None:
    node = hostfiles(tmp_path, SecretFiles(tmp_path / "node" / "hosts", [], prefix=HOSTS_PREFIX))
    assert started(node) == Path(str(BASE)) / HOSTS  # no directory is named
    assert node.renew(now("n1", "n2", "n3")) is not None
    assert node.renew(now("n1", "n2", "n3")) is None


@pytest.mark.parametrize("link", [True, False])
def test_what_a_job_put_in_place_of_its_file_is_not_followed(tmp_path: Path, link: bool) -> None:
    """A link to another file of the same user, or a directory: nothing of it changes, and the signal still comes."""
    node = hostfiles(tmp_path, files_at(tmp_path))
    path = started(node)
    precious = tmp_path / "precious"
    precious.write_text("stays")
    path.unlink()
    if link:
        path.symlink_to(precious)
    else:
        path.mkdir()
    assert node.renew(now("n1", "n2", "n3")) is not None
    assert precious.read_text() == "stays"
    assert path.is_symlink() == link


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_where_steps_run_as_their_users_the_new_file_is_theirs_too(tmp_path: Path) -> None:
    node = hostfiles(tmp_path, files_at(tmp_path, each_as_itself=True), Account(61_001, 61_001))
    path = started(node)
    node.renew(now("n1", "n2", "n3"))
    info = path.stat()
    assert (info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode)) == (61_001, 61_001, 0o400)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o750
