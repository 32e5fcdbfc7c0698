"""Death of the keeper, of helpers, of both, at awkward moments: nothing is lost and nothing runs twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper.helper_link import MAX_OUTSTANDING
from hal.runtime.identity import ProcessIdentity, identify, kill, wait_gone
from hal.wire.frames.agent_keeper import ExitCause, Heartbeat, Refused, StepTemplate
from tests.daemons.agent.keeper.driving import DEADLINE_S, Keeper

ONE, TWO = StepId(1, 0, 1, 0), StepId(2, 0, 1, 0)
SLEEP = StepTemplate(command=("sleep", "600"))


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    with Keeper(tmp_path / "home") as keeper:
        yield keeper


def waiting(directory: Path, code: int = 0) -> StepTemplate:
    """A step that tells that it runs, and ends with this code once there is a file `go`."""
    script = f"echo run >> {directory}/runs; while [ ! -e {directory}/go ]; do sleep 0.01; done; echo done; exit {code}"
    return StepTemplate(command=("sh", "-c", script))


def test_steps_outlive_their_keeper_and_the_next_one_reports_their_ends(keeper: Keeper, tmp_path: Path) -> None:
    """SIGKILL of the keeper with a step running: it goes on, the next keeper holds it and reports its true exit."""
    keeper.launch(waiting(tmp_path, 5), ONE)
    keeper.running(ONE)
    keeper.die()
    welcome = keeper.start()
    assert [(held.step, held.running) for held in welcome.held] == [(ONE, True)]
    (tmp_path / "go").touch()
    ended = keeper.exit_of(ONE)
    assert (ended.cause, ended.code) == (ExitCause.EXITED, 5)
    assert keeper.log(ONE).data == b"done\n"
    assert (tmp_path / "runs").read_text() == "run\n"


def test_an_end_while_there_was_no_keeper_is_reported_by_the_next(keeper: Keeper, tmp_path: Path) -> None:
    """The helper waits and journals; the next keeper reads it."""
    keeper.launch(waiting(tmp_path, 7), ONE)
    keeper.running(ONE)
    helpers = keeper.helpers()
    keeper.die()
    (tmp_path / "go").touch()
    assert all(wait_gone(helper, DEADLINE_S) for helper in helpers)
    keeper.start()
    ended = keeper.exit_of(ONE)
    assert (ended.cause, ended.code) == (ExitCause.EXITED, 7)


def test_an_unacknowledged_exit_outlives_keepers_until_it_is_acknowledged(keeper: Keeper) -> None:
    """Two keepers later it is still told, a repeated start does not run it again, and after the ack it is refused."""
    keeper.run(StepTemplate(command=("sh", "-c", "exit 4")), ONE)
    for _ in range(2):
        keeper.die()
        keeper.exits.clear()
        keeper.start()
        keeper.launch(StepTemplate(command=("true",)), ONE)
        assert keeper.exit_of(ONE).code == 4
    keeper.acknowledge(ONE)
    keeper.die()
    keeper.exits.clear()
    assert keeper.start().held == ()
    keeper.launch(StepTemplate(command=("true",)), ONE)
    assert keeper.until_frame(Refused).steps[0].code == "already-ended"
    assert keeper.exits == {}


def test_the_time_limit_holds_across_keepers(keeper: Keeper) -> None:
    """The limit counts from the spawn, not from the adoption."""
    keeper.launch(StepTemplate(command=("sleep", "600"), walltime_ms=700), ONE)
    keeper.running(ONE)
    keeper.die()
    keeper.start()
    ended = keeper.exit_of(ONE)
    assert ended.cause is ExitCause.TIMED_OUT
    assert ended.ended_ms - ended.started_ms >= 700


def test_a_stop_is_carried_through_by_the_next_keeper(keeper: Keeper) -> None:
    """SIGTERM was sent and ignored, the keeper died in the grace: the next one kills, and the cause stays."""
    keeper.launch(StepTemplate(command=("sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.01; done")), ONE)
    keeper.until_log(ONE, b"deaf")
    keeper.stop(ONE, grace_ms=300)
    keeper.stamp()
    keeper.die()
    keeper.start()
    ended = keeper.exit_of(ONE)
    assert (ended.cause, ended.signal) == (ExitCause.CANCELLED, signal.SIGKILL)
    assert keeper.survivors() == []


def test_a_helper_that_is_killed_loses_no_end(keeper: Keeper, tmp_path: Path) -> None:
    """Its steps become the keeper's own children: their true exit is reported; new steps run elsewhere."""
    keeper.launch(waiting(tmp_path, 9), ONE)
    keeper.running(ONE)
    for helper in keeper.helpers():
        kill(helper, signal.SIGKILL)
    assert keeper.run(StepTemplate(command=("true",)), TWO).code == 0
    (tmp_path / "go").touch()
    ended = keeper.exit_of(ONE)
    assert (ended.cause, ended.code) == (ExitCause.EXITED, 9)


