"""`hal up`, `hal down`, and what is killed in between, on real processes."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.runtime.identity import kill, running, wait_gone
from tests.e2e.conftest import DEADLINE_S, Gate, LiveHal, new_home, until
from tests.e2e.terminal import Terminal

SMALL = ("--cpus", "2", "--memory", "512MiB")


@pytest.fixture(scope="module")
def lasting_hal() -> Iterator[LiveHal]:
    """For `small_hal`."""
    live = LiveHal(new_home())
    yield live
    live.remove()


@pytest.fixture
def small_hal(lasting_hal: LiveHal) -> Iterator[LiveHal]:
    """One small node that runs. What a test ends is started again for the next one, and no job of it is left."""
    lasting_hal.up(*() if (lasting_hal.home.run_dir / "layout.json").exists() else SMALL)
    yield lasting_hal
    with lasting_hal.client() as client:
        left = [info.id for info in client.jobs() if not info.ended]
        if left:
            client.cancel(*left)
            client.wait_all(left, DEADLINE_S)


def kill_now(live: LiveHal, process: str) -> None:
    """SIGKILL, as if the machine's owner or the kernel had done it."""
    identity = running(live.home.pid_file(process))
    assert identity is not None
    kill(identity, signal.SIGKILL)
    assert wait_gone(identity, DEADLINE_S)


def test_up_is_idempotent_and_down_stops_everything(own_hal: LiveHal) -> None:
    """A second `hal up` starts nothing; after `hal down` nothing of it runs; `hal up` alone brings the same back."""
    first = json.loads(own_hal.run("up", "--nodes", "2", *SMALL, "--label", "k=v", "--json").out)
    assert first["started"] == ["controller", "keeper-n1", "keeper-n2"]
    assert json.loads(own_hal.run("up", "--json").out)["started"] == []
    sockets = own_hal.home.known_socket_dir()
    assert own_hal.run("down").code == 0
    assert sockets is not None
    assert not sockets.exists()
    for process in ("controller", "keeper-n1", "agent-n1", "keeper-n2", "agent-n2"):
        assert running(own_hal.home.pid_file(process)) is None
    assert own_hal.run("status").code == 5
    assert own_hal.run("down").code == 0
    own_hal.up()
    nodes = own_hal.client().nodes()
    assert [(node.name, node.capacity["cpu"], node.labels["k"]) for node in nodes] == [
        ("n1", 2000, "v"),
        ("n2", 2000, "v"),
    ]


@pytest.mark.slow
def test_another_shape_is_refused_while_it_runs(small_hal: LiveHal) -> None:
    """Exit code 6, and what to do."""
    ran = small_hal.run("up", "--nodes", "2")
    assert (ran.code, "hal down" in ran.err) == (6, True)


def test_a_start_that_fails_shows_why_and_leaves_nothing(own_hal: LiveHal) -> None:
    """The store's place is taken by a directory."""
    own_hal.home.create()
    own_hal.home.database.mkdir()
    ran = own_hal.run("up", *SMALL)
    assert ran.code == 7
    assert f"{own_hal.home.database} is a directory" in ran.err
    assert running(own_hal.home.controller_pid) is None
    assert running(own_hal.home.keeper_pid("n1")) is None


@pytest.mark.slow
def test_two_hals_run_side_by_side(own_hal: LiveHal, shared_hal: LiveHal) -> None:
    """Each has its own jobs, from 1 on."""
    own_hal.up(*SMALL)
    assert own_hal.run("run", "--", "sh", "-c", "echo $HAL_JOB_ID $HAL_HOME").out == f"1 {own_hal.root}\n"
    assert own_hal.client().jobs(limit=10).__next__().id == "1"
    assert shared_hal.run("status").code == 0


@pytest.mark.slow
def test_down_with_running_steps_must_be_told(small_hal: LiveHal, gate: Gate) -> None:
    """Nobody can be asked: exit code 6, and the two ways; --kill cancels the job."""
    job = small_hal.client().submit(gate.command())
    gate.started()
    ran = small_hal.run("down")
    assert ran.code == 6
    assert "--leave" in ran.err
    assert "--kill" in ran.err
    assert small_hal.run("down", "--kill").code == 0
    small_hal.up()
    assert small_hal.client().job(job.id).state == "cancelled"


