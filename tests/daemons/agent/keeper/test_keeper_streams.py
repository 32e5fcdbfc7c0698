"""Files that a job has named for the standard streams of its steps: where they are, and what is not opened."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper.helper_process.own_files import open_own
from hal.daemons.agent.keeper.helper_process.spawn_failures import CannotSpawnError
from hal.wire.frames.agent_keeper import ExitCause, StepTemplate, Stream
from tests.daemons.agent.keeper.driving import Keeper

_jobs = itertools.count(1)


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keeper]:
    with Keeper(tmp_path_factory.mktemp("home")) as one:
        yield one


def new_step() -> StepId:
    """The step of task 3, attempt 2, of a new job."""
    return StepId(next(_jobs), 3, 2, 0)


def sh(script: str, **fields: object) -> StepTemplate:
    return StepTemplate(command=("sh", "-c", script), **fields)  # type: ignore[arg-type]


def test_output_and_errors_go_to_the_files_that_the_job_names(keeper: Keeper, tmp_path: Path) -> None:
    """Relative to the work directory, with the patterns of the step; the step sees where; the keeper keeps neither."""
    step = new_step()
    script = "echo $HAL_STDOUT; echo $HAL_STDERR >&2"
    keeper.run(sh(script, workdir=str(tmp_path), stdout="%03a-%r.out", stderr=f"{tmp_path}/%N.%n.err"), step)
    out, err = tmp_path / "003-2.out", tmp_path / "n1.0.err"
    assert (out.read_text(), err.read_text()) == (f"{out}\n", f"{err}\n")
    assert [keeper.log(step, stream).data for stream in Stream] == [b"", b""]


def test_files_are_created_under_the_umask_of_the_job(keeper: Keeper, tmp_path: Path) -> None:
    """As if its program had opened them."""
    for name, umask in (("usual", None), ("group", 0o007)):
        keeper.run(sh("echo", stdout=str(tmp_path / name), umask=umask), new_step())
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("usual", "group")] == [0o644, 0o660]


def test_one_file_for_both_gets_both_in_order(keeper: Keeper, tmp_path: Path) -> None:
    """It is emptied once, as it is opened, and neither stream overwrites the other."""
    both = tmp_path / "both"
    both.write_text("of an earlier run\n")
    keeper.run(sh("echo 1; echo 2 >&2; echo 3", stdout=str(both), stderr=str(both)), new_step())
    assert both.read_text() == "1\n2\n3\n"


def test_files_are_added_to_where_the_job_wants_it(keeper: Keeper, tmp_path: Path) -> None:
    """What earlier steps wrote stays."""
    log = tmp_path / "log"
    for number in range(3):
        keeper.run(sh(f"echo {number}", stdout=str(log), stderr=os.devnull, append=True), new_step())
    assert log.read_text() == "0\n1\n2\n"


def test_a_step_reads_the_file_that_the_job_names(keeper: Keeper, tmp_path: Path) -> None:
    """And nothing else is changed: its output is kept by HAL."""
    (tmp_path / "in-3").write_text("a line\n")
    step = new_step()
    keeper.run(sh("cat", workdir=str(tmp_path), stdin="in-%a"), step)
    assert keeper.log(step).data == b"a line\n"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"stdout": "no/such/directory"}, "stdout 'no/such/directory' cannot be opened: No such file or directory"),
        ({"stdout": "."}, "stdout '.' cannot be used: a directory is in the place of the file"),
        ({"stderr": "fifo"}, "stderr 'fifo' cannot be used: a FIFO is in the place of the file"),
        ({"stdin": "fifo"}, "stdin 'fifo' cannot be used: a FIFO is in the place of the file"),
        ({"stdin": "missing"}, "stdin 'missing' cannot be opened: No such file or directory"),
        ({"stdin": "/dev/zero"}, "stdin '/dev/zero' cannot be used: a device is in the place of the file"),
    ],
)
def test_what_cannot_be_opened_is_the_jobs_fault_and_keeps_nobody_waiting(
    keeper: Keeper, tmp_path: Path, fields: dict[str, str], complaint: str
) -> None:
    """Above all a FIFO, whose open would wait for the other end."""
    os.mkfifo(tmp_path / "fifo")
    ended = keeper.run(sh("echo never", workdir=str(tmp_path), **fields), new_step())
    assert (ended.cause, ended.code, ended.message) == (ExitCause.SPAWN_FAILED, 126, complaint)


def test_a_link_of_this_user_is_followed(tmp_path: Path) -> None:
    """As `latest.log` of many programs."""
    (tmp_path / "target").touch()
    (tmp_path / "latest").symlink_to("target")
    opened: list[int] = []
    found = open_own(("", str(tmp_path / "latest"), "", False), opened)
    os.write(found[1], b"x")
    os.close(*opened)
    assert (tmp_path / "target").read_bytes() == b"x"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
@pytest.mark.parametrize(("mode", "opens"), [(0o1777, False), (0o777, True)])
def test_a_file_of_somebody_else_in_a_directory_like_tmp_is_not_written(tmp_path: Path, mode: int, opens: bool) -> None:
    """They have put it there to read what is written. Directories of a group are different: their files are shared."""
    tmp_path.chmod(mode)
    planted = tmp_path / "out"
    planted.write_text("as it was")
    planted.chmod(0o666)
    os.chown(planted, 65534, 65534)
    opened: list[int] = []
    with contextlib.nullcontext() if opens else pytest.raises(CannotSpawnError, match="another user's"):
        open_own(("", str(planted), "", False), opened)
    for fd in opened:
        os.close(fd)
    assert planted.read_text() == ("" if opens else "as it was")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to somebody else")
def test_a_link_of_somebody_else_is_not_followed(tmp_path: Path) -> None:
    """In a directory of several users it could lead to any file of ours: none is emptied."""
    (tmp_path / "victim").write_text("precious")
    link = tmp_path / "out"
    link.symlink_to("victim")
    os.lchown(link, 65534, 65534)
    with pytest.raises(CannotSpawnError, match=r"stdout '.*/out' cannot be used: a symbolic link"):
        open_own(("", str(link), "", False), [])
    assert (tmp_path / "victim").read_text() == "precious"