def test_steps_given_to_a_killed_helper_run_exactly_once(keeper: Keeper, tmp_path: Path) -> None:
    """Forty steps, helpers killed in the middle: each step ran once or is reported lost, none is forgotten."""
    steps = [StepId(3, task, 1, 0) for task in range(40)]
    script = f"echo $HAL_TASK >> {tmp_path}/runs"
    keeper.launch(StepTemplate(command=("sh", "-c", script)), *steps)
    keeper.until(lambda: len(keeper.exits) >= 5)
    for helper in keeper.helpers():
        kill(helper, signal.SIGKILL)
    keeper.until(lambda: len(keeper.exits) == 40)
    ran = [int(line) for line in (tmp_path / "runs").read_text().split()]
    assert len(ran) == len(set(ran))
    lost = {step.task for step, ended in keeper.exits.items() if ended.cause is ExitCause.LOST}
    assert len(lost) <= 2 * MAX_OUTSTANDING  # what ended as its helper died, waited for and not journalled yet
    assert set(ran) | lost == set(range(40))


def test_a_step_whose_keeper_helper_and_recorder_died_is_lost_only_when_it_has_ended(
    keeper: Keeper, tmp_path: Path
) -> None:
    """While its process lives it is held as running; then nobody knows how it ended."""
    keeper.launch(waiting(tmp_path), ONE)
    pid = keeper.running(ONE)
    helpers = keeper.helpers()
    recorders = [recorder_of(helper) for helper in helpers]
    keeper.die()
    for each in (*recorders, *helpers):
        kill(each, signal.SIGKILL)
    welcome = keeper.start()
    assert [(held.step, held.running, held.pid) for held in welcome.held] == [(ONE, True, pid)]
    assert keeper.exits == {}
    (tmp_path / "go").touch()
    ended = keeper.exit_of(ONE)
    assert ended.cause is ExitCause.LOST
    assert "nobody saw how it ended" in ended.message


def recorder_of(helper: ProcessIdentity) -> ProcessIdentity:
    return identify(int(Path(f"/proc/{helper.pid}/stat").read_text().rsplit(")", 1)[1].split()[1]))


def test_a_lost_step_can_be_stopped(keeper: Keeper) -> None:
    """Keeper and helper died; a cancel still ends its processes, and it counts as cancelled, not lost."""
    keeper.launch(SLEEP, ONE)
    keeper.running(ONE)
    helpers = keeper.helpers()
    keeper.die()
    for helper in helpers:
        kill(helper, signal.SIGKILL)
    keeper.start()
    keeper.stop(ONE)
    assert keeper.exit_of(ONE).cause is ExitCause.CANCELLED
    assert keeper.survivors() == []


def test_a_burst_survives_the_keeper_and_each_step_runs_once(keeper: Keeper, tmp_path: Path) -> None:
    """The keeper dies amid a hundred starts; the controller sends them again; every step has run exactly once."""
    steps = [StepId(4, task, 1, 0) for task in range(100)]
    template = StepTemplate(command=("sh", "-c", f"echo $HAL_TASK >> {tmp_path}/runs"))
    keeper.launch(template, *steps)
    keeper.until(lambda: len(keeper.exits) >= 10)
    keeper.die()
    keeper.start()
    keeper.launch(template, *steps)
    keeper.until(lambda: len(keeper.exits) == 100)
    assert all(ended.cause is ExitCause.EXITED for ended in keeper.exits.values())
    assert sorted(int(line) for line in (tmp_path / "runs").read_text().split()) == list(range(100))


def tear_journals_of_helpers(keeper: Keeper) -> None:
    """Half a line at the end of each."""
    for path in keeper.journals():
        with path.open("ab") as file:
            file.write(b"X 99 2.0.1.0 0")


@pytest.mark.parametrize("helpers", ["dead", pytest.param("alive", marks=pytest.mark.slow)])
def test_a_torn_journal_is_read_up_to_its_tear(keeper: Keeper, tmp_path: Path, helpers: str) -> None:
    """Half a record at the end of the keeper's journal, half a line at the end of a helper's: both are passed over.
    Where a helper lives, its word that it spawns no more is lost in the tear; the next keeper ends it after 5 s."""
    keeper.run(StepTemplate(command=("sh", "-c", "exit 6")), ONE)
    keeper.launch(waiting(tmp_path, 2), TWO)
    keeper.running(TWO)
    living = keeper.helpers()
    if helpers == "alive":
        tear_journals_of_helpers(keeper)
    keeper.die()
    if helpers == "dead":
        for helper in living:
            kill(helper, signal.SIGKILL)
            assert wait_gone(helper, DEADLINE_S)
        tear_journals_of_helpers(keeper)
    with (keeper.home.node("n1").journal / "keeper.log").open("ab") as file:
        file.write(b"\x40\0\0\0\x11\x22\x33\x44 torn in the middle")
    keeper.exits.clear()
    keeper.start()
    assert keeper.exit_of(ONE).code == 6
    (tmp_path / "go").touch()
    assert keeper.exit_of(TWO).cause in (ExitCause.EXITED, ExitCause.LOST)


