"""`hal exec` on a real HAL: commands inside running steps, on terminals and in pipes, and how they end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hal.cli.kit import exit_codes
from hal.client.sync_client import Client
from hal.runtime.identity import kill, running
from tests.e2e.conftest import DEADLINE_S, LiveHal, Ran, until
from tests.e2e.terminal import Terminal

Hal = Callable[..., Ran]
NAP = ["sleep", f"1000{os.getpid()}"]
"""Told apart from those of other tests."""


@pytest.fixture(scope="module")
def job(shared_hal: LiveHal) -> Iterator[str]:
    """A running job."""
    with shared_hal.client() as client:
        made = client.submit(NAP, cpus=1, memory="100MiB", env={"COLOUR": "blue"}, workdir="/usr")
        until(lambda: made.refresh().state == "running", "it did not run")
        yield made.id
        client.cancel(made.id)


def on_terminal(live: LiveHal, *words: str) -> Terminal:
    """`hal WORDS` on a terminal of its own."""
    return Terminal(live.command(*words), live.environment)


def gone(pid: int) -> bool:
    """Whether no such process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_a_command_has_the_variables_directory_and_exit_code_of_a_step(hal: Hal, job: str) -> None:
    ran = hal("exec", job, "--", "sh", "-c", "echo $HAL_JOB_ID $COLOUR $PWD; echo no >&2; exit 7")
    assert ran == Ran(7, f"{job} blue /usr\n", "no\n")


def test_it_has_the_limits_of_the_step(hal: Hal, job: str) -> None:
    """The same cgroups, and the mark by which its processes are found, as its first process."""
    show = "cat /proc/$p/cgroup; grep -E 'realtime.timeout|Cpus_allowed_list' /proc/$p/limits /proc/$p/status -h"
    first = hal("exec", job, "--", "pgrep", "-f", "-x", " ".join(NAP)).out.split()[0]
    ran = hal("exec", job, "--", "sh", "-c", f"p={first}; {show}; echo; p=self; {show}")
    marks = ran.out.split("\n\n")
    assert marks[0].split("\n") == marks[1].rstrip("\n").split("\n")


def test_input_goes_to_the_command(shared_hal: LiveHal, job: str) -> None:
    text = "one\ntwo\n" * 50_000
    ran = shared_hal.run("exec", "-i", job, "--", "cat", text=text)
    assert (ran.code, len(ran.out)) == (0, len(text)), ran.err


def test_input_is_not_lost_silently(shared_hal: LiveHal, job: str) -> None:
    ran = shared_hal.run("exec", job, "--", "cat", text="important")
    assert ran.code == exit_codes.USAGE
    assert "write -i to pass it on" in ran.err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["JOB", "--", "no-such-program"], exit_codes.NOT_FOUND, "no such program 'no-such-program'"),
        (["JOB", "--", "/etc/passwd"], exit_codes.DENIED, "'/etc/passwd' cannot be run"),
        (["999999", "--", "true"], exit_codes.NOT_FOUND, "no job 999999"),
        (["JOB", "--rank", "1", "--", "true"], exit_codes.NOT_FOUND, "no rank 1"),
        (["JOB.1", "--", "true"], exit_codes.NOT_FOUND, "no task 1"),
        (["JOB"], exit_codes.USAGE, "there is no command to run"),
        (["-t", "JOB", "--", "sh"], exit_codes.USAGE, "this is no terminal"),
    ],
)
def test_what_cannot_be_run_gets_one_clear_error(hal: Hal, job: str, words: list[str], code: int, says: str) -> None:
    ran = hal("exec", *(word.replace("JOB", job) for word in words))
    assert (ran.code, says in ran.err) == (code, True), ran.err


def test_a_terminal_follows_the_size_of_the_clients_and_ends_with_its_shell(shared_hal: LiveHal, job: str) -> None:
    with on_terminal(shared_hal, "exec", "-it", job, "--", "sh") as terminal:
        terminal.type("echo $TERM re''ady\r")
        terminal.read_until("xterm ready")
        terminal.resize(33, 77)
        terminal.type("until test \"$(stty size)\" = '33 77'; do sleep 0.01; done; exit 5\r")
        assert terminal.wait() == 5