@pytest.mark.slow
def test_down_asks_on_a_terminal(small_hal: LiveHal, gate: Gate) -> None:
    """An empty answer stops nothing."""
    small_hal.client().submit(gate.command())
    gate.started()
    with Terminal(small_hal.command("down"), small_hal.environment) as terminal:
        terminal.read_until("[l/k/N]")
        terminal.type("\n")
        assert terminal.wait() == 1
    assert small_hal.run("status").code == 0
    gate.open()


@pytest.mark.slow
def test_steps_that_were_left_are_found_again(small_hal: LiveHal, gate: Gate) -> None:
    """`hal down --leave`, the job ends meanwhile or later, `hal up`: it succeeded, and ran once."""
    job = small_hal.client().submit(gate.command("echo done"))
    gate.started()
    assert small_hal.run("down", "--leave").code == 0
    assert running(small_hal.home.controller_pid) is None
    gate.open()
    small_hal.up()
    again = small_hal.client().job(job.id)
    assert again.wait(DEADLINE_S).state == "succeeded"
    assert (again.logs(), len(again.task().attempts)) == ("done\n", 1)


@pytest.mark.parametrize(
    "victims",
    [
        ("controller", "agent-n1"),
        pytest.param(("controller",), marks=pytest.mark.slow),
        pytest.param(("agent-n1",), marks=pytest.mark.slow),
        pytest.param(("keeper-n1",), marks=pytest.mark.slow),
        pytest.param(("controller", "agent-n1", "keeper-n1"), marks=pytest.mark.slow),
    ],
)
def test_a_running_step_outlives_the_processes_of_hal(victims: tuple[str, ...], small_hal: LiveHal, gate: Gate) -> None:
    """SIGKILL, `hal up`: the step went on, its end is reported, nothing ran twice."""
    job = small_hal.client().submit(gate.command("echo done; exit 3"))
    gate.started()
    for victim in victims:
        kill_now(small_hal, victim)
    small_hal.up()
    gate.open()
    again = small_hal.client().job(job.id)
    assert (again.wait(DEADLINE_S).state, again.exit_code) == ("failed", 3)
    assert (again.logs(), len(again.task().attempts)) == ("done\n", 1)


@pytest.mark.slow
def test_hal_run_and_a_followed_log_survive_a_restart_of_the_controller(small_hal: LiveHal, gate: Gate) -> None:
    """The client connects again and goes on where it was."""
    process = small_hal.start("run", "--", "sh", "-c", f"echo one; {gate.shell}; echo two; exit 5")
    gate.started()
    assert process.stdout is not None
    assert process.stdout.readline() == "one\n"
    kill_now(small_hal, "controller")
    small_hal.up()
    gate.open()
    out, _ = process.communicate(timeout=2 * DEADLINE_S)
    assert (process.returncode, out) == (5, "two\n")


@pytest.mark.slow
def test_the_layout_of_a_killed_hal_comes_back(own_hal: LiveHal) -> None:
    """All processes killed; `hal up` alone starts both nodes again."""
    own_hal.up("--nodes", "2", *SMALL)
    for process in ("keeper-n1", "keeper-n2", "agent-n1", "agent-n2", "controller"):
        identity = running(own_hal.home.pid_file(process))
        if identity is not None:
            kill(identity, signal.SIGKILL)
    own_hal.up()
    assert own_hal.run("run", "--nodes", "2", "--", "true").code == 0


@pytest.mark.slow
def test_a_controller_that_is_killed_while_hal_up_waits_for_it_is_started(small_hal: LiveHal) -> None:
    """`hal up` has begun to ask the controller, which does not answer, and then is gone."""
    old = running(small_hal.home.controller_pid)
    assert old is not None
    os.kill(old.pid, signal.SIGSTOP)
    up = small_hal.start("up")
    until(lambda: _connections(small_hal.home.api_socket()) > 1, "hal up never asked the controller")
    kill_now(small_hal, "controller")
    _, said = up.communicate(timeout=2 * DEADLINE_S)
    assert up.returncode == 0, said
    assert running(small_hal.home.controller_pid) not in (None, old)
    assert small_hal.run("run", "--", "true").code == 0


