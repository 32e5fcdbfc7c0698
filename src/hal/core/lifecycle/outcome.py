"""What follows from the end of an attempt: the end of the task, or another attempt and when.

Pure. The rules:

1. Success ends the task as succeeded, a cancel as cancelled, the time limit as timed-out: a task that was too slow once
is not retried automatically, because it would hold its nodes for another whole limit.
2. A failure, or running out of memory, is retried while retries are left, after the spec's back-off; then the task has
failed.
3. Refused, preempted (or evicted) and lost attempts are not the task's fault: it is pending again, and no retry is
counted. After a refusal or a loss the task waits a little longer each time, so that a node that refuses or loses
everything is not used in a loop; a task that a node returned before its credit was used waits only for its turn.
4. No task has more than MAX_ATTEMPTS attempts, whatever ended them: then it has failed.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from hal.core.model import AttemptState, InternalError, JobSpec, TaskState

MAX_ATTEMPTS: Final = 10_000
"""Attempts of one task, those that count as retries and those that do not."""
AGAIN_DELAY_MS: Final = 250
"""Delay after the first attempt that was refused or lost; doubles with each attempt of the task."""
AGAIN_DELAY_MAX_MS: Final = 30_000
PROLOG_FAILED: Final = "prolog-failed"
"""Refusal of a start because the node's prolog failed. The node accepts nothing more, so another may run the task at
once."""
GATE_ELSEWHERE: Final = "gate-elsewhere"
"""Refusal of a start because a gate that the job names is not satisfied on that node, and says that the task goes
elsewhere."""
GATE_FAILED: Final = "gate-failed"
"""Refusal of a start, or cause of a step's end, because a gate that the job names failed: so has the attempt."""
NO_ACCOUNT: Final = "no-account"
"""Refusal of a start because that node does not know the user, or does not serve them."""
FOREIGN_USER: Final = "foreign-user"
"""Refusal of a start because that node runs only its owner's steps."""
NOT_FOR_USER: Final = frozenset({NO_ACCOUNT, FOREIGN_USER})
SECRETS_ELSEWHERE: Final = "secrets-elsewhere"
"""Refusal of a start because that node cannot hold the secrets that the job names, or must not be sent them."""
SECRETS_UNDELIVERED: Final = "secrets-undelivered"
"""Refusal of a start because its secrets could not be put on the node now."""
SECRET_MISSING: Final = "secret-missing"
"""Refusal of a start because a secret that the job names is not there (any more): the attempt has failed."""
NOT_BEGUN_HERE: Final = frozenset({PROLOG_FAILED, GATE_ELSEWHERE, SECRETS_ELSEWHERE}) | NOT_FOR_USER
"""Refusals because of the node, which the task does not use again: another may run it at once."""
GIVEN_BACK: Final = frozenset({"credit-over", "recalled"}) | NOT_BEGUN_HERE
"""Refusals without a delay: of starts on credit, and those where nothing was wrong."""

REFUSAL_CODES_OF_THE_TASK: Final = frozenset({"spawn-failed", "bad-workdir", GATE_FAILED, SECRET_MISSING})
"""Refusals that the task would get on every node, or that say so: they are failures of the task."""


class Next(Struct, frozen=True):
    """What happens to the task next."""

    state: TaskState
    """An end, or pending for another attempt."""
    delay_ms: int = 0
    """Delay of the next attempt."""
    counts_as_retry: bool = False
    reason: str = ""
    """For people: why it is tried again, or why it is not."""


