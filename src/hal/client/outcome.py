"""Answers turned into what callers of a single job expect: its id, or the error.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from hal.client.calls import Submitted
from hal.client.errors import JobFailedError
from hal.client.views import JobInfo, Outcome
from hal.core.model import HALError, error_from_code


def ids_of(answer: Submitted) -> Sequence[str]:
    """Ids of submitted jobs, in the order of the submission."""
    return answer.ids or tuple(job.id for job in answer.jobs)


def error_of(outcome: Outcome) -> HALError:
    """The error that an outcome names."""
    return error_from_code(outcome.code, outcome.detail or f"{outcome.id}: {outcome.code}", outcome.hint)


def failure_of(info: JobInfo) -> JobFailedError:
    """The error for a job that ended otherwise than well."""
    code = f" with exit code {info.exit_code}" if info.exit_code else ""
    because = f": {info.reason}" if info.reason else ""
    return JobFailedError(f"job {info.id} {info.state}{code}{because}", hint=f"see hal show {info.id}")
