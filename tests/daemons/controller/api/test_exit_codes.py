"""The exit code of a job in JSON: nothing that a poller could take for a success while there is none."""

from __future__ import annotations

import pytest

from hal.core.model import JobSpec, TaskState, check_spec
from hal.daemons.controller.service.jobs.views import job_view
from hal.store import JobRow

SPEC = check_spec(JobSpec(command=("true",)))


@pytest.mark.parametrize(
    ("state", "end_ms", "known", "shown"),
    [
        (TaskState.RUNNING, None, 0, None),
        (TaskState.PENDING, None, 3, None),
        (TaskState.SUCCEEDED, 9, 0, 0),
        (TaskState.FAILED, 9, 3, 3),
        (TaskState.CANCELLED, 9, 0, None),
        (TaskState.CANCELLED, 9, None, None),
        (TaskState.CANCELLED, 9, 143, 143),
        (TaskState.TIMED_OUT, 9, 0, None),
    ],
)
def test_an_exit_code_is_shown_of_what_has_ended_and_never_0_without_success(
    state: TaskState, end_ms: int | None, known: int | None, shown: int | None
) -> None:
    """An array that still runs, or was cancelled although its tasks did well, shows null."""
    row = JobRow(1, SPEC, "", "default", "", "ada", 0, state, 3, 1, None, 0, 0, end_ms=end_ms, exit_code=known)
    assert job_view(row).exit_code == shown
