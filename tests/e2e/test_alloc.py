"""`hal alloc` on a real HAL: shells in allocations, on the first node and here, and how both end."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from hal.client.job import Job
from hal.client.sync_client import Client
from tests.e2e.conftest import DEADLINE_S, LiveHal
from tests.e2e.terminal import Terminal

LAUNCH = f'"{sys.executable}" -m hal.cli.main launch'


def newest(client: Client) -> Job:
    """The job that was submitted last."""
    return client.job(next(iter(client.jobs(limit=1))).id)


def test_a_shell_on_the_first_node_launches_on_all(shared_hal: LiveHal, client: Client) -> None:
    """On this terminal; its exit code comes back."""
    environment = shared_hal.environment | {"SHELL": "/bin/sh"}
    with Terminal(shared_hal.command("alloc", "-N", "2", "-c", "1", "-e", "SHELL=/bin/sh"), environment) as terminal:
        terminal.type(f"{LAUNCH} -l sh -c 'echo rank''s $HAL_SIZE'; exit 5\r")
        terminal.read_until("[1] ranks 2")
        assert terminal.wait() == 5
    job = newest(client)
    assert (job.wait(DEADLINE_S).exit_code, job.info.name, job.info.nodes) == (5, "alloc", 2)


def test_a_command_here_launches_on_the_nodes(shared_hal: LiveHal, client: Client) -> None:
    """The environment names the job, and the job ends with the command, well whatever that returns."""
    body = f"echo job $HAL_JOB_ID; {LAUNCH} sh -c 'echo on $HAL_NODE'; exit 7"
    ran = shared_hal.run("alloc", "-N", "2", "--here", "--", "sh", "-c", body)
    job = newest(client)
    nodes = job.task(0).nodes
    assert (ran.code, sorted(ran.out.splitlines())) == (7, sorted([f"job {job.id}", *(f"on {n}" for n in nodes)]))
    assert f"job {job.id} holds {', '.join(nodes)}" in ran.err
    assert job.info.state == "succeeded"


@pytest.mark.slow
def test_a_shell_here_has_the_terminal(shared_hal: LiveHal, client: Client) -> None:
    """Ctrl-C is the shell's, and ends what runs in it, not the allocation."""
    environment = shared_hal.environment | {"SHELL": "/bin/bash", "PS1": "$ "}
    with Terminal(shared_hal.command("alloc", "-N", "2", "--here"), environment) as terminal:
        terminal.type("bind 'set enable-bracketed-paste off'; PS1='pro''mpt> '\r")
        terminal.read_until("prompt> ")
        terminal.type("echo sle''eps; sleep 1000\r")
        terminal.read_until("sleeps")
        terminal.type("\x03")
        terminal.read_until("^C\r\nprompt> ")
        terminal.type(f"{LAUNCH} -l sh -c 'echo rank''s $HAL_SIZE'; exit 4\r")
        terminal.read_until("[1] ranks 2")
        assert terminal.wait() == 4
    assert newest(client).wait(DEADLINE_S).state == "succeeded"


def test_a_command_instead_of_the_shell_needs_no_terminal(shared_hal: LiveHal) -> None:
    ran = shared_hal.run("alloc", "-N", "2", "--", "sh", "-c", "echo $HAL_NODE_RANK of $HAL_NODE_COUNT; exit 3")
    assert (ran.code, ran.out) == (3, "0 of 2\n"), ran.err


def test_a_shell_needs_a_terminal(shared_hal: LiveHal) -> None:
    ran = shared_hal.run("alloc")
    assert (ran.code, "write: hal alloc -- COMMAND" in ran.err) == (2, True)


@pytest.mark.slow
def test_an_allocation_ends_with_a_client_that_is_killed(shared_hal: LiveHal, client: Client) -> None:
    held = shared_hal.start("alloc", "-N", "2", "--here", "--", "sh", "-c", "echo $$; exec sleep 1000")
    assert held.stdout is not None
    shell = int(held.stdout.readline())
    job = newest(client)
    held.kill()
    assert job.wait(DEADLINE_S).state == "failed"
    os.kill(shell, signal.SIGKILL)
    held.communicate(timeout=DEADLINE_S)


def test_a_shell_here_ends_with_its_job(shared_hal: LiveHal, client: Client) -> None:
    """Whoever cancels the job ends what works in it."""
    held = shared_hal.start("alloc", "--here", "--", "sh", "-c", "echo ready; exec sleep 1000")
    assert held.stdout is not None
    assert held.stdout.readline() == "ready\n"
    job = newest(client)
    job.cancel()
    _, err = held.communicate(timeout=DEADLINE_S)
    assert (held.returncode, f"job {job.id} has ended, and with it" in err) == (128 + signal.SIGHUP, True), err


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_while_it_waits_it_says_why_and_a_signal_cancels_it(number: int, shared_hal: LiveHal, client: Client) -> None:
    """Nothing of it is left."""
    waiting = shared_hal.start("alloc", "--begin", "now+1h", "--", "true")
    assert waiting.stderr is not None
    assert " is pending: " in waiting.stderr.readline()
    job = newest(client)
    os.kill(waiting.pid, number)
    waiting.communicate(timeout=DEADLINE_S)
    assert waiting.returncode == 128 + number
    assert job.refresh().state == "cancelled"
