"""Interactive jobs on a real HAL: `hal run -it` and `-i`, `hal attach`, and what becomes of them."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from hal.cli.kit import exit_codes
from hal.client.job import Job
from hal.client.sync_client import Client
from hal.core.model import SpecError
from hal.daemons.agent.keeper.sandbox_probe import find_sandbox
from tests.e2e.conftest import DEADLINE_S, LiveHal, until
from tests.e2e.terminal import Terminal


def on_terminal(live: LiveHal, *words: str) -> Terminal:
    """`hal WORDS` on a terminal of its own."""
    return Terminal(live.command(*words), live.environment)


def newest(client: Client) -> Job:
    """The job that was submitted last."""
    return client.job(next(iter(client.jobs(limit=1))).id)


def test_input_goes_to_the_job_and_its_exit_code_comes_back(shared_hal: LiveHal, client: Client) -> None:
    """HAL keeps what it writes, as of any job."""
    ran = shared_hal.run("run", "-i", "--", "sh", "-c", "sort; echo no >&2; exit 4", text="b\na\n")
    assert (ran.code, ran.out, "no\n" in ran.err) == (4, "a\nb\n", True), ran.err
    assert newest(client).logs() == "a\nb\n"


def test_a_job_on_several_nodes_runs_interactively_on_the_first(shared_hal: LiveHal) -> None:
    ran = shared_hal.run(
        "run", "-N", "2", "-i", "--", "sh", "-c", "echo $HAL_NODE_RANK of $HAL_NODE_COUNT; cat", text="a"
    )
    assert (ran.code, ran.out) == (0, "0 of 2\na"), ran.err


def test_input_is_not_lost_silently(shared_hal: LiveHal) -> None:
    ran = shared_hal.run("run", "--", "cat", text="important")
    assert (ran.code, "write -i to pass it on" in ran.err) == (exit_codes.USAGE, True)


def test_a_job_on_a_terminal_has_its_size_and_its_keys(shared_hal: LiveHal) -> None:
    with on_terminal(shared_hal, "run", "-it", "--", "sh", "-c", "tty; read line; echo got $line; exit 6") as terminal:
        terminal.read_until("/dev/pts/")
        terminal.type("wo\x7f\x7frd\r")
        assert terminal.wait() == 6
        assert "got rd" in terminal.shown


def test_a_job_ends_if_its_terminal_vanishes(shared_hal: LiveHal, client: Client) -> None:
    """And the slot is free again."""
    terminal = on_terminal(shared_hal, "run", "-it", "--", "sh", "-c", "echo re''ady; sleep 1000")
    with terminal:
        terminal.read_until("ready")
        job = newest(client)
        os.kill(terminal.pid, signal.SIGKILL)
        job.wait(DEADLINE_S)
    assert job.info.state == "failed"


def test_a_detached_job_goes_on_and_is_attached_to(shared_hal: LiveHal, client: Client) -> None:
    """What it has written is shown, keys reach it, Ctrl-P Ctrl-Q leaves it, and it ends by itself."""
    job = client.job(shared_hal.run("run", "-it", "--detach", "--", "sed", "-u", "s/^/> /", check=True).out.strip())
    until(lambda: job.refresh().state == "running", "it did not run")
    for word in ("first", "second"):
        with on_terminal(shared_hal, "attach", job.id) as terminal:
            terminal.type(f"{word}\r")
            terminal.read_until(f"> {word}")
            assert "> first" in terminal.shown
            terminal.type("\x10\x11")
            assert (terminal.wait(), "detached from job" in terminal.shown) == (0, True)
            assert "\\n" not in terminal.shown
    assert job.refresh().state == "running"
    with on_terminal(shared_hal, "attach", job.id) as terminal:
        terminal.read_until("> second")
        terminal.type("\x04")
        assert terminal.wait() == 0
    assert job.wait(DEADLINE_S).state == "succeeded"


@pytest.mark.slow
def test_ctrl_c_asks_on_a_line_of_its_own(shared_hal: LiveHal) -> None:
    """The second one cancels the job."""
    with on_terminal(shared_hal, "run", "--", "sh", "-c", "echo re''ady; exec sleep 1000") as terminal:
        terminal.read_until("ready")
        terminal.type("\x03")
        terminal.read_until("(Ctrl-C again: cancel)")
        terminal.type("\x03")
        assert terminal.wait() != 0
        assert "\ncancel job" in terminal.shown.replace("\r\n", "\n")
        assert "\\n" not in terminal.shown


@pytest.mark.slow
def test_only_interactive_jobs_are_attached_to(shared_hal: LiveHal, client: Client) -> None:
    job = client.submit(["sleep", "1000"])
    until(lambda: job.refresh().state == "running", "it did not run")
    ran = shared_hal.run("attach", job.id)
    job.cancel()
    assert (ran.code, "is not interactive" in ran.err) == (exit_codes.CONFLICT, True), ran.err


@pytest.mark.slow
def test_an_interactive_job_is_cancelled_like_others(shared_hal: LiveHal, client: Client) -> None:
    """Its program, and the process above it."""
    with on_terminal(shared_hal, "run", "-it", "--", "sh", "-c", "echo re''ady; exec sleep 1000") as terminal:
        terminal.read_until("ready")
        job = newest(client)
        job.cancel()
        assert terminal.wait() != 0
    assert job.wait(DEADLINE_S).state == "cancelled"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"array": 2}, "people attach to one program"),
        ({"nodes": 2}, "people attach to one program"),
        ({"stdin": "a"}, "are not files"),
        ({"interactive": "loud"}, "interactive"),
    ],
)
def test_what_cannot_be_interactive_is_refused(client: Client, fields: dict[str, object], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        client.submit(["true"], **{"interactive": "terminal", **fields})  # type: ignore[call-overload]


@pytest.mark.slow
@pytest.mark.skipif(not find_sandbox(), reason="no sandbox here: apt-get install bubblewrap")
def test_an_interactive_job_in_a_sandbox_is_entered_inside_of_it(shared_hal: LiveHal, client: Client) -> None:
    """Its first process is outside; commands are not."""
    words = ("run", "-it", "--detach", "--sandbox", "yes", "--", "sh", "-c", "echo re''ady; exec sleep 1000")
    job = client.job(shared_hal.run(*words, check=True).out.strip())
    until(lambda: "ready" in job.logs(), "it did not run")
    seen = shared_hal.run("exec", job.id, "--", "sh", "-c", "ls /proc | grep -c '^[0-9]'; touch /etc/hal-x")
    job.cancel()
    assert (int(seen.out) < 12, "Read-only" in seen.err) == (True, True), seen


@pytest.mark.slow
@pytest.mark.long
def test_a_client_that_is_killed_before_the_job_runs_leaves_nothing_behind(own_hal: LiveHal) -> None:
    """Nobody attaches in time, and the job ends."""
    live = own_hal.up("--cpus", "1")
    with live.client() as client:
        first = client.submit(["sleep", "1000"], cpus=1)
        until(lambda: first.refresh().state == "running", "it did not run")
        waiting = subprocess.Popen(live.command("run", "-i", "-c", "1", "--", "cat"), env=live.environment)
        until(lambda: len(list(client.jobs())) == 2, "it was not submitted")
        waiting.kill()
        waiting.wait(DEADLINE_S)
        job = newest(client)
        first.cancel()
        assert job.wait(2 * DEADLINE_S).state == "failed"
        assert "nobody attached" in job.logs(stream="stderr")
