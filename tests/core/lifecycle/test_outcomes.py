"""The end of an attempt at its bounds: the last attempt, the longest wait, refusals with a meaning of their own."""

from __future__ import annotations

import pytest

from hal.core.lifecycle import MAX_ATTEMPTS, TASK_STATE_OF, after_attempt, after_extension, attempt_end, refusal_end
from hal.core.model import AttemptState, Duration, InternalError, JobSpec, Retries, TaskState

SPEC = JobSpec(command=("true",), retries=Retries(max=20_000, backoff=Duration(1_000)))


@pytest.mark.parametrize("outcome", [AttemptState.FAILED, AttemptState.REFUSED, AttemptState.LOST])
def test_the_last_attempt_but_one_is_followed_by_another(outcome: AttemptState) -> None:
    """9,999 of 10,000."""
    assert after_attempt(SPEC, MAX_ATTEMPTS - 1, 0, outcome).state is TaskState.PENDING


@pytest.mark.parametrize("outcome", [AttemptState.FAILED, AttemptState.REFUSED, AttemptState.LOST])
def test_nothing_follows_the_last_attempt(outcome: AttemptState) -> None:
    """Whatever retries are left."""
    assert after_attempt(SPEC, MAX_ATTEMPTS, 0, outcome).state is TaskState.FAILED


@pytest.mark.parametrize(("attempt", "delay_ms"), [(7, 16_000), (8, 30_000), (MAX_ATTEMPTS - 1, 30_000)])
def test_a_lost_task_waits_twice_as_long_each_time_and_half_a_minute_at_most(attempt: int, delay_ms: int) -> None:
    """250 ms x 64 is 16 s; x 128 would be 32 s."""
    assert after_attempt(SPEC, attempt, 0, AttemptState.LOST).delay_ms == delay_ms


@pytest.mark.parametrize("refusal", ["credit-over", "recalled", "prolog-failed", "no-account", "foreign-user"])
def test_a_start_that_was_given_back_is_not_waited_for(refusal: str) -> None:
    """Another node may have the task at once."""
    assert after_attempt(SPEC, 3, 0, AttemptState.REFUSED, refusal=refusal).delay_ms == 0


@pytest.mark.parametrize("refusal", ["spawn-failed", "bad-workdir"])
def test_what_every_node_would_refuse_fails_the_task(refusal: str) -> None:
    """Asking the next node would not help."""
    assert refusal_end(refusal) is AttemptState.FAILED


def test_a_task_is_what_its_latest_attempt_is() -> None:
    """By the same name, but for the memory that ran out: that is a failure."""
    named = {attempt: str(task) for attempt, task in TASK_STATE_OF.items()}
    assert named.pop(AttemptState.OUT_OF_MEMORY) == "failed"
    assert named == {attempt: str(attempt) for attempt in named}


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (AttemptState.SUCCEEDED, ""),
        (AttemptState.TIMED_OUT, "it reached its time limit"),
        (AttemptState.FAILED, "attempt 10000 failed"),
        (AttemptState.OUT_OF_MEMORY, "attempt 10000 ran out of memory"),
        (AttemptState.LOST, "lost at attempt 10000, the last that is allowed"),
    ],
)
def test_people_are_told_why_a_task_has_ended(outcome: AttemptState, reason: str) -> None:
    """With the number of the attempt."""
    assert after_attempt(SPEC, MAX_ATTEMPTS, 0, outcome).reason == reason


def test_people_are_told_why_a_task_waits_again() -> None:
    """A refusal is no failure."""
    assert after_attempt(SPEC, 2, 0, AttemptState.REFUSED).reason == "attempt 2 was refused"


def test_an_unknown_cause_is_answered_with_those_that_are_known() -> None:
    """Every cause of the wire."""
    with pytest.raises(InternalError) as refused:
        attempt_end("evaporated", 0)
    assert refused.value.hint == (
        "known: exited, signalled, spawn-failed, gate-failed, timed-out, cancelled, preempted, out-of-memory, lost"
    )


@pytest.mark.parametrize("state", [AttemptState.FAILED, AttemptState.TIMED_OUT, AttemptState.OUT_OF_MEMORY])
def test_an_extension_that_ends_badly_waits_again_longer_each_time(state: AttemptState) -> None:
    """1 s after its first failure, 4 s after the third, whatever the retries of its job. The 40 attempts that left for
    others in between count for nothing."""
    spec = JobSpec(command=("x",), extensions=2)
    delays = [after_extension(spec, 40 + n, n, after_attempt(spec, 40 + n, n, state)).delay_ms for n in (0, 2)]
    assert delays == [1_000, 4_000]
    following = after_extension(spec, 1, 0, after_attempt(spec, 1, 0, state))
    assert (following.state, following.counts_as_retry) == (TaskState.PENDING, True)


def test_an_extension_of_a_job_with_quick_retries_waits_for_a_second_nevertheless() -> None:
    """Nothing else bounds how often it begins again: while retries are left, and after them."""
    spec = JobSpec(command=("x",), extensions=2, retries=Retries(max=1, backoff=Duration(10), factor=1.0))
    for failures in (0, 1, 2):
        following = after_attempt(spec, failures + 1, failures, AttemptState.FAILED)
        assert after_extension(spec, failures + 1, failures, following).delay_ms == 1_000


@pytest.mark.parametrize(
    ("state", "end"),
    [
        (AttemptState.SUCCEEDED, TaskState.SUCCEEDED),
        (AttemptState.CANCELLED, TaskState.CANCELLED),
        (AttemptState.LOST, TaskState.PENDING),
    ],
)
def test_other_ends_of_an_extension_are_those_of_any_task(state: AttemptState, end: TaskState) -> None:
    spec = JobSpec(command=("x",), extensions=2)
    following = after_attempt(spec, 1, 0, state)
    assert after_extension(spec, 1, 0, following) is following
    assert following.state is end


@pytest.mark.parametrize("state", [AttemptState.FAILED, AttemptState.LOST])
def test_an_extension_is_cancelled_when_no_attempt_is_left(state: AttemptState) -> None:
    """Never failed: that would be its job's end."""
    spec = JobSpec(command=("x",), extensions=2)
    following = after_extension(spec, MAX_ATTEMPTS, 0, after_attempt(spec, MAX_ATTEMPTS, 0, state))
    assert following.state is TaskState.CANCELLED
