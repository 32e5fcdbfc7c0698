"""Workers on a real HAL: as many run as are wanted, some leave for a batch job, come back, and end together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.client.job import Job
from hal.core.model import TaskState
from tests.e2e.conftest import LiveHal, new_home, until

pytestmark = pytest.mark.slow

WORKER = """
trap 'exit 0' TERM
until test -e "$0/done"; do
  test -e "$0/fewer" && mkdir "$0/fewer/one" 2>/dev/null && exit 75
  sleep 0.05
done
exit 0
"""


@pytest.fixture
def live() -> Iterator[LiveHal]:
    """A HAL of one node of three cores."""
    found = LiveHal(new_home())
    try:
        found.up("--cpus", "3")
        yield found
    finally:
        found.remove()


def running(job: Job) -> list[int]:
    """Which of its tasks run."""
    return [task.task for task in job.tasks("running")]


def test_workers_come_as_they_are_wanted_and_leave_first(live: LiveHal, tmp_path: Path) -> None:
    """One that is told to leave exits with 0, which ends nothing; one that gives its place back does not come back
    until more are wanted, also under the next controller."""
    with live.client() as client:
        job = client.submit(["sh", "-c", WORKER, str(tmp_path)], cpus=1, array="0-99%1", extensions=99, workers=True)
        until(lambda: running(job) == [0], "the first does not run")
        job.update(max_running=3)
        until(lambda: running(job) == [0, 1, 2], "it did not grow")
        other = client.submit(["sh", "-c", 'until test -e "$0"; do sleep 0.05; done', str(tmp_path / "go")], cpus=1)
        until(lambda: client.job(other.id).info.state is TaskState.RUNNING, "no worker left for it")
        assert 0 in running(job)
        (tmp_path / "go").touch()
        assert other.wait().state is TaskState.SUCCEEDED
        until(lambda: len(running(job)) == 3, "it did not grow again")
        job.update(max_running=2)
        (tmp_path / "fewer").mkdir()
        until(lambda: len(running(job)) == 2, "none gave its place back")
    live.run("down", "--leave", check=True)
    live.up()
    with live.client() as client:
        job = client.job(job.id)
        assert len(running(job)) == 2
        (tmp_path / "done").touch()
        assert job.wait().state is TaskState.SUCCEEDED
        assert job.info.exit_code == 0
        ends = {task.state for task in job.tasks()}
        assert ends == {TaskState.SUCCEEDED, TaskState.CANCELLED}
