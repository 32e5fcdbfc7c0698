"""What follows from the end of an attempt: the end of the task, or another attempt and when.

Pure. The rules:

1. Success ends the task as succeeded, a cancel as cancelled, the time limit as timed-out: a task that was too slow once
is not retried automatically, because it would hold its nodes for another whole limit.
2. A failure, or running out of memory, is retried while retries are left, after the spec's back-off; then the task has
failed.
3. Refused, preempted (or evicted) and lost attempts are not the task's fault: it is pending again, and no retry is
counted. After a refusal or a loss the task waits a little longer each time, so that a node that refuses or loses
everything is not used in a loop; a task that a node returned before its credit was used waits only for its turn.
4. A task of a service runs again after the ends that its restart policy names, too, as retries: each waits for the
back-off, and as long as an attempt ran, it gives restarts back, `retries.max` of them in a window. So a task fails when
it is restarted more often than that.
5. An extension of a job that fails waits again, longer after each failure, whatever its retries: its end is not its
job's. Leaving for others is no failure.
6. A worker that exits with 75 gives its place back: it waits again at once, and that is no failure.
7. No task has more than MAX_ATTEMPTS attempts, whatever ended them: then it has failed.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hal.core.model import AttemptState, InternalError, JobSpec, Restart, TaskState, plural

MAX_ATTEMPTS: Final = 10_000
"""Attempts of one task, those that count as retries and those that do not."""
PLACE_GIVEN_BACK: Final = 75
"""Exit code of a worker that gives its place back (EX_TEMPFAIL of sysexits.h)."""
GAVE_BACK: Final = "it gave its place back"
EXTENSION_DELAY_MS: Final = 1_000
"""Least time before an extension that failed begins again."""
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
NODE_TOO_OLD: Final = "node-too-old"
"""Refusal of a start because that node's keeper is older than what the job asks for."""
NOT_BEGUN_HERE: Final = frozenset({PROLOG_FAILED, GATE_ELSEWHERE, SECRETS_ELSEWHERE, NODE_TOO_OLD}) | NOT_FOR_USER
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
    given_back: int = 0
    """Retries that no longer count, because the attempt ran for so long."""


def after_attempt(
    spec: JobSpec, attempt: int, retries_used: int, outcome: AttemptState, *, refusal: str = "", ran_ms: int = 0
) -> Next:
    """Decide what follows when attempt number `attempt` (from 1) of a task has ended as `outcome`.

    Args:
        retries_used: retries counted before this attempt.
        refusal: the code of a refused start.
        ran_ms: how long its processes ran.
    Raises:
        InternalError: `outcome` is not an end.
    """
    always = spec.service is not None and spec.service.restart is Restart.ALWAYS
    match outcome:
        case AttemptState.SUCCEEDED:
            return _again(spec, attempt, retries_used, "ended", ran_ms) if always else Next(TaskState.SUCCEEDED)
        case AttemptState.CANCELLED:
            return Next(TaskState.CANCELLED)
        case AttemptState.TIMED_OUT:
            if always:
                following = _again(spec, attempt, retries_used, "reached its time limit", ran_ms)
                return following if not following.state.ended else replace(following, state=TaskState.TIMED_OUT)
            return Next(TaskState.TIMED_OUT, reason="it reached its time limit")
        case AttemptState.FAILED | AttemptState.OUT_OF_MEMORY:
            what = "ran out of memory" if outcome is AttemptState.OUT_OF_MEMORY else "failed"
            return _again(spec, attempt, retries_used, what, ran_ms)
        case AttemptState.REFUSED | AttemptState.PREEMPTED | AttemptState.LOST:
            if attempt >= MAX_ATTEMPTS:
                return Next(TaskState.FAILED, reason=f"{outcome} at attempt {attempt}, the last that is allowed")
            delay_ms = 0 if outcome is AttemptState.PREEMPTED or refusal in GIVEN_BACK else _again_delay_ms(attempt)
            return Next(TaskState.PENDING, delay_ms, reason=f"attempt {attempt} was {outcome}")
    raise InternalError(f"attempt {attempt} is {outcome}, which is not an end")


def after_extension(spec: JobSpec, attempt: int, failures: int, following: Next) -> Next:
    """Decide what follows for an extension, given what would for another task: the end of one is never its job's.

    One that fails, or reaches its time limit, waits again, longer each time; what no further attempt is allowed for
    is cancelled.

    Args:
        failures: counted before this attempt, as retries are; attempts that left for others are none.
    """
    failed = following.state in (TaskState.FAILED, TaskState.TIMED_OUT)
    if not (failed or following.counts_as_retry):
        return following
    if attempt >= MAX_ATTEMPTS:
        return Next(TaskState.CANCELLED, reason=f"{following.reason}; no further attempt is allowed")
    # Nothing else bounds how often it begins again.
    delay_ms = max(spec.retries.delay_ms(failures + 1), EXTENSION_DELAY_MS)
    return Next(TaskState.PENDING, delay_ms, counts_as_retry=True, reason=following.reason)


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


def _again(spec: JobSpec, attempt: int, retries_used: int, what: str, ran_ms: int) -> Next:
    """Another attempt while retries are left; of a service, of those within its window."""
    most, service = spec.retries.max, spec.service
    given_back = 0
    if service is not None:
        given_back = min(ran_ms * most // service.window, retries_used)
    retry = retries_used - given_back + 1
    if retry <= most and attempt < MAX_ATTEMPTS:
        which = f"retry {retry} of {most}" if service is None else f"restart {retry} of {most} within {service.window}"
        return Next(
            TaskState.PENDING,
            spec.retries.delay_ms(retry),
            counts_as_retry=True,
            given_back=given_back,
            reason=f"attempt {attempt} {what}; {which}",
        )
    reason = f"attempt {attempt} {what}"
    if service is not None and most and attempt < MAX_ATTEMPTS:
        reason += f", after {plural(most, 'restart')} within {service.window}"
    return Next(TaskState.FAILED, reason=reason)


def _again_delay_ms(attempt: int) -> int:
    doublings = min(max(attempt - 1, 0), 16)
    return min(AGAIN_DELAY_MS << doublings, AGAIN_DELAY_MAX_MS)
