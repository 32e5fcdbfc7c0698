"""What a job that waits asks about the jobs that it names.

Pure.
"""

from __future__ import annotations

from typing import Protocol

from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.standings import EndedJob, Phase


class Others(Protocol):
    """The jobs that others wait for, as they are now."""

    def phase(self, job_id: int) -> Phase:
        """How far the job has come."""

    def job_or_ended(self, job_id: int) -> LiveJob | EndedJob:
        """The job; not to be changed."""

    def is_live(self, job_id: int) -> bool:
        """Whether it has not ended."""

    def is_first(self, key: tuple[str, str], job_id: int) -> bool:
        """Whether no live job of that user and name has a lower id."""
