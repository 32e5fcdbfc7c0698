"""What ends on a machine with HAL is started again; planes beside the controller; HAL in the foreground."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from hal.cli.local import processes
from hal.cli.local.planes import health_of
from hal.daemons.collector.reception import WIRE_SOCKET
from hal.runtime.identity import ProcessIdentity, kill, wait_gone
from hal.runtime.real_runtime import RealRuntime
from hal.runtime.telemetry_sender import TelemetrySender
from hal.wire.frames.telemetry import LogLine, Severity
from hal.wire.roles import Role
from tests.e2e.conftest import DEADLINE_S, Gate, LiveHal, until
from tests.runtime.real_runtime import run_real

SMALL = ("--cpus", "1", "--memory", "256MiB")
PLANES = """
[supervision.planes.prices]
command = ["/bin/sh", "-c", "echo $HAL_PLANE in $HAL_HOME; exec sleep 1000"]
[supervision.planes.broken]
command = ["/bin/sh", "-c", "echo no such table; exit 3"]
[supervision.planes.mute]
command = ["/bin/sleep", "1000"]
health = "mute.sock"
"""

pytestmark = pytest.mark.slow


def ended(process: processes.Process) -> ProcessIdentity:
    """Kill it; returns what it was."""
    found = process.identity
    assert found is not None
    kill(found, signal.SIGKILL)
    assert wait_gone(found, DEADLINE_S)
    return found


def other(process: processes.Process, before: ProcessIdentity) -> bool:
    """Whether another process has its place."""
    return process.identity not in (None, before)


def answers(live: LiveHal) -> bool:
    return live.run("status").code == 0


def test_a_controller_that_is_killed_is_started_again_and_its_work_continues(own_hal: LiveHal, tmp_path: Path) -> None:
    own_hal.up("--restart", *SMALL)
    gate = Gate(tmp_path)
    job = own_hal.run("submit", "--", *gate.command("echo through"), check=True).out.strip()
    gate.started()
    before = ended(processes.controller(own_hal.home))
    until(lambda: other(processes.controller(own_hal.home), before) and answers(own_hal), "the controller is back")
    gate.open()
    own_hal.run("wait", job, check=True)
    assert own_hal.run("logs", job).out == "through\n"
    gate.close()


def test_a_node_that_is_killed_whole_is_started_again(own_hal: LiveHal) -> None:
    own_hal.up("--restart", *SMALL)
    keeper, agent = processes.keeper(own_hal.home, "n1"), processes.agent(own_hal.home, "n1")
    found = [keeper.identity, agent.identity]
    for identity in found:
        assert identity is not None
        kill(identity, signal.SIGKILL)
    until(lambda: all(one.identity not in (None, *found) for one in (keeper, agent)), "keeper and agent are back")
    until(lambda: own_hal.run("run", "--", "true").code == 0, "work runs there again")


def test_the_collector_is_a_plane_that_comes_with_hal(own_hal: LiveHal) -> None:
    """It needs no word in hal.toml, answers over REST, and is started again as any other."""
    up = json.loads(own_hal.run("up", "--restart", *SMALL, "--with", "observability", "--json", check=True).out)
    plane = processes.Plane(own_hal.home, "observability")
    assert [(one["name"], one["state"]) for one in up["planes"]] == [("observability", "running")]
    before = ended(plane)
    until(lambda: other(plane, before), "the collector is back")
    until(lambda: health_of(own_hal.home, "observability.sock") == "", "it answers")
    own_hal.home.config.write_text("[observability]\nno_such_key = 1\n")
    assert "no_such_key" in own_hal.run("config", "check").err


def test_status_shows_what_the_collector_says_of_itself_and_what_was_dropped(own_hal: LiveHal, tmp_path: Path) -> None:
    """A process queues more lines than it may keep: it drops the oldest, and says how many."""
    own_hal.up("--restart", *SMALL, "--with", "observability")
    until(lambda: "observability: " in own_hal.run("status").out, "the collector says how it is")

    async def main(runtime: RealRuntime) -> None:
        sender = TelemetrySender(runtime, Role.AGENT, "n9", max_bytes=100_000)
        sender.dial((f"unix:{own_hal.home.socket_dir() / WIRE_SOCKET}",))
        sender.lines([LogLine(1, Severity.INFO, "agent", "x" * 1_000) for _ in range(1_000)])
        sending = runtime.spawn_task(sender.run(), "sender")
        await sender.flush(30_000)
        sending.cancel()

    run_real(tmp_path, main)
    until(lambda: "were dropped where they were sent" in own_hal.run("status").out, "the drop is shown")
    (plane,) = json.loads(own_hal.run("status", "--json").out)["planes"]
    assert "up to date" in plane["summary"]
    assert any("dropped" in one["what"] and one["do"] for one in plane["warnings"])


def test_planes_run_beside_the_controller_and_end_with_it(own_hal: LiveHal) -> None:
    own_hal.home.config.write_text(PLANES)
    up = json.loads(own_hal.run("up", "--restart", *SMALL, "--with", "prices", "--json", check=True).out)
    plane = processes.Plane(own_hal.home, "prices")
    assert [(one["name"], one["state"]) for one in up["planes"]] == [("prices", "running")]
    assert own_hal.home.output_file("plane-prices").read_text() == f"prices in {own_hal.root}\n"
    before = ended(plane)
    until(lambda: other(plane, before), "the plane is back")
    last, supervisor = plane.identity, processes.supervisor(own_hal.home)
    assert last is not None
    own_hal.run("down", check=True)
    assert wait_gone(last, 0.0)
    assert supervisor.identity is None


def test_status_says_what_is_wrong_with_planes(own_hal: LiveHal) -> None:
    own_hal.home.config.write_text(PLANES)
    own_hal.up("--restart", *SMALL)

    def states() -> dict[str, tuple[str, str]]:
        found = json.loads(own_hal.run("status", "--json").out)["planes"]
        return {one["name"]: (one["state"], one["reason"]) for one in found}

    # The supervisor takes planes on that a later `hal up` names; this one returns although two of them do not work.
    own_hal.run("up", "--restart", "--with", "prices,broken,mute", check=True)
    until(lambda: states()["broken"] == ("ended", "exit code 3: no such table"), "the broken one is told")
    assert states()["mute"][0] == "unhealthy"
    assert "it does not answer" in states()["mute"][1]
    assert states()["prices"] == ("running", "")


def test_a_plane_that_is_no_longer_named_is_ended(own_hal: LiveHal) -> None:
    own_hal.home.config.write_text(PLANES)
    own_hal.up("--restart", *SMALL, "--with", "prices")
    plane = processes.Plane(own_hal.home, "prices").identity
    assert plane is not None
    own_hal.run("up", "--restart", "--with", "", check=True)
    assert wait_gone(plane, DEADLINE_S)


def test_a_configuration_that_is_refused_is_not_tried_again_and_again(own_hal: LiveHal) -> None:
    own_hal.up("--restart", *SMALL)
    own_hal.home.config.write_text("[engine]\nbackfil = 'easy'\n")
    ended(processes.controller(own_hal.home))
    until(lambda: "controller is not started again" in own_hal.run("status").out, "the supervisor has given up")


def test_in_the_foreground_hal_tells_its_service_manager_and_ends_on_sigterm(own_hal: LiveHal, tmp_path: Path) -> None:
    told = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(told))
        manager.settimeout(3 * DEADLINE_S)
        environment = {**own_hal.environment, "NOTIFY_SOCKET": str(told), "WATCHDOG_USEC": "2000000"}
        command = own_hal.command("up", "--foreground", *SMALL)
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as up:
            lines: list[str] = []
            while "WATCHDOG=1" not in lines:
                lines += manager.recv(4096).decode().split("\n")
            assert lines[0] == "READY=1"
            assert answers(own_hal)
            up.send_signal(signal.SIGTERM)
            up.communicate(timeout=2 * DEADLINE_S)
    assert up.returncode == 0
    assert processes.controller(own_hal.home).identity is None
    assert not processes.nodes_with_processes(own_hal.home)


def test_in_the_foreground_running_steps_outlive_hal_and_are_found_again(own_hal: LiveHal, tmp_path: Path) -> None:
    own_hal.up(*SMALL)
    gate = Gate(tmp_path)
    job = own_hal.run("submit", "--", *gate.command("echo through"), check=True).out.strip()
    gate.started()
    command = own_hal.command("up", "--foreground")
    with subprocess.Popen(command, env=own_hal.environment, stderr=subprocess.PIPE) as up:
        until(lambda: processes.supervisor(own_hal.home).identity is not None, "it supervises")
        up.send_signal(signal.SIGTERM)
        up.communicate(timeout=2 * DEADLINE_S)
    assert processes.controller(own_hal.home).identity is None
    assert processes.steps_in_processes(own_hal.home) == 1
    own_hal.up()
    gate.open()
    own_hal.run("wait", job, check=True)
    gate.close()


def test_hal_down_ends_a_hal_in_the_foreground(own_hal: LiveHal) -> None:
    with subprocess.Popen(own_hal.command("up", "--foreground", *SMALL), env=own_hal.environment) as up:
        until(lambda: processes.supervisor(own_hal.home).identity is not None, "it works")
        own_hal.run("down", check=True)
        assert up.wait(DEADLINE_S) == 0
    assert processes.controller(own_hal.home).identity is None
