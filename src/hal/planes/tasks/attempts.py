"""Attempts: from what nodes report to the ends of tasks, and ending them on purpose.

Pure. A report about an attempt that is not active changes nothing (it was repeated) and is acknowledged again. The
result of a gang is that of its worst step; when one ends badly the others are stopped. A node speaks only for the steps
that were given to it, and what it says is kept within what can be: instants between the allocation and now, texts of
one line and a bounded length.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from hal.core.engine.qos import LAST_GRACE_MS
from hal.core.lifecycle import (
    ATTEMPT,
    END_EVENTS,
    TASK,
    AttemptEvent,
    Next,
    TaskEvent,
    after_attempt,
    attempt_end,
    refusal_end,
    transition,
    walk,
)
from hal.core.lifecycle.outcome import GIVEN_BACK, PROLOG_FAILED
from hal.core.model import AttemptId, AttemptState, EventKind, StepId, TaskState, one_line
from hal.core.model.policy import PreemptMode
from hal.planes.tasks import credit
from hal.planes.tasks.draft import Eviction
from hal.planes.tasks.live import BOOKING_OVER, CANCELLED, EVICTED, REQUEUED, SIBLING, TAKEN_BACK, Attempt, LiveJob
from hal.planes.tasks.prologs import prolog_failed
from hal.planes.tasks.runs import added
from hal.planes.tasks.spans import Span, put
from hal.planes.tasks.table import JobTable
from hal.store.operations import AttemptEnd, StepEnd, Taking
from hal.wire.bounds import MAX_COUNT
from hal.wire.frames import Refusal, StepExit, StepStarted, StopReason

_WORST_FIRST = (
    AttemptState.LOST,
    AttemptState.OUT_OF_MEMORY,
    AttemptState.TIMED_OUT,
    AttemptState.FAILED,
    AttemptState.REFUSED,
    AttemptState.PREEMPTED,
    AttemptState.CANCELLED,
    AttemptState.SUCCEEDED,
)
"""Of a gang's steps. Lost comes before failed: the ranks that are left often fail because a peer's node went away."""

_SEVERITY = {state: place for place, state in enumerate(_WORST_FIRST)}

_TASK_ENDS = {
    TaskState.SUCCEEDED: TaskEvent.SUCCEED,
    TaskState.FAILED: TaskEvent.FAIL,
    TaskState.TIMED_OUT: TaskEvent.TIME_OUT,
    TaskState.CANCELLED: TaskEvent.CANCEL,
}

MAX_MESSAGE: Final = 2_000
"""Characters of what a node says about the end of a step."""
MAX_CODE: Final = 64
"""Characters of the code of a refusal."""
NEVER_AN_END = frozenset({AttemptState.REFUSED, AttemptState.LOST, AttemptState.PREEMPTED})
"""Attempts after which a task is tried again, unless it was tried too often."""
REFUSED_CAUSE = "refused"
ALREADY_ENDED: Final = "already-ended"
"""Code of the refusal of a step under whose id its node has had another one."""
UNASKED: Final = "unasked"
"""Code of a refusal that gives back what the node was not lent."""
LOST_CAUSE = "lost"
SPAWN_FAILED_CAUSE = "spawn-failed"


def order_stop(table: JobTable, job: LiveJob, attempt: Attempt, absent: Collection[StepId] = ()) -> None:
    """Tell its nodes to end what is left of it (again: whoever is being ended already is not hurried).

    Args:
        absent: steps that their node has just said it does not hold: not asked to save anything, since only a plain
            stop of what is not held is refused, which ends the step here.
    """
    for node, step in attempt.steps_left(job.id):
        orders = table.draft.order(node)
        if attempt.stopping in TAKEN_BACK:
            eviction = _eviction(job, attempt)
            orders.evictions.setdefault(replace(eviction, signal="") if step in absent else eviction, []).append(step)
        else:
            orders.stops.setdefault(STOP_REASONS[attempt.stopping], []).append(step)


def order_as_it_is(table: JobTable, job: LiveJob, attempt: Attempt) -> None:
    """Tell its nodes again that it is suspended, or goes on; nothing for one that never was."""
    if attempt.taking is None or not attempt.taking.times:
        return
    for node, step in attempt.steps_left(job.id):
        orders = table.draft.order(node)
        told = orders.suspends if attempt.suspended else orders.resumes
        if step not in told:
            told.append(step)


def _eviction(job: LiveJob, attempt: Attempt) -> Eviction:
    taking = attempt.taking or Taking()
    grace_ms = max(taking.due_ms - taking.at_ms, 0)
    if taking.mode != PreemptMode.CHECKPOINT or attempt.started_ms is None:
        return Eviction(grace_ms=grace_ms)
    name = job.spec.signal.name if job.spec.signal else CHECKPOINT_SIGNAL
    return Eviction(name, max(grace_ms - LAST_GRACE_MS, 0))


def taken_for(attempt: Attempt) -> str:
    """For whom it was taken back, in words."""
    taking = attempt.taking or Taking()
    if taking.lent_by:
        return f"preempted by job {taking.for_job}: {taking.lent_by} gets back what it had lent"
    quality = f" (QOS {taking.qos})" if taking.qos else ""
    return f"preempted by job {taking.for_job}{quality}"


def _told_for_whom(attempt: Attempt, message: str) -> str:
    """What its keeper says of an attempt that was taken back, which knows no more than that it was, with for whom."""
    if not message or message.startswith(KEEPERS_WORD):
        return taken_for(attempt) + message.removeprefix(KEEPERS_WORD)
    return f"{taken_for(attempt)}; {message}"


KEEPERS_WORD = "preempted"
"""How a keeper's report of an attempt that was taken back begins."""
CHECKPOINT_SIGNAL = "USR2"
"""Asks a program to save its work, where its job names no signal of its own."""
STOP_REASONS = {
    CANCELLED: StopReason.CANCELLED,
    REQUEUED: StopReason.PREEMPTED,
    SIBLING: StopReason.SIBLING,
    BOOKING_OVER: StopReason.TIMED_OUT,
}
"""What the keeper is told, by why an attempt is being ended."""


