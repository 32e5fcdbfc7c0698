"""The invariants of the table, checked after each step of a test.

Pure.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hal.core.engine.events import INF
from hal.core.model import (
    InternalError,
    TaskState,
)
from hal.core.model.devices import WHOLE
from hal.planes.tasks.dependencies.decisions import current_standings
from hal.planes.tasks.live.gpu_book import GpuBook
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.standings import SINGLETON
from hal.planes.tasks.live.task_ranges import count_in, summed
from hal.planes.tasks.table.group_figures import LiveTally
from hal.planes.tasks.table.packs import give_up_ms
from hal.planes.tasks.table.table import JobTable


def check_table(table: JobTable) -> None:
    """Raise when an invariant of the table does not hold (see `table.table`).

    Raises:
        InternalError: names the job and what does not agree.
    """
    for job_id, job in table.jobs.items():
        counts, active = job.counts, {a.state.value: 0 for a in job.active.values()}
        for attempt in job.active.values():
            active[attempt.state.value] += 1
        waiting = dict.fromkeys((TaskState.PENDING, TaskState.HELD, TaskState.FAILED, TaskState.CANCELLED), 0)
        for task_range in job.ranges:
            waiting[task_range.state] += task_range.count
        problems = [
            (counts.total != job.spec.tasks, "tasks are not all counted"),
            (job.id != job_id, "is filed under another id"),
            (counts.pending != waiting[TaskState.PENDING], "pending tasks disagree with the ranges"),
            (counts.held != waiting[TaskState.HELD], "held tasks disagree with the ranges"),
            (counts.failed < waiting[TaskState.FAILED], "failed tasks disagree with the ranges"),
            (counts.cancelled < waiting[TaskState.CANCELLED], "cancelled tasks disagree with the ranges"),
            (any(counts.of(TaskState(state)) != n for state, n in active.items()), "attempts disagree with the counts"),
            (counts.active != len(job.active), "active tasks disagree with the attempts"),
            (any(a.end > b.first for a, b in pairwise(job.ranges)), "ranges overlap"),
            (
                any(task_range.first <= t < task_range.end for t in job.active for task_range in job.ranges),
                "an active task is in a range",
            ),
            (job.state is not job.state_by_tasks(), "its state does not follow from its tasks"),
            (job.state.ended, "it has ended and is still live"),
            ((job.id in table.busy) != bool(job.active), "busy jobs disagree with the attempts"),
            (_is_packed_unlisted(table, job), "nobody knows when it gives up its wish for one domain"),
            *_waiting_problems(table, job),
            (
                job.window > 0 and count_in(job.fed, TaskState.PENDING) > max(job.window - len(job.active), 0),
                "too many",
            ),
        ]
        for wrong, what in problems:
            if wrong:
                raise InternalError(f"job {job.id}: {what}")

    book = GpuBook()
    for job in table.jobs.objects():
        book.take_all(job.active.values())
    for name in table.nodes:
        if book.held(name) != table.gpus.held(name):
            raise InternalError(f"node {name}: GPUs that are held disagree with the attempts")
        over = [gpu for gpu, milli in book.held(name).items() if milli > WHOLE]
        if over:
            raise InternalError(f"node {name}: GPU {over[0]} is over-packed")
    ports = [(job.id, one) for job in table.jobs.objects() for one in job.active.values() if one.port]
    for job_id, one in ports:
        if not table.ports.holds((job_id, one.task, one.attempt), one.port):
            raise InternalError(f"attempt {job_id}.{one.task}.{one.attempt}: port {one.port} is not its own")
    if len(ports) != len(table.ports):
        raise InternalError("ports are held for attempts that have ended")
    for other in table.ended:
        if other in table.jobs or other not in table.dependants:
            raise InternalError(f"job {other} has ended and is remembered for nobody")
    counted = LiveTally()
    counted.begin(table.jobs)
    if not table.draft.jobs_before and (counted.jobs, counted.tasks) != (table.tally.jobs, table.tally.tasks):
        raise InternalError("the counts by queue and state disagree with the jobs")
    if not table.draft.jobs_before and counted.waits.counted() != table.tally.waits.counted():
        raise InternalError("what waits since when disagrees with the jobs")
    if +table.node_states != Counter(row.state for row in table.nodes.values()):
        raise InternalError("the counts of nodes disagree with the nodes")


def _is_packed_unlisted(table: JobTable, job: LiveJob) -> bool:
    at_ms = give_up_ms(job)
    known = (one for one in (job.fed if job.window else job.ranges) if job.eligible_of(one) < INF)
    waits = any(one.state is TaskState.PENDING for one in known)
    return at_ms < INF and waits and not table.packs.lists(at_ms, job.id)


def _waiting_problems(table: JobTable, job: LiveJob) -> list[tuple[bool, str]]:
    if job.waits is None:
        undecided = job.eligible_ms >= INF or summed(job.ranges).undecided > 0
        return [(undecided, "it waits for nobody and is not eligible")]
    named = [other for other in job.waits.mentions if other != SINGLETON]
    fresh = current_standings(job, table)
    return [
        (
            any(job.id not in table.dependants.get(other, ()) for other in named),
            "a job that it waits for does not know it",
        ),
        (any(other not in table.jobs and other not in table.ended for other in named), "it waits for a forgotten job"),
        (job.waits != fresh, "its standings disagree with the jobs that it waits for"),
        (job.eligible_ms >= INF and job.waits.open == 0 and job.waits.never == 0, "it waits for nothing"),
    ]