def test_sigterm_hands_over_and_sigusr1_ends_everything(keeper: Keeper, tmp_path: Path) -> None:
    """After SIGTERM the step goes on for the next keeper; after SIGUSR1 no process is left and the exit is told."""
    keeper.launch(waiting(tmp_path), ONE)
    keeper.running(ONE)
    assert keeper.end(signal.SIGTERM) == 0
    assert len(keeper.survivors()) >= 1
    welcome = keeper.start()
    assert [held.step for held in welcome.held] == [ONE]
    keeper.process.send_signal(signal.SIGUSR1)
    ended = keeper.exit_of(ONE)
    assert ended.cause is ExitCause.CANCELLED
    assert "shut down with --kill" in ended.message
    keeper.acknowledge_without_answer(ONE)
    assert keeper.process.wait(DEADLINE_S) == 0
    assert keeper.survivors() == []


def test_a_start_without_a_current_lease_or_of_an_older_leader_is_refused(keeper: Keeper) -> None:
    """Nothing is spawned: too old a stamp, one from the future, none, an epoch below one that was heard."""
    now = keeper.stamp()
    for task, stamp in enumerate((now - 60_001, now + 3_600_000, 0)):
        keeper.launch(SLEEP, StepId(3, task, 1, 0), stamp=stamp)
        assert keeper.until_frame(Refused).steps[0].code == "no-lease"
    keeper.epoch = 5
    keeper.run(StepTemplate(command=("true",)), TWO)
    keeper.die()
    keeper.epoch = 4
    assert keeper.start().epoch == 5
    keeper.launch(SLEEP, ONE)
    refusal = keeper.until_frame(Refused).steps[0]
    assert (refusal.code, refusal.message) == (
        "old-epoch",
        "this keeper has seen a leader of epoch 5; this start is of epoch 4",
    )
    assert keeper.survivors() == []


def test_a_second_agent_replaces_the_first_and_a_second_keeper_is_refused(keeper: Keeper) -> None:
    """One agent at a time: the newest. One keeper of a node at a time: the oldest."""
    first = keeper.hand_out_connection()
    keeper.connect()
    assert first.recv(1 << 16) != b""
    first.close()
    with pytest.raises(AssertionError, match="runs already"):
        keeper.start_another()
    assert isinstance(keeper.stamp(), int)
    assert not any(isinstance(frame, Heartbeat) for frame in keeper.others)


def test_a_rebooted_host_reports_its_steps_as_lost(keeper: Keeper) -> None:
    """A journal of another boot: its unended steps are lost, its ended ones keep their exits."""
    keeper.run(StepTemplate(command=("sh", "-c", "exit 3")), ONE)
    keeper.launch(SLEEP, TWO)
    pid = keeper.running(TWO)
    helpers = keeper.helpers()
    keeper.die()
    for helper in helpers:
        kill(helper, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    keeper.pretend_reboot()
    keeper.exits.clear()
    keeper.start()
    assert keeper.exit_of(ONE).code == 3
    lost = keeper.exit_of(TWO)
    assert (lost.cause, lost.message) == (ExitCause.LOST, "the host was rebooted while the step ran")


def test_the_keeper_is_small_and_imports_little(keeper: Keeper) -> None:
    """Under 30 MiB after a hundred steps; none of the heavy libraries, nor asyncio."""
    keeper.launch(StepTemplate(command=("true",)), *(StepId(5, task, 1, 0) for task in range(100)))
    keeper.until(lambda: len(keeper.exits) == 100)
    assert _rss_bytes(keeper.process.pid) < 30 << 20
    for helper in keeper.helpers():
        assert _rss_bytes(helper.pid) < 16 << 20
    loaded = Path(f"/proc/{keeper.process.pid}/maps").read_text()
    assert not [name for name in ("numba", "numpy", "sqlalchemy", "uvloop", "_asyncio", "_ssl") if name in loaded]


def _rss_bytes(pid: int) -> int:
    fields = Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()
    return int(fields[0]) << 10


def test_unknown_processes_of_an_earlier_keeper_are_ended(keeper: Keeper) -> None:
    """The keeper's journal is gone, a helper's still names a step: nobody would report it, so it is killed."""
    keeper.launch(SLEEP, ONE)
    pid = keeper.running(ONE)
    who = identify(pid)
    keeper.die()
    (keeper.home.node("n1").journal / "keeper.log").unlink()
    assert keeper.start().held == ()
    assert wait_gone(who, DEADLINE_S)