def _connections(socket: Path) -> int:
    """Unix sockets of that path: the one that listens, and one for each connection."""
    return sum(line.endswith(f" {socket}") for line in Path("/proc/net/unix").read_text().splitlines())


@pytest.mark.slow
def test_tcp_needs_the_token_of_the_home(own_hal: LiveHal) -> None:
    """Loopback, 401 without it; the command line speaks to it by URL."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own_hal.up(*SMALL, "--tcp", port)
    url = f"http://127.0.0.1:{port}"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{url}/v1/jobs", timeout=DEADLINE_S)
    assert refused.value.code == 401
    assert own_hal.run("jobs", "--url", url, HAL_TOKEN="wrong").code == 4
    assert own_hal.run("run", "--url", url, "--", "echo", "hi").out == "hi\n"
    assert (own_hal.home.token.stat().st_mode & 0o777) == 0o600


def test_what_another_home_holds_cannot_be_taken(own_hal: LiveHal, tmp_path: Path) -> None:
    """A directory with other files that others may read is refused, and left as it is."""
    (tmp_path / "mine.txt").write_text("x")
    tmp_path.chmod(0o755)
    ran = own_hal.run("up", "--home", tmp_path)
    assert ran.code == 6
    assert os.listdir(tmp_path) == ["mine.txt"]


@pytest.mark.slow
def test_status_says_what_is_missing(small_hal: LiveHal) -> None:
    """The node's processes are gone: the node is unreachable, and `hal up` is the advice."""
    for process in ("keeper-n1", "agent-n1"):
        identity = running(small_hal.home.pid_file(process))
        assert identity is not None
        kill(identity, signal.SIGSTOP)
    try:
        until(lambda: "unreachable" in small_hal.run("status").out, "the node stayed up")
        report = json.loads(small_hal.run("status", "--json").out)
        assert "hal up" in report["problems"][0]["do"]
    finally:
        for process in ("agent-n1", "keeper-n1"):
            identity = running(small_hal.home.pid_file(process))
            if identity is not None:
                kill(identity, signal.SIGCONT)


@pytest.mark.slow
def test_an_undeclared_user_queue_or_account_is_refused(own_hal: LiveHal) -> None:
    """hal.toml declares them; exit code 2, the error names what is unknown, and nothing is stored."""
    own_hal.home.create()
    own_hal.home.config.write_text('users = ["ada"]\naccounts = ["physics"]\n\n[queues.long]\n')
    own_hal.up(*SMALL)
    for option, name in (("--user", "bob"), ("--account", "magic"), ("--queue", "short")):
        ran = own_hal.run("submit", "--user", "ada", "--account", "physics", option, name, "--", "true")
        assert (ran.code, name in ran.err) == (2, True), ran.err
    good = own_hal.run("run", "--user", "ada", "--account", "physics", "--queue", "long", "--", "true")
    assert good.code == 0, good.err
    assert [info.user for info in own_hal.client().jobs()] == ["ada"]


def test_a_configuration_that_is_wrong_stops_the_start(own_hal: LiveHal) -> None:
    """Bad input, exit code 2: the one error names the field, once; nothing is left running."""
    own_hal.home.create()
    own_hal.home.config.write_text("[engine]\nordr = 'fcfs'\n")
    ran = own_hal.run("up", *SMALL)
    assert (ran.code, ran.err.count("did you mean 'order'?")) == (2, 1), ran.err
    assert running(own_hal.home.controller_pid) is None


@pytest.mark.slow
def test_a_node_that_was_declared_gone_is_waited_for_when_it_is_started_again(own_hal: LiveHal) -> None:
    """`hal up` brings it back: what needs both nodes is refused before, and runs at once afterwards."""
    own_hal.up("--nodes", "2", "--cpus", "1", "--memory", "64MiB")
    for process in ("keeper-n2", "agent-n2"):
        kill_now(own_hal, process)
    with own_hal.client() as client:
        until(lambda: client.node("n2").state == "unreachable", "n2 is not heard")
    own_hal.run("node", "fence", "n2", "--yes", check=True)
    refused = own_hal.run("submit", "--nodes", "2", "--", "true")
    assert (refused.code, "2 distinct nodes asked for; there is only 1" in refused.err) == (2, True)
    own_hal.run("up", check=True)
    own_hal.run("run", "--nodes", "2", "--", "true", check=True)