def stop(table: JobTable, job: LiveJob, attempt: Attempt, why: str) -> Attempt:
    """Begin to end an active attempt; it ends when its steps have."""
    state = attempt.state
    if state is not AttemptState.FINALISING:
        state = transition(ATTEMPT, state, AttemptEvent.FINALISE)
    stopping = mark(table, job, attempt, replace(attempt, state=state, stopping=why))
    order_stop(table, job, stopping)
    return stopping


# ── reports ───────────────────────────────────────────────────────────────────────────────────────────────────────


def started(table: JobTable, node: str, steps: Sequence[StepStarted], now_ms: int) -> None:
    """Processes of these steps run."""
    touched: dict[int, LiveJob] = {}
    for report in steps:
        found = None if table.is_foreign(node, report.step) else active(table, node, report.step)
        if found is not None and found[1].suspended:
            table.draft.order(node).suspends.append(report.step)  # it had not begun when that was asked
        if found is None or found[1].started_ms is not None:
            continue
        job, attempt = table.touch(report.step.job), found[1]
        at_ms = _within(report.at_ms, attempt.allocated_ms, now_ms)
        state = attempt.state
        if state in (AttemptState.ALLOCATED, AttemptState.PREPARING):
            state = walk(ATTEMPT, state, _TO_RUNNING[state])
            if attempt.suspended:
                state = transition(ATTEMPT, state, AttemptEvent.SUSPEND)
        mark(table, job, attempt, replace(attempt, state=state, started_ms=at_ms))
        _note_started(table, job, attempt, node)
        table.started(job, at_ms, now_ms)
        touched[job.id] = job
    for job in touched.values():
        table.settle(job, now_ms, f"node:{node}")


def exited(table: JobTable, node: str, exits: Sequence[StepExit], now_ms: int) -> None:
    """These steps have ended; all of them are acknowledged once this is durable."""
    touched: dict[int, LiveJob] = {}
    acks = table.draft.order(node).acks
    for report in exits:
        acks.append(report.step)
        found = active(table, node, report.step)
        if table.is_foreign(node, report.step):
            if found is not None:
                touched[report.step.job] = _taken_id(table, *found, report.step, now_ms)
            continue
        heir = credit.pass_on(table, report, node, now_ms)
        if found is None:
            continue
        job, attempt = table.touch(report.step.job), found[1]
        touched[job.id] = job
        if report.started_ms:
            credit.seen(table, job, report.ended_ms - report.started_ms)
        end = _step_end(report, attempt, now_ms)
        if report.started_ms and attempt.started_ms is None:
            at_ms = _within(report.started_ms, attempt.allocated_ms, now_ms)
            state = attempt.state
            if state in (AttemptState.ALLOCATED, AttemptState.PREPARING):
                state = walk(ATTEMPT, state, _TO_RUNNING[state])
            attempt = mark(table, job, attempt, replace(attempt, state=state, started_ms=at_ms))
            _note_started(table, job, attempt, node)
            table.started(job, at_ms, now_ms)
        _step_ended(table, job, attempt, end, now_ms, f"node:{node}")
        if heir is not None and attempt.stopping in TAKEN_BACK:
            # Its place was to come free for others, and went on before the node heard of that.
            stop(table, job, replace(heir, taking=attempt.taking), attempt.stopping)
    credit.tell_engine(table)
    for job in touched.values():
        table.settle(job, now_ms, f"node:{node}")


