"""What follows from an attempt's end, what a job is when its tasks are this, and what gates say."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.core.lifecycle import (
    MAX_ATTEMPTS,
    TASK_STATE_OF,
    Gate,
    GateDecision,
    GateRegister,
    LifecycleError,
    Next,
    TaskCounts,
    after_attempt,
    attempt_end,
    job_state,
    refusal_end,
)
from hal.core.model import AttemptState, Duration, InternalError, JobSpec, Retries, TaskState
from hal.core.model.gate import GatePhase, GatePolicy

SPEC = JobSpec(command=("true",), retries=Retries(max=2, backoff=Duration(1_000), factor=3.0, longest=Duration(60_000)))


@pytest.mark.parametrize(
    ("outcome", "used", "state", "delay_ms", "counts"),
    [
        (AttemptState.SUCCEEDED, 0, TaskState.SUCCEEDED, 0, False),
        (AttemptState.CANCELLED, 0, TaskState.CANCELLED, 0, False),
        (AttemptState.TIMED_OUT, 0, TaskState.TIMED_OUT, 0, False),
        (AttemptState.FAILED, 0, TaskState.PENDING, 1_000, True),
        (AttemptState.FAILED, 1, TaskState.PENDING, 3_000, True),
        (AttemptState.FAILED, 2, TaskState.FAILED, 0, False),
        (AttemptState.OUT_OF_MEMORY, 1, TaskState.PENDING, 3_000, True),
        (AttemptState.OUT_OF_MEMORY, 2, TaskState.FAILED, 0, False),
        (AttemptState.LOST, 2, TaskState.PENDING, 500, False),
        (AttemptState.PREEMPTED, 2, TaskState.PENDING, 0, False),
        (AttemptState.REFUSED, 2, TaskState.PENDING, 500, False),
    ],
)
def test_what_follows_from_an_attempt(
    outcome: AttemptState, used: int, state: TaskState, delay_ms: int, counts: bool
) -> None:
    """Two retries, 1 s then 3 s; a time limit is not tried again; lost, preempted and refused cost no retry."""
    after = after_attempt(SPEC, attempt=2, retries_used=used, outcome=outcome)
    assert (after.state, after.delay_ms, after.counts_as_retry) == (state, delay_ms, counts)


@given(
    st.sampled_from([state for state in AttemptState if state.ended]),
    st.integers(0, 1_000),
    st.integers(1, MAX_ATTEMPTS + 1),
)
def test_safety_no_task_is_tried_for_ever(outcome: AttemptState, max_retries: int, attempt: int) -> None:
    """At the last allowed attempt every outcome is an end; before it, a retry is counted only for the task's fault."""
    spec = msgspec.structs.replace(SPEC, retries=Retries(max=max_retries))
    after = after_attempt(spec, attempt, 0, outcome)
    assert after.state.ended or (after.state is TaskState.PENDING and attempt < MAX_ATTEMPTS)
    assert not after.counts_as_retry or outcome in (AttemptState.FAILED, AttemptState.OUT_OF_MEMORY)
    assert after.delay_ms >= 0


@pytest.mark.parametrize("code", ["credit-over", "recalled"])
def test_what_a_node_gave_back_waits_no_longer_than_its_turn(code: str) -> None:
    """Nothing was wrong with the node or the task."""
    assert after_attempt(SPEC, 3, 0, AttemptState.REFUSED, refusal=code).delay_ms == 0
    assert after_attempt(SPEC, 3, 0, AttemptState.REFUSED, refusal="no-lease").delay_ms == 1_000


def test_refusals_wait_longer_each_time_up_to_a_bound() -> None:
    """250 ms, 500 ms, … 30 s: a node that refuses everything is not asked in a loop."""
    delays = [after_attempt(SPEC, n, 0, AttemptState.REFUSED).delay_ms for n in range(1, 12)]
    assert delays[:4] == [250, 500, 1_000, 2_000]
    assert delays[-1] == 30_000


def test_an_attempt_that_goes_on_has_no_next() -> None:
    """Asking what follows from a running attempt is a fault."""
    with pytest.raises(InternalError, match="running, which is not an end"):
        after_attempt(SPEC, 1, 0, AttemptState.RUNNING)


def test_the_reason_of_a_retry_is_told() -> None:
    """People see which try failed and how many are left."""
    assert after_attempt(SPEC, 1, 0, AttemptState.FAILED) == Next(
        TaskState.PENDING, 1_000, True, "attempt 1 failed; retry 1 of 2"
    )


