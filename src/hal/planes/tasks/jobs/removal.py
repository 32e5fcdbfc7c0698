"""Removing ended jobs and tasks of them: which may be removed, and what is said of those that may not.

Pure. Ended jobs are rows that the table does not hold, but for what jobs that wait ask about them. What a request reads
of such rows and then acts on must still be true then, so it pins them. O(1) for each job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hal.core.model import ConflictError, EventKind, HALError
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table.table import JobTable
from hal.store.operations import MarkRemoved, Removed, RemoveTasks

_WORDS = {Removed.OUTPUTS: "outputs", Removed.ATTEMPTS_GOING: "attempts", Removed.JOB: "job"}


def remove(
    table: JobTable, jobs: Sequence[int], removed: Removed, by: Submitter | None, rule: str = ""
) -> tuple[list[int], dict[int, HALError]]:
    """Remove that much of these jobs, as far as they may be.

    Args:
        by: None: retention.
        rule: of retention, for people.
    Returns: those that are removed with this group, and why the others are not.
    """
    done: list[int] = []
    refused: dict[int, HALError] = {}
    for job in jobs:
        error = _refusal(table, job, removed)
        if error is not None:
            refused[job] = error
        elif table.draft.removed.get(job, Removed.NOTHING) < removed:
            table.draft.removed[job] = removed
            done.append(job)
    if done:
        table.draft.other.append(MarkRemoved(done, removed, rule))
        cause, trace_id = ("retention", "") if by is None else (by.cause, by.trace_id)
        what = _WORDS[removed]
        for job in done:
            table.draft.note(EventKind.JOBS_REMOVED, cause, trace_id, job, about=what, removed=what)
    return done, refused


def remove_tasks(table: JobTable, tasks: RemoveTasks, count: int, by: Submitter) -> HALError | None:
    """Remove some tasks of a job, if that may be.

    Args:
        count: how many they are.
    Returns: why they are not removed.
    """
    error = _refusal(table, tasks.job, Removed.JOB)
    if error is None and table.draft.removed.get(tasks.job, Removed.NOTHING) >= Removed.ATTEMPTS_GOING:
        error = ConflictError(f"job {tasks.job} is being removed", hint=f"see `hal show {tasks.job}`")
    if error is None:
        table.draft.other.append(tasks)
        about = f"tasks of {tasks.job}"
        table.draft.note(
            EventKind.JOBS_REMOVED, by.cause, by.trace_id, tasks.job, tasks=count, about=about, removed="tasks"
        )
    return error


def _refusal(table: JobTable, job: int, removed: Removed) -> HALError | None:
    live = table.jobs.peek(job)
    if live is not None or job in table.draft.jobs_before:
        state = live.state if live is not None else "about to end"
        return ConflictError(f"job {job} has not ended: it is {state}", hint=f"`hal cancel {job}` ends it")
    if removed is not Removed.OUTPUTS and job in table.dependants:
        count = len(table.dependants[job])
        which = "a job waits" if count == 1 else f"{count} jobs wait"
        return ConflictError(
            f"job {job} cannot be removed: {which} for it", hint=f"`hal show {job}` lists them under dependants"
        )
    if job in table.pinned:
        return ConflictError(f"job {job} cannot be removed: another request is about it", hint="try again")
    return None


@contextmanager
def pinned(table: JobTable, jobs: Sequence[int]) -> Iterator[frozenset[int]]:
    """Let none of these ended jobs be removed before the end of the block.

    Gives: those of them that are being removed already, which is not seen in their rows yet.
    """
    pins = dict.fromkeys(jobs)
    for job in pins:
        table.pinned[job] += 1
    try:
        yield frozenset(job for job in pins if job in table.draft.removed)
    finally:
        for job in pins:
            table.pinned[job] -= 1
            if not table.pinned[job]:
                del table.pinned[job]
