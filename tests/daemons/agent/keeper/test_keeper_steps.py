"""What a real keeper does with real processes: it runs them, reports how they ended, and holds them to their limits."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper import processes
from hal.daemons.agent.keeper.helper_process.programs import CannotSpawnError, _find_program
from hal.wire.frames.agent_keeper import (
    Checkpoint,
    Done,
    ExitCause,
    Forget,
    ForgetPiece,
    Forgotten,
    Prepare,
    Refused,
    Resize,
    Resume,
    Samples,
    Signal,
    StepTemplate,
    StopReason,
    Stream,
    Suspend,
)
from tests.daemons.agent.keeper.driving import Keeper

ONE = StepId(1, 0, 1, 0)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keeper]:
    """A keeper for tests that leave nothing behind but step ids."""
    with Keeper(tmp_path_factory.mktemp("keeper") / "home") as keeper:
        yield keeper


@pytest.fixture
def keeper(shared: Keeper) -> Iterator[Keeper]:
    yield shared
    # The report of a start may still wait for company: each step is stopped, whether it is known to run or not.
    left = shared.launched - shared.exits.keys()
    shared.stop(*left, reason=StopReason.CANCELLED, grace_ms=0)
    shared.until(lambda: not left - shared.exits.keys() - shared.refused)
    shared.acknowledge(*shared.exits)
    shared.others.clear()
    shared.exits.clear()
    shared.started.clear()
    shared.launched.clear()


_jobs = iter(range(100, 10_000))


def new_step() -> StepId:
    return StepId(next(_jobs), 0, 1, 0)


def sh(script: str, **fields: object) -> StepTemplate:
    return StepTemplate(command=("sh", "-c", script), **fields)  # type: ignore[arg-type]


# ── running ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_step_runs_with_its_output_kept_and_its_exit_code_reported(keeper: Keeper) -> None:
    """Both streams are read back byte for byte; the exit code is the program's own."""
    step = new_step()
    ended = keeper.run(sh("echo to stdout; echo to stderr >&2; exit 3"), step)
    assert (ended.cause, ended.code, ended.signal) == (ExitCause.EXITED, 3, 0)
    assert ended.started_ms <= ended.ended_ms
    out, err = keeper.log(step), keeper.log(step, Stream.STDERR)
    assert (out.data, out.size, out.ended, out.error) == (b"to stdout\n", 10, True, "")
    assert err.data == b"to stderr\n"


def test_a_signalled_step_is_reported_with_its_signal(keeper: Keeper) -> None:
    """Killed by SIGUSR1 from inside: code 128 + 10."""
    ended = keeper.run(sh("kill -USR1 $$"), new_step())
    assert (ended.cause, ended.code, ended.signal) == (ExitCause.SIGNALLED, 128 + signal.SIGUSR1, signal.SIGUSR1)


def test_a_step_sees_its_variables_and_its_directory(keeper: Keeper, tmp_path: Path) -> None:
    """HAL_* of the step, the template's own, defaults beneath; the work directory is the one asked for."""
    step = StepId(next(_jobs), 7, 2, 0)
    script = 'echo "$HAL_JOB_ID $HAL_TASK $HAL_ATTEMPT $HAL_NODE $HAL_CPUS $MINE $HOME"; pwd'
    keeper.run(sh(script, workdir=str(tmp_path), cpu_milli=1500, env={"MINE": "a b"}), step)
    first, second = keeper.log(step).data.decode().splitlines()
    assert first == f"{step.job} 7 2 n1 1.5 a b {os.environ['HOME']}"
    assert second == str(tmp_path)


def test_a_step_has_the_umask_of_its_job_and_the_next_one_the_usual_one(keeper: Keeper) -> None:
    """It is that of one step alone; its script is HAL's file, and is there to be run."""
    masks = []
    for umask in (0o777, None, 0, None):
        step = new_step()
        assert keeper.run(StepTemplate(script="#!/bin/sh\numask\n", umask=umask), step).code == 0
        masks.append(keeper.log(step).data.decode().strip())
    assert masks == ["0777", "0022", "0000", "0022"]


def test_a_step_that_cannot_begin_leaves_no_umask_behind(keeper: Keeper) -> None:
    """Neither one without its program nor one without its file."""
    for bad in (StepTemplate(command=("/no/such",), umask=0o777), sh("true", stdin="/no/such", umask=0o777)):
        keeper.run(bad, new_step())
        step = new_step()
        keeper.run(sh("umask"), step)
        assert keeper.log(step).data == b"0022\n"