@pytest.mark.parametrize(
    ("cause", "code", "state"),
    [
        ("exited", 0, AttemptState.SUCCEEDED),
        ("exited", 3, AttemptState.FAILED),
        ("signalled", 139, AttemptState.FAILED),
        ("spawn-failed", 127, AttemptState.FAILED),
        ("timed-out", 143, AttemptState.TIMED_OUT),
        ("timed-out", 0, AttemptState.TIMED_OUT),
        ("cancelled", 0, AttemptState.CANCELLED),
        ("preempted", 143, AttemptState.PREEMPTED),
        ("out-of-memory", 137, AttemptState.OUT_OF_MEMORY),
        ("lost", 0, AttemptState.LOST),
    ],
)
def test_an_exit_ends_its_attempt_by_cause(cause: str, code: int, state: AttemptState) -> None:
    """The cause decides; only a plain exit is judged by its code."""
    assert attempt_end(cause, code) is state


def test_an_unknown_cause_is_a_fault() -> None:
    """A newer keeper's cause must not be guessed at."""
    with pytest.raises(InternalError, match="'evaporated' is not a cause"):
        attempt_end("evaporated", 0)


def test_a_refusal_that_every_node_would_give_is_the_tasks_failure() -> None:
    """A program that is not there is not looked for on all nodes in turn."""
    assert refusal_end("spawn-failed") is AttemptState.FAILED
    assert refusal_end("bad-workdir") is AttemptState.FAILED
    assert refusal_end("no-lease") is AttemptState.REFUSED


def test_only_ends_that_say_nothing_of_the_task_have_no_task_state() -> None:
    """Refused, preempted and lost attempts are followed by a span."""
    absent = set(AttemptState) - TASK_STATE_OF.keys()
    assert absent == {AttemptState.REFUSED, AttemptState.PREEMPTED, AttemptState.LOST}


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        (TaskCounts(pending=3), TaskState.PENDING),
        (TaskCounts(held=3), TaskState.HELD),
        (TaskCounts(pending=1, held=2), TaskState.PENDING),
        (TaskCounts(pending=999, allocated=1), TaskState.ALLOCATED),
        (TaskCounts(pending=999, running=1), TaskState.RUNNING),
        (TaskCounts(running=1, finalising=9), TaskState.RUNNING),
        (TaskCounts(suspended=2, pending=1), TaskState.SUSPENDED),
        (TaskCounts(held=1, succeeded=9), TaskState.HELD),
        (TaskCounts(pending=1, failed=9), TaskState.PENDING),
        (TaskCounts(succeeded=9), TaskState.SUCCEEDED),
        (TaskCounts(succeeded=9, cancelled=1), TaskState.CANCELLED),
        (TaskCounts(cancelled=9, timed_out=1), TaskState.TIMED_OUT),
        (TaskCounts(timed_out=9, failed=1), TaskState.FAILED),
    ],
)
def test_a_job_is_what_its_furthest_live_task_is_or_its_worst_end(counts: TaskCounts, state: TaskState) -> None:
    """One of a thousand that runs makes the job run; one of a thousand that failed makes it fail."""
    assert job_state(counts) is state


def test_a_job_without_tasks_is_a_fault() -> None:
    """There is nothing to say about it."""
    with pytest.raises(InternalError, match="without tasks"):
        job_state(TaskCounts())


@given(st.lists(st.tuples(st.sampled_from(TaskState), st.sampled_from(TaskState), st.integers(0, 5))))
def test_safety_counts_neither_lose_nor_invent_tasks(moves: list[tuple[TaskState, TaskState, int]]) -> None:
    """Whatever is moved, the total stays; more than is there cannot leave."""
    counts = TaskCounts()
    counts.move(None, TaskState.PENDING, 10)
    for before, after, count in moves:
        have = counts.of(before)
        if count > have:
            with pytest.raises(InternalError, match="should leave"):
                counts.move(before, after, count)
        else:
            counts.move(before, after, count)
        assert counts.total == 10
    assert counts.live == sum(counts.of(state) for state in TaskState if not state.ended)
    assert counts.active == sum(counts.of(state) for state in TaskState if state.active)


# ── gates ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def gate(name: str, policy: GatePolicy = GatePolicy.FAIL, deadline_ms: int = 1_000) -> Gate:
    """A gate on preparing."""
    return Gate(name=name, phase=GatePhase.PREPARING, deadline_ms=deadline_ms, policy=policy)


def test_without_gates_a_task_goes_on_at_once() -> None:
    """The usual case: nothing is registered, nothing is waited for."""
    watch = GateRegister().enter(GatePhase.PREPARING, now_ms=0)
    assert watch.verdict().decision is GateDecision.GO
    assert watch.deadline_ms is None


def test_a_task_waits_for_all_gates_of_its_phase() -> None:
    """Stage-in and install stand on preparing; stage-out does not."""
    register = GateRegister().add(gate("stage-in")).add(gate("install", deadline_ms=500))
    register = register.add(Gate(name="stage-out", phase=GatePhase.FINALISING, deadline_ms=9))
    watch = register.enter(GatePhase.PREPARING, now_ms=100)
    assert watch.verdict().decision is GateDecision.WAIT
    assert watch.deadline_ms == 600  # install: 100 + 500
    watch = watch.passed("install")
    assert watch.verdict().decision is GateDecision.WAIT
    assert watch.deadline_ms == 1_100
    assert watch.passed("stage-in").verdict().decision is GateDecision.GO