def _taken_id(table: JobTable, job: LiveJob, attempt: Attempt, step: StepId, now_ms: int) -> LiveJob:
    """Its node held another attempt under its id, which has ended, and now starts none of that id any more."""
    job = table.touch(job.id)
    message = f"{ALREADY_ENDED}: its node held another attempt of that number, from before the store was replaced"
    end = StepEnd(step.rank, REFUSED_CAUSE, 0, 0, now_ms, message)
    _step_ended(table, job, attempt, end, now_ms, f"node:{attempt.nodes[step.rank]}")
    return job


def refused(table: JobTable, node: str, refusals: Sequence[Refusal], now_ms: int) -> None:
    """These steps were not started; no process of them exists.

    `already-ended` of an attempt that is active here: a power failure took from the store an attempt of this number,
    and not from the keeper; or the store was restored, and the keeper had the attempt of this number that it forgot.
    Its end is not known any more; what is told now is that it does not run.
    """
    touched: dict[int, LiveJob] = {}
    for refusal in refusals:
        found = active(table, node, refusal.step)
        if found is None:
            continue
        job, attempt = table.touch(refusal.step.job), found[1]
        touched[job.id] = job
        code, message = one_line(refusal.code, MAX_CODE), one_line(refusal.message, MAX_MESSAGE)
        if code in GIVEN_BACK and code != PROLOG_FAILED and not attempt.credit:
            code = UNASKED  # nothing was lent: it is not tried again at once
        table.draft.note(
            EventKind.STARTS_REFUSED,
            f"node:{node}",
            job.trace_id,
            job.id,
            {
                "id": str(AttemptId(job.id, attempt.task, attempt.attempt)),
                "code": code,
                "message": message,
            },
        )
        if code == PROLOG_FAILED:
            prolog_failed(table, node, refusal.step, message, now_ms)
        end = StepEnd(refusal.step.rank, REFUSED_CAUSE, 0, 0, now_ms, f"{code}: {message}")
        _step_ended(table, job, attempt, end, now_ms, f"node:{node}")
    for job in touched.values():
        table.settle(job, now_ms, f"node:{node}")


def lost(table: JobTable, job: LiveJob, attempt: Attempt, node: str, message: str, now_ms: int) -> None:
    """What it had on that node is gone without a trace. The caller settles the job."""
    for rank, name in enumerate(attempt.nodes):
        current = job.active.get(attempt.task)
        if current is None or current.attempt != attempt.attempt:
            return
        if name == node and all(end.rank != rank for end in current.steps):
            end = StepEnd(rank, LOST_CAUSE, 0, 0, now_ms, message)
            _step_ended(table, job, current, end, now_ms, f"node:{node}")


# ── ends ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _step_ended(table: JobTable, job: LiveJob, attempt: Attempt, end: StepEnd, now_ms: int, cause: str) -> None:
    ends = (*attempt.steps, end)
    if len(ends) < len(attempt.nodes):
        attempt = mark(table, job, attempt, replace(attempt, steps=ends))
        if _outcome_of(end) is not AttemptState.SUCCEEDED and not attempt.stopping:
            stop(table, job, attempt, SIBLING)
        return
    decisive = min(ends, key=lambda e: _severity(e, attempt))
    attempt = replace(attempt, steps=ends if len(ends) > 1 else ())
    # The attempt is over with its last step, whichever of them decides how it ended, and never before it began.
    over_ms = max(*(e.ended_ms for e in ends), attempt.started_ms or 0)
    outcome = _intended(attempt, _outcome_of(decisive))
    _attempt_ended(table, job, attempt, outcome, replace(decisive, ended_ms=over_ms), _summed(ends), now_ms, cause)


def _severity(end: StepEnd, attempt: Attempt) -> tuple[int, int, int]:
    outcome = _outcome_of(end)
    if attempt.stopping == SIBLING and outcome is AttemptState.CANCELLED:
        # It ended because another one had: that one decides, unless nothing else did.
        return (len(_SEVERITY) - 2, end.ended_ms, end.rank)
    return (_SEVERITY[outcome], end.ended_ms, end.rank)


