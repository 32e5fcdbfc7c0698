"""Removing some tasks of ended jobs, as people ask (`hal rm 8.7-9`, `hal rm 8 --failed`).

A group records which tasks are removed, and the job counts them no longer; what they ran is deleted afterwards, between
groups (`cycle.retention`). With the last of its tasks a job is removed as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from hal.core.model import ConflictError, HALError, SpecError, TaskState, plural
from hal.daemons.controller.service.jobs.refusals import no_job
from hal.daemons.controller.service.outcomes import OutcomeView, outcome_view
from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import Selection, Submitter, TakenTasks, finished, named_pieces
from hal.store import JobRow, Removed, RemoveTasks, Store

MAX_REMOVED_RANGES: Final = 4_096
"""Ranges in which the removed tasks of one job are recorded."""

MAX_PIECES_A_JOB: Final = 65_536
"""Runs of neighbouring tasks that one request names in one job, about."""

Pieces = tuple[tuple[int, int], ...]
"""Runs of tasks, [first, end)."""
MarkJob = Callable[[Sequence[int], Removed, Submitter], Awaitable[Mapping[int, HALError]]]
"""Removes whole jobs; returns why some were not."""


class NamedTasks(NamedTuple):
    """Tasks that are to be removed."""

    name: str
    job: int
    tasks: Selection


class _Found(NamedTuple):
    """What rows say of a job and of the tasks that are named in it."""

    row: JobRow
    refused: dict[str, HALError]
    """By name: why nothing of it is removed."""
    counts: dict[str, int]
    """By name: how many tasks."""
    ends: Mapping[TaskState, int]
    """The same by state."""
    gone: Pieces
    """All tasks that are removed then, those of before too."""


class TaskRemoval:
    """See `remove`."""

    def __init__(self, parts: Parts, mark: MarkJob, marked: asyncio.Event) -> None:
        self._parts = parts
        self._mark = mark
        self._marked = marked
        self._turn = asyncio.Lock()
        """Between reading what was removed before and recording what is removed more."""

    async def remove(self, named: Sequence[NamedTasks], by: Submitter) -> dict[str, OutcomeView]:
        """Remove these tasks, one group for each job; returns an outcome for each name.

        Raises:
            StoreError: it could not be made durable; the tasks of some jobs may have been removed.
        """
        outcomes: dict[str, OutcomeView] = {}
        for job, some in groupby(sorted(named, key=_JOB), key=_JOB):
            async with self._turn:
                outcomes |= await self._remove_of(job, list(some), by)
        return outcomes

    async def _remove_of(self, job: int, named: Sequence[NamedTasks], by: Submitter) -> dict[str, OutcomeView]:
        found = await self._parts.committer.read(partial(_read, job=job, named=named))
        if isinstance(found, HALError):
            return {one.name: outcome_view(one.name, found) for one in named}
        outcomes = {name: outcome_view(name, error) for name, error in found.refused.items()}
        if not found.counts:
            return outcomes
        error = await self._record(found, by)
        for name, count in found.counts.items():
            outcomes[name] = (
                OutcomeView(id=name, ok=True, state="removed", tasks=count, detail=plural(count, "task"))
                if error is None
                else outcome_view(name, error)
            )
        return outcomes

    async def _record(self, found: _Found, by: Submitter) -> HALError | None:
        """Record that these tasks are removed; returns why that may not be."""
        row, gone = found.row, found.gone
        if sum(end - first for first, end in gone) == row.tasks:
            return (await self._mark([row.id], Removed.JOB, by)).get(row.id)
        if len(gone) > MAX_REMOVED_RANGES:
            return ConflictError(
                f"the removed tasks of job {row.id} would be in more than {MAX_REMOVED_RANGES:,} separate ranges",
                hint=f"remove neighbouring tasks, or all of it: hal rm {row.id}",
            )
        assert row.end_ms is not None
        counts = {state.value.replace("-", "_"): count for state, count in found.ends.items()}
        tasks = RemoveTasks(row.id, row.end_ms, gone, **counts)

        def work(now_ms: int) -> HALError | None:
            return self._parts.plane.remove_tasks(tasks, sum(found.counts.values()), by)

        error = await self._parts.loop.inbox.call(work)
        self._marked.set()
        return error


_JOB: Final = attrgetter("job")


def _read(store: Store, job: int, named: Sequence[NamedTasks]) -> _Found | HALError:
    row = store.job(job)
    if row is None:
        return no_job(job)
    if row.end_ms is None:
        return ConflictError(
            f"job {job} has not ended: it is {row.state}",
            hint=f"its tasks can be removed when all have ended; `hal cancel {job}` ends it",
        )
    if row.removed >= Removed.ATTEMPTS_GOING:
        return ConflictError(f"the attempts of job {job} were removed before", hint=f"`hal rm {job}` removes the rest")
    pieces: dict[str, Pieces] = {}
    refused: dict[str, HALError] = {}
    left = MAX_PIECES_A_JOB
    for one in named:
        try:
            if left <= 0:
                raise SpecError(f"too many separate tasks of job {job} in one request", hint="name fewer at once")
            pieces[one.name] = finished(named_pieces(job, row.spec, one.tasks))[1]
            left -= len(pieces[one.name])
        except HALError as error:
            refused[one.name] = error
    if not pieces:
        return _Found(row, refused, {}, {}, ())
    first, end = min(part[0][0] for part in pieces.values()), max(part[-1][1] for part in pieces.values())
    runs = store.task_runs(job, first, end)
    if runs is None:
        return SpecError(f"the tasks of job {job} ended too differently to be removed one by one", hint="name fewer")
    taken, counts = TakenTasks(store.tasks_removed(job), runs), dict[str, int]()
    for one in named:
        if one.name in pieces and (count := taken.take(pieces[one.name], one.tasks.states)):
            counts[one.name] = count
        elif one.name in pieces:
            refused[one.name] = _none_there(one)
    return _Found(row, refused, counts, taken.counts, taken.gone())


def _none_there(named: NamedTasks) -> ConflictError:
    hint = f"`hal show {named.job}` shows how many are in which state"
    if named.tasks.states:
        states = " or ".join(sorted(state.value for state in named.tasks.states))
        return ConflictError(f"no task of {named.name} is {states}", hint=hint)
    return ConflictError(f"{named.name}: these tasks were removed before", hint=hint)
