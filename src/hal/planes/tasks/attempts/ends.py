"""How an attempt ended that all its steps have left, and what follows for its task: a judgement, applied by the table.

Pure. The result of a gang is that of its worst step, unless its command runs on its first node alone. What a node says
is kept within what can be: instants between the allocation and now, texts of one line and a bounded length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from hal.core.lifecycle import (
    ATTEMPT,
    END_EVENTS,
    GAVE_BACK,
    PLACE_GIVEN_BACK,
    AttemptEvent,
    Next,
    after_attempt,
    after_extension,
    attempt_end,
    refusal_end,
    walk,
)
from hal.core.lifecycle.outcome import (
    GATE_FAILED,
    NODE_TOO_OLD,
    NOT_BEGUN_HERE,
    NOT_FOR_USER,
    PROLOG_FAILED,
    SECRETS_ELSEWHERE,
)
from hal.core.model import AttemptState, TaskState, format_duration, one_line
from hal.planes.tasks.live.attempt import (
    BOOKING_OVER,
    CANCELLED,
    EVICTED,
    PREEMPTED,
    PREEMPTING,
    REQUEUED,
    SIBLING,
    Attempt,
)
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.table.attempt_changes import AttemptOver
from hal.store.operations import MAX_MESSAGE, AttemptEnd, Preemption, StepEnd
from hal.wire.bounds import MAX_COUNT
from hal.wire.frames.agent_keeper import ExitCause, StepExit

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

_SEVERITY = {state: index for index, state in enumerate(_WORST_FIRST)}

REFUSED_CAUSE = "refused"
LOST_CAUSE = "lost"
SPAWN_FAILED_CAUSE = "spawn-failed"
_WITHOUT_CODE: Final = (LOST_CAUSE, REFUSED_CAUSE, GATE_FAILED)
"""Causes of an end that no exit code of a process explains."""
BY_PROLOG: Final = "the prolog of "
BY_GATE: Final = "a gate of "
BY_USER: Final = "its user cannot run on "
BY_SECRETS: Final = "no secrets on "
BY_AGE: Final = "an older HAL runs on "
NOT_BEGUN_REASONS: Final = (BY_PROLOG, BY_GATE, BY_USER, BY_SECRETS, BY_AGE)
"""How the reason of a task begins that a node did not let begin there."""
KEEPERS_WORD = "preempted"
"""How a keeper's report of an attempt that was preempted begins."""
EVICTED_BY = "evicted by "
"""How the reason of tasks begins that a person evicted."""


def instant_within(at_ms: int, low: int, high: int) -> int:
    """A node's clock may differ from ours: what it says is kept between the allocation and now."""
    return max(low, min(at_ms, high)) if at_ms else high


def step_end(report: StepExit, attempt: Attempt, now_ms: int) -> StepEnd:
    """The end of a step as its node reports it."""
    return StepEnd(
        report.step.rank,
        str(report.cause),
        report.code,
        report.signal,
        instant_within(report.ended_ms, attempt.allocated_ms, now_ms),
        one_line(report.message, MAX_MESSAGE),
        msgspec.structs.asdict(report.usage),
    )


def step_outcome(end: StepEnd) -> AttemptState:
    """How an attempt of this step alone would have ended."""
    if end.cause == REFUSED_CAUSE:
        return refusal_end(end.message.partition(":")[0])
    return attempt_end(end.cause, end.exit_code)


def preempted_for(attempt: Attempt) -> str:
    """For whom it was preempted, or by whom it was evicted, in words."""
    preemption = attempt.preemption or Preemption()
    if preemption.by:
        return f"{EVICTED_BY}{preemption.by}" + (f": {preemption.reason}" if preemption.reason else "")
    if preemption.lent_by:
        return f"preempted by job {preemption.for_job}: {preemption.lent_by} reclaims its quota"
    if preemption.nodes:
        wait_ms = preemption.alone_ms - preemption.at_ms
        waited = f" {format_duration(wait_ms)}" if preemption.alone_ms else ""
        return (
            f"moved to make room for job {preemption.for_job} (its {preemption.nodes} nodes would have waited{waited})"
        )
    quality = f" (QOS {preemption.qos})" if preemption.qos else ""
    return f"preempted by job {preemption.for_job}{quality}"


