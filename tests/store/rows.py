"""Rows and groups for tests of the store: one job, many jobs, and the stores they go to."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from msgspec.structs import replace

from hal.core.model import AttemptState, EventKind, JobSpec, TaskState, check_spec
from hal.store import (
    AppendEvents,
    AttemptRow,
    Committed,
    Group,
    InsertJobs,
    JobProgress,
    JobRow,
    Loaded,
    NewEvent,
    Operation,
    PutTaskRanges,
    Store,
    TaskRangeRow,
)

TRUE = check_spec(JobSpec(command=("true",)))


def job(number: int, *, tasks: int = 1, spec: JobSpec = TRUE, **columns: Any) -> JobRow:
    """A pending job."""
    row: dict[str, Any] = {
        "id": number,
        "spec": spec,
        "name": spec.name,
        "queue": spec.queue,
        "account": spec.account,
        "user": "alice",
        "priority": spec.priority,
        "state": TaskState.PENDING,
        "tasks": tasks,
        "nodes": spec.nodes,
        "walltime_ms": None if spec.walltime is None else int(spec.walltime),
        "submit_ms": 1_000,
        "eligible_ms": 1_000,
        "pending": tasks,
    }
    return JobRow(**{**row, **columns})


def progress(row: JobRow, **columns: Any) -> JobProgress:
    """How far a job has come: as in the row, but for `columns`."""
    values = {name: getattr(row, name) for name in JobProgress.__struct_fields__}
    return JobProgress(**{**values, **columns})


def attempt(job_id: int, task: int = 0, number: int = 1, **columns: Any) -> AttemptRow:
    """An attempt that has just been allocated."""
    row: dict[str, Any] = {
        "job": job_id,
        "task": task,
        "attempt": number,
        "state": AttemptState.ALLOCATED,
        "nodes": ("n1",),
        "token": f"token-{job_id}.{task}.{number}",
        "allocated_ms": 2_000,
    }
    return AttemptRow(**{**row, **columns})


def in_rows(loaded: Loaded) -> tuple[list[JobRow], dict[int, list[TaskRangeRow]]]:
    """Live jobs and their ranges, in whichever form they were loaded; versions left out."""
    jobs = {row.id: replace(row, version=1) for row in loaded.jobs}
    ranges = dict(loaded.ranges)
    places = [(one, place, number) for one in loaded.pending_columns for place, number in enumerate(one.ids)]
    for columns, place, number in places:
        assert number not in jobs
        queue, account, user = columns.owners[columns.owner[place]]
        spec, walltime_ms = columns.spec(place), columns.walltime_ms[place]
        jobs[number] = JobRow(
            number, spec, columns.names[columns.name[place]], queue, account, user, columns.priority[place],
            TaskState.PENDING, 1, spec.nodes, None if walltime_ms < 0 else walltime_ms, columns.submit_ms[place],
            columns.eligible_ms[place], trace_id=columns.traces[columns.trace[place]], pending=1,
        )  # fmt: skip
        ranges[number] = [TaskRangeRow(number, 0, 1, TaskState.PENDING)]
    return [jobs[number] for number in sorted(jobs)], ranges


def submitted(*rows: JobRow) -> list[Operation]:
    """What a submission writes."""
    return [
        InsertJobs(list(rows)),
        PutTaskRanges(put=[TaskRangeRow(row.id, 0, row.tasks, TaskState.PENDING) for row in rows]),
        AppendEvents([event(EventKind.JOBS_SUBMITTED, [row.id for row in rows])]),
    ]


def event(kind: EventKind, jobs: Iterable[int] = (), **fields: Any) -> NewEvent:
    """An event about these jobs."""
    return NewEvent(at_ms=fields.pop("at_ms", 1_000), kind=kind, jobs=list(jobs), **fields)


class Leader:
    """A store that leads, with commit ids of its own."""

    def __init__(self, store: Store, holder: str = "a test") -> None:
        self.store = store
        self.epoch = store.take_leadership(holder, 1)
        self._numbers = count(1)

    def group(self, *operations: Operation, now_ms: int = 1_000) -> Group:
        """A group with a fresh commit id."""
        return Group(f"commit-{self.epoch}-{next(self._numbers)}", now_ms, list(operations))

    def commit(self, *operations: Operation, now_ms: int = 1_000) -> Committed:
        """Commit these operations as one group."""
        return self.store.commit(self.group(*operations, now_ms=now_ms), epoch=self.epoch)
