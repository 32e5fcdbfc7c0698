"""Tasks of one job as they end: steps for both clients.

The ends of attempts are followed; those that may be retried are looked up, and when the job has ended, what ended
without an attempt comes last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hal.client.flows.steps import Emit, Flow
from hal.client.rest import calls, feed_calls
from hal.client.rest.calls import Page
from hal.client.rest.feed_calls import AttemptsPage, EndedAttemptInfo
from hal.client.rest.outcome import not_ended
from hal.client.rest.views import JobInfo, TaskInfo
from hal.core.model import AttemptState, TaskState

ROUND_S: Final = 2.0
"""How long one request waits for the next end of an attempt before it is looked whether the job has ended."""
ENDED: Final = "succeeded,failed,timed-out,cancelled"


def ended_tasks(job_id: str, timeout_s: float | None, *, clock: Callable[[], float]) -> Flow[TaskInfo]:
    """Emit each task once, when it has ended; ends when the job has.

    Args:
        clock: monotonic, in seconds.
    Raises:
        TimedOutError: the job has not ended after `timeout_s`.
        NotFoundError: there is no such job.
    """
    deadline_s = None if timeout_s is None else clock() + timeout_s
    known: set[int] = set()
    filters = {"job": job_id}
    page: AttemptsPage = yield feed_calls.attempts(filters, limit=1, newest=True)
    cursor = page.cursor
    job: JobInfo = yield calls.job(job_id)
    yield from _listed(job_id, known)
    while not job.ended:
        left_s = ROUND_S if deadline_s is None else deadline_s - clock()
        if left_s <= 0:
            raise not_ended([job_id], 1, timeout_s or 0.0)
        page = yield feed_calls.attempts(filters, after=cursor, wait_s=min(left_s, ROUND_S))
        for row in page.attempts:
            if row.task in known:
                continue
            task: TaskInfo = _succeeded(row)
            if row.state is not AttemptState.SUCCEEDED:
                task = yield calls.task(job_id, row.task)
            if task.ended:
                known.add(row.task)
                yield Emit(task)
        cursor = feed_calls.next_cursor(page, cursor)
        if not page.more:
            job = yield calls.job(job_id)
    yield from _listed(job_id, known)


def _listed(job_id: str, known: set[int]) -> Flow[TaskInfo]:
    """Those that have ended by now and were not emitted."""
    cursor = ""
    while True:
        page: Page[TaskInfo] = yield calls.tasks(job_id, state=ENDED, cursor=cursor)
        for task in page.items:
            if task.task not in known:
                known.add(task.task)
                yield Emit(task)
        cursor = page.next(cursor)
        if not cursor:
            return


def _succeeded(row: EndedAttemptInfo) -> TaskInfo:
    """The task of an attempt that succeeded."""
    return TaskInfo(
        job=row.job,
        task=row.task,
        state=TaskState.SUCCEEDED,
        attempt=row.attempt,
        retries=row.retries,
        nodes=row.nodes,
        start_ms=row.start_ms,
        end_ms=row.end_ms,
        exit_code=row.exit_code,
        signal=row.signal,
        cause=row.cause,
        message=row.message,
        usage=row.usage,
    )
