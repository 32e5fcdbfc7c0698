"""What the keeper's core decides, without processes: leases, limits, stops, repeats, what it remembers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.model import StepId
from hal.daemons.agent.keeper.lease import Lease
from hal.daemons.agent.keeper.ledger import MAX_HELD, MAX_TOMBSTONES
from hal.daemons.agent.keeper.ports import Gone, NeverStarted, SpawnFailed, Unspawned, Vanished
from hal.daemons.agent.keeper.reports import REPEAT_MS
from hal.wire.frames.agent_keeper import (
    Done,
    ExitCause,
    Exits,
    ExitsAck,
    Heartbeat,
    HeartbeatAck,
    Refused,
    Resize,
    Signal,
    Started,
    StepExit,
    StepTemplate,
    Stop,
    StopReason,
)
from hal.wire.frames.hello import Goodbye, Hello, Welcome
from hal.wire.roles import Role
from tests.daemons.agent.keeper.in_memory import Bench, MemoryJournal
from tests.examples import examples

ONE, TWO = StepId(1, 0, 1, 0), StepId(2, 0, 1, 0)
LIMITED = StepTemplate(command=("x",), walltime_ms=10_000, signal="USR1", signal_before_ms=3_000, grace_ms=2_000)
USR1, TERM = 10, 15


def exits(frames: list[object]) -> list[StepExit]:
    return [one for frame in frames if isinstance(frame, Exits) for one in frame.exits]


def refusals(frames: list[object]) -> dict[StepId, str]:
    return {one.step: one.code for frame in frames if isinstance(frame, Refused) for one in frame.steps}


def test_a_step_is_journalled_before_it_is_launched() -> None:
    """With a journal that cannot be written nothing is launched, and the refusal says why; that holds for good."""
    bench = Bench()
    bench.attach()
    bench.journal.full = True
    assert refusals(bench.start(ONE)) == {ONE: "journal-full"}
    assert bench.spawner.launched == []
    bench.journal.full = False
    assert refusals(bench.start(ONE)) == {ONE: "journal-full"}
    assert refusals(bench.start(TWO)) == {}
    assert bench.spawner.launched == [TWO]


def test_the_lease_is_judged_by_the_keepers_own_clock() -> None:
    """Exactly as old as the lease is good, a millisecond more is not."""
    bench = Bench()
    bench.attach()
    assert refusals(bench.start(ONE, age_ms=60_000)) == {}
    assert refusals(bench.start(TWO, age_ms=60_001)) == {TWO: "no-lease"}


def test_a_start_frame_that_comes_again_when_its_lease_is_over_refuses_nothing_that_runs() -> None:
    """A refusal says that no process exists: of a step that is held it would have its task run twice."""
    bench = Bench()
    bench.attach()
    bench.start(ONE)
    bench.spawn(ONE)
    frames = bench.start(ONE, TWO, age_ms=60_001)
    assert refusals(frames) == {TWO: "no-lease"}
    assert [one.step for frame in frames if isinstance(frame, Started) for one in frame.steps] == [ONE]


def test_a_step_that_was_refused_once_is_never_started() -> None:
    """Whoever heard the refusal starts another attempt: a fresher frame of this one, sent before, must not run it."""
    bench = Bench()
    bench.attach()
    assert refusals(bench.start(ONE, age_ms=60_001)) == {ONE: "no-lease"}
    assert refusals(bench.start(ONE)) == {ONE: "no-lease"}
    again = Bench(bench.journal)
    again.attach()
    assert refusals(again.start(ONE)) == {ONE: "no-lease"}
    assert again.spawner.launched == []


def test_a_higher_epoch_shuts_out_lower_ones_for_every_command() -> None:
    """It is heard in an ack, remembered across restarts, and starts, stops and signals below it do nothing."""
    bench = Bench()
    bench.attach()
    bench.start(ONE)
    bench.spawn(ONE)
    bench.send(HeartbeatAck(stamp_boot_ms=bench.stamp, epoch=7))
    assert refusals(bench.start(TWO, epoch=6)) == {TWO: "old-epoch"}
    stop = bench.send(Stop(epoch=6, steps=(ONE,), reason=StopReason.CANCELLED))
    assert isinstance(stop[0], Done)
    assert "epoch 7" in stop[0].failed[0][1]
    bench.send(Signal(epoch=6, steps=(ONE,), name="USR1"))
    assert bench.spawner.signals == []
    assert Bench(bench.journal).core.epoch == 7


def test_an_agent_that_speaks_no_common_version_is_told_so() -> None:
    """A goodbye with the version error's code."""
    bench = Bench()
    bench.core.received(Hello(role=Role.AGENT, versions=(90, 99)), bench.now)
    frames = bench.turn()
    assert isinstance(frames[0], Goodbye)
    assert frames[0].code == "version"


