"""When a task of a service counts as ready, and after which ends it is restarted, how often and how soon."""

from __future__ import annotations

import pytest

from hal.core.lifecycle import MAX_ATTEMPTS, after_attempt
from hal.core.lifecycle.readiness import FIRST_DELAY_MS, ReadinessWatch
from hal.core.model import AttemptState, Duration, JobSpec, Restart, Retries, Service, TaskState

WATCH = ReadinessWatch(successes=2, failures=3)
READY = WATCH.passed().passed()
OVER = "refused"


def test_it_is_starting_until_enough_answers_in_a_row_agree() -> None:
    """Two of two."""
    assert WATCH.passed().ready is None
    assert READY.ready is True


def test_a_failure_in_between_begins_the_count_anew() -> None:
    assert WATCH.passed().failed(OVER).passed().ready is None


def test_a_ready_task_stays_ready_until_enough_failures_in_a_row() -> None:
    twice = READY.failed(OVER).failed(OVER)
    assert (twice.ready, twice.passed().failed(OVER).failed(OVER).ready) == (True, True)
    assert (twice.failed(OVER).ready, twice.failed(OVER).reason) == (False, OVER)


def test_what_is_not_ready_has_its_newest_reason_and_becomes_ready_as_at_first() -> None:
    down = WATCH.failed("a").failed("b").failed("c").failed("d")
    assert (down.ready, down.reason) == (False, "d")
    assert (down.passed().ready, down.passed().passed().ready) == (False, True)


def test_a_probe_that_could_not_be_asked_leaves_a_ready_task_ready() -> None:
    """The node could not create a process, say: nobody said that the task cannot serve."""
    watch = READY
    for _ in range(10):
        watch = watch.unasked("too many")
    assert watch == READY


def test_a_starting_task_that_cannot_be_asked_is_not_ready_and_says_why() -> None:
    watch = WATCH.unasked("x").unasked("x").unasked("x")
    assert (watch.ready, watch.reason) == (False, "x")


def test_before_it_was_ready_it_is_asked_soon_and_then_ever_later() -> None:
    watch, delays = WATCH, []
    for _ in range(6):
        delays.append(watch.delay_ms(2_000, was_ready=False))
        watch = watch.failed(OVER)
    assert delays == [FIRST_DELAY_MS, 200, 400, 800, 1_600, 2_000]
    assert READY.delay_ms(2_000, was_ready=True) == 2_000


# ── restarts ──────────────────────────────────────────────────────────────────────────────────────────────────────


def spec(restart: Restart, most: int = 5, window_ms: int = 600_000) -> JobSpec:
    service = Service(restart=restart, window=Duration(window_ms))
    return JobSpec(command=("serve",), service=service, retries=Retries(max=most, backoff=Duration(1_000)))


@pytest.mark.parametrize(("restart", "outcome", "state"), [
    (Restart.ALWAYS, AttemptState.SUCCEEDED, TaskState.PENDING),
    (Restart.ALWAYS, AttemptState.TIMED_OUT, TaskState.PENDING),
    (Restart.ALWAYS, AttemptState.FAILED, TaskState.PENDING),
    (Restart.ALWAYS, AttemptState.CANCELLED, TaskState.CANCELLED),
    (Restart.ON_FAILURE, AttemptState.SUCCEEDED, TaskState.SUCCEEDED),
    (Restart.ON_FAILURE, AttemptState.TIMED_OUT, TaskState.TIMED_OUT),
    (Restart.ON_FAILURE, AttemptState.OUT_OF_MEMORY, TaskState.PENDING),
])  # fmt: skip
def test_the_policy_says_which_ends_are_followed_by_a_restart(
    restart: Restart, outcome: AttemptState, state: TaskState
) -> None:
    """Nothing brings back what a person cancelled."""
    assert after_attempt(spec(restart), 1, 0, outcome).state is state


def test_a_service_that_is_never_restarted_ends_as_its_attempt_did() -> None:
    assert after_attempt(spec(Restart.NEVER, 0), 1, 0, AttemptState.FAILED).state is TaskState.FAILED


def test_a_restart_waits_for_the_back_off() -> None:
    """Of 1 s, doubled: the third one."""
    following = after_attempt(spec(Restart.ALWAYS), 3, 2, AttemptState.SUCCEEDED)
    assert (following.delay_ms, following.counts_as_retry) == (4_000, True)
    assert following.reason == "attempt 3 ended; restart 3 of 5 within 10m"


def test_one_restart_more_than_the_window_allows_fails_the_task_whatever_its_exit_code() -> None:
    following = after_attempt(spec(Restart.ALWAYS), 6, 5, AttemptState.SUCCEEDED)
    assert (following.state, following.reason) == (
        TaskState.FAILED,
        "attempt 6 ended, after 5 restarts within 10m",
    )


def test_as_long_as_it_runs_restarts_are_given_back() -> None:
    """5 in 10 minutes: one for every 2 that it ran; 5 minutes give 2 back, of which the next one is taken."""
    following = after_attempt(spec(Restart.ALWAYS), 6, 5, AttemptState.FAILED, ran_ms=300_000)
    assert (following.state, following.given_back) == (TaskState.PENDING, 2)
    assert following.reason == "attempt 6 failed; restart 4 of 5 within 10m"


def test_a_whole_window_gives_all_of_them_back() -> None:
    following = after_attempt(spec(Restart.ALWAYS), 6, 3, AttemptState.FAILED, ran_ms=10**12)
    assert (following.given_back, following.delay_ms) == (3, 1_000)


def test_retries_of_other_jobs_are_never_given_back() -> None:
    plain = JobSpec(command=("x",), retries=Retries(max=2))
    assert after_attempt(plain, 3, 2, AttemptState.FAILED, ran_ms=10**12).state is TaskState.FAILED


def test_nothing_restarts_more_often_than_any_task() -> None:
    following = after_attempt(spec(Restart.ALWAYS), MAX_ATTEMPTS, 0, AttemptState.SUCCEEDED)
    assert following.state is TaskState.FAILED
