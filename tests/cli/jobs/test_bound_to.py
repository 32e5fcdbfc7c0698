"""What `hal show` says that a task has for itself."""

from __future__ import annotations

from hal.cli.jobs.show import _bound
from hal.client.rest.views import AttemptInfo, TaskInfo
from hal.core.model.states import AttemptState, TaskState


def bound(task: TaskState, latest: AttemptState) -> str:
    """Of a task whose latest try has or had a GPU."""
    tries = (AttemptInfo(attempt=1, state=latest, nodes=("n1",), gpus=(("GPU-5b1e",),)),)
    return _bound(TaskInfo(job="1", task=0, state=task, attempt=1, attempts=tries))["bound to"]


def test_a_task_that_runs_has_gpus_for_itself() -> None:
    """By their names."""
    assert bound(TaskState.RUNNING, AttemptState.RUNNING) == "GPUs GPU-5b1e of n1"


def test_a_task_that_waits_again_has_none() -> None:
    """Those of the attempt that was preempted are free."""
    assert bound(TaskState.PENDING, AttemptState.PREEMPTED) == ""
