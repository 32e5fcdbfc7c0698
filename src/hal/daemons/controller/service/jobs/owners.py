"""Whose a job is: what rights are decided by."""

from __future__ import annotations

from typing import Final, NamedTuple

from hal.core.model import JobSpec
from hal.store import JobRow

PARENT_VARIABLE: Final = "HAL_PARENT_JOB"
"""In the environment of jobs that a step has submitted: the id of its job."""


class Owned(NamedTuple):
    """Whose a job is."""

    user: str
    account: str
    queue: str
    parent: str = ""
    """The job of the step that submitted it; '': none did."""


def parent_of(spec: JobSpec) -> str:
    """Return the job of the step that submitted a job; '' if none did."""
    return spec.env.get(PARENT_VARIABLE, "")


def owned_of(row: JobRow) -> Owned:
    """Return whose a stored job is."""
    return Owned(row.user, row.account, row.queue, parent_of(row.spec))
