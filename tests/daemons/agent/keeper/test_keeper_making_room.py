"""Suspend, resume and checkpoint as the core decides them: when a limit counts, what follows a grace, what is kept."""

from __future__ import annotations

from hal.core.model import StepId
from hal.daemons.agent.keeper.ports import Spawned
from hal.wire.frames.agent_keeper import (
    Checkpoint,
    Done,
    ExitCause,
    Exits,
    Resume,
    StepTemplate,
    Stop,
    StopReason,
    Suspend,
)
from tests.daemons.agent.keeper.in_memory import Bench

ONE = StepId(1, 0, 1, 0)
BEGUN_BOOT_MS = 1_000_000
LIMITED = StepTemplate(command=("x",), walltime_ms=10_000, grace_ms=2_000)
USR2, TERM, CONT, STOP = 12, 15, 18, 19


def running() -> Bench:
    """One step with a limit of 10 s, begun now."""
    bench = Bench(boot_ms=BEGUN_BOOT_MS)
    bench.attach()
    bench.start(ONE, template=LIMITED)
    bench.spawn(ONE)
    return bench


def running_for_long() -> Bench:
    """One step without a limit, begun now."""
    bench = Bench(boot_ms=BEGUN_BOOT_MS)
    bench.attach()
    bench.start(ONE, template=StepTemplate(command=("x",)))
    bench.spawn(ONE)
    return bench


def again(bench: Bench) -> Bench:
    """Another keeper over the same journal, which has found the step running."""
    other = Bench(bench.journal, boot_ms=bench.boot_ms)
    other.attach()
    other.tell(Spawned(ONE, 100, other.now.wall_ms, BEGUN_BOOT_MS))
    return other


def signals(bench: Bench) -> list[int]:
    return [number for _, number in bench.spawner.signals]


def test_the_limit_does_not_count_while_a_step_stands_still() -> None:
    """4 s run, an hour suspended, 6 s more: SIGTERM then, not before, also by a keeper that came in between."""
    bench = running()
    bench.turn(4_000)
    bench.send(Suspend(epoch=1, steps=(ONE,)))
    bench.turn(3_600_000)
    bench = again(bench)
    assert signals(bench) == []
    bench.send(Resume(epoch=1, steps=(ONE,)))
    bench = again(bench)
    bench.turn(5_999)
    assert signals(bench) == []
    bench.turn(1)
    assert signals(bench) == [TERM]


def test_suspended_twice_is_suspended_once() -> None:
    """The first instant counts; each command is carried out and answered."""
    bench = running()
    for _ in range(2):
        (done,) = [frame for frame in bench.send(Suspend(epoch=1, steps=(ONE,))) if isinstance(frame, Done)]
        assert done.steps == (ONE,)
        bench.turn(1_000)
    bench.send(Resume(epoch=1, steps=(ONE,)))
    bench.turn(9_999)
    assert TERM not in signals(bench)
    bench.turn(1)
    assert signals(bench)[-1] == TERM


def test_a_checkpoint_is_a_signal_a_grace_sigterm_and_a_last_grace() -> None:
    """USR2 at once, SIGTERM after 5 s, SIGKILL 2 s later; the exit says preempted."""
    bench = running()
    bench.send(Checkpoint(epoch=1, steps=(ONE,), name="USR2", grace_ms=5_000, last_grace_ms=2_000))
    bench.turn(4_999)
    assert signals(bench) == [USR2]
    bench.turn(1)
    assert signals(bench) == [USR2, TERM]
    bench.turn(1_999)
    assert bench.spawner.killed == []
    bench.turn(1)
    assert bench.spawner.killed == [ONE]
    (told,) = [frame for frame in bench.end(ONE, -9) if isinstance(frame, Exits)]
    assert told.exits[0].cause is ExitCause.PREEMPTED


def test_a_checkpoint_goes_on_under_the_next_keeper() -> None:
    """Asked to save, not yet told to end: the new keeper does that when it is due."""
    bench = running()
    bench.send(Checkpoint(epoch=1, steps=(ONE,), name="USR2", grace_ms=5_000))
    bench.turn(1_000)
    bench = again(bench)
    bench.turn(3_999)
    assert signals(bench) == []
    bench.turn(1)
    assert signals(bench) == [TERM]


def test_a_stop_cuts_the_time_to_save_short() -> None:
    """A person cancels: SIGTERM now."""
    bench = running()
    bench.send(Checkpoint(epoch=1, steps=(ONE,), name="USR2", grace_ms=60_000))
    bench.send(Stop(epoch=1, steps=(ONE,), reason=StopReason.CANCELLED, grace_ms=1_000))
    assert signals(bench) == [USR2, TERM]
    bench.turn(1_000)
    assert bench.spawner.killed == [ONE]


