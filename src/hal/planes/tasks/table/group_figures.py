"""What a group of changes amounts to in numbers, for metrics: what came, started and ended, and which counts moved.

Pure. O(what changed), in slices; a microsecond for each job and attempt that changed. Nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, TypeVar

from hal.core.engine.events import INF
from hal.core.lifecycle import TaskCounts, counts_of
from hal.core.model import TaskState
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.figures import GroupFigures, QueueState, no_figures
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.oldest_waits import EXACT_MS, OldestWaits, QueueTime
from hal.planes.tasks.slices import CHEAP_A_SLICE, Pace, Work
from hal.planes.tasks.table.draft import Draft
from hal.planes.tasks.table.jobs_by_id import JobsById

K = TypeVar("K")

LIVE: Final = tuple(state for state in TaskState if not state.ended)


class LiveTally:
    """How many live jobs there are, and tasks of them, by queue and state: as committed, kept up with each group."""

    def __init__(self) -> None:
        self.jobs: dict[QueueState, int] = {}
        self.tasks: dict[QueueState, int] = {}
        self.waits = OldestWaits()

    def begin(self, jobs: JobsById) -> None:
        """Count all. O(objects), and a look at the columns."""
        figures = no_figures()
        for owner, count in jobs.owners_in_columns():
            key = (owner.queue, TaskState.PENDING)
            _add(figures.jobs, key, count)
            _add(figures.tasks, key, count)
        for queue_time, count in jobs.times_in_columns(EXACT_MS):
            _add(figures.waiting, queue_time, count)
        for job in jobs.objects():
            _note(figures, None, job)
        self.jobs, self.tasks = figures.jobs, figures.tasks
        self.waits = OldestWaits()
        self.waits.keep(figures.waiting)

    def keep(self, figures: GroupFigures) -> None:
        """Count what a group has changed. O(queues x states and times that changed)."""
        self.waits.keep(figures.waiting)
        for counts, changes in ((self.jobs, figures.jobs), (self.tasks, figures.tasks)):
            for key, change in changes.items():
                left = counts.get(key, 0) + change
                if left:
                    counts[key] = left
                else:
                    counts.pop(key, None)


def figures_of(draft: Draft, changed: Sequence[LiveJob], now_ms: int) -> Work[GroupFigures]:
    """The figures of a draft; `changed` are the jobs of `draft.jobs_before` as they now are."""
    figures, pace = no_figures(), Pace(CHEAP_A_SLICE)
    by_id: dict[int, LiveJob] = {}
    for at, job in enumerate(changed, 1):
        by_id[job.id] = job
        _note(figures, draft.jobs_before[job.id], None if job.id in draft.ended_jobs else job)
        if not at % CHEAP_A_SLICE:
            yield
    for job_id in draft.new_jobs:
        if (new := by_id.get(job_id)) is not None:
            _add(figures.submitted, new.queue)
            if pace.over():
                yield
    for job in draft.ended_jobs.values():
        _add(figures.ended_jobs, (job.queue, job.state))
        if pace.over():
            yield
    yield from _note_waits(figures, draft, by_id, now_ms)
    yield from _note_ends(figures, draft, by_id)
    yield from _note_starts(figures, draft, by_id)
    return figures


# Attempts of one job are neighbours: what is the same for all of them is looked up once.


def _note_waits(figures: GroupFigures, draft: Draft, by_id: dict[int, LiveJob], now_ms: int) -> Work[None]:
    """Count first attempts that were given nodes."""
    last, key = -1, ("", 0)
    for at, (number, _, attempt) in enumerate(draft.new_attempts, 1):
        if attempt == 1 and number in by_id:
            if number != last:
                job, last = by_id[number], number
                since_ms = max(job.submit_ms, job.eligible_ms if job.eligible_ms < INF else 0)
                key = (job.queue, max(now_ms - since_ms, 0))
            figures.waited[key] = figures.waited.get(key, 0) + 1
        if not at % CHEAP_A_SLICE:
            yield


def _note_ends(figures: GroupFigures, draft: Draft, by_id: dict[int, LiveJob]) -> Work[None]:
    """Count attempts that have ended, in runs of the same job and end."""
    last, state, count = -1, None, 0
    for at, (key, row) in enumerate(draft.ended_attempts.items(), 1):
        if key[0] != last or row.state is not state:
            if state is not None and last in by_id:
                _add(figures.ended_attempts, (by_id[last].queue, state.value), count)
            last, state, count = key[0], row.state, 0
        count += 1
        if not at % CHEAP_A_SLICE:
            yield
    if state is not None and last in by_id:
        _add(figures.ended_attempts, (by_id[last].queue, state.value), count)


def _note_starts(figures: GroupFigures, draft: Draft, by_id: dict[int, LiveJob]) -> Work[None]:
    """Count first attempts that had not begun when the last group was committed, and have now."""
    last, queue, submit_ms = -1, "", 0
    known: Mapping[int, Attempt] = {}
    ended = draft.ended_attempts
    marked = ((key, one.started_ms) for key, one in draft.marked_attempts.items() if key not in ended)
    over = ((key, row.started_ms) for key, row in ended.items())
    for at, (key, started_ms) in enumerate(chain(over, marked), 1):
        if started_ms is not None and key[2] == 1 and key[0] in by_id:
            if key[0] != last:
                last = key[0]
                job, before = by_id[last], draft.jobs_before[last]
                queue, submit_ms, known = job.queue, job.submit_ms, {} if before is None else before.active
            attempt = known.get(key[1])
            if attempt is None or attempt.started_ms is None:
                passed = (queue, max(started_ms - submit_ms, 0))
                figures.started[passed] = figures.started.get(passed, 0) + 1
        if not at % CHEAP_A_SLICE:
            yield


def _note(figures: GroupFigures, before: LiveJob | None, after: LiveJob | None) -> None:
    """Count how a job has changed; None: it was not there, or is no more."""
    was_waiting, waiting = _waits(before), _waits(after)
    if was_waiting != waiting:
        if was_waiting is not None:
            _add(figures.waiting, was_waiting, -1)
        if waiting is not None:
            _add(figures.waiting, waiting)
    if before is not None and after is not None and before.queue == after.queue:
        queue, was, now = after.queue, before.counts, after.counts
        if before.state is not after.state:
            _add(figures.jobs, (queue, before.state), -1)
            _add(figures.jobs, (queue, after.state))
        if was != now:
            for state, fewer, more in zip(LIVE, _live_counts(was), _live_counts(now), strict=True):
                if fewer != more:
                    _add(figures.tasks, (queue, state), more - fewer)
        return
    for job, sign in ((before, -1), (after, 1)):
        if job is not None:
            _add(figures.jobs, (job.queue, job.state), sign)
            for state, count in _live(job.counts):
                _add(figures.tasks, (job.queue, state), sign * count)


def _waits(job: LiveJob | None) -> QueueTime | None:
    """Its queue, and since when it waits; None: something of it runs, or it could not start."""
    if job is None or not job.counts.pending or job.counts.active or job.eligible_ms >= INF:
        return None
    return job.queue, max(job.submit_ms, job.eligible_ms) // EXACT_MS


def _live(counts: TaskCounts) -> Iterable[tuple[TaskState, int]]:
    return ((state, count) for state, count in zip(LIVE, _live_counts(counts), strict=True) if count)


_live_counts: Final = counts_of(LIVE)


def _add(counts: dict[K, int], key: K, count: int = 1) -> None:
    counts[key] = counts.get(key, 0) + count
