"""Refusals about jobs that are not live any more."""

from __future__ import annotations

import pytest

from hal.core.model import TaskState
from hal.daemons.controller.service.jobs.refusals import has_ended
from tests.store.rows import job


@pytest.mark.parametrize("state", TaskState)
def test_a_job_that_has_ended_is_refused_whatever_its_row_says(state: TaskState) -> None:
    """Its end may be on its way to the database: the row still says that it runs."""
    assert has_ended(job(7, state=state)).message.startswith("job 7 has ended")