def test_a_second_checkpoint_can_only_end_a_step_sooner() -> None:
    """The first gives it 5 s and 1 s; one that gives more changes nothing, one that gives 2 s and 1 s does, also for
    the next keeper. It is asked to save once."""
    bench = running()
    for grace_ms in (5_000, 60_000, 2_000):
        bench.send(Checkpoint(epoch=1, steps=(ONE,), name="USR2", grace_ms=grace_ms, last_grace_ms=1_000))
    assert signals(bench) == [USR2]
    bench = again(bench)
    bench.turn(2_000)
    assert signals(bench) == [TERM]
    bench.turn(1_000)
    assert bench.spawner.killed == [ONE]


def test_what_saves_its_state_goes_on_saving_while_the_next_keeper_looks_for_it() -> None:
    """The controller repeats what it asked for, with what is left of the time, before the step was found."""
    bench = running()
    bench.send(Checkpoint(epoch=1, steps=(ONE,), name="USR2", grace_ms=5_000, last_grace_ms=1_000))
    other = Bench(bench.journal, boot_ms=bench.boot_ms)
    other.attach()
    other.send(Checkpoint(epoch=1, steps=(ONE,), name="USR2", grace_ms=4_500, last_grace_ms=1_000))
    other.tell(Spawned(ONE, 100, other.now.wall_ms, BEGUN_BOOT_MS))
    other.turn(4_499)
    assert signals(other) == []
    other.turn(1)
    assert signals(other) == [TERM]


def test_a_checkpoint_ends_what_has_not_begun() -> None:
    """It has nothing to save, and nobody asks a second time: it ends unspawned, and one that is just being started
    gets SIGTERM when it is."""
    bench = Bench(boot_ms=BEGUN_BOOT_MS)
    bench.attach()
    bench.start(ONE, template=LIMITED)
    bench.spawner.capacity = 0
    two = StepId(1, 1, 1, 0)
    bench.start(two, template=LIMITED)
    frames = bench.send(Checkpoint(epoch=1, steps=(ONE, two), name="USR2", grace_ms=5_000, last_grace_ms=1_000))
    (told,) = [frame for frame in frames if isinstance(frame, Exits)]
    assert [(exit_.step, exit_.cause) for exit_ in told.exits] == [(two, ExitCause.PREEMPTED)]
    bench.spawn(ONE)
    assert signals(bench) == [TERM]
    bench.turn(6_000)
    assert bench.spawner.killed == [ONE]


def test_a_deadline_that_was_brought_forward_holds_for_the_next_keeper() -> None:
    """An hour to end, then a second."""
    bench = running_for_long()
    for grace_ms in (3_600_000, 1_000):
        bench.send(Stop(epoch=1, steps=(ONE,), reason=StopReason.PREEMPTED, grace_ms=grace_ms))
    bench = again(bench)
    bench.turn(1_000)
    assert bench.spawner.killed == [ONE]


def test_a_long_grace_does_not_lengthen_the_walltime() -> None:
    """A limit of 10 s and 2 s to end: it is killed after 12 s, though it was given an hour to leave, and ends as
    preempted."""
    bench = running()
    bench.send(Stop(epoch=1, steps=(ONE,), reason=StopReason.PREEMPTED, grace_ms=3_600_000))
    bench.turn(10_000)
    bench.turn(1_999)
    assert bench.spawner.killed == []
    bench.turn(1)
    assert bench.spawner.killed == [ONE]
    (told,) = [frame for frame in bench.end(ONE, -9) if isinstance(frame, Exits)]
    assert told.exits[0].message == "preempted; killed 12 s after SIGTERM"


def test_a_suspended_step_goes_on_to_save_its_state() -> None:
    """SIGCONT first, then the signal that asks for it."""
    bench = running()
    bench.send(Suspend(epoch=1, steps=(ONE,)))
    bench.send(Checkpoint(epoch=1, steps=(ONE,), name="USR2", grace_ms=1_000))
    assert signals(bench) == [STOP, CONT, USR2]


def test_a_step_that_is_being_ended_is_not_suspended() -> None:
    """It would never end; the answer says so."""
    bench = running()
    bench.send(Stop(epoch=1, steps=(ONE,), reason=StopReason.CANCELLED))
    (done,) = [frame for frame in bench.send(Suspend(epoch=1, steps=(ONE,))) if isinstance(frame, Done)]
    assert done.failed == ((ONE, "it is being ended"),)
    assert STOP not in signals(bench)
