"""Answers turned into what callers of a single job expect: its id, or the error.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hal.client.rest.calls import Submitted
from hal.client.rest.views import JobInfo, Outcome, TaskInfo
from hal.core.model import HALError, TimedOutError, error_from_code


class JobFailedError(HALError):
    """A job that was waited for with `check=True` did not succeed."""

    code = "job-failed"

    def __init__(
        self, message: str, *, hint: str = "", job: str = "", failed: Sequence[TaskInfo] = (), stderr: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.job = job
        """Its id."""
        self.failed = tuple(failed)
        """The first tasks that failed, timed out or were cancelled, at most `MAX_FAILED`."""
        self.stderr = stderr
        """The end of what the first of them wrote to stderr; where that is nothing, to stdout."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.message, self.hint, self.job, self.failed, self.stderr)


def _restored(message: str, hint: str, job: str, failed: Sequence[TaskInfo], stderr: str) -> JobFailedError:
    return JobFailedError(message, hint=hint, job=job, failed=failed, stderr=stderr)


MAX_FAILED: Final = 10
"""Tasks that the error of a failed job names."""
MAX_STDERR_BYTES: Final = 4_096
"""Of the end of stderr that it has."""
MAX_LINES: Final = 5
"""Of these that its message has."""


def ids_of(answer: Submitted) -> Sequence[str]:
    """Ids of submitted jobs, in the order of the submission."""
    return answer.ids or tuple(job.id for job in answer.jobs)


def error_of(outcome: Outcome) -> HALError:
    """The error that an outcome names."""
    return error_from_code(outcome.code, outcome.detail or f"{outcome.id}: {outcome.code}", outcome.hint)


def failure_of(info: JobInfo, failed: Sequence[TaskInfo] = (), stderr: str = "") -> JobFailedError:
    """The error for a job that ended otherwise than well."""
    code = f" with exit code {info.exit_code}" if info.exit_code else ""
    because = f": {info.reason}" if info.reason else ""
    which = ""
    if info.tasks > 1 and failed:
        bad = sum(info.counts.get(state, 0) for state in ("failed", "timed-out", "cancelled"))
        more = f" and {bad - len(failed)} more" if bad > len(failed) else ""
        noun = "task" if len(failed) == 1 and not more else "tasks"
        which = f"; {noun} {', '.join(str(task.task) for task in failed)}{more} did not succeed"
    lines = stderr.strip().splitlines()[-MAX_LINES:]
    ends = "".join(f"\n  {line}" for line in lines)
    where = f"hal logs {failed[0].id} --stderr" if failed else f"hal show {info.id}"
    return JobFailedError(
        f"job {info.id} {info.state}{code}{because}{which}{ends}",
        hint=f"see: {where}",
        job=info.id,
        failed=failed,
        stderr=stderr,
    )


def not_ended(ids: Sequence[str], left: int, timeout_s: float) -> TimedOutError:
    """The error for jobs that have not ended in time."""
    what = f"job {ids[0]} has" if len(ids) == 1 else f"{left} of {len(ids)} jobs have"
    return TimedOutError(f"{what} not ended after {timeout_s:g} s", hint="the jobs continue")