def _outcome_of(end: StepEnd) -> AttemptState:
    if end.cause == REFUSED_CAUSE:
        return refusal_end(end.message.partition(":")[0])
    return attempt_end(end.cause, end.exit_code)


def _intended(attempt: Attempt, outcome: AttemptState) -> AttemptState:
    """What an attempt that was being ended on purpose ends as: a success that came first stays one. One that was not
    cannot have been preempted, whatever its node says: it is not tried again at once."""
    if outcome is AttemptState.PREEMPTED and not attempt.stopping:
        return AttemptState.LOST
    if outcome is AttemptState.SUCCEEDED or attempt.stopping not in (CANCELLED, REQUEUED, *TAKEN_BACK):
        return outcome
    return AttemptState.CANCELLED if attempt.stopping in (CANCELLED, EVICTED) else AttemptState.PREEMPTED


def _summed(ends: Sequence[StepEnd]) -> dict[str, int] | None:
    """What all steps used together; of the memory the largest single step."""
    total: dict[str, int] = {}
    for end in ends:
        for name, amount in (end.usage or {}).items():
            so_far = total.get(name, 0)
            total[name] = max(so_far, amount) if name == "max_rss_bytes" else min(so_far + amount, MAX_COUNT)
    return total or None


def _attempt_ended(
    table: JobTable,
    job: LiveJob,
    attempt: Attempt,
    outcome: AttemptState,
    end: StepEnd,
    usage: dict[str, int] | None,
    now_ms: int,
    cause: str,
) -> None:
    state = _ended(attempt.state, _declared(attempt.state, outcome))
    ran = attempt.started_ms is not None or end.cause == SPAWN_FAILED_CAUSE
    exit_code = end.exit_code if ran and end.cause not in (LOST_CAUSE, REFUSED_CAUSE) else None
    taken = attempt.stopping in TAKEN_BACK and state in (AttemptState.PREEMPTED, AttemptState.CANCELLED)
    message = _told_for_whom(attempt, end.message) if taken else end.message
    table.draft.ended_attempts[(job.id, attempt.task, attempt.attempt)] = AttemptEnd(
        job=job.id,
        task=attempt.task,
        attempt=attempt.attempt,
        state=state,
        ended_ms=end.ended_ms,
        cause=end.cause,
        exit_code=exit_code,
        signal=end.signal or None,
        usage=usage,
        message=message,
        started_ms=attempt.started_ms,
        steps=attempt.steps or None,
    )
    item = {
        "id": f"{job.id}.{attempt.task}.{attempt.attempt}",
        "state": state.value,
        "exit_code": exit_code,
        "cause": end.cause,
        "message": message,
    }
    table.draft.note(EventKind.ATTEMPTS_ENDED, cause, job.trace_id, job.id, item)
    refusal = end.message.partition(":")[0] if end.cause == REFUSED_CAUSE else ""
    following = after_attempt(job.spec, attempt.attempt, attempt.retries, state, refusal=refusal)
    if taken:
        following = replace(following, reason=taken_for(attempt))
    elif refusal == PROLOG_FAILED and not following.state.ended:
        reason = end.message.partition(": ")[2]
        following = replace(
            following, reason=f"the prolog of {attempt.nodes[end.rank]} failed for attempt {attempt.attempt}: {reason}"
        )
    table.at_epilog.pop((job.id, attempt.task, attempt.attempt), None)
    table.failed_gates.pop((job.id, attempt.task, attempt.attempt), None)
    del job.active[attempt.task]
    if following.state.ended:
        _task_ends(table, job, attempt, state, following, end, exit_code)
    else:
        _task_waits_again(table, job, attempt, following, now_ms)


def _task_waits_again(table: JobTable, job: LiveJob, attempt: Attempt, following: Next, now_ms: int) -> None:
    before = TaskState(attempt.state)
    after = walk(TASK, before, (TaskEvent.REQUEUE, TaskEvent.HOLD) if job.hold else (TaskEvent.REQUEUE,))
    job.counts.move(before, after)
    job.restarts += 1
    retries = attempt.retries + following.counts_as_retry
    eligible_ms = now_ms + following.delay_ms if following.delay_ms else 0
    span = Span(attempt.task, 1, after, attempt.attempt + 1, eligible_ms, retries, following.reason)
    job.spans = put(job.spans, (span,))
    # Which task of an array with a limit the engine hears of next is decided when the job is settled.
    if credit.unknown_to_engine(table, job, attempt):
        table.enter(job, span)
    else:
        again = not job.hold and not job.window
        table.draft.feed.end(job.id, attempt.task, attempt.attempt, again, eligible_ms if again else 0, now_ms)