def test_a_key_interrupts_what_runs_on_the_terminal(shared_hal: LiveHal, job: str) -> None:
    with on_terminal(shared_hal, "exec", "-it", job, "--", "sed", "-u", "s/read/is read/") as terminal:
        terminal.type("ready\r")
        terminal.read_until("is ready")
        terminal.type("\x03")
        assert terminal.wait() == 128 + signal.SIGINT


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_a_signal_restores_the_terminal(shared_hal: LiveHal, job: str, number: int) -> None:
    """As does everything else that ends the command; the shell behind it finds the terminal as it was."""
    hal_exec = " ".join(shared_hal.command("exec", "-it", job, "--", "sh", "-c", "'echo ready; exec sleep 1000'"))
    with Terminal(["/bin/sh", "-c", f"stty -g; {hal_exec}; echo code $?; stty -g"], shared_hal.environment) as terminal:
        terminal.read_until("ready")
        found = subprocess.run(["pgrep", "-f", f"exec -it {job} -- sh"], capture_output=True, text=True, check=True)
        for pid in map(int, found.stdout.split()):
            if Path(f"/proc/{pid}/comm").read_text().startswith("python"):
                os.kill(pid, number)
        terminal.wait()
        first, *_, last = re.findall(r"^[0-9a-f]+(?::[0-9a-f]+){5,}\r$", terminal.shown, re.MULTILINE)
        assert (first, f"code {128 + number}" in terminal.shown) == (last, True), terminal.shown


def test_what_runs_ends_with_its_client(shared_hal: LiveHal, job: str) -> None:
    """Even if the client is killed, and even what has left its session."""
    client = subprocess.Popen(
        shared_hal.command("exec", job, "--", "sh", "-c", "setsid sleep 777 & echo $$ $!; wait"),
        env=shared_hal.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert client.stdout is not None
    pids = [int(word) for word in client.stdout.readline().split()]
    client.kill()
    client.wait(DEADLINE_S)
    client.stdout.close()
    until(lambda: all(map(gone, pids)), f"processes {pids} outlived their client")


@pytest.mark.slow
def test_what_runs_ends_with_the_step(shared_hal: LiveHal, client: Client) -> None:
    """And says so, if it was not the first to get the signal."""
    made = client.submit(["sleep", "1000"])
    until(lambda: made.refresh().state == "running", "it did not run")
    inside = shared_hal.start("exec", made.id, "--", "sh", "-c", "echo $$; exec sleep 777")
    assert inside.stdout is not None
    pid = int(inside.stdout.readline())
    made.cancel()
    _, err = inside.communicate(timeout=DEADLINE_S)
    assert gone(pid)
    assert (inside.returncode, "the step has ended" in err) in (
        (exit_codes.UNREACHABLE, True),
        (exit_codes.SIGNALLED + signal.SIGTERM, False),
    ), err


def test_the_audit_log_says_who_ran_what_where(hal: Hal, job: str) -> None:
    hal("exec", job, "--", "true", "unusual-word")
    assert f"exec in {job}.0.1.0 on n" in hal("audit").out
    assert ": true unusual-word" in hal("audit").out


@pytest.mark.slow
def test_a_stream_survives_the_restart_of_controller_agent_and_keeper(own_hal: LiveHal) -> None:
    live = own_hal.up("--cpus", "1")
    with live.client() as client:
        made = client.submit(["sleep", "1000"])
        until(lambda: made.refresh().state == "running", "it did not run")
        with on_terminal(live, "exec", "-it", made.id, "--", "sh") as terminal:
            terminal.type("echo be''fore\r")
            terminal.read_until("before")
            live.run("down", "--leave", check=True)
            for name in ("agent", "keeper"):
                identity = running(live.home.pid_file(f"{name}-n1"))
                assert identity is not None
                assert kill(identity, signal.SIGKILL)
            live.up()
            terminal.type("echo af''ter; exit 3\r")
            assert terminal.wait() == 3
            assert "after" in terminal.shown


@pytest.mark.slow
def test_steps_of_a_hal_with_a_real_time_policy_are_scheduled_as_others(own_hal: LiveHal) -> None:
    """Their first process, and what `hal exec` begins beside it; in their cgroups, where the kernel keeps such a policy
    out."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        pytest.skip("this user may begin no real-time processes")
    try:
        live = own_hal.up("--cpus", "1")
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    controller = running(live.home.controller_pid)
    assert controller is not None
    assert os.sched_getscheduler(controller.pid) == os.SCHED_FIFO
    policy = [sys.executable, "-c", "import os; print(os.sched_getscheduler(0))"]
    with live.client() as client:
        own = client.submit(policy)
        assert own.wait(DEADLINE_S, check=True).state == "succeeded"
        assert (own.logs().strip(), own.task(0).reason) == (str(os.SCHED_OTHER), "")
        made = client.submit(["sleep", "1000"])
        until(lambda: made.refresh().state == "running", "it did not run")
        beside = live.run("exec", made.id, "--", *policy)
        assert (beside.out.strip(), beside.err) == (str(os.SCHED_OTHER), "")