@pytest.mark.parametrize(
    ("cpu_milli", "env", "threads"),
    [(1500, {}, "2"), (250, {}, "1"), (4000, {"OMP_NUM_THREADS": "3"}, "3"), (0, {}, "-")],
)
def test_threads_of_openmp_are_the_cores_asked_for(
    keeper: Keeper, cpu_milli: int, env: dict[str, str], threads: str
) -> None:
    """Rounded up; what the job says itself goes before; a step without a request is told nothing."""
    step = new_step()
    keeper.run(sh("echo ${OMP_NUM_THREADS:--}", cpu_milli=cpu_milli, env=env), step)
    assert keeper.log(step).data.decode().strip() == threads


def test_a_script_is_run_by_the_interpreter_it_names(keeper: Keeper) -> None:
    """The script lies beside the outputs and is private."""
    step = new_step()
    ended = keeper.run(StepTemplate(script="#!/bin/sh -e\necho from $0\nfalse\necho never\n"), step)
    path = keeper.home.node("n1").steps / f"{step.job}/0.1.0.script"
    assert ended.code == 1
    assert keeper.log(step).data == f"from {path}\n".encode()
    assert path.stat().st_mode & 0o777 == 0o700


def test_a_step_begins_with_no_signal_ignored(keeper: Keeper) -> None:
    """SIGPIPE ends a writer whose reader has gone, as in a shell; Python's own setting does not leak."""
    step = new_step()
    keeper.run(sh("grep -E 'Sig(Ign|Blk)' /proc/self/status"), step)
    _, blocked, _, ignored = keeper.log(step).data.split()
    assert int(blocked, 16) == 0
    assert int(ignored, 16) & ~(3 << 31) == 0  # 32 and 33 belong to the C library, which hides them


def test_three_hundred_steps_in_one_frame_all_end(keeper: Keeper) -> None:
    """More than helpers take at once: the rest waits its turn, none is lost, none runs twice."""
    job = next(_jobs)
    steps = [StepId(job, task, 1, 0) for task in range(300)]
    keeper.launch(sh("echo $HAL_TASK"), *steps)
    keeper.until(lambda: len(keeper.exits) == 300)
    assert all(ended.code == 0 for ended in keeper.exits.values())
    assert all(keeper.log(step).data == f"{step.task}\n".encode() for step in steps)


# ── what cannot be started ────────────────────────────────────────────────────────────────────────────────────────


def test_a_missing_program_is_named_with_the_path_that_was_searched(keeper: Keeper) -> None:
    """Exit code 127, as shells give it."""
    step = new_step()
    ended = keeper.run(StepTemplate(command=("frobnicate", "-x"), env={"PATH": "/bin:/usr/bin"}), step)
    assert (ended.cause, ended.code) == (ExitCause.SPAWN_FAILED, 127)
    assert (keeper.log(step).data, keeper.log(step).error) == (b"", "")
    assert ended.message == "no such program 'frobnicate'; looked in PATH=/bin:/usr/bin"


def test_a_long_path_is_cut_in_an_error() -> None:
    """Its first directories, and how many there are."""
    with pytest.raises(CannotSpawnError) as raised:
        _find_program("frobnicate", ":".join(f"/opt/site/directory-{number}/bin" for number in range(12)))
    shown = "/opt/site/directory-0/bin:/opt/site/directory-1/bin:… (12 directories)"
    assert str(raised.value) == f"no such program 'frobnicate'; looked in PATH={shown}"


def test_a_missing_work_directory_is_named(keeper: Keeper) -> None:
    """Exit code 126: the program was never tried."""
    ended = keeper.run(StepTemplate(command=("true",), workdir="/no/such/place"), new_step())
    assert (ended.cause, ended.code) == (ExitCause.SPAWN_FAILED, 126)
    assert ended.message == "work directory '/no/such/place' does not exist on this node"


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        ("#!/bin/sh\n", 0o644, "cannot be run: it is not executable (mode 0644)"),
        ("#!/no/such/interpreter\n", 0o755, "cannot be run: its interpreter '/no/such/interpreter' does not exist"),
        ("#!/bin/sh\r\ntrue\r\n", 0o755, "ends with a carriage return (Windows line ends)"),
        ("just text\n", 0o755, "is neither a program nor a script that names its interpreter (#!)"),
    ],
)
def test_a_file_that_cannot_be_run_is_explained(
    keeper: Keeper, tmp_path: Path, content: str, mode: int, message: str
) -> None:
    """Exit code 126, and why."""
    path = tmp_path / "program"
    path.write_text(content, newline="")
    path.chmod(mode)
    ended = keeper.run(StepTemplate(command=(str(path),)), new_step())
    assert (ended.cause, ended.code) == (ExitCause.SPAWN_FAILED, 126)
    assert message in ended.message
    assert str(path) in ended.message