def test_a_heartbeat_is_answered_with_the_stamp_of_now() -> None:
    """That stamp is what leases count from."""
    bench = Bench()
    bench.attach()
    assert bench.send(Heartbeat(stamp_boot_ms=0)) == [Heartbeat(stamp_boot_ms=bench.stamp, epoch=0, running=0)]


def test_what_was_sent_to_an_earlier_boot_says_nothing_to_this_one() -> None:
    """Boot clocks begin anew: a start of the boot before, a minute old by its clock and of just now by this one's, is
    refused, and an acknowledgement of that boot renews no lease."""
    before = Bench(boot_id="before", boot_ms=90_000)
    bench = Bench(before.journal, boot_id="after", boot_ms=90_000)
    bench.attach()
    assert refusals(bench.start(ONE, stamp=before.stamp)) == {ONE: "no-lease"}
    lease = Lease(60_000, bench.boot_id)
    lease.renew(before.stamp, 0, bench.now)
    assert lease.lapsed(bench.now)


def test_the_limit_runs_from_the_spawn_signal_then_term_then_kill() -> None:
    """Limit 10 s, signal 3 s before, grace 2 s: USR1 at 7 s, SIGTERM at 10 s, SIGKILL at 12 s, then the exit."""
    bench = Bench()
    bench.attach()
    bench.start(ONE, template=LIMITED)
    bench.turn(5_000)
    bench.spawn(ONE)
    bench.turn(6_999)
    assert bench.spawner.signals == []
    bench.turn(1)
    assert bench.spawner.signals == [(ONE, USR1)]
    bench.turn(3_000)
    assert bench.spawner.signals == [(ONE, USR1), (ONE, TERM)]
    bench.turn(1_999)
    assert bench.spawner.killed == []
    bench.turn(1)
    assert bench.spawner.killed == [ONE]
    (ended,) = exits(bench.end(ONE, -9))
    assert (ended.cause, ended.code, ended.signal) == (ExitCause.TIMED_OUT, 137, 9)
    assert ended.message == "time limit of 10 s reached; killed 2 s after SIGTERM"


def test_a_host_that_was_suspended_finds_the_limit_overdue() -> None:
    """The boot clock jumps an hour: the step is stopped at the next wake, its signal before the limit not forgotten."""
    bench = Bench()
    bench.attach()
    bench.start(ONE, template=LIMITED)
    bench.spawn(ONE)
    bench.turn(3_600_000)
    assert sorted(bench.spawner.signals) == [(ONE, USR1), (ONE, TERM)]


def test_a_shorter_limit_takes_hold_at_once_and_a_longer_one_lets_go() -> None:
    """Resized from 10 s to 60 s, then to 20 s, counted from the spawn; remembered by the journal."""
    bench = Bench()
    bench.attach()
    bench.start(ONE, template=StepTemplate(command=("x",), walltime_ms=10_000))
    bench.spawn(ONE)
    bench.send(Resize(epoch=1, steps=(ONE,), walltime_ms=60_000))
    bench.turn(15_000)
    assert bench.spawner.signals == []
    bench.send(Resize(epoch=1, steps=(ONE,), walltime_ms=20_000))
    bench.turn(5_000)
    assert bench.spawner.signals == [(ONE, TERM)]


def test_a_stop_of_a_queued_step_ends_it_without_a_process() -> None:
    """There is no room for it yet: it ends as cancelled and is never launched."""
    bench = Bench()
    bench.attach()
    bench.spawner.capacity = 0
    bench.start(ONE)
    (ended,) = exits(bench.send(Stop(epoch=1, steps=(ONE,), reason=StopReason.CANCELLED)))
    assert (ended.cause, ended.code, ended.message) == (
        ExitCause.CANCELLED,
        143,
        "cancelled before its process was started",
    )
    bench.spawner.capacity = 10
    bench.turn()
    assert bench.spawner.launched == []


def test_a_stop_that_comes_before_the_spawn_is_carried_out_after_it() -> None:
    """Launched, stopped, then spawned: SIGTERM as soon as there is something to signal."""
    bench = Bench()
    bench.attach()
    bench.start(ONE)
    bench.send(Stop(epoch=1, steps=(ONE,), reason=StopReason.PREEMPTED))
    assert bench.spawner.signals == []
    bench.spawn(ONE)
    assert bench.spawner.signals == [(ONE, TERM)]
    assert exits(bench.end(ONE, -15))[0].cause is ExitCause.PREEMPTED