def judge_attempt(job: LiveJob, attempt: Attempt, ends: tuple[StepEnd, ...]) -> AttemptOver:
    """How the attempt ended, all of whose steps have, and what follows for its task."""
    decisive = _decisive(job, attempt, ends)
    # The attempt ends with its last step, whichever step decides how it ended, and never before it began.
    end = replace(decisive, ended_ms=max(*(one.ended_ms for one in ends), attempt.started_ms or 0))
    outcome = _of_worker(job, attempt, end, _intended(attempt, step_outcome(decisive)))
    state = _ended(attempt.state, _declared(attempt, outcome))
    ran = attempt.started_ms is not None or end.cause == SPAWN_FAILED_CAUSE
    preempted = attempt.stopping in PREEMPTING and state in (AttemptState.PREEMPTED, AttemptState.CANCELLED)
    row = AttemptEnd(
        job=job.id,
        task=attempt.task,
        attempt=attempt.attempt,
        state=state,
        ended_ms=end.ended_ms,
        cause=end.cause,
        exit_code=end.exit_code if ran and end.cause not in _WITHOUT_CODE else None,
        signal=end.signal or None,
        usage=_summed(ends),
        message=_with_preemptor(attempt, end.message) if preempted else _with_node(attempt, end),
        started_ms=attempt.started_ms,
        steps=ends if len(ends) > 1 else None,
        more_nodes=attempt.nodes[1:],
    )
    following = _following(job, attempt, state, end, preempted=preempted)
    return AttemptOver(row, following, _job_reason(job, attempt, following, end))


def _following(job: LiveJob, attempt: Attempt, state: AttemptState, end: StepEnd, *, preempted: bool) -> Next:
    refusal = end.message.partition(":")[0] if end.cause == REFUSED_CAUSE else ""
    ran_ms = 0 if attempt.started_ms is None else max(end.ended_ms - attempt.started_ms, 0)
    following = after_attempt(job.spec, attempt.attempt, attempt.retries, state, refusal=refusal, ran_ms=ran_ms)
    if job.spec.is_extension(attempt.task) or (job.spec.workers and state is AttemptState.TIMED_OUT):
        following = after_extension(job.spec, attempt.attempt, attempt.retries, following)
    if preempted:
        return replace(following, reason=preempted_for(attempt))
    if _gave_back(job, end) and not attempt.stopping and not following.state.ended:
        return replace(following, reason=GAVE_BACK)
    if refusal in NOT_BEGUN_HERE and not following.state.ended:
        node, reason = attempt.nodes[end.rank], end.message.partition(": ")[2]
        if refusal == PROLOG_FAILED:
            return replace(following, reason=f"{BY_PROLOG}{node} failed for attempt {attempt.attempt}: {reason}")
        if refusal in NOT_FOR_USER:
            return replace(following, reason=f"{BY_USER}{node} (attempt {attempt.attempt}): {reason}")
        if refusal == SECRETS_ELSEWHERE:
            return replace(following, reason=f"{BY_SECRETS}{node} for attempt {attempt.attempt}: {reason}")
        if refusal == NODE_TOO_OLD:
            return replace(following, reason=f"{BY_AGE}{node} (attempt {attempt.attempt}): {reason}")
        return replace(following, reason=f"{BY_GATE}{node} sent attempt {attempt.attempt} elsewhere: {reason}")
    return following


def _with_node(attempt: Attempt, end: StepEnd) -> str:
    """What the node says of the end; of a gang of which a step was not begun, with the node's name."""
    if end.cause == REFUSED_CAUSE and len(attempt.nodes) > 1:
        return f"{end.message} (on {attempt.nodes[end.rank]})"
    return end.message


def _with_preemptor(attempt: Attempt, message: str) -> str:
    """What its keeper says of an attempt that was preempted, which knows no more than that it was, with for whom."""
    if not message or message == KEEPERS_WORD:
        return preempted_for(attempt)
    if message.startswith(KEEPERS_WORD) and not attempt.evicted_by_person:
        return preempted_for(attempt) + message.removeprefix(KEEPERS_WORD)
    return f"{preempted_for(attempt)}; {message}"