def test_a_directory_is_no_program(keeper: Keeper, tmp_path: Path) -> None:
    """Said as such."""
    ended = keeper.run(StepTemplate(command=(str(tmp_path),)), new_step())
    assert ended.message == f"'{tmp_path}' is a directory, not a program"


# ── limits and stops ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_time_limit_ends_a_step_that_heeds_sigterm(keeper: Keeper) -> None:
    """Cause timed-out with the process's own end; the limit is named."""
    ended = keeper.run(StepTemplate(command=("sleep", "600"), walltime_ms=50), new_step())
    assert (ended.cause, ended.signal, ended.code) == (ExitCause.TIMED_OUT, signal.SIGTERM, 143)
    assert ended.message == "time limit of 0.05 s reached"


def test_a_signal_comes_before_the_limit(keeper: Keeper) -> None:
    """USR1 is sent `before` the limit; the step may end by itself then, in its own time, and that is no timeout."""
    step = new_step()
    script = "trap 'echo warned; exit 0' USR1; echo ready; while :; do sleep 0.01; done"
    ended = keeper.run(sh(script, walltime_ms=60_000, signal="USR1", signal_before_ms=59_700), step)
    assert (ended.cause, ended.code) == (ExitCause.EXITED, 0)
    assert keeper.log(step).data == b"ready\nwarned\n"


def test_a_whole_tree_that_ignores_sigterm_and_leaves_its_session_is_killed(keeper: Keeper) -> None:
    """Children, and a grandchild in its own session whose parent has gone, are found and killed after the grace."""
    step = new_step()
    script = """trap '' TERM
    setsid sh -c 'trap "" TERM; sh -c "trap \\"\\" TERM; echo deep; while :; do sleep 0.05; done" & exit 0'
    while :; do sleep 0.05; done"""
    keeper.launch(sh(script, grace_ms=50), step)
    keeper.running(step)
    keeper.until_log(step, b"deep")
    assert len(keeper.survivors()) >= 2
    keeper.stop(step, reason=StopReason.TIMED_OUT, grace_ms=50)
    ended = keeper.exit_of(step)
    assert (ended.cause, ended.signal) == (ExitCause.TIMED_OUT, signal.SIGKILL)
    assert "killed 0.05 s after SIGTERM" in ended.message
    assert keeper.survivors() == []


def test_what_a_step_leaves_behind_is_killed_before_its_exit_is_reported(keeper: Keeper) -> None:
    """A daemon in its own session does not outlive its step; the exit code stays the step's."""
    step = new_step()
    ended = keeper.run(sh("setsid sleep 600 & echo started"), step)
    assert (ended.cause, ended.code) == (ExitCause.EXITED, 0)
    assert ended.message == "1 process it left behind was killed"
    assert keeper.survivors() == []


def test_a_daemon_that_hides_is_ended_once_its_helper_has_no_step(keeper: Keeper, tmp_path: Path) -> None:
    """Its own session, no parent, an empty environment: no mark is left but its helper, whose child it has become."""
    keeper.run(sh(f"env -i setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 600' & sleep 0.2"), new_step())
    pid = int((tmp_path / "pid").read_text())
    keeper.poll(lambda: processes.read_process(pid) is None)


def test_a_process_of_another_hal_is_left_alone(keeper: Keeper) -> None:
    """The same token and rank, another HAL_HOME: a stop of our step does not touch it."""
    step = new_step()
    keeper.launch(StepTemplate(command=("sleep", "600")), step)
    keeper.running(step)
    token = keeper.token_of(step)
    env = {"HAL_ATTEMPT_TOKEN": token, "HAL_NODE_RANK": "0", "HAL_NODE": "n1", "HAL_HOME": "/another/home"}
    with subprocess.Popen(["/bin/sleep", "600"], env=env) as other:
        keeper.stop(step, grace_ms=0)
        keeper.exit_of(step)
        assert other.poll() is None
        other.kill()


def test_what_a_step_leaves_behind_may_finish_its_writing(keeper: Keeper) -> None:
    """A short-lived process (a `tee`, say) that ends by itself is waited for, not cut short."""
    step = new_step()
    ended = keeper.run(sh("(sleep 0.05; echo last words) & exit 0"), step)
    assert ended.message == ""
    assert keeper.log(step).data == b"last words\n"