def test_an_exit_waits_until_nothing_of_the_step_is_left() -> None:
    """The first process ended, a child lives: watched, killed after half a second, reported when gone."""
    bench = Bench()
    bench.attach()
    bench.start(ONE)
    bench.spawn(ONE)
    assert exits(bench.end(ONE, 0, leftover=True)) == []
    assert bench.spawner.watched == [ONE]
    bench.turn(499)
    assert bench.spawner.killed == []
    bench.turn(1)
    assert bench.spawner.killed == [ONE]
    (ended,) = exits(bench.tell(Gone(ONE, killed=2)))
    assert (ended.code, ended.message) == (0, "2 processes it left behind were killed")


def test_children_of_a_stopped_step_keep_the_rest_of_the_grace() -> None:
    """The first process heeds SIGTERM at once, its child is still writing: it has the whole grace."""
    bench = Bench()
    bench.attach()
    bench.start(ONE)
    bench.spawn(ONE)
    bench.send(Stop(epoch=1, steps=(ONE,), reason=StopReason.CANCELLED, grace_ms=10_000))
    bench.end(ONE, -15, leftover=True)
    bench.turn(9_999)
    assert bench.spawner.killed == []
    bench.turn(1)
    assert bench.spawner.killed == [ONE]


def test_a_stop_after_the_end_does_not_change_the_cause() -> None:
    """It had ended by itself; only what it left behind is hurried."""
    bench = Bench()
    bench.attach()
    bench.start(ONE)
    bench.spawn(ONE)
    bench.end(ONE, 0, leftover=True)
    bench.send(Stop(epoch=1, steps=(ONE,), reason=StopReason.CANCELLED, grace_ms=0))
    assert bench.spawner.killed == [ONE]
    assert exits(bench.tell(Gone(ONE, killed=1)))[0].cause is ExitCause.EXITED


def test_exits_are_repeated_until_acknowledged() -> None:
    """Told once, again after the repeat time, again to a new agent, and no more after the ack."""
    bench = Bench()
    bench.attach()
    bench.start(ONE)
    bench.spawn(ONE)
    assert len(exits(bench.end(ONE, 3))) == 1
    assert exits(bench.turn(REPEAT_MS - 1)) == []
    assert len(exits(bench.turn(1))) == 1
    assert len(exits(bench.attach())) == 1
    assert exits(bench.send(ExitsAck(steps=(ONE,)))) == []
    assert exits(bench.attach()) == []
    assert refusals(bench.start(ONE)) == {ONE: "already-ended"}


def test_a_stop_of_what_has_ended_and_was_acknowledged_is_answered() -> None:
    """The store was restored and knows the step as one that never began: whoever stops it is not left waiting."""
    bench = Bench()
    bench.attach()
    bench.start(ONE)
    bench.spawn(ONE)
    bench.end(ONE, 0)
    bench.send(ExitsAck(steps=(ONE,)))
    stopped = bench.send(Stop(epoch=1, steps=(ONE,), reason=StopReason.CANCELLED))
    assert refusals(stopped) == {ONE: "already-ended"}


def test_a_repeated_start_repeats_what_is_known() -> None:
    """Queued: nothing to say. Running: started. Ended: its exit. It is launched once."""
    bench = Bench()
    bench.attach()
    bench.start(ONE, ONE)
    assert bench.start(ONE) == []
    bench.spawn(ONE)
    (again,) = bench.start(ONE)
    assert isinstance(again, Started)
    bench.end(ONE)
    assert len(exits(bench.start(ONE))) == 1
    assert bench.spawner.launched == [ONE]


def test_more_steps_than_it_may_hold_are_refused() -> None:
    """Exactly the bound is taken; the rest is refused as overloaded and can be sent again later."""
    bench = Bench()
    bench.attach()
    bench.spawner.capacity = 0
    steps = [StepId(9, task, 1, 0) for task in range(MAX_HELD + 3)]
    refused = refusals(bench.start(*steps))
    assert refused == dict.fromkeys(steps[MAX_HELD:], "overloaded")


def test_what_a_dead_helper_had_not_begun_is_launched_again() -> None:
    """And what it may have begun is lost when no process of it is left."""
    bench = Bench()
    bench.attach()
    bench.start(ONE, TWO)
    frames = bench.tell(Unspawned(ONE), Vanished(TWO, bench.now.wall_ms, "nobody saw it"))
    assert bench.spawner.launched == [ONE, TWO, ONE]
    assert [(one.step, one.cause) for one in exits(frames)] == [(TWO, ExitCause.LOST)]


