"""Steps on credit at the keeper: a place goes on inside the node, and comes back when nobody is left to take it."""

from __future__ import annotations

from hal.core.model import StepId
from hal.daemons.agent.keeper.reports import COMPANY_MS
from hal.wire.frames.agent_keeper import (
    AgentKeeperFrame,
    Exits,
    Recall,
    Refused,
    Start,
    Started,
    StepExit,
    StepStart,
    Stop,
    StopReason,
)
from tests.daemons.agent.keeper.in_memory import TRUE, Bench, MemoryJournal

CREDIT_MS = 250
HEAD, SECOND, THIRD = (StepId(1, task, 1, 0) for task in range(3))
OTHER = StepId(2, 0, 1, 0)


def exits(frames: list[AgentKeeperFrame]) -> list[StepExit]:
    return [one for frame in frames if isinstance(frame, Exits) for one in frame.exits]


def refusals(frames: list[AgentKeeperFrame]) -> dict[StepId, str]:
    return {one.step: one.code for frame in frames if isinstance(frame, Refused) for one in frame.steps}


def on_credit(bench: Bench, *steps: StepId) -> list[AgentKeeperFrame]:
    starts = tuple(StepStart(step, 0, f"token-{step}", ("n1",), step.task, 3, 0, CREDIT_MS) for step in steps)
    return bench.send(Start(epoch=1, stamp_boot_ms=bench.stamp, templates=(TRUE,), steps=starts))


def chain() -> Bench:
    """The first runs, two wait on credit."""
    bench = Bench()
    bench.attach()
    bench.start(HEAD)
    bench.spawn(HEAD)
    on_credit(bench, SECOND, THIRD)
    assert bench.spawner.launched == [HEAD]
    return bench


def test_the_place_of_a_step_that_ends_goes_on_and_its_exit_says_to_whom() -> None:
    """One after the other, in the order in which they came; the last one's place is free."""
    bench = chain()
    told = bench.end(HEAD)
    assert bench.spawner.launched == [HEAD, SECOND]
    bench.spawn(SECOND)
    told += bench.end(SECOND)
    bench.spawn(THIRD)
    told += bench.end(THIRD)
    assert bench.spawner.launched == [HEAD, SECOND, THIRD]
    assert [(one.step, one.next) for one in exits(told)] == [(HEAD, SECOND), (SECOND, THIRD), (THIRD, None)]


def test_a_step_that_failed_to_start_or_was_killed_passes_its_place_on_as_well() -> None:
    """The tasks of an array do not answer for each other."""
    bench = chain()
    bench.end(HEAD, -9)
    assert bench.spawner.launched == [HEAD, SECOND]


def test_only_a_step_of_the_same_job_passes_its_place_on() -> None:
    """The engine gave the other job its place for itself."""
    bench = chain()
    bench.start(OTHER)
    bench.spawn(OTHER)
    assert [one.next for one in exits(bench.end(OTHER))] == [None]
    assert bench.spawner.launched == [HEAD, OTHER]


def test_credit_that_is_over_is_given_back_and_never_begun_after_all() -> None:
    """At 250 ms they are refused; the place comes free later; a start that comes again is refused the same way."""
    bench = chain()
    assert refusals(bench.turn(CREDIT_MS - 1)) == {}
    assert refusals(bench.turn(1)) == {SECOND: "credit-over", THIRD: "credit-over"}
    assert [one.next for one in exits(bench.end(HEAD))] == [None]
    assert refusals(on_credit(bench, SECOND)) == {SECOND: "credit-over"}
    assert bench.spawner.launched == [HEAD]


def test_a_wake_comes_when_credit_ends() -> None:
    """It is not left to the next event."""
    bench = chain()
    bench.turn(COMPANY_MS)
    assert bench.core.next_wake(bench.now) - bench.boot_ms == CREDIT_MS - COMPANY_MS


def test_a_recall_takes_back_what_waits_and_leaves_alone_what_has_a_place() -> None:
    """The first runs, the second got its place just now, the third is refused."""
    bench = chain()
    bench.end(HEAD)
    assert refusals(bench.send(Recall(epoch=1, steps=(HEAD, SECOND, THIRD)))) == {THIRD: "recalled"}
    bench.spawn(SECOND)
    assert [one.next for one in exits(bench.end(SECOND))] == [None]


def test_a_recall_of_an_old_leader_is_not_heard() -> None:
    """Its epoch is over."""
    bench = chain()
    assert refusals(bench.send(Recall(epoch=0, steps=(SECOND,)))) == {}


def test_a_stop_of_all_ends_those_that_wait_before_any_of_them_could_inherit() -> None:
    """Three exits, no further launch."""
    bench = chain()
    bench.send(Stop(epoch=1, steps=(HEAD, SECOND, THIRD), reason=StopReason.CANCELLED))
    told = bench.end(HEAD, -15)
    assert [one.next for one in exits(told)] == [None]
    assert bench.spawner.launched == [HEAD]


def test_a_place_that_was_taken_away_for_other_work_is_not_passed_on() -> None:
    """The controller has given it to somebody else."""
    bench = chain()
    bench.send(Stop(epoch=1, steps=(HEAD,), reason=StopReason.PREEMPTED))
    assert [one.next for one in exits(bench.end(HEAD, -15))] == [None]
    assert bench.spawner.launched == [HEAD]


def test_exits_whose_place_went_on_wait_for_company_and_others_take_them_along() -> None:
    """Nobody waits for them; a free place is told at once. A start whose end is told is not told itself."""
    bench = chain()
    bench.turn(COMPANY_MS)
    assert bench.end(HEAD) == []
    assert bench.spawn(SECOND) == []
    frames = bench.turn(COMPANY_MS)
    assert [type(frame) for frame in frames] == [Started, Exits]
    assert bench.end(SECOND) == []
    bench.spawn(THIRD)
    (frame,) = bench.end(THIRD)
    assert [one.step for one in exits([frame])] == [SECOND, THIRD]


def test_exits_are_told_in_the_order_in_which_steps_ended_to_a_new_agent_too() -> None:
    """A controller that follows a place from step to step must not meet them backwards."""
    bench = chain()
    bench.turn(COMPANY_MS)
    bench.end(HEAD)
    bench.turn(COMPANY_MS)
    bench.spawn(SECOND)
    bench.end(SECOND)
    assert [one.step for one in exits(bench.attach())] == [HEAD, SECOND]


def test_a_restarted_keeper_finds_the_heir_in_the_journal_and_does_not_begin_it() -> None:
    """The exit still names it; what of it became is the spawner's to tell."""
    bench = chain()
    bench.end(HEAD)
    again = Bench(MemoryJournal())
    again.journal.records = bench.journal.records
    again = Bench(again.journal)
    assert [(one.step, one.next) for one in exits(again.attach())] == [(HEAD, SECOND)]
    assert again.spawner.adopted == [SECOND, THIRD]
    assert again.spawner.launched == []


def test_a_stop_of_what_was_given_back_is_answered_again() -> None:
    """The first refusal may have died with the controller that was to hear it: it asks for the end of each step."""
    bench = chain()
    bench.turn(CREDIT_MS)
    bench.attach()
    told = bench.send(Stop(epoch=1, steps=(SECOND, THIRD), reason=StopReason.CANCELLED))
    assert refusals(told) == {SECOND: "credit-over", THIRD: "credit-over"}