def test_a_cancelled_step_says_so(keeper: Keeper) -> None:
    """The stop's reason is the cause, and a second stop changes nothing."""
    step = new_step()
    keeper.launch(StepTemplate(command=("sleep", "600")), step)
    keeper.running(step)
    keeper.stop(step)
    keeper.stop(step, reason=StopReason.PREEMPTED)
    ended = keeper.exit_of(step)
    assert (ended.cause, ended.signal, ended.message) == (ExitCause.CANCELLED, signal.SIGTERM, "cancelled")


def test_a_stop_of_an_unknown_step_leaves_a_mark_against_a_late_start(keeper: Keeper) -> None:
    """No process of it exists, and none will: a start that comes after the stop is refused."""
    step = new_step()
    keeper.stop(step)
    assert keeper.until_frame(Refused).steps[0].code == "not-held"
    keeper.launch(StepTemplate(command=("true",)), step)
    assert keeper.until_frame(Refused).steps[0].code == "not-held"


def test_a_signal_reaches_the_processes_of_a_step(keeper: Keeper) -> None:
    """It is answered by what it was done for, and why not for the others."""
    step, other = new_step(), new_step()
    keeper.launch(sh("trap 'echo got it' USR2; echo ready; while :; do sleep 0.01; done"), step)
    keeper.running(step)
    keeper.until_log(step, b"ready")
    keeper.send(Signal(epoch=1, steps=(step, other), name="USR2"))
    done = keeper.until_frame(Done)
    assert done == Done(command="signal", steps=(step,), failed=((other, "this keeper does not hold it"),))
    keeper.until_log(step, b"got it")


def test_a_suspended_step_stands_still_goes_on_and_can_be_stopped(keeper: Keeper) -> None:
    """All its processes are stopped, continued, stopped again; a stop ends them although they stand still."""
    step = new_step()
    keeper.launch(sh("sleep 600 & echo ready; wait"), step)
    keeper.running(step)
    keeper.until_log(step, b"ready")
    keeper.poll(lambda: len(keeper.survivors()) == 2)
    for frame, states in ((Suspend, {"T"}), (Resume, {"S"}), (Suspend, {"T"})):
        keeper.send(frame(epoch=1, steps=(step,)))
        assert keeper.until_frame(Done).steps == (step,)
        keeper.poll(lambda states=states: _states(keeper) == states)  # type: ignore[misc]
    keeper.stop(step)
    ended = keeper.exit_of(step)
    assert (ended.cause, ended.signal) == (ExitCause.CANCELLED, signal.SIGTERM)


def test_a_step_saves_its_state_before_it_makes_room(keeper: Keeper) -> None:
    """It has saved and ended by itself within its grace: preempted, with its own code. It stood still before."""
    step = new_step()
    keeper.launch(sh("trap 'echo saved; exit 0' USR2; echo ready; while :; do sleep 0.01; done"), step)
    keeper.running(step)
    keeper.until_log(step, b"ready")
    keeper.send(Suspend(epoch=1, steps=(step,)))
    assert keeper.until_frame(Done).steps == (step,)
    keeper.send(Checkpoint(epoch=1, steps=(step,), name="USR2", grace_ms=60_000))
    assert keeper.until_frame(Done).steps == (step,)
    ended = keeper.exit_of(step)
    assert (ended.cause, ended.code, ended.message) == (ExitCause.PREEMPTED, 0, "preempted")
    assert keeper.log(step).data == b"ready\nsaved\n"


def test_a_step_that_goes_on_when_it_was_asked_to_save_is_ended_after_the_grace(keeper: Keeper) -> None:
    """SIGTERM after 100 ms of grace; it says itself which signal came."""
    step = new_step()
    script = "trap '' USR2; trap 'echo term; exit 9' TERM; echo ready; while :; do sleep 0.01; done"
    keeper.launch(sh(script), step)
    keeper.running(step)
    keeper.until_log(step, b"ready")
    keeper.send(Checkpoint(epoch=1, steps=(step,), name="USR2", grace_ms=100))
    ended = keeper.exit_of(step)
    assert (ended.cause, ended.code) == (ExitCause.PREEMPTED, 9)
    assert keeper.log(step).data == b"ready\nterm\n"


