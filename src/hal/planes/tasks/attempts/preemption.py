"""Preemption and resumption, as the engine decided: marks on attempts, and orders to their nodes.

Pure. An attempt that has to leave is being ended like one that a person stops; only what follows differs: its task
waits again (requeue, checkpoint) or is cancelled. A suspended attempt keeps its node; its time stands still.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from hal.core.engine.plan import LENT, MOVED
from hal.core.engine.tables.qos import MODE_NAMES
from hal.core.kernels.structures.layout import INF
from hal.core.lifecycle import ATTEMPT, AttemptEvent, transition
from hal.core.model import AttemptState, EventKind, InternalError
from hal.core.model.policy import PreemptMode
from hal.planes.tasks.live.attempt import EVICTED, PREEMPTED, Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.submitter import ENGINE
from hal.planes.tasks.table.attempt_changes import mark_attempt
from hal.planes.tasks.table.propagation import settle
from hal.planes.tasks.table.stops import stop_attempt
from hal.planes.tasks.table.table import JobTable
from hal.store.operations import Preemption

Moves = NDArray[np.void]
"""Shape (M,), dtype `hal.core.engine.plan.MOVE`."""


def preempt(table: JobTable, moves: Moves, now_ms: int) -> int:
    """End or suspend these attempts for the jobs that the moves name; returns how many.

    Raises:
        InternalError: an attempt is not active.
    """
    moves = _of_tasks(table, moves)
    columns = ("mode", "grace_ms", "for_job", "lent", "at_ms")
    for job_id, task, number, mode, grace_ms, for_job, lent, alone_ms in _of(moves, *columns):
        job, attempt = _active(table, job_id, task, number)
        if attempt.stopping:
            continue  # somebody ends it already, which the engine does not know: what follows for its task stays
        how = MODE_NAMES[mode]
        before = attempt.preemption or Preemption()
        preemption = replace(
            before, mode=how, for_job=for_job, qos=_qos_of(table, for_job),
            at_ms=now_ms, due_ms=now_ms + grace_ms, lent_by=_lender(table, for_job) if lent == LENT else "",
            nodes=_nodes_of(table, for_job) if lent == MOVED else 0,
            alone_ms=alone_ms if lent == MOVED and alone_ms < INF else 0,
        )  # fmt: skip
        if how == PreemptMode.SUSPEND:
            _suspend(table, job, attempt, replace(preemption, since_ms=now_ms, times=before.times + 1))
        else:
            why = EVICTED if how == PreemptMode.CANCEL else PREEMPTED
            stop_attempt(table, job, replace(attempt, preemption=preemption), why, now_ms)
            table.recall_credit(job)
        item: dict[str, object] = {
            "id": f"{job_id}.{task}.{number}", "mode": how, "for": str(for_job), "qos": preemption.qos,
        }  # fmt: skip
        if preemption.lent_by:
            item["lent_by"] = preemption.lent_by
        if preemption.nodes:
            item["moved"] = True
        table.draft.note(EventKind.ATTEMPTS_PREEMPTED, ENGINE, job.trace_id, job_id, item)
    return _settle(table, moves, now_ms)


def resume(table: JobTable, moves: Moves, now_ms: int) -> int:
    """Resume these suspended attempts; returns how many. One that is being ended meanwhile is left alone.

    Raises:
        InternalError: an attempt is not active.
    """
    for job_id, task, number in _of(moves):
        job, attempt = _active(table, job_id, task, number)
        if not attempt.suspended or attempt.preemption is None:
            continue
        paused = attempt.preemption.paused_ms + max(now_ms - attempt.preemption.since_ms, 0)
        state = attempt.state
        if state is AttemptState.SUSPENDED:
            state = transition(ATTEMPT, state, AttemptEvent.RESUME)
        preemption = replace(attempt.preemption, since_ms=0, paused_ms=paused)
        resumed = mark_attempt(table, job, attempt, replace(attempt, state=state, preemption=preemption))
        for node, step in resumed.steps_left(job_id):
            table.draft.order(node).resumes.append(step)
        table.draft.note(EventKind.ATTEMPTS_RESUMED, ENGINE, job.trace_id, job_id, f"{job_id}.{task}.{number}")
    return _settle(table, moves, now_ms)


def _of_tasks(table: JobTable, moves: Moves) -> Moves:
    """Without those of other groups than the first, which to the engine are tasks of their own."""
    kept = [at for at, move in enumerate(moves) if not (move["task"] and table.touch(int(move["job"])).request.groups)]
    return moves if len(kept) == len(moves) else moves[kept]


def _suspend(table: JobTable, job: LiveJob, attempt: Attempt, preemption: Preemption) -> None:
    state = attempt.state
    if state is AttemptState.RUNNING:
        state = transition(ATTEMPT, state, AttemptEvent.SUSPEND)
    suspended = mark_attempt(table, job, attempt, replace(attempt, state=state, preemption=preemption))
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


def _nodes_of(table: JobTable, job_id: int) -> int:
    job = table.jobs.get(job_id)
    return job.spec.nodes if job is not None else 1


def _lender(table: JobTable, job_id: int) -> str:
    """Who is named as having lent: an account, else a user, else a queue."""
    job = table.jobs.get(job_id)
    return (job.owner.account or job.owner.user or job.owner.queue) if job is not None else ""


def _settle(table: JobTable, moves: Moves, now_ms: int) -> int:
    for job_id in dict.fromkeys(int(move["job"]) for move in moves):
        settle(table, table.touch(job_id), now_ms, ENGINE)
    return len(moves)
