"""Guarded steps (`on_node_lost: requeue`): real processes that end with their keeper, whatever they do to get away."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper import processes
from hal.runtime.identity import identify, kill, wait_gone
from hal.wire.frames.agent_keeper import ExitCause, HeartbeatAck, StepTemplate
from tests.daemons.agent.keeper.driving import DEADLINE_S, Keeper

ONE, TWO, THREE = StepId(1, 0, 1, 0), StepId(2, 0, 1, 0), StepId(3, 0, 1, 0)
LEASE_MS = 1_500


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    with Keeper(tmp_path / "home") as keeper:
        yield keeper


def guarded(script: str, **fields: object) -> StepTemplate:
    """A shell script as a guarded step."""
    return StepTemplate(command=("sh", "-c", script), guard=True, **fields)  # type: ignore[arg-type]


def daemon(words: str, ready: Path) -> str:
    """A process that has left session, parents and environment; nothing but its command line tells of it."""
    return f"setsid env -i sh -c 'echo > {ready}; exec {words}' & while [ ! -e {ready} ]; do sleep 0.01; done"


def running(words: str) -> bool:
    """Whether a process with that command line lives."""
    wanted = words.replace(" ", "\0").encode() + b"\0"
    for info in processes.all_processes().values():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{info.pid}/cmdline").read_bytes() == wanted:
                return True
    return False


def alone_in_its_namespace() -> bool:
    """Whether guards can make PID namespaces here."""
    return os.geteuid() == 0


def test_exit_status_usage_outputs_and_limits_are_as_without_a_guard(keeper: Keeper) -> None:
    """Its own exit code, the signal that ended it, what it wrote and used, its time limit."""
    ended = keeper.run(guarded("echo out; echo err >&2; i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; exit 7"), ONE)
    assert (ended.cause, ended.code) == (ExitCause.EXITED, 7)
    assert keeper.log(ONE).data == b"out\n"
    assert ended.usage.user_ms + ended.usage.system_ms > 0
    ended = keeper.run(guarded("kill -USR1 $$"), TWO)
    assert (ended.cause, ended.signal) == (ExitCause.SIGNALLED, signal.SIGUSR1)
    ended = keeper.run(guarded("sleep 600", walltime_ms=300), THREE)
    assert ended.cause is ExitCause.TIMED_OUT


@pytest.mark.slow
def test_a_guarded_step_that_cannot_be_started_says_why(keeper: Keeper) -> None:
    """As any other: no such program is 127."""
    ended = keeper.run(StepTemplate(command=("/no/such/program",), guard=True), ONE)
    assert (ended.cause, ended.code) == (ExitCause.SPAWN_FAILED, 127)


@pytest.mark.slow
def test_a_memory_limit_holds_in_a_guarded_step(keeper: Keeper) -> None:
    """The helper enters the step's cgroup from within its namespace."""
    if not keeper_can_limit_memory(keeper):
        pytest.skip("memory cannot be limited here")
    eat = "import os; data = bytearray(256 << 20); os.write(1, b'had it')"
    ended = keeper.run(StepTemplate(command=("python3", "-c", eat), memory_bytes=64 << 20, guard=True), ONE)
    assert ended.cause is ExitCause.OUT_OF_MEMORY


def keeper_can_limit_memory(keeper: Keeper) -> bool:
    assert keeper.welcome is not None
    return not any("memory" in note for note in keeper.welcome.notes)


@pytest.mark.slow
@pytest.mark.skipif(not alone_in_its_namespace(), reason="needs root: PID namespaces")
def test_a_guarded_step_sees_itself_in_proc(keeper: Keeper) -> None:
    """Programs that look themselves up (psutil, ps) find themselves: the namespace has a /proc of its own."""
    code = "import os; print(os.readlink('/proc/self') == str(os.getpid()), os.path.exists(f'/proc/{os.getppid()}'))"
    assert keeper.run(StepTemplate(command=("python3", "-c", code), guard=True), ONE).code == 0
    assert keeper.log(ONE).data == b"True True\n"