def _decisive(job: LiveJob, attempt: Attempt, ends: Sequence[StepEnd]) -> StepEnd:
    """The end that decides: the worst; but if the first rank that ended badly was refused, that refusal. What the
    others did without it, or when they were stopped for it, says nothing about them. Where the first node alone runs
    the command, its end decides if it was the first: the others were only held for it."""
    if len(ends) == 1:
        return ends[0]
    if job.spec.first_node and not ends[0].rank and attempt.stopping in ("", SIBLING):
        return ends[0]
    worst = min(ends, key=lambda end: _severity(end, attempt))
    first = next((end for end in ends if step_outcome(end) is not AttemptState.SUCCEEDED), worst)
    refused = first.cause == REFUSED_CAUSE and step_outcome(worst) is not AttemptState.LOST
    return first if refused and attempt.stopping in ("", SIBLING) else worst


def _severity(end: StepEnd, attempt: Attempt) -> tuple[int, int, int]:
    outcome = step_outcome(end)
    if attempt.stopping == SIBLING and outcome is AttemptState.CANCELLED:
        # It ended because another one had: that one decides, unless nothing else did.
        return (len(_SEVERITY) - 2, end.ended_ms, end.rank)
    return (_SEVERITY[outcome], end.ended_ms, end.rank)


def _intended(attempt: Attempt, outcome: AttemptState) -> AttemptState:
    """What an attempt that was being ended on purpose ends as: a success that came first stays one. One that was not
    cannot have been preempted, whatever its node says: it is not tried again at once."""
    if outcome is AttemptState.PREEMPTED and not attempt.stopping:
        return AttemptState.LOST
    if outcome is AttemptState.SUCCEEDED or attempt.stopping not in (CANCELLED, REQUEUED, *PREEMPTING):
        return outcome
    return AttemptState.CANCELLED if attempt.stopping in (CANCELLED, EVICTED) else AttemptState.PREEMPTED


def _gave_back(job: LiveJob, end: StepEnd) -> bool:
    return job.spec.workers and end.cause == ExitCause.EXITED and end.exit_code == PLACE_GIVEN_BACK


def _of_worker(job: LiveJob, attempt: Attempt, end: StepEnd, outcome: AttemptState) -> AttemptState:
    """A worker that gives its place back is tried again, not counted; one that was told to leave and exits with 0 has
    left, which does not say that no work is left."""
    left = outcome is AttemptState.SUCCEEDED and attempt.stopping in (REQUEUED, PREEMPTED)
    if job.spec.workers and (left or (outcome is AttemptState.FAILED and _gave_back(job, end))):
        return AttemptState.PREEMPTED
    return outcome


def _declared(attempt: Attempt, outcome: AttemptState) -> AttemptState:
    """What its only step ran and its node nevertheless refuses ends as preempted: tried again, not counted."""
    if outcome is AttemptState.REFUSED and attempt.started_ms is not None and len(attempt.nodes) == 1:
        return AttemptState.PREEMPTED
    return outcome


def _ended(state: AttemptState, outcome: AttemptState) -> AttemptState:
    event = END_EVENTS[outcome]
    return walk(ATTEMPT, state, (event,) if ATTEMPT.allows(state, event) else (AttemptEvent.FINALISE, event))


def _summed(ends: Sequence[StepEnd]) -> dict[str, int] | None:
    """What all steps used together; of the memory the largest single step."""
    if len(ends) == 1:
        return ends[0].usage or None
    total: dict[str, int] = {}
    for end in ends:
        for name, amount in (end.usage or {}).items():
            so_far = total.get(name, 0)
            if name == "max_rss_bytes":
                total[name] = max(so_far, amount)
            elif name == "cgroup":  # what was counted of all steps
                total[name] = total.get(name, amount) & amount
            else:
                total[name] = min(so_far + amount, MAX_COUNT)
    return total or None


def _job_reason(job: LiveJob, attempt: Attempt, following: Next, end: StepEnd) -> str | None:
    """The job's reason after its task has ended; None where that says nothing new."""
    if not following.state.ended or following.state is TaskState.SUCCEEDED:
        return None
    if attempt.stopping == CANCELLED and job.reason:
        return None  # of a job that was cancelled, who did it says more than that its steps were
    reason = following.reason or end.cause
    what = f"task {attempt.task}: " if job.spec.array else ""
    detail = _with_node(attempt, end) or (
        f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}" if end.exit_code else ""
    )
    if attempt.stopping in PREEMPTING:
        return f"{what}{reason}"
    if attempt.stopping == BOOKING_OVER:
        detail = f"booking '{job.spec.booking}' was over"
    if detail.startswith(reason):  # "cancelled", and of it "cancelled before its process was started"
        return f"{what}{detail}"
    return f"{what}{reason} ({detail})" if detail else f"{what}{reason}"