def test_a_failed_gate_does_what_its_policy_says() -> None:
    """Fail, run elsewhere, or go on as if it had passed."""
    register = GateRegister().add(gate("a", GatePolicy.IGNORE)).add(gate("b", GatePolicy.ELSEWHERE)).add(gate("c"))
    watch = register.enter(GatePhase.PREPARING, 0).failed("a", "no cache")
    assert watch.verdict().decision is GateDecision.WAIT
    assert watch.passed("b").passed("c").verdict().decision is GateDecision.GO
    again = watch.failed("b", "mirror busy").verdict()
    assert (again.decision, again.gate, again.reason) == (GateDecision.ELSEWHERE, "b", "mirror busy")
    worst = watch.failed("b", "mirror busy").failed("c", "disk full").verdict()
    assert (worst.decision, worst.gate, worst.reason) == (GateDecision.FAIL, "c", "disk full")


def test_a_gate_without_an_answer_expires_at_its_deadline() -> None:
    """Exactly at the deadline, not a millisecond before; a late answer changes nothing."""
    watch = GateRegister().add(gate("stage-in", deadline_ms=500)).enter(GatePhase.PREPARING, now_ms=100)
    assert watch.expired(599) is watch
    late = watch.expired(600)
    assert late.verdict().decision is GateDecision.FAIL
    assert late.verdict().reason == "not satisfied within 500ms"
    assert late.passed("stage-in") is late
    assert late.failed("stage-in", "x") is late


@pytest.mark.parametrize(
    ("policy", "decision"),
    [
        (GatePolicy.WAIT, GateDecision.WAIT),
        (GatePolicy.ELSEWHERE, GateDecision.ELSEWHERE),
        (GatePolicy.FAIL, GateDecision.FAIL),
        (GatePolicy.IGNORE, GateDecision.GO),
    ],
)
def test_a_gate_that_cannot_be_asked_waits_if_that_is_its_policy(policy: GatePolicy, decision: GateDecision) -> None:
    """Every other policy takes effect at once."""
    watch = GateRegister().add(gate("a", policy)).enter(GatePhase.PREPARING, 0).unavailable("a", "nobody serves it")
    assert watch.verdict().decision is decision


def test_a_gate_that_waited_in_vain_expires_with_its_latest_reason() -> None:
    """Whoever reads why it failed learns what was missing."""
    watch = GateRegister().add(gate("a", GatePolicy.WAIT, 500)).enter(GatePhase.PREPARING, 0)
    expired = watch.unavailable("a", "nobody serves it").noted("a", "12 of 40 GiB").expired(500)
    assert expired.verdict().decision is GateDecision.FAIL
    assert expired.verdict().reason == "not satisfied within 500ms: 12 of 40 GiB"


def test_a_name_may_stand_once_in_each_phase() -> None:
    """Staging in and staging out may be one service."""
    register = GateRegister().add(gate("stage")).add(Gate(name="stage", phase=GatePhase.FINALISING, deadline_ms=9))
    assert register.enter(GatePhase.FINALISING, 0).passed("stage").verdict().decision is GateDecision.GO


def test_nobody_waits_for_the_gates_of_a_cancelled_task() -> None:
    """Late answers are dropped, and it never goes on."""
    watch = GateRegister().add(gate("a")).add(gate("b")).enter(GatePhase.PREPARING, 0).passed("a").abandoned()
    assert watch.deadline_ms is None
    assert watch.passed("b") is watch
    assert watch.verdict().decision is GateDecision.WAIT


def test_a_gate_that_says_both_is_a_fault() -> None:
    """Passed and then failed: the plane contradicts itself."""
    watch = GateRegister().add(gate("a")).enter(GatePhase.PREPARING, 0)
    with pytest.raises(LifecycleError, match="'fail' is not declared in state 'passed'"):
        watch.passed("a").failed("a", "after all")
    with pytest.raises(LifecycleError, match="'pass' is not declared in state 'failed'"):
        watch.failed("a", "no").passed("a")


def test_the_register_refuses_what_could_not_work() -> None:
    """A name twice, no name, no deadline, a gate that is not there, and the sixty-fifth."""
    register = GateRegister().add(gate("a"))
    with pytest.raises(InternalError, match="the name is taken"):
        register.add(gate("a"))
    with pytest.raises(InternalError, match="the name is empty"):
        register.add(gate(""))
    with pytest.raises(InternalError, match="must be positive"):
        register.add(gate("b", deadline_ms=0))
    with pytest.raises(InternalError, match="'z' does not belong to this phase") as missing:
        register.enter(GatePhase.PREPARING, 0).passed("z")
    assert missing.value.hint == "gates of this phase: a"
    for number in range(1, 64):
        register = register.add(gate(f"g{number}"))
    with pytest.raises(InternalError, match="already 64 gates"):
        register.add(gate("one too many"))
