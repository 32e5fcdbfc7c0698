"""Ending attempts on purpose: the marks on them, and the orders for their nodes.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from hal.core.engine.tables.qos import LAST_GRACE_MS
from hal.core.lifecycle import ATTEMPT, AttemptEvent, transition
from hal.core.model import AttemptId, AttemptState, EventKind, StepId
from hal.core.model.grace import DEFAULT_GRACE_MS
from hal.core.model.policy import PreemptMode
from hal.planes.tasks.live.attempt import BOOKING_OVER, CANCELLED, PREEMPTING, REQUEUED, SIBLING, Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.table.attempt_changes import mark_attempt
from hal.planes.tasks.table.orders import Eviction
from hal.planes.tasks.table.table import JobTable
from hal.store.operations import Preemption
from hal.wire.frames.agent_keeper import StopReason

CHECKPOINT_SIGNAL = "USR2"
"""Asks a program to save its work, where its job names no signal of its own."""
STOP_REASONS = {
    CANCELLED: StopReason.CANCELLED,
    REQUEUED: StopReason.PREEMPTED,
    SIBLING: StopReason.SIBLING,
    BOOKING_OVER: StopReason.TIMED_OUT,
}
"""The reason that the keeper gets, by why an attempt is being ended."""


def stop_attempt(table: JobTable, job: LiveJob, attempt: Attempt, why: str, now_ms: int) -> Attempt:
    """Begin to end an active attempt; it ends when its steps have."""
    state = attempt.state
    if state is not AttemptState.FINALISING:
        state = transition(ATTEMPT, state, AttemptEvent.FINALISE)
    stopping = mark_attempt(table, job, attempt, replace(attempt, state=state, stopping=why))
    order_stop(table, job, stopping, now_ms)
    return stopping


def hasten_stop(table: JobTable, job: LiveJob, attempt: Attempt, due_ms: int, now_ms: int) -> None:
    """Let an attempt that is being ended already end by then, if it may take longer; why it ends stays as it is."""
    preemption = attempt.preemption or Preemption()
    if attempt.stopping not in PREEMPTING:
        # Its nodes were told to end it within the usual grace, and kill it at the earlier of two instants.
        if due_ms - now_ms < DEFAULT_GRACE_MS:
            sooner = Eviction(grace_ms=max(due_ms - now_ms, 0))
            for node, step in attempt.steps_left(job.id):
                table.draft.order(node).evictions.setdefault(sooner, []).append(step)
    elif due_ms < preemption.due_ms:
        hastened = mark_attempt(table, job, attempt, replace(attempt, preemption=replace(preemption, due_ms=due_ms)))
        order_stop(table, job, hastened, now_ms)


def note_eviction(table: JobTable, job: LiveJob, attempt: Attempt, cause: str, trace_id: str) -> None:
    """Note in the feed who evicted the attempt, how and why."""
    preemption = attempt.preemption or Preemption()
    item = {"id": str(AttemptId(job.id, attempt.task, attempt.attempt)), "mode": preemption.mode, "by": preemption.by}
    if preemption.reason:
        item["reason"] = preemption.reason
    table.draft.note(EventKind.ATTEMPTS_PREEMPTED, cause, trace_id, job.id, item)


def order_stop(table: JobTable, job: LiveJob, attempt: Attempt, now_ms: int, absent: Collection[StepId] = ()) -> None:
    """Order its nodes to end what is left of it. Repeating it changes no deadline: what leaves for other work, or was
    evicted, has what is left of its time, however late its node hears of that.

    Args:
        absent: steps that their node has just said it does not hold: not asked to save anything, since only a plain
            stop of what is not held is refused, which ends the step here.
    """
    for node, step in attempt.steps_left(job.id):
        orders = table.draft.order(node)
        if attempt.stopping in PREEMPTING:
            eviction = _eviction(job, attempt, now_ms)
            orders.evictions.setdefault(replace(eviction, signal="") if step in absent else eviction, []).append(step)
        else:
            orders.stops.setdefault(STOP_REASONS[attempt.stopping], []).append(step)


def order_suspension(table: JobTable, job: LiveJob, attempt: Attempt) -> None:
    """Order its nodes again to suspend it, or to resume it; nothing for one that never was suspended."""
    if attempt.preemption is None or not attempt.preemption.times:
        return
    for node, step in attempt.steps_left(job.id):
        orders = table.draft.order(node)
        listed = orders.suspends if attempt.suspended else orders.resumes
        if step not in listed:
            listed.append(step)


def _eviction(job: LiveJob, attempt: Attempt, now_ms: int) -> Eviction:
    preemption = attempt.preemption or Preemption()
    left_ms = max(preemption.due_ms - now_ms, 0)
    if preemption.mode != PreemptMode.CHECKPOINT or attempt.started_ms is None:
        return Eviction(grace_ms=left_ms)
    # Of a time that a QOS gives, the last grace comes on top; of one that a person gives, saving has at least half.
    last_ms = min(LAST_GRACE_MS, left_ms // 2 if preemption.by else left_ms)
    name = job.spec.signal.name if job.spec.signal else CHECKPOINT_SIGNAL
    return Eviction(name, left_ms - last_ms, last_ms)
