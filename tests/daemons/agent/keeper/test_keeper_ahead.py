"""Steps on credit that wait at their helper: a place goes on there, and the keeper hears of it afterwards."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper.helper_journal import HelperJournal
from hal.daemons.agent.keeper.ports import Ended, Spawned, SpawnerEvent, SpawnFailed, Unspawned
from hal.runtime.identity import kill
from hal.wire.frames.agent_keeper import (
    AgentKeeperFrame,
    ExitCause,
    Exits,
    Recall,
    Refused,
    Start,
    StepExit,
    StepStart,
    StepTemplate,
    Stop,
    StopReason,
    Usage,
)
from tests.daemons.agent.keeper.driving import Keeper
from tests.daemons.agent.keeper.in_memory import TRUE, Bench, MemoryJournal

CREDIT_MS = 250
HEAD, SECOND, THIRD, FOURTH = (StepId(1, task, 1, 0) for task in range(4))


def exits(frames: list[AgentKeeperFrame]) -> list[tuple[StepId, StepId | None]]:
    return [(one.step, one.next) for one in whole_exits(frames)]


def whole_exits(frames: list[AgentKeeperFrame]) -> list[StepExit]:
    return [one for frame in frames if isinstance(frame, Exits) for one in frame.exits]


def refusals(frames: list[AgentKeeperFrame]) -> dict[StepId, str]:
    return {one.step: one.code for frame in frames if isinstance(frame, Refused) for one in frame.steps}


def chain(*, ahead: int = 2, template: StepTemplate = TRUE) -> Bench:
    """The first runs, three wait on credit, so many of them where it runs."""
    bench = Bench()
    bench.spawner.capacity_ahead = ahead
    bench.attach()
    bench.start(HEAD, template=template)
    bench.spawn(HEAD)
    starts = tuple(
        StepStart(step, 0, f"token-{step}", ("n1",), step.task, 4, 0, CREDIT_MS) for step in (SECOND, THIRD, FOURTH)
    )
    bench.send(Start(epoch=1, stamp_boot_ms=bench.stamp, templates=(template,), steps=starts))
    return bench


def ended(bench: Bench, step: StepId, heir: StepId | None = None) -> Ended:
    return Ended(step, 0, Usage(), bench.now.wall_ms, heir=heir)


def spawned(bench: Bench, step: StepId) -> Spawned:
    return Spawned(step, 100 + step.task, bench.now.wall_ms, bench.boot_ms)


def pass_slot(bench: Bench, step: StepId, heir: StepId) -> tuple[SpawnerEvent, SpawnerEvent]:
    return ended(bench, step, heir), spawned(bench, heir)


def test_places_that_went_on_at_a_helper_are_told_as_they_went() -> None:
    """Two ends and beginnings told together; the keeper itself launches neither, and hands on the third."""
    bench = chain()
    assert bench.spawner.ahead == [SECOND, THIRD]
    bench.spawner.ahead.clear()
    told = bench.tell(*pass_slot(bench, HEAD, SECOND), *pass_slot(bench, SECOND, THIRD))
    assert bench.spawner.ahead == [FOURTH]
    told += bench.tell(*pass_slot(bench, THIRD, FOURTH))
    told += bench.tell(ended(bench, FOURTH))
    assert exits(told) == [(HEAD, SECOND), (SECOND, THIRD), (THIRD, FOURTH), (FOURTH, None)]
    assert bench.spawner.launched == [HEAD]


def test_a_step_that_could_not_be_spawned_passes_its_place_on() -> None:
    """Its helper has begun the next."""
    bench = chain()
    failed = SpawnFailed(SECOND, 127, "no such program", bench.now.wall_ms, THIRD)
    told = bench.tell(ended(bench, HEAD, SECOND), failed, spawned(bench, THIRD))
    told += bench.turn(CREDIT_MS)
    assert exits(told) == [(HEAD, SECOND), (SECOND, THIRD)]


def test_what_waits_at_a_helper_is_asked_back_and_refused_only_when_it_came_back() -> None:
    """The one that had begun just then runs, the other is refused; one that waits here is refused at once."""
    bench = chain()
    told = bench.send(Recall(epoch=1, steps=(SECOND, THIRD, FOURTH)))
    assert refusals(told) == {FOURTH: "recalled"}
    assert bench.spawner.recalled == [SECOND, THIRD]
    told = bench.tell(*pass_slot(bench, HEAD, SECOND), Unspawned(THIRD))
    assert refusals(told) == {THIRD: "recalled"}
    assert exits(told) == [(HEAD, SECOND)]
    assert exits(bench.tell(ended(bench, SECOND))) == [(SECOND, None)]


def test_credit_that_is_over_is_asked_back() -> None:
    """At 250 ms; what comes back by itself after that is refused the same way."""
    bench = chain()
    assert refusals(bench.turn(CREDIT_MS)) == {FOURTH: "credit-over"}
    assert bench.spawner.recalled == [SECOND, THIRD]
    assert refusals(bench.tell(Unspawned(SECOND), Unspawned(THIRD))) == {
        SECOND: "credit-over",
        THIRD: "credit-over",
    }


def test_what_a_dead_helper_had_not_begun_waits_here_again_before_the_others() -> None:
    """It inherits as before: the keeper passes the place on itself."""
    bench = chain()
    bench.spawner.capacity_ahead = 0
    told = bench.tell(Unspawned(SECOND), Unspawned(THIRD))
    assert refusals(told) == {}
    assert exits(bench.tell(ended(bench, HEAD)) + bench.turn(CREDIT_MS - 1)) == [(HEAD, SECOND)]
    assert bench.spawner.launched == [HEAD, SECOND]


def test_a_place_that_is_taken_away_is_closed_before_its_step_hears_of_it() -> None:
    """Asked back first; they wait here, nothing is handed on meanwhile, and the place is passed on to nobody."""
    bench = chain()
    bench.send(Stop(epoch=1, steps=(HEAD,), reason=StopReason.PREEMPTED))
    assert bench.spawner.recalled == [SECOND, THIRD]
    assert bench.spawner.signals == [(HEAD, signal.SIGTERM)]
    bench.spawner.ahead.clear()
    bench.tell(Unspawned(SECOND), Unspawned(THIRD))
    assert bench.spawner.ahead == []
    assert exits(bench.end(HEAD, -15)) == [(HEAD, None)]
    assert bench.spawner.launched == [HEAD]


def test_a_place_that_had_gone_on_before_it_was_taken_away_is_given_up_by_whoever_has_it() -> None:
    """Two tasks further: the last one makes room, as the first was to."""
    bench = chain()
    bench.send(Stop(epoch=1, steps=(HEAD,), reason=StopReason.PREEMPTED))
    told = bench.tell(*pass_slot(bench, HEAD, SECOND), *pass_slot(bench, SECOND, THIRD))
    assert bench.spawner.signals == [(HEAD, signal.SIGTERM), (THIRD, signal.SIGTERM)]
    told += bench.end(THIRD, -15)
    assert [(one.step, one.cause, one.next) for one in whole_exits(told)] == [
        (HEAD, ExitCause.PREEMPTED, SECOND),
        (SECOND, ExitCause.EXITED, THIRD),
        (THIRD, ExitCause.PREEMPTED, None),
    ]


def test_whoever_has_a_place_that_was_taken_away_has_no_longer_than_who_had_it() -> None:
    """Ten seconds from the request to leave; the place had gone on, which the keeper hears after eight."""
    bench = chain()
    bench.send(Stop(epoch=1, steps=(HEAD,), reason=StopReason.PREEMPTED, grace_ms=10_000))
    bench.turn(8_000)
    bench.tell(*pass_slot(bench, HEAD, SECOND))
    bench.turn(1_999)
    assert bench.spawner.killed == []
    bench.turn(1)
    assert bench.spawner.killed == [SECOND]


def test_a_cancelled_step_that_waits_ends_when_it_has_come_back() -> None:
    """Until then it may just be beginning; the place is not lost by it."""
    bench = chain()
    told = bench.send(Stop(epoch=1, steps=(SECOND, THIRD, FOURTH), reason=StopReason.CANCELLED))
    assert bench.spawner.recalled == [SECOND, THIRD]
    assert exits(told) == [(FOURTH, None)]
    told = bench.tell(*pass_slot(bench, HEAD, SECOND), Unspawned(THIRD))
    assert exits(told) == [(HEAD, SECOND), (THIRD, None)]
    assert bench.spawner.signals == [(SECOND, signal.SIGTERM)]


def test_guarded_steps_never_go_ahead_of_their_keeper() -> None:
    """They may begin only while it has a lease, which it alone knows."""
    bench = chain(template=StepTemplate(command=("true",), guard=True))
    assert bench.spawner.ahead == []


def test_the_next_keeper_tells_of_places_that_went_on_after_the_last_one_died() -> None:
    """What helpers journalled says who inherited from whom."""
    bench = chain()
    again = MemoryJournal()
    again.records = bench.journal.records
    bench = Bench(again)
    bench.attach()
    told = bench.tell(*pass_slot(bench, HEAD, SECOND), Unspawned(THIRD))
    told += bench.tell(ended(bench, SECOND))
    assert exits(told) == [(HEAD, SECOND), (SECOND, None)]


def test_a_journal_names_the_heir_only_of_an_end_that_it_still_holds(tmp_path: Path) -> None:
    """Of a journal that was rewritten: whoever has the place runs, and that is all."""
    path = tmp_path / "helper.log"
    path.write_text(
        "H 1 2 boot 1\nI 1.1.1.0 - 1.0.1.0\nP 1.1.1.0 7 5 5\nX 2 1.1.1.0 0 6 0 0 1 0 0 0\nI 1.2.1.0 - 1.1.1.0\n"
    )
    journal = HelperJournal(path)
    journal.read()
    assert journal.steps.keys() == {SECOND, THIRD}
    end = journal.steps[SECOND].end
    assert isinstance(end, Ended)
    assert end.heir == THIRD
    assert journal.steps[THIRD].end is None


# ── real processes ────────────────────────────────────────────────────────────────────────────────────────────────

MANY = [StepId(1, task, 1, 0) for task in range(40)]


def noting(directory: Path) -> StepTemplate:
    """Each step says that it ran; the first waits for a file `go`."""
    script = (
        f"[ $HAL_TASK -gt 0 ] || while [ ! -e {directory}/go ]; do sleep 0.01; done; echo $HAL_TASK >> {directory}/ran"
    )
    return StepTemplate(command=("sh", "-c", script))


def launch_chain(keeper: Keeper, directory: Path, credit_ms: int = 60_000) -> None:
    """The first runs until `go`; the others wait at its helper and in the keeper."""
    keeper.launch(noting(directory), MANY[0])
    keeper.running(MANY[0])
    keeper.launch(noting(directory), *MANY[1:], credit_ms=credit_ms)
    keeper.stamp()


def ran(directory: Path) -> list[int]:
    return sorted(int(line) for line in (directory / "ran").read_text().split())


def test_a_chain_of_short_steps_runs_each_once_and_every_exit_names_the_next(tmp_path: Path) -> None:
    """Most of them begin without the keeper, which tells of all in order."""
    with Keeper(tmp_path / "home") as keeper:
        launch_chain(keeper, tmp_path)
        (tmp_path / "go").touch()
        keeper.until(lambda: len(keeper.exits) == len(MANY))
        assert ran(tmp_path) == list(range(len(MANY)))
        assert [one.next for one in keeper.exits.values()] == [*MANY[1:], None]
        begun = [line.split() for path in keeper.journals() for line in path.read_text().splitlines()]
        assert len([words for words in begun if words[0] == "I" and len(words) == 4]) > len(MANY) // 2


def test_a_helper_that_dies_with_steps_that_wait_loses_and_doubles_none(tmp_path: Path) -> None:
    """What it had not begun begins elsewhere, in the place of the step that it was running."""
    with Keeper(tmp_path / "home") as keeper:
        launch_chain(keeper, tmp_path)
        for helper in keeper.helpers():
            kill(helper, signal.SIGKILL)
        (tmp_path / "go").touch()
        keeper.until(lambda: len(keeper.exits) == len(MANY))
        assert ran(tmp_path) == list(range(len(MANY)))


def test_a_keeper_that_dies_begins_nothing_more_and_its_heir_tells_what_ran(tmp_path: Path) -> None:
    """The step that ran goes on; those that waited at its helper are not begun, and not held by the next keeper."""
    with Keeper(tmp_path / "home") as keeper:
        launch_chain(keeper, tmp_path)
        keeper.die()
        welcome = keeper.start()
        assert [held.step for held in welcome.held] == [MANY[0]]
        (tmp_path / "go").touch()
        assert keeper.exit_of(MANY[0]).next is None
        assert ran(tmp_path) == [0]


def test_steps_that_wait_behind_a_long_one_come_back_when_their_credit_is_over(tmp_path: Path) -> None:
    """From the helper as from the keeper, each refused; none of them runs."""
    with Keeper(tmp_path / "home") as keeper:
        launch_chain(keeper, tmp_path, credit_ms=50)
        keeper.until(lambda: keeper.refused == set(MANY[1:]))
        (tmp_path / "go").touch()
        assert keeper.exit_of(MANY[0]).next is None
        assert ran(tmp_path) == [0]


def test_a_helper_leaves_the_cgroup_of_a_step_that_turns_out_long(tmp_path: Path) -> None:
    """The last of a chain goes on in a cgroup of its own, of which nobody else is a member soon after."""
    with Keeper(tmp_path / "home") as keeper:
        assert keeper.welcome is not None
        if any("cpu limits are not enforced" in note for note in keeper.welcome.notes):
            pytest.skip("no cgroup with a cpu controller can be made here")
        first = f"[ $HAL_TASK -gt 0 ] || while [ ! -e {tmp_path}/go ]; do sleep 0.01; done"
        template = StepTemplate(command=("sh", "-c", f"{first}; [ $HAL_TASK -lt 2 ] || exec sleep 600"), cpu_milli=1000)
        keeper.launch(template, HEAD)
        keeper.running(HEAD)
        keeper.launch(template, SECOND, THIRD, credit_ms=60_000)
        keeper.stamp()
        (tmp_path / "go").touch()
        last = keeper.running(THIRD)
        assert [one.next for one in keeper.exits.values()] == [SECOND, THIRD]
        own = {line for line in Path(f"/proc/{last}/cgroup").read_text().splitlines() if "/hal-" in line}
        assert own
        helpers = [Path(f"/proc/{who.pid}/cgroup") for who in keeper.helpers()]
        keeper.poll(lambda: not any(own & set(path.read_text().splitlines()) for path in helpers))
        keeper.stop(THIRD)
        assert keeper.exit_of(THIRD).cause is ExitCause.CANCELLED