def _task_ends(
    table: JobTable,
    job: LiveJob,
    attempt: Attempt,
    state: AttemptState,
    following: Next,
    end: StepEnd,
    exit_code: int | None,
) -> None:
    before, event = TaskState(attempt.state), _TASK_ENDS[following.state]
    after = walk(TASK, before, (event,) if TASK.allows(before, event) else (TaskEvent.FINALISE, event))
    job.counts.move(before, after)
    if after is TaskState.SUCCEEDED and job.spec.array is not None:
        job.succeeded = added(job.succeeded, attempt.task, attempt.task + 1)
    table.note_tasks(job, attempt.task, 1, before, after)
    if exit_code is not None:
        job.exit_code = max(exit_code, job.exit_code or 0)
    if state in NEVER_AN_END:
        # No end of the attempt's own: the span says how the task ended.
        span = Span(attempt.task, 1, after, attempt.attempt + 1, 0, attempt.retries, following.reason)
        job.spans = put(job.spans, (span,))
    if following.state is not TaskState.SUCCEEDED and not (attempt.stopping == CANCELLED and job.reason):
        # Of a job that was cancelled, who did it says more than that its steps were.
        job.reason = _end_text(job, attempt, following.reason or end.cause, end)
    if not credit.unknown_to_engine(table, job, attempt):
        table.draft.feed.end(job.id, attempt.task, attempt.attempt, False, 0, end.ended_ms)


def _end_text(job: LiveJob, attempt: Attempt, reason: str, end: StepEnd) -> str:
    what = f"task {attempt.task}: " if job.spec.array else ""
    detail = end.message or (
        f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}" if end.exit_code else ""
    )
    if attempt.stopping in TAKEN_BACK:
        return f"{what}{reason}"
    if attempt.stopping == BOOKING_OVER:
        detail = f"booking '{job.spec.booking}' was over"
    if detail.startswith(reason):  # "cancelled", and of it "cancelled before its process was started"
        return f"{what}{detail}"
    return f"{what}{reason} ({detail})" if detail else f"{what}{reason}"


def _declared(state: AttemptState, outcome: AttemptState) -> AttemptState:
    """A start that is refused when a part of the gang has run already ends as preempted: tried again, not counted."""
    if outcome is AttemptState.REFUSED and not ATTEMPT.allows(state, AttemptEvent.REFUSE):
        return AttemptState.PREEMPTED
    return outcome


def _ended(state: AttemptState, outcome: AttemptState) -> AttemptState:
    event = END_EVENTS[outcome]
    return walk(ATTEMPT, state, (event,) if ATTEMPT.allows(state, event) else (AttemptEvent.FINALISE, event))


_TO_RUNNING = {
    AttemptState.ALLOCATED: (AttemptEvent.PREPARE, AttemptEvent.START),
    AttemptState.PREPARING: (AttemptEvent.START,),
}


def mark(table: JobTable, job: LiveJob, before: Attempt, after: Attempt) -> Attempt:
    """An attempt that goes on in another state."""
    if before.state is not after.state:
        job.counts.move(TaskState(before.state), TaskState(after.state))
    job.active[after.task] = after
    table.draft.marked_attempts[(job.id, after.task, after.attempt)] = after
    return after


def _note_started(table: JobTable, job: LiveJob, attempt: Attempt, node: str) -> None:
    table.draft.note(
        EventKind.ATTEMPTS_STARTED, f"node:{node}", job.trace_id, job.id, f"{job.id}.{attempt.task}.{attempt.attempt}"
    )


def active(table: JobTable, node: str, step: StepId) -> tuple[LiveJob, Attempt] | None:
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


def _within(at_ms: int, low: int, high: int) -> int:
    """A node's clock may differ from ours: what it says is kept between the allocation and now."""
    return max(low, min(at_ms, high)) if at_ms else high


def _step_end(report: StepExit, attempt: Attempt, now_ms: int) -> StepEnd:
    return StepEnd(
        report.step.rank,
        str(report.cause),
        report.code,
        report.signal,
        _within(report.ended_ms, attempt.allocated_ms, now_ms),
        one_line(report.message, MAX_MESSAGE),
        msgspec.structs.asdict(report.usage),
    )


def attempts_on(table: JobTable, node: str) -> Iterable[tuple[LiveJob, Attempt]]:
    """Active attempts with a step on that node that has not ended."""
    for job_id in sorted(table.busy):
        job = table.jobs[job_id]
        for attempt in list(job.active.values()):
            if any(name == node for name, _ in attempt.steps_left(job.id)):
                yield job, attempt