def test_a_step_that_was_never_started_may_be_started_again() -> None:
    """After a restart the spawner finds that no process of it was made: whoever was told starts another attempt."""
    bench = Bench()
    bench.attach()
    bench.start(ONE, TWO)
    again = Bench(bench.journal)
    assert again.spawner.adopted == [ONE, TWO]
    assert refusals(again.tell(NeverStarted(ONE))) == {}
    again.attach()
    assert refusals(again.tell(NeverStarted(TWO))) == {TWO: "not-started"}
    assert refusals(again.start(ONE, TWO)) == {TWO: "not-started"}
    assert again.spawner.launched == [ONE]


def test_a_spawn_that_failed_is_an_exit_not_a_refusal() -> None:
    """It is the job's own fault: cause spawn-failed with the shell's exit code."""
    bench = Bench()
    bench.attach()
    bench.start(ONE)
    (ended,) = exits(bench.tell(SpawnFailed(ONE, 127, "no such program", bench.now.wall_ms)))
    assert (ended.cause, ended.code, ended.message) == (ExitCause.SPAWN_FAILED, 127, "no such program")


def test_only_steps_older_than_a_second_are_sampled() -> None:
    """And the largest sample counts as the step's memory when it is larger than what wait4 says."""
    bench = Bench()
    bench.attach()
    bench.start(ONE)
    bench.spawn(ONE)
    bench.turn(900)
    bench.turn(2_000)
    (ended,) = exits(bench.end(ONE))
    assert ended.usage.max_rss_bytes == 123 << 20


def test_stop_all_ends_every_step_and_starts_none() -> None:
    """Queued ones end at once, running ones after SIGTERM; starts are refused as stopping."""
    bench = Bench()
    bench.attach()
    bench.start(ONE)
    bench.spawn(ONE)
    bench.spawner.capacity = 0
    bench.start(TWO)
    bench.core.stop_all(bench.now)
    assert [one.step for one in exits(bench.turn())] == [TWO]
    assert bench.spawner.signals == [(ONE, TERM)]
    assert not bench.core.idle
    bench.end(ONE, -15)
    assert bench.core.idle
    three = StepId(3, 0, 1, 0)
    assert refusals(bench.start(three)) == {three: "stopping"}


def test_tombstones_are_bounded() -> None:
    """After many acknowledged steps the oldest is forgotten; the newest is still refused."""
    bench = Bench()
    bench.attach()
    steps = [StepId(9, task, 1, 0) for task in range(MAX_TOMBSTONES + 1)]
    for at in range(0, len(steps), 1_000):
        part = steps[at : at + 1_000]
        bench.start(*part)
        bench.spawn(*part)
        for step in part:
            bench.end(step)
        bench.send(ExitsAck(steps=tuple(part)))
    assert refusals(bench.start(steps[-1])) == {steps[-1]: "already-ended"}
    assert refusals(bench.start(steps[0])) == {}


STEPS = [StepId(1, task, 1, 0) for task in range(6)]
ACTIONS = st.tuples(
    st.sampled_from(["start", "spawn", "end", "fail", "ack", "stop", "later", "full", "room", "maintain"]),
    st.sampled_from(STEPS),
)


@settings(max_examples=examples(300))
@given(st.lists(ACTIONS, max_size=40))
def test_safety_a_restarted_keeper_remembers_what_the_dead_one_held(actions: list[tuple[str, StepId]]) -> None:
    """After any sequence, full disks included: each step is known to the next keeper exactly as far as it had come.

    Ended steps keep their exit, those not ended are looked for, none is in both, none is forgotten unless acknowledged.
    """
    bench = Bench(MemoryJournal())
    bench.attach()
    for action, step in actions:
        match action:
            case "start":
                bench.start(step)
            case "spawn":
                bench.spawn(step)
            case "end":
                bench.end(step, 1)
            case "fail":
                bench.tell(SpawnFailed(step, 127, "no", bench.now.wall_ms))
            case "ack":
                bench.send(ExitsAck(steps=(step,)))
            case "stop":
                bench.send(Stop(epoch=1, steps=(step,), reason=StopReason.CANCELLED, grace_ms=1_000))
            case "later":
                bench.turn(700)
            case "full":
                bench.journal.full = True
            case "room":
                bench.journal.full = False
            case "maintain":
                bench.turn(1_000)
    bench.journal.full = False
    bench.turn(1_000)
    before = welcome_of(bench)
    after = Bench(bench.journal, boot_ms=bench.boot_ms)
    assert welcome_of(after) == before
    assert sorted(after.spawner.adopted) == sorted(step for step, running in before.items() if running)


def welcome_of(bench: Bench) -> dict[StepId, bool]:
    (welcome,) = [frame for frame in bench.attach() if isinstance(frame, Welcome)]
    return {held.step: held.running for held in welcome.held}