def test_guarded_steps_die_with_their_keeper_and_are_lost(keeper: Keeper, tmp_path: Path) -> None:
    """SIGKILL of the keeper: nothing of the step is left, not even what left its session; the next reports it lost."""
    words = f"/bin/sleep 600.{time.time_ns()}"
    script = daemon(words, tmp_path / "ready") + "; echo ready; sleep 600"
    keeper.launch(guarded(script), ONE)
    keeper.until_log(ONE, b"ready")
    first = identify(keeper.running(ONE))
    keeper.poll(lambda: running(words))
    keeper.die()
    assert wait_gone(first, DEADLINE_S)
    keeper.poll(lambda: not keeper.survivors() and not running(words))
    keeper.start()
    ended = keeper.exit_of(ONE)
    assert ended.cause is ExitCause.LOST
    assert "keeper" in ended.message


NOBODY = 65_534
AS_NOBODY = (
    "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)  # fmt: skip
"""Another user, who may read everything: the interpreter may lie in root's home."""


def without_root() -> str:
    """Why no process of another user can be made here; '' when it can."""
    if os.geteuid() != 0:
        return "only root becomes another user"
    try:
        tried = subprocess.run([*AS_NOBODY, sys.executable, "-c", "import hal"], capture_output=True, text=True)
    except FileNotFoundError:
        return "there is no setpriv"
    return tried.stderr


@pytest.mark.slow
def test_without_root_guarded_steps_die_with_their_keeper_too(tmp_path: Path) -> None:
    """No PID namespace then: the guard hears of the keeper's death from the kernel, and ends what has left its session
    as well."""
    if reason := without_root():
        pytest.skip(reason)
    words = f"/bin/sleep 600.{time.time_ns()}"
    with Keeper(tmp_path / "home", under=AS_NOBODY, owner=NOBODY) as keeper:
        script = f"setsid {words} & echo ready; id -u; sleep 600"
        keeper.launch(guarded(script), ONE)
        keeper.until_log(ONE, b"ready")
        keeper.until_log(ONE, str(NOBODY).encode())
        first = identify(keeper.running(ONE))
        keeper.poll(lambda: running(words))
        keeper.die()
        assert wait_gone(first, DEADLINE_S)
        keeper.poll(lambda: not keeper.survivors() and not running(words))
        keeper.start()
        assert keeper.exit_of(ONE).cause is ExitCause.LOST


@pytest.mark.slow
def test_an_end_that_nobody_could_report_before_the_keeper_died_is_lost_all_the_same(
    keeper: Keeper, tmp_path: Path
) -> None:
    """The helper's journal may say that it succeeded: a successor does not take that over."""
    keeper.launch(guarded(f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; exit 0"), ONE)
    keeper.running(ONE)
    keeper.process.send_signal(signal.SIGSTOP)
    (tmp_path / "go").touch()
    journals = list(keeper.home.node(keeper.node).journal.glob("helper-*.log"))
    keeper.disconnect()
    keeper.poll(lambda: any(f"X 1 {ONE} 0" in journal.read_text() for journal in journals))
    keeper.process.kill()
    keeper.process.wait()
    keeper.start()
    assert keeper.exit_of(ONE).cause is ExitCause.LOST


@pytest.mark.slow
def test_unguarded_steps_beside_guarded_ones_outlive_their_keeper(keeper: Keeper, tmp_path: Path) -> None:
    """Only what is guarded dies."""
    keeper.launch(guarded("sleep 600"), ONE)
    keeper.launch(StepTemplate(command=("sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; exit 3")), TWO)
    keeper.running(ONE)
    keeper.running(TWO)
    keeper.die()
    keeper.start()
    (tmp_path / "go").touch()
    assert keeper.exit_of(TWO).code == 3
    assert keeper.exit_of(ONE).cause is ExitCause.LOST


@pytest.mark.slow
def test_a_guard_that_is_killed_takes_its_steps_along_and_they_are_lost(keeper: Keeper) -> None:
    """Nobody saw how they ended; further guarded steps get another guard."""
    keeper.launch(guarded("sleep 600"), ONE)
    pid = keeper.running(ONE)
    helper = next(helper for helper in keeper.helpers() if helper.pid == parent_of(pid))
    kill(identify(parent_of(helper.pid)), signal.SIGKILL)
    assert keeper.exit_of(ONE).cause is ExitCause.LOST
    assert keeper.survivors() == []
    assert keeper.run(guarded("exit 6"), TWO).code == 6


def test_a_lease_that_lapses_ends_guarded_steps_and_only_these(tmp_path: Path) -> None:
    """No ack for as long as the lease runs: killed at once, although it ignores SIGTERM; lost; the other goes on."""
    with Keeper(tmp_path / "home", lease_ms=LEASE_MS) as keeper:
        keeper.launch(guarded("trap '' TERM; echo deaf; while :; do sleep 0.01; done"), ONE)
        keeper.launch(StepTemplate(command=("sleep", "600")), TWO)
        keeper.running(TWO)
        ended = keeper.exit_of(ONE)
        assert (ended.cause, ended.signal) == (ExitCause.LOST, signal.SIGKILL), ended
        assert TWO not in keeper.exits
        keeper.stop(TWO, grace_ms=0)
        keeper.exit_of(TWO)


@pytest.mark.slow
@pytest.mark.parametrize("still", ["keeper", "keeper, guard", "keeper, helper", "keeper, guard, helper"])
def test_safety_a_keeper_that_stands_still_beyond_its_lease_has_no_guarded_step(tmp_path: Path, still: str) -> None:
    """SIGSTOP of it (or a call that never returns), and of what else a user of the same account can stop: the step, and
    what has left its session, ends a little after the lease all the same; going on, the keeper reports it lost. (H1,
    attempt 98)"""
    if "guard" in still and not alone_in_its_namespace():
        pytest.skip("needs root: without a namespace nobody ends what a stopped guard guards")
    words = f"/bin/sleep 600.{time.time_ns()}"
    with Keeper(tmp_path / "home", lease_ms=LEASE_MS) as keeper:
        keeper.launch(guarded(daemon(words, tmp_path / "ready") + "; trap '' TERM; sleep 600"), ONE)
        first = identify(keeper.running(ONE))
        keeper.poll(lambda: running(words))
        helper = parent_of(first.pid)
        stopped = [("helper", helper), ("guard", parent_of(helper)), ("keeper", keeper.process.pid)]
        for name, pid in stopped:
            if name in still:
                os.kill(pid, signal.SIGSTOP)
        try:
            assert wait_gone(first, DEADLINE_S)
            deadline = time.monotonic() + DEADLINE_S
            while running(words):
                assert time.monotonic() < deadline, "what had left its session goes on"
        finally:
            keeper.process.send_signal(signal.SIGCONT)
        assert keeper.exit_of(ONE).cause is ExitCause.LOST
        assert keeper.run(guarded("exit 6"), TWO).code == 6


@pytest.mark.slow
def test_a_guard_without_steps_outlives_a_lease(tmp_path: Path) -> None:
    """It need not be started again for the next step."""
    with Keeper(tmp_path / "home", lease_ms=LEASE_MS) as keeper:
        assert keeper.run(guarded("exit 6"), ONE).code == 6
        keeper.launch(guarded("sleep 600"), TWO)
        helper = identify(parent_of(keeper.running(TWO)))
        assert keeper.exit_of(TWO).cause is ExitCause.LOST  # the lease has lapsed, and the keeper has seen to it
        assert not wait_gone(helper, 3 * LEASE_MS / 1000)


@pytest.mark.slow
def test_acks_keep_a_guarded_step_alive(tmp_path: Path) -> None:
    """It ends by itself, longer after its start than a lease runs."""
    with Keeper(tmp_path / "home", lease_ms=LEASE_MS) as keeper:
        keeper.launch(guarded("sleep 3; exit 4"), ONE)
        while ONE not in keeper.exits:
            keeper.send(HeartbeatAck(stamp_boot_ms=keeper.stamp(), epoch=1))
            with contextlib.suppress(OSError):
                keeper.process.send_signal(0)
        assert (keeper.exits[ONE].cause, keeper.exits[ONE].code) == (ExitCause.EXITED, 4)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
