"""How a job ended, for people and for scripts; what tables show of it."""

from __future__ import annotations

import pytest

from hal.cli.jobs.job_cells import done, ran_ms
from hal.cli.jobs.results import job_exit_code, result_line, shell_code, signal_name, task_exit_code
from hal.client.rest.views import JobInfo, TaskInfo
from hal.core.model import TaskState


def job(state: TaskState, **fields: object) -> JobInfo:
    return JobInfo(id="42", state=state, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("info", "line", "code"),
    [
        (job(TaskState.SUCCEEDED), "42 succeeded", 0),
        (job(TaskState.FAILED, exit_code=3), "42 failed with exit code 3", 3),
        (job(TaskState.FAILED, exit_code=3, reason="out of memory"), "42 failed with exit code 3: out of memory", 3),
        (job(TaskState.FAILED, reason="failed"), "42 failed", 1),
        (job(TaskState.FAILED, exit_code=256), "42 failed with exit code 256", 1),
        (job(TaskState.TIMED_OUT, exit_code=9), "42 timed-out", 124),
        (job(TaskState.CANCELLED, exit_code=9, reason="by alice"), "42 cancelled: by alice", 130),
        (
            job(TaskState.FAILED, tasks=3, exit_code=1, counts={"failed": 1, "succeeded": 2}),
            "42 failed with exit code 1 (1 failed, 2 succeeded)",
            1,
        ),
    ],
)
def test_how_a_job_ended(info: JobInfo, line: str, code: int) -> None:
    """One line, and one exit code."""
    assert (result_line(info), job_exit_code(info)) == (line, code)


@pytest.mark.parametrize(
    ("state", "exit_code", "signal", "code"),
    [
        (TaskState.SUCCEEDED, 0, None, 0),
        (TaskState.FAILED, 7, None, 7),
        (TaskState.FAILED, None, 9, 137),
        (TaskState.FAILED, None, None, 1),
        (TaskState.TIMED_OUT, None, 15, 124),
        (TaskState.CANCELLED, None, 15, 130),
    ],
)
def test_the_exit_code_of_a_task(state: TaskState, exit_code: int | None, signal: int | None, code: int) -> None:
    """A signal counts from 128, but for the walltime and a cancel."""
    assert task_exit_code(TaskInfo(job="1", task=0, state=state, exit_code=exit_code, signal=signal)) == code


def test_what_a_shell_can_pass_on() -> None:
    """1 to 255; a signal that has no name has its number."""
    assert [shell_code(code) for code in (None, 0, 1, 255, 256, -1)] == [1, 1, 1, 255, 1, 1]
    assert (signal_name(9), signal_name(99)) == ("SIGKILL", "signal 99")


def test_how_long_a_job_ran_and_how_far_it_is() -> None:
    """Until now while it runs; a clock that was set back gives no negative time."""
    assert ran_ms(job(TaskState.PENDING), 5_000) is None
    assert ran_ms(job(TaskState.RUNNING, start_ms=2_000), 5_000) == 3_000
    assert ran_ms(job(TaskState.SUCCEEDED, start_ms=2_000, end_ms=2_500), 5_000) == 500
    assert ran_ms(job(TaskState.RUNNING, start_ms=9_000), 5_000) == 0
    assert done(job(TaskState.RUNNING, tasks=10, counts={"succeeded": 4, "failed": 1, "running": 5})) == "5/10"
