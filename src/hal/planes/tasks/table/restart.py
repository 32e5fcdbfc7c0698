"""From rows back to the table: what a controller that starts again knows, and what it feeds the engine.

Pure. `load` of what was committed gives an equal table (a tested property). O(live jobs + ranges + active attempts).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hal.core.engine.events import ADOPT, INF, AllocationsAdopted, ConfigChanged, Event, NodesChanged, NodesOffered
from hal.core.lifecycle import TaskCounts
from hal.core.model import TaskState, each_dependency
from hal.core.model.devices import is_counted_beside
from hal.core.model.gpu_slices import gpu_milli
from hal.core.model.policy_scope import Owner
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.node import GONE
from hal.planes.tasks.live.replacing import Replacing, held_by, replacement_of
from hal.planes.tasks.live.reserve_book import Use
from hal.planes.tasks.live.standings import EndedJob
from hal.planes.tasks.live.task_ranges import TaskRange, TaskRanges, made_of, summed
from hal.planes.tasks.live.task_sets import TaskSet, complement, merged
from hal.planes.tasks.table.commit import keep
from hal.planes.tasks.table.packs import give_up_ms
from hal.planes.tasks.table.propagation import add_name
from hal.planes.tasks.table.stored_offers import stored_offers
from hal.planes.tasks.table.table import STEP_SECRET, JobTable
from hal.store.mark import INSTANCE
from hal.store.operations import AttemptRow, JobRow, TaskRangeRow
from hal.store.views import Loaded


def load(table: JobTable, loaded: Loaded) -> list[Event]:
    """Fill an empty table under the policy it has; the engine events that bring an empty engine to the same point."""
    for node in loaded.nodes:
        table.set_node(node.name, node)
    table.next_id = loaded.last_job_id + 1
    table.instance = loaded.meta.get(INSTANCE, "")
    table.step_secret = loaded.meta.get(STEP_SECRET, "")
    table.offers = stored_offers(loaded.meta)
    table.now_ms = loaded.now_ms
    for row in loaded.jobs:
        job = live_job(table, row, loaded.ranges.get(row.id, []), loaded.attempts.get(row.id, []))
        job.succeeded = _succeeded(job, loaded.succeeded.get(row.id))
        table.jobs[row.id] = job
        table.file_name(job)
        if job.active:
            table.busy.add(job.id)
    for columns in loaded.pending_columns:
        table.jobs.add_columns(columns)
    for in_columns in table.jobs.in_columns:
        for key, ids in in_columns.names():
            table.singletons.add_all(key, ids)
    past = {row.id: _past(row, loaded.succeeded.get(row.id)) for row in loaded.ended_dependencies.values()}
    for job in list(table.jobs.objects()):
        if job.eligible_ms >= INF or summed(job.ranges).undecided:
            for dependency in each_dependency(job.spec.dependencies):
                other = int(dependency.job or 0)
                if other in past:
                    table.ended[other] = past[other]
            table.begin_waiting(job)
    for job in table.jobs.objects():
        _adopt_replacement(table, job, loaded.now_ms)
    table.count_waiting()
    table.tally.begin(table.jobs)
    return engine_events(table)


def _adopt_replacement(table: JobTable, job: LiveJob, now_ms: int) -> None:
    """Take over a replacement that an earlier controller began."""
    asked = replacement_of(job.spec)
    old = None if asked is None else table.jobs.peek(asked.job)
    if old is not None and old.hold and old.reason == held_by(job.id):
        table.replacements[job.id] = Replacing(old.id, now_ms, now_ms)


def engine_events(table: JobTable) -> list[Event]:
    """What brings an empty engine to where the table is. Nothing may be staged."""
    for job in sorted(table.jobs.objects(), key=_id):
        job.fed = ()
        if job.window:
            table.refill(job)
        for task_range in job.ranges:
            table.enter(job, task_range)
    for in_columns in table.jobs.in_columns:
        table.draft.feed.submit_pending_jobs(in_columns, table.class_of)
        for number in in_columns.packed():
            packed = table.jobs.peek(number)
            table.packs.note(INF if packed is None else give_up_ms(packed), number)
    events: list[Event] = [ConfigChanged(table.engine_config)]
    adopted = _adopted(table)
    table.gpus.begin(table.nodes.values())
    reserves = table.reserves_of(table.policy)
    table.over_reserves.begin(_uses(table) if reserves else (), lambda name: reserves.rests(table.nodes[name].capacity))
    if table.nodes:
        events.append(NodesChanged(tuple(table.node_spec(row) for row in table.nodes.values())))
    if table.offers:
        events.append(NodesOffered(table.offers_of_engine))
    if adopted is not None:
        events.append(adopted)
    # Last: an attempt that ends on other nodes may hold a part of one that was removed.
    if gone := tuple(row.name for row in table.nodes.values() if row.state in GONE):
        events.append(NodesChanged(removed=gone))
    events.extend(table.draft.feed.take())
    keep(table)
    return events


def _uses(table: JobTable) -> Iterator[Use]:
    """What active attempts use of what is left to work without GPUs."""
    for job_id in table.busy:
        job = table.jobs[job_id]
        beside = {name: amount for name, amount in job.request.request.items() if is_counted_beside(name)}
        for attempt in job.active.values() if beside and not gpu_milli(job.spec.request) else ():
            if not attempt.credit:
                yield (job_id, attempt.task, attempt.attempt), attempt.nodes, beside


def _id(job: LiveJob) -> int:
    return job.id


def live_job(table: JobTable, row: JobRow, ranges: list[TaskRangeRow], attempts: list[AttemptRow]) -> LiveJob:
    """The job that a row, its ranges and its active attempts describe; its dependencies are left out."""
    active = {a.task: _attempt(a) for a in attempts}
    counts = TaskCounts(
        pending=row.pending,
        held=row.held,
        succeeded=row.succeeded,
        failed=row.failed,
        timed_out=row.timed_out,
        cancelled=row.cancelled,
    )
    for attempt in active.values():
        counts.move(None, TaskState(attempt.state))
    return LiveJob(
        id=row.id,
        spec=row.spec,
        name=row.name,
        queue=row.queue,
        account=row.account,
        user=row.user,
        priority=row.priority,
        walltime_ms=row.walltime_ms,
        submit_ms=row.submit_ms,
        eligible_ms=row.eligible_ms,
        trace_id=row.trace_id,
        request=table.class_of(row.spec, row.queue),
        owner=table.interning.owner_of(Owner(row.queue, row.account, row.user, row.spec.qos)),
        state=row.state,
        hold=row.hold,
        start_ms=row.start_ms,
        end_ms=row.end_ms,
        reason=row.reason,
        counts=counts,
        ranges=_ranges(ranges),
        active=active,
        exit_code=row.exit_code,
        restarts=row.restarts,
    )


def revive(table: JobTable, row: JobRow, ranges: list[TaskRangeRow], succeeded: TaskSet | None = None) -> LiveJob:
    """A job that has ended lives again, to be requeued in the same draft.

    Args:
        succeeded: of an array some of whose tasks succeeded: which.
    """
    job = live_job(table, row, ranges, [])
    job.end_ms = None
    job.succeeded = _succeeded(job, succeeded)
    table.draft.stored_ranges[job.id] = job.ranges
    table.add(job, stored=True)
    add_name(table, job, table.now_ms)
    return job


def _ranges(rows: list[TaskRangeRow]) -> TaskRanges:
    return made_of([TaskRange(r.first, r.count, r.state, r.attempt, r.eligible_ms, r.retries, r.reason) for r in rows])


def _attempt(row: AttemptRow) -> Attempt:
    return Attempt(
        task=row.task,
        attempt=row.attempt,
        state=row.state,
        nodes=row.nodes,
        token=row.token,
        allocated_ms=row.allocated_ms,
        started_ms=row.started_ms,
        retries=row.retries,
        credit=row.credit,
        stopping=row.cause,
        steps=row.steps,
        preemption=row.preemption,
        gpus=row.gpus,
        port=row.port,
    )


def _succeeded(job: LiveJob, known: TaskSet | None) -> TaskSet:
    """Which tasks of an array succeeded: as the rows say, or all that are nowhere else."""
    if not job.spec.several or job.counts.succeeded == 0:
        return ()
    if known is not None:
        return known
    elsewhere = [(task_range.first, task_range.end) for task_range in job.ranges] + [
        (task, task + 1) for task in job.active
    ]
    return complement(merged(elsewhere), job.spec.tasks)


def _past(row: JobRow, succeeded: TaskSet | None) -> EndedJob:
    """As `LiveJob.past`."""
    return EndedJob(row.id, row.name or row.spec.title, row.state, row.spec.tasks, succeeded or ())


def _adopted(table: JobTable) -> AllocationsAdopted | None:
    """All active attempts as one block."""
    table.gpus.clear()
    table.ports.clear()
    rows: list[tuple[int, ...]] = []
    node_indices: list[int] = []
    names = {name: index for index, name in enumerate(table.nodes)}
    for job_id in sorted(table.busy):
        job = table.jobs[job_id]
        walltime = INF if job.walltime_ms is None else job.walltime_ms
        for attempt in job.active.values():
            request, owner = table.interning.indices(job, attempt.task)
            if attempt.port:
                table.take_port(job.id, attempt)
            if attempt.credit:
                continue
            if attempt.gpus:
                table.gpus.take(attempt.nodes, attempt.gpus)
            start_ms = attempt.allocated_ms if attempt.started_ms is None else attempt.started_ms
            paused_ms = attempt.preemption.paused_ms if attempt.preemption else 0
            classes = [request, *(table.interning.class_index(part) for part in job.request.groups)]
            widths = [group.nodes for group in job.spec.groups] or [len(attempt.nodes)]
            offset = len(node_indices)
            for group, (class_index, width) in enumerate(zip(classes, widths, strict=True)):
                rows.append(
                    (
                        job.id,
                        attempt.task + group,
                        attempt.attempt,
                        class_index,
                        owner,
                        job.priority,
                        job.submit_ms,
                        start_ms + paused_ms,
                        walltime,
                        -1,
                        offset,
                        width,
                        job.spec.deadline_ms,
                        *attempt.engine_state,
                    )
                )
                offset += width
            node_indices.extend(names[name] for name in attempt.nodes)
    if not rows:
        return None
    return AllocationsAdopted(
        np.array(rows, ADOPT),
        np.array(node_indices, np.int64),
        tuple(names),
        table.interning.classes,
        table.interning.owners,
    )