def after_attempt(spec: JobSpec, attempt: int, retries_used: int, outcome: AttemptState, *, refusal: str = "") -> Next:
    """Decide what follows when attempt number `attempt` (from 1) of a task has ended as `outcome`.

    Args:
        retries_used: retries counted before this attempt.
        refusal: the code of a refused start.
    Raises:
        InternalError: `outcome` is not an end.
    """
    match outcome:
        case AttemptState.SUCCEEDED:
            return Next(TaskState.SUCCEEDED)
        case AttemptState.CANCELLED:
            return Next(TaskState.CANCELLED)
        case AttemptState.TIMED_OUT:
            return Next(TaskState.TIMED_OUT, reason="it reached its time limit")
        case AttemptState.FAILED | AttemptState.OUT_OF_MEMORY:
            return _after_failure(spec, attempt, retries_used, outcome)
        case AttemptState.REFUSED | AttemptState.PREEMPTED | AttemptState.LOST:
            if attempt >= MAX_ATTEMPTS:
                return Next(TaskState.FAILED, reason=f"{outcome} at attempt {attempt}, the last that is allowed")
            delay_ms = 0 if outcome is AttemptState.PREEMPTED or refusal in GIVEN_BACK else _again_delay_ms(attempt)
            return Next(TaskState.PENDING, delay_ms, reason=f"attempt {attempt} was {outcome}")
    raise InternalError(f"attempt {attempt} is {outcome}, which is not an end")


def attempt_end(cause: str, exit_code: int) -> AttemptState:
    """Return how a step with that exit cause and code ends its attempt.

    Args:
        cause: a value of the wire's ExitCause.
    Raises:
        InternalError: an unknown cause.
    """
    if cause == "exited":
        return AttemptState.SUCCEEDED if exit_code == 0 else AttemptState.FAILED
    state = _ENDS_BY_CAUSE.get(cause)
    if state is None:
        raise InternalError(
            f"'{cause}' is not a cause of a step's end", hint=f"known: exited, {', '.join(_ENDS_BY_CAUSE)}"
        )
    return state


def refusal_end(code: str) -> AttemptState:
    """Return how a refused start ends its attempt: `failed` if the task itself is the reason, else `refused`."""
    return AttemptState.FAILED if code in REFUSAL_CODES_OF_THE_TASK else AttemptState.REFUSED


_ENDS_BY_CAUSE: Final[dict[str, AttemptState]] = {
    "signalled": AttemptState.FAILED,
    "spawn-failed": AttemptState.FAILED,
    GATE_FAILED: AttemptState.FAILED,
    "timed-out": AttemptState.TIMED_OUT,
    "cancelled": AttemptState.CANCELLED,
    "preempted": AttemptState.PREEMPTED,
    "out-of-memory": AttemptState.OUT_OF_MEMORY,
    "lost": AttemptState.LOST,
}


TASK_STATE_OF: Final[dict[AttemptState, TaskState]] = {
    AttemptState.ALLOCATED: TaskState.ALLOCATED,
    AttemptState.PREPARING: TaskState.PREPARING,
    AttemptState.RUNNING: TaskState.RUNNING,
    AttemptState.SUSPENDED: TaskState.SUSPENDED,
    AttemptState.FINALISING: TaskState.FINALISING,
    AttemptState.SUCCEEDED: TaskState.SUCCEEDED,
    AttemptState.FAILED: TaskState.FAILED,
    AttemptState.OUT_OF_MEMORY: TaskState.FAILED,
    AttemptState.TIMED_OUT: TaskState.TIMED_OUT,
    AttemptState.CANCELLED: TaskState.CANCELLED,
}
"""The state of a task by that of its latest attempt, if the task does not wait for another one.

Refused, preempted and lost are missing: after these a task waits, or has failed for a reason other than the attempt.
"""


def _after_failure(spec: JobSpec, attempt: int, retries_used: int, outcome: AttemptState) -> Next:
    what = "ran out of memory" if outcome is AttemptState.OUT_OF_MEMORY else "failed"
    if retries_used < spec.retries.max and attempt < MAX_ATTEMPTS:
        retry = retries_used + 1
        reason = f"attempt {attempt} {what}; retry {retry} of {spec.retries.max}"
        return Next(TaskState.PENDING, spec.retries.delay_ms(retry), counts_as_retry=True, reason=reason)
    return Next(TaskState.FAILED, reason=f"attempt {attempt} {what}")


def _again_delay_ms(attempt: int) -> int:
    doublings = min(max(attempt - 1, 0), 16)
    return min(AGAIN_DELAY_MS << doublings, AGAIN_DELAY_MAX_MS)
