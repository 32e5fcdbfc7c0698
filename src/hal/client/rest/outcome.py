"""Answers turned into what callers of a single job expect: its id, or the error.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from hal.client.rest.calls import Submitted
from hal.client.rest.views import JobInfo, Outcome
from hal.core.model import HALError, TimedOutError, error_from_code


class JobFailedError(HALError):
    """A job that was waited for with `check=True` did not succeed."""

    code = "job-failed"


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
    return JobFailedError(f"job {info.id} {info.state}{code}{because}", hint=f"see: hal show {info.id}")


def not_ended(ids: Sequence[str], left: int, timeout_s: float) -> TimedOutError:
    """The error for jobs that have not ended in time."""
    what = f"job {ids[0]} has" if len(ids) == 1 else f"{left} of {len(ids)} jobs have"
    return TimedOutError(f"{what} not ended after {timeout_s:g} s", hint="the jobs continue")