def test_a_suspended_step_goes_on_under_the_next_keeper(tmp_path: Path) -> None:
    """It stands still while its keeper is dead, and goes on when the next one is told to let it."""
    with Keeper(tmp_path / "home") as keeper:
        step = new_step()
        keeper.launch(sh("sleep 600"), step)
        keeper.running(step)
        keeper.send(Suspend(epoch=1, steps=(step,)))
        keeper.until_frame(Done)
        keeper.die()
        keeper.start()
        keeper.poll(lambda: _states(keeper) == {"T"})
        keeper.send(Resume(epoch=1, steps=(step,)))
        keeper.poll(lambda: _states(keeper) == {"S"})
        keeper.send(Suspend(epoch=1, steps=(step,)))
        keeper.stop(step)
        assert keeper.exit_of(step).cause is ExitCause.CANCELLED


def _states(keeper: Keeper) -> set[str]:
    return {info.state for info in keeper.survivors()}


def test_a_longer_limit_can_be_given_while_a_step_runs(keeper: Keeper) -> None:
    """The new walltime counts from the start; the old one does not end it."""
    step = new_step()
    keeper.launch(sh("sleep 0.4; echo made it", walltime_ms=300), step)
    keeper.running(step)
    keeper.send(Resize(epoch=1, steps=(step,), walltime_ms=60_000))
    assert keeper.until_frame(Done).steps == (step,)
    assert keeper.exit_of(step).cause is ExitCause.EXITED


def test_a_step_older_than_a_second_is_sampled(keeper: Keeper) -> None:
    """Its memory, all its processes together."""
    step = new_step()
    keeper.launch(sh("sleep 600 & sleep 600"), step)
    samples = keeper.until_frame(Samples).samples
    assert [sample.step for sample in samples] == [step]
    assert samples[0].rss_bytes > 1 << 20


# ── outputs ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_output_over_its_bound_loses_its_oldest_bytes(keeper: Keeper) -> None:
    """Offsets count bytes ever written: of 1,200,000 the newest 200,000 are kept, the file a block or two more."""
    step = new_step()
    ended = keeper.run(sh("seq -f '%09.0f' 120000", output_bytes=200_000), step)
    part = keeper.log(step, offset=0)
    assert part.size == 1_200_000
    assert 1_000_000 - 4096 <= part.offset <= 1_000_000
    assert part.data == b"".join(b"%09d\n" % n for n in range(1, 120_001))[part.offset :]
    assert ended.message == f"stdout: the oldest {part.offset} bytes were dropped, the newest 200000B are kept"
    assert keeper.log(step, offset=-10).data == b"000120000\n"
    path = keeper.home.node("n1").steps / f"{step.job}/0.1.0.stdout"
    assert path.stat().st_blocks * 512 <= 200_000 + 2 * 4096


def test_a_running_step_cannot_fill_the_disk(keeper: Keeper) -> None:
    """While it writes on, what its file takes on disk is cut to its bound; its newest bytes are there."""
    step = new_step()
    script = "yes 0123456789 | head -c 20000000; echo end of the first part; exec sleep 600"
    keeper.launch(sh(script, output_bytes=1 << 20), step)
    path = keeper.home.node("n1").steps / f"{step.job}/0.1.0.stdout"
    keeper.running(step)
    keeper.poll(lambda: keeper.log(step, offset=-5).data == b"part\n")
    keeper.poll(lambda: path.stat().st_blocks * 512 <= (1 << 20) + 8192)
    assert keeper.log(step).size == 20_000_000 + 22


def test_prepared_outputs_exist_and_forgotten_ones_do_not(keeper: Keeper) -> None:
    """What was forgotten is empty; a running step's outputs are not forgotten."""
    step, running = new_step(), new_step()
    keeper.send(Prepare(epoch=1, steps=(step,)))
    keeper.until_frame(Done)
    assert keeper.log(step).error == ""
    keeper.run(sh("echo kept"), step)
    keeper.launch(sh("echo mine; exec sleep 600"), running)
    keeper.until_log(running, b"mine")
    keeper.acknowledge(step)
    keeper.send(Forget(request=7, pieces=(ForgetPiece(step.job, 1, 0, 1), ForgetPiece(running.job))))
    assert keeper.until_frame(Forgotten).request == 7
    assert (keeper.log(step).data, keeper.log(step).error) == (b"", "")
    assert keeper.log(running).data == b"mine\n"
    assert not (keeper.home.node("n1").steps / str(step.job)).exists()


def test_nothing_is_read_beyond_the_end_of_an_output(keeper: Keeper) -> None:
    """An offset beyond the end gives no bytes and the true size."""
    step = new_step()
    keeper.run(sh("printf 12345"), step)
    part = keeper.log(step, offset=1_000)
    assert (part.offset, part.data, part.size) == (5, b"", 5)
