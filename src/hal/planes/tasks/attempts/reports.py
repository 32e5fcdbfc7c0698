"""What nodes report of steps: they started, ended, or were refused; and what is lost with a node.

Pure. A report about an attempt that is not active changes nothing (it was repeated) and is acknowledged again. When a
step of a gang ends badly, or the one that alone runs the job's command ends, the others are stopped. A node speaks only
for the steps that were given to it. Functions return the jobs that they changed, which must be settled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from hal.core.lifecycle import ATTEMPT, AttemptEvent, transition, walk
from hal.core.lifecycle.outcome import (
    GATE_ELSEWHERE,
    GIVEN_BACK,
    NODE_TOO_OLD,
    NOT_FOR_USER,
    PROLOG_FAILED,
    SECRETS_ELSEWHERE,
)
from hal.core.model import AttemptId, AttemptState, EventKind, StepId, one_line
from hal.core.model.eviction import EvictMode
from hal.planes.tasks.attempts import credit
from hal.planes.tasks.attempts.ends import (
    LOST_CAUSE,
    REFUSED_CAUSE,
    instant_within,
    judge_attempt,
    step_end,
    step_outcome,
)
from hal.planes.tasks.attempts.exclusion import exclude_node
from hal.planes.tasks.attempts.step_templates import step_template
from hal.planes.tasks.live.attempt import PREEMPTED, PREEMPTING, SIBLING, Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.nodes.failed_gates import record_failed_prolog
from hal.planes.tasks.table.attempt_changes import end_attempt, mark_attempt
from hal.planes.tasks.table.propagation import record_start
from hal.planes.tasks.table.stops import note_eviction, stop_attempt
from hal.planes.tasks.table.table import JobTable
from hal.store.operations import MAX_MESSAGE, Preemption, StepEnd
from hal.wire.frames.agent_keeper import Refusal, StepExit, StepStarted
from hal.wire.template_needs import unmet_need

MAX_CODE: Final = 64
"""Characters of the code of a refusal."""
ALREADY_ENDED: Final = "already-ended"
"""Code of the refusal of a step under whose id its node has had another one."""
UNASKED: Final = "unasked"
"""Code of a refusal that gives back what the node was not lent."""

_TO_RUNNING = {
    AttemptState.ALLOCATED: (AttemptEvent.PREPARE, AttemptEvent.START),
    AttemptState.PREPARING: (AttemptEvent.START,),
}


def active_attempt(table: JobTable, node: str, step: StepId) -> tuple[LiveJob, Attempt] | None:
    """The attempt that the step belongs to, if it is active, on that node, and the step has not ended yet."""
    job = table.jobs.get(step.job)
    attempt = job.active.get(step.task) if job else None
    if job is None or attempt is None or attempt.attempt != step.attempt:
        return None
    if not 0 <= step.rank < len(attempt.nodes) or attempt.nodes[step.rank] != node:
        return None
    if any(end.rank == step.rank for end in attempt.steps):
        return None
    return job, attempt


def attempts_on(table: JobTable, node: str) -> Iterator[tuple[LiveJob, Attempt]]:
    """Active attempts with a step on that node that has not ended."""
    for job_id in sorted(table.busy):
        job = table.jobs[job_id]
        for attempt in list(job.active.values()):
            if node in attempt.nodes and any(name == node for name, _ in attempt.steps_left(job.id)):
                yield job, attempt


# ── reports ───────────────────────────────────────────────────────────────────────────────────────────────────────


def record_starts(table: JobTable, node: str, steps: Sequence[StepStarted], now_ms: int) -> Collection[LiveJob]:
    """Record that processes of these steps run."""
    changed: dict[int, LiveJob] = {}
    for report in steps:
        found = None if table.is_foreign(node, report.step) else active_attempt(table, node, report.step)
        if found is not None:
            table.gates.began((report.step.job, report.step.task, report.step.attempt), report.step.rank)
        if found is not None and found[1].suspended:
            table.draft.order(node).suspends.append(report.step)  # it had not begun when that was asked
        if found is None or found[1].started_ms is not None:
            continue
        job = changed[report.step.job] = table.touch(report.step.job)
        _record_attempt_start(table, job, found[1], node, report.at_ms, now_ms, suspended=found[1].suspended)
    return changed.values()


def record_exits(table: JobTable, node: str, exits: Sequence[StepExit], now_ms: int) -> Collection[LiveJob]:
    """Record that these steps have ended; all of them are acknowledged once this is durable."""
    changed: dict[int, LiveJob] = {}
    acks = table.draft.order(node).acks
    for report in exits:
        acks.append(report.step)
        found = active_attempt(table, node, report.step)
        if table.is_foreign(node, report.step):
            if found is not None:
                changed[report.step.job] = _refuse_foreign_id(table, found[1], report.step, now_ms)
            continue
        successor = credit.pass_slot_on(table, report, node, now_ms)
        if found is None:
            continue
        job, attempt = table.touch(report.step.job), found[1]
        changed[job.id] = job
        if report.started_ms:
            credit.record_duration(table, job, report.ended_ms - report.started_ms)
        end = step_end(report, attempt, now_ms)
        if report.started_ms and attempt.started_ms is None:
            attempt = _record_attempt_start(table, job, attempt, node, report.started_ms, now_ms)
        _end_step(table, job, attempt, end, now_ms, f"node:{node}")
        if successor is not None and attempt.stopping in PREEMPTING and not successor.stopping:
            _stop_successor(table, job, attempt, successor, now_ms, f"node:{node}")
    credit.report_slots(table)
    return changed.values()


def record_refusals(table: JobTable, node: str, refusals: Sequence[Refusal], now_ms: int) -> Collection[LiveJob]:
    """Record that these steps were not started; no process of them exists.

    `already-ended` of an attempt that is active here: a power failure took from the store an attempt of this number,
    and not from the keeper; or the store was restored, and the keeper had the attempt of this number that it forgot.
    Its end is no longer known; the report says only that it does not run.
    """
    changed: dict[int, LiveJob] = {}
    for refusal in refusals:
        found = active_attempt(table, node, refusal.step)
        if found is None:
            continue
        job, attempt = table.touch(refusal.step.job), found[1]
        changed[job.id] = job
        code, message = one_line(refusal.code, MAX_CODE), one_line(refusal.message, MAX_MESSAGE)
        asked = code not in GIVEN_BACK or attempt.credit or code == PROLOG_FAILED or code in NOT_FOR_USER
        if not asked and not _may_send_elsewhere(table, job, code):
            code = UNASKED  # nothing was lent: it is not tried again at once
        item = {"id": str(AttemptId(job.id, attempt.task, attempt.attempt)), "code": code, "message": message}
        table.draft.note(EventKind.STARTS_REFUSED, f"node:{node}", job.trace_id, job.id, item)
        if code == PROLOG_FAILED:
            record_failed_prolog(table, node, refusal.step, message, now_ms)
        elif code in NOT_FOR_USER or _may_send_elsewhere(table, job, code):
            exclude_node(table, job, node, message)
        end = StepEnd(refusal.step.rank, REFUSED_CAUSE, 0, 0, now_ms, f"{code}: {message}")
        _end_step(table, job, attempt, end, now_ms, f"node:{node}")
    return changed.values()


def _may_send_elsewhere(table: JobTable, job: LiveJob, code: str) -> bool:
    """Whether the refusal excludes the node: it is about what the job asks for."""
    spec = job.spec
    if code == NODE_TOO_OLD:
        return bool(unmet_need(step_template(job, table.step_secret, table.reached_at), ()))
    asked = {GATE_ELSEWHERE: spec.gates or spec.files, SECRETS_ELSEWHERE: spec.secrets}
    return bool(asked.get(code))


def record_loss(table: JobTable, job: LiveJob, attempt: Attempt, node: str, message: str, now_ms: int) -> None:
    """What it had on that node was lost without a trace. The caller settles the job."""
    for rank, name in enumerate(attempt.nodes):
        current = job.active.get(attempt.task)
        if current is None or current.attempt != attempt.attempt:
            return
        if name == node and all(end.rank != rank for end in current.steps):
            end = StepEnd(rank, LOST_CAUSE, 0, 0, now_ms, message)
            _end_step(table, job, current, end, now_ms, f"node:{node}")


# ── one attempt ───────────────────────────────────────────────────────────────────────────────────────────────────


def _record_attempt_start(
    table: JobTable, job: LiveJob, attempt: Attempt, node: str, at_ms: int, now_ms: int, *, suspended: bool = False
) -> Attempt:
    at_ms = instant_within(at_ms, attempt.allocated_ms, now_ms)
    state = attempt.state
    if state in _TO_RUNNING:
        state = walk(ATTEMPT, state, _TO_RUNNING[state])
        if suspended:
            state = transition(ATTEMPT, state, AttemptEvent.SUSPEND)
    started = mark_attempt(table, job, attempt, replace(attempt, state=state, started_ms=at_ms))
    item = f"{job.id}.{attempt.task}.{attempt.attempt}"
    table.draft.note(EventKind.ATTEMPTS_STARTED, f"node:{node}", job.trace_id, job.id, item)
    record_start(table, job, at_ms, now_ms)
    return started


def _end_step(table: JobTable, job: LiveJob, attempt: Attempt, end: StepEnd, now_ms: int, cause: str) -> None:
    ends = (*attempt.steps, end)
    if len(ends) == len(attempt.nodes):
        end_attempt(table, job, attempt, judge_attempt(job, attempt, ends), now_ms, cause)
        return
    attempt = mark_attempt(table, job, attempt, replace(attempt, steps=ends))
    over = step_outcome(end) is not AttemptState.SUCCEEDED or (job.spec.first_node and not end.rank)
    if over and not attempt.stopping:
        stop_attempt(table, job, attempt, SIBLING, now_ms)


def _stop_successor(
    table: JobTable, job: LiveJob, attempt: Attempt, successor: Attempt, now_ms: int, cause: str
) -> None:
    """The attempt's slot was to come free for others, and was passed on before the node heard of that: the node ends
    who has it now. A person who cancelled one task by evicting it did not mean the next: that one waits again."""
    if not attempt.evicted_by_person:
        stop_attempt(table, job, replace(successor, preemption=attempt.preemption), attempt.stopping, now_ms)
        return
    evicted = attempt.preemption or Preemption()
    mode = EvictMode.REQUEUE if evicted.mode == EvictMode.CANCEL else EvictMode(evicted.mode)
    own = replace(successor, preemption=replace(evicted, mode=mode.value))
    note_eviction(table, job, stop_attempt(table, job, own, PREEMPTED, now_ms), cause, job.trace_id)


def _refuse_foreign_id(table: JobTable, attempt: Attempt, step: StepId, now_ms: int) -> LiveJob:
    """Its node held another attempt under its id, which has ended, and now starts none of that id any more."""
    job = table.touch(step.job)
    message = f"{ALREADY_ENDED}: its node held another attempt of that number, from before the store was replaced"
    end = StepEnd(step.rank, REFUSED_CAUSE, 0, 0, now_ms, message)
    _end_step(table, job, attempt, end, now_ms, f"node:{attempt.nodes[step.rank]}")
    return job
