"""What the engine takes back from running work, and what it lets go on: marks on attempts, and orders to their nodes.

Pure. An attempt that has to leave is being ended like one that a person stops; only what follows differs: its task
waits again (requeue, checkpoint) or is cancelled. A suspended attempt keeps its place; its time stands still.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from hal.core.engine.qos import MODE_NAMES
from hal.core.lifecycle import ATTEMPT, AttemptEvent, transition
from hal.core.model import AttemptState, EventKind, InternalError
from hal.core.model.policy import PreemptMode
from hal.planes.tasks import credit
from hal.planes.tasks.attempts import mark, stop
from hal.planes.tasks.live import EVICTED, PREEMPTED, Attempt, LiveJob
from hal.planes.tasks.table import JobTable
from hal.store.operations import Taking

ENGINE = "engine"
Moves = NDArray[np.void]
"""Shape (M,), dtype `hal.core.engine.plan.MOVE`."""


def take_back(table: JobTable, moves: Moves, now_ms: int) -> int:
    """These attempts leave, or are suspended, for the jobs that the moves name; how many.

    Raises:
        InternalError: an attempt is not active.
    """
    for job_id, task, number, mode, grace_ms, for_job, lent in _of(moves, "mode", "grace_ms", "for_job", "lent"):
        job, attempt = _active(table, job_id, task, number)
        how = PreemptMode(MODE_NAMES[mode])
        before = attempt.taking or Taking()
        taking = replace(
            before, mode=how.value, for_job=for_job, qos=_qos_of(table, for_job),
            at_ms=now_ms, due_ms=now_ms + grace_ms, lent_by=_lender(table, for_job) if lent else "",
        )  # fmt: skip
        if how is PreemptMode.SUSPEND:
            _suspend(table, job, attempt, replace(taking, since_ms=now_ms, times=before.times + 1))
        else:
            why = EVICTED if how is PreemptMode.CANCEL else PREEMPTED
            stop(table, job, replace(attempt, taking=taking), why)
            credit.recall(table, job)
        item = {"id": f"{job_id}.{task}.{number}", "mode": how.value, "for": str(for_job), "qos": taking.qos}
        if taking.lent_by:
            item["lent_by"] = taking.lent_by
        table.draft.note(EventKind.ATTEMPTS_PREEMPTED, ENGINE, job.trace_id, job_id, item)
    return _settle(table, moves, now_ms)


def let_go_on(table: JobTable, moves: Moves, now_ms: int) -> int:
    """These suspended attempts go on; how many. One that is being ended meanwhile is left alone.

    Raises:
        InternalError: an attempt is not active.
    """
    for job_id, task, number in _of(moves):
        job, attempt = _active(table, job_id, task, number)
        if not attempt.suspended or attempt.taking is None:
            continue
        paused = attempt.taking.paused_ms + max(now_ms - attempt.taking.since_ms, 0)
        state = attempt.state
        if state is AttemptState.SUSPENDED:
            state = transition(ATTEMPT, state, AttemptEvent.RESUME)
        taking = replace(attempt.taking, since_ms=0, paused_ms=paused)
        resumed = mark(table, job, attempt, replace(attempt, state=state, taking=taking))
        for node, step in resumed.steps_left(job_id):
            table.draft.order(node).resumes.append(step)
        table.draft.note(EventKind.ATTEMPTS_RESUMED, ENGINE, job.trace_id, job_id, f"{job_id}.{task}.{number}")
    return _settle(table, moves, now_ms)


def _suspend(table: JobTable, job: LiveJob, attempt: Attempt, taking: Taking) -> None:
    state = attempt.state
    if state is AttemptState.RUNNING:
        state = transition(ATTEMPT, state, AttemptEvent.SUSPEND)
    suspended = mark(table, job, attempt, replace(attempt, state=state, taking=taking))
    for node, step in suspended.steps_left(job.id):
        table.draft.order(node).suspends.append(step)


def _of(moves: Moves, *columns: str) -> list[tuple[int, ...]]:
    names = ["job", "task", "attempt", *columns]
    return [tuple(int(move[name]) for name in names) for move in moves]


def _active(table: JobTable, job_id: int, task: int, number: int) -> tuple[LiveJob, Attempt]:
    job = table.touch(job_id)
    attempt = job.active.get(task)
    if attempt is None or attempt.attempt != number:
        raise InternalError(f"the engine moved attempt {number} of {job_id}.{task}, which is not active")
    return job, attempt


def _qos_of(table: JobTable, job_id: int) -> str:
    job = table.jobs.get(job_id)
    return job.owner.qos if job is not None else ""


def _lender(table: JobTable, job_id: int) -> str:
    """Who is named as having lent: an account, else a user, else a queue."""
    job = table.jobs.get(job_id)
    return (job.owner.account or job.owner.user or job.owner.queue) if job is not None else ""


def _settle(table: JobTable, moves: Moves, now_ms: int) -> int:
    for job_id in dict.fromkeys(int(move["job"]) for move in moves):
        table.settle(table.touch(job_id), now_ms, ENGINE)
    return len(moves)
