"""Credit: short tasks of an array are handed to their node ahead of time, to begin as slots come free there.

Pure. The engine gives a task of the job a slot on a node. When the latest tasks of the job were short, some of its
waiting tasks are taken from the engine and sent along with that start, *on credit*: each is an attempt like any other,
committed before it is sent, but holds nothing. As a step ends at the node, its slot is passed on to the next one there;
the exit says to which (`pass_slot_on`), and the engine hears of it as of an end and an adopted allocation. What has not
begun when its credit ends, or is recalled, comes back and waits in the engine again. So the engine decides about each
slot at least every `CREDIT_WORK_MS` or so, and nothing that it would prefer waits much longer than that.

The rules, and why they are safe: docs/decisions/0014.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from msgspec.structs import replace

from hal.core.engine.events import INF
from hal.core.model import StepId
from hal.core.model.gate import GatePhase
from hal.core.model.occurrences import current_occurrence
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.task_ranges import TaskRange, startable
from hal.planes.tasks.table.table import JobTable
from hal.wire.frames.agent_keeper import StepExit

CREDIT_WORK_MS = 160
"""Work that is handed over ahead of time for each slot, judged by the longest of the latest tasks."""
CREDIT_MS = 250
"""How long a node may keep a task that has not begun."""
MAX_AHEAD = 64
"""Tasks on credit for each slot."""
SEEN = 8
"""Latest tasks of a job that are judged."""
MIN_SEEN = 2
"""With fewer, none is handed over."""
MAX_LOOKED_AT: Final = 64
"""Ranges that are looked at to find tasks that were never tried."""
PLAIN = frozenset({"cpu", "memory"})
"""Resources whose amounts are all there is to a slot: of others a slot may mean a certain one."""


def record_duration(table: JobTable, job: LiveJob, took_ms: int) -> None:
    """Record how long a step of the job took."""
    if job.spec.array is not None:
        table.recent_ms[job.id] = (*table.recent_ms.get(job.id, ())[1 - SEEN :], max(took_ms, 1))


def credit_per_slot(table: JobTable, job: LiveJob) -> int:
    """How many tasks may be handed over for each slot; 0 for a job of long, unknown or unlike tasks, and where how
    many may be active is limited (`max_running`)."""
    recent = table.recent_ms.get(job.id, ())
    if (
        len(recent) < MIN_SEEN
        or job.spec.nodes != 1
        or job.hold
        or job.window
        or job.id in table.reshaped
        or (job.spec.extensions or job.spec.workers)
    ):
        return 0
    if any(name not in PLAIN for name in job.spec.request) or job.spec.booking or job.spec.licences:
        return 0
    if any(gate.phase is GatePhase.FINALISING for gate in job.spec.gates):
        return 0  # a slot would pass to another task before the gate of its former one is satisfied
    return min(CREDIT_WORK_MS // max(recent), MAX_AHEAD)


def first_untried(job: LiveJob, now_ms: int) -> TaskRange | None:
    """The first tasks that wait in the engine and were never tried; None when there are none.

    A task that came back once gets a slot of its own: it cannot be handed over in vain for ever.
    """
    for task_range in islice(startable(job.ranges, now_ms), MAX_LOOKED_AT):
        if task_range.attempt == 1 and job.eligible_of(task_range) <= now_ms:
            return task_range
    return None


def credit_now(table: JobTable, job: LiveJob, now_ms: int) -> int:
    """How many tasks to hand over for each slot: all slots of the job share what waits."""
    most = credit_per_slot(table, job)
    if most and _would_meet_a_booking(table, job, now_ms):
        return 0
    task_range = first_untried(job, now_ms) if most else None
    if task_range is None:
        return 0
    slots = sum(not attempt.credit for attempt in job.active.values())
    return min(most, -(-task_range.count // max(slots, 1)))


def _would_meet_a_booking(table: JobTable, job: LiveJob, now_ms: int) -> bool:
    """Whether a task that begins before its credit ends could run into a booking: only the engine knows of which
    nodes."""
    until_ms = INF if job.walltime_ms is None else now_ms + CREDIT_MS + job.walltime_ms
    following = (current_occurrence(booking, now_ms) for booking in table.policy.bookings.values())
    return any(one is not None and one.start_ms < until_ms for one in following)


def pass_slot_on(table: JobTable, report: StepExit, node: str, now_ms: int) -> Attempt | None:
    """Call before the end of the step itself: who got its slot (a report that was repeated changes nothing): returned.

    However often a slot is passed on within one draft, the engine hears of it once: the first who had it ends, the last
    who has it is adopted, from when that was. So what was used meanwhile is accounted for.
    """
    step = report.step
    key = (step.job, step.task, step.attempt)
    successor = _waiting_there(table, step.job, report.next, node)
    since_ms = table.draft.slots_since.pop(key, None)
    if successor is None:
        if since_ms is not None:
            job = table.jobs[step.job]
            table.draft.feed.adopt(job, job.active[step.task], since_ms)
        return None
    job = table.touch(step.job)
    placed = job.active[successor.task] = replace(successor, credit=False)
    new_key = (job.id, successor.task, successor.attempt)
    table.draft.marked_attempts[new_key] = placed
    if since_ms is not None:
        table.draft.unreported.add(key)
    else:
        since_ms = min(max(report.ended_ms, successor.allocated_ms), now_ms)
    table.draft.slots_since[new_key] = since_ms
    return placed


def _waiting_there(table: JobTable, job_id: int, step: StepId | None, node: str) -> Attempt | None:
    """The attempt of that step, if it is of that job and waits on credit on that node."""
    job = table.jobs.get(job_id) if step is not None and step.job == job_id else None
    attempt = job.active.get(step.task) if job is not None and step is not None else None
    if step is None or attempt is None or not attempt.credit or table.is_foreign(node, step):
        return None
    return attempt if attempt.attempt == step.attempt and attempt.nodes == (node,) else None


def report_slots(table: JobTable) -> None:
    """Report to the engine the attempts that still have a slot which it does not know."""
    for (job_id, task, _), since_ms in table.draft.slots_since.items():
        job = table.jobs[job_id]
        table.draft.feed.adopt(job, job.active[task], since_ms)
    table.draft.slots_since.clear()
