"""A job with extensions on a real HAL: it grows into what is free, leaves it to others, grows again, and is told so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.client.job import Job
from hal.core.model import TaskState
from tests.e2e.conftest import LiveHal, new_home, until

pytestmark = pytest.mark.slow

SCRIPT = f"""#!/bin/sh
if test $HAL_ELASTIC = extension; then
  echo "beside $HAL_BASE_NODES"
  exec sleep 1000
fi
trap 'echo resized >> resized' USR2
{sys.executable} -m hal.cli.main hostfile --follow hosts --signal USR2 &
until test -e done; do sleep 0.1; done
exit 7
"""


@pytest.fixture
def live() -> Iterator[LiveHal]:
    """A HAL of three nodes of one core."""
    found = LiveHal(new_home())
    try:
        found.up("--nodes", "3", "--cpus", "1")
        yield found
    finally:
        found.remove()


def running(job: Job) -> int:
    """How many of its tasks run."""
    return sum(1 for _ in job.tasks("running"))


def test_a_job_grows_shrinks_for_others_and_grows_again(live: LiveHal, tmp_path: Path) -> None:
    """Any other job takes the place of an extension, which its base hears of by signal and file; a new controller finds
    all as it was; the job's exit code is that of its base."""
    path, hosts = tmp_path / "elastic.sh", tmp_path / "hosts"
    path.write_text(SCRIPT)
    number = live.run("submit", "--nodes", "1..3", "-c", "1", "--workdir", tmp_path, path, check=True).out.strip()
    with live.client() as client:
        job = client.job(number)
        until(lambda: running(job) == 3, "it did not grow")
        until(lambda: hosts.exists() and len(hosts.read_text().splitlines()) == 3, "the file has not three nodes")
        assert "extensions" in live.run("show", number, check=True).out
        other = client.submit(["sleep", "1000"], cpus=1, priority=-100)
        until(lambda: client.job(other.id).info.state is TaskState.RUNNING, "no extension left for it")
        until(lambda: len(hosts.read_text().splitlines()) == 2, "the file still has three nodes")
        until(lambda: (tmp_path / "resized").exists(), "the base was not told")
        assert client.job(number).info.state is TaskState.RUNNING
        (waiting,) = [task for task in job.tasks() if task.state is TaskState.PENDING]
        assert waiting.reason == f"preempted by job {other.id}"
        assert "Its base runs, with 1 extension of up to 2" in live.run("why", number, check=True).out
    live.run("down", "--leave", check=True)
    live.up()
    with live.client() as client:
        client.job(other.id).cancel()
        job = client.job(number)
        until(lambda: running(job) == 3, "it did not grow again")
        until(lambda: len(hosts.read_text().splitlines()) == 3, "the file does not have three nodes again")
        (tmp_path / "done").touch()
        assert job.wait().exit_code == 7
        assert client.job(number).info.state is TaskState.FAILED
        ends = {task.task: task.state for task in job.tasks()}
        assert ends == {0: TaskState.FAILED, 1: TaskState.CANCELLED, 2: TaskState.CANCELLED}


AGAIN = """
test $HAL_ELASTIC = base || exec sleep 1000
test $HAL_RESTART = 0 || exec sleep 1000
until test -e "$0"; do sleep 0.1; done
exit 1
"""


def test_extensions_leave_while_the_base_runs_again(live: LiveHal, tmp_path: Path) -> None:
    """The first attempt of the base fails and is retried; the extension runs beside each, in an attempt of its own."""
    with live.client() as client:
        job = client.submit(["sh", "-c", AGAIN, str(tmp_path / "fail")], cpus=1, extensions=1, retries=1)
        until(lambda: running(job) == 2, "it did not grow")
        (tmp_path / "fail").touch()
        until(lambda: [task.attempt for task in job.tasks("running")] == [2, 2], "it did not grow again")
        job.cancel()
        assert job.wait().state is TaskState.CANCELLED


def test_each_extension_writes_to_a_file_of_its_own(live: LiveHal, tmp_path: Path) -> None:
    """%a is the number of its task, 0 of the base; `hal logs` names the file of each."""
    with live.client() as client:
        job = client.submit(
            ["sh", "-c", 'echo "$HAL_ELASTIC $HAL_TASK"; exec sleep 1000'],
            cpus=1, extensions=2, stdout="out-%a", workdir=str(tmp_path),
        )  # fmt: skip
        until(lambda: running(job) == 3, "it did not grow")
        for task, text in enumerate(("base 0\n", "extension 1\n", "extension 2\n")):
            path = tmp_path / f"out-{task}"
            until(lambda path=path, text=text: path.exists() and path.read_text() == text, f"{path} has not '{text}'")
            assert f"its output goes to {path} on node" in live.run("logs", f"{job.id}.{task}").err
        job.cancel()


RESIZED = """#!/bin/sh
test $HAL_ELASTIC = base || exec sleep 1000
trap 'cp "$HAL_HOSTFILE" told' WINCH
cp "$HAL_HOSTFILE" begun
until test -e done; do sleep 0.1; done
"""


def test_a_base_is_told_by_signal_file_and_rest(live: LiveHal, tmp_path: Path) -> None:
    """Its file names its own node when it begins and is current before the signal comes; a new controller tells
    nothing twice."""
    path = tmp_path / "resized.sh"
    path.write_text(RESIZED)
    words = ("submit", "--nodes", "1..3", "-c", "1", "--on-resize", "SIGWINCH", "--workdir", tmp_path, path)
    number = live.run(*words, check=True).out.strip()

    def told(count: int) -> bool:
        """The script was told of so many nodes, and REST says the same."""
        with live.client() as client:
            nodes = client.job(number).info.present_nodes
        lines = (tmp_path / "told").read_text().splitlines() if (tmp_path / "told").exists() else []
        return len(nodes) == len(lines) == count and lines == [f"{node} slots=1" for node in nodes]

    until(lambda: told(3), "it was not told of three nodes")
    assert len((tmp_path / "begun").read_text().splitlines()) >= 1
    with live.client() as client:
        other = client.submit(["sleep", "1000"], cpus=1)
        until(lambda: told(2), "it was not told that an extension leaves")
        until(lambda: client.job(other.id).info.state is TaskState.RUNNING, "no extension left")
    (tmp_path / "told").unlink()
    live.run("down", "--leave", check=True)
    live.up()
    with live.client() as client:
        client.job(other.id).cancel()
        until(lambda: told(3), "it was not told that it grew again")
        (tmp_path / "done").touch()
        assert client.job(number).wait().exit_code == 0
