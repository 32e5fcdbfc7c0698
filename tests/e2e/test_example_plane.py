"""examples/plane on a real HAL: every verb of a plane; and killed at random, it changes nothing for others' work."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from hal.cli.local import processes
from hal.conformance.plane.gate import check_gate
from hal.runtime.identity import kill
from tests.conformance.test_gate import faults, running
from tests.e2e.conftest import DEADLINE_S, LiveHal, until
from tests.e2e.test_documents import ROOT

PLANE = ROOT / "examples" / "plane"
SMALL = ("--nodes", "1", "--cpus", "1", "--memory", "512MiB")
JOBS = 30
KILLS = 4

pytestmark = pytest.mark.slow


def configure(live: LiveHal, *options: object) -> None:
    """Declare the plane and its gate."""
    command = json.dumps([sys.executable, str(PLANE / "plane.py"), *map(str, options)])
    live.home.config.write_text(
        f'[gates.budget]\n[supervision.planes.spot]\ncommand = {command}\nhealth = "spot.sock"\n'
    )


def asked(live: LiveHal, path: str) -> dict[str, dict[str, float]]:
    """What the plane answers."""
    transport = httpx.HTTPTransport(uds=str(live.home.socket_dir() / "spot.sock"))
    with httpx.Client(transport=transport, base_url="http://hal", timeout=DEADLINE_S) as http:
        try:
            answer = http.get(path)
        except httpx.TransportError:
            return {}  # it is being started again
    found: dict[str, dict[str, float]] = answer.json() if answer.status_code == 200 else {}
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def nodes(live: LiveHal) -> set[str]:
    with live.client() as client:
        return {node.name for node in client.nodes()}


def test_the_plane_follows_advises_gates_rents_keeps_and_answers(own_hal: LiveHal) -> None:
    """One story: a budget that is spent, a price that is learned, a machine that comes and goes."""
    configure(own_hal, "--budget", "0.4", "--machines", "1", "--idle", "1")
    own_hal.up("--restart", *SMALL, "--name", "n1", "--wire", f"127.0.0.1:{free_port()}", "--with", "spot")
    assert own_hal.run("run", "--gate", "budget", "--", "sleep", "0.5").code == 0
    until(lambda: "n1" in asked(own_hal, "/v1/speeds").get("nodes", {}), "the plane has counted it")
    refused = own_hal.run("run", "--gate", "budget", "--", "true")
    assert "gate 'budget': the budget is spent" in refused.err
    until(lambda: "n1" in own_hal.run("advice", "show", "price").out, "the price is advised")
    where = own_hal.run("run", "--constraint", "pool=spot", "-m", "64MiB", "--", "sh", "-c", "echo $HAL_NODE").out
    assert where == "spot-1\n"
    until(lambda: nodes(own_hal) == {"n1"}, "the machine is returned")
    (user,) = asked(own_hal, "/v1/spending")["users"]
    assert asked(own_hal, "/v1/spending")["users"][user] >= 0.5


def test_killed_at_random_the_plane_changes_no_start_of_others_and_counts_each_end_once(own_hal: LiveHal) -> None:
    """Jobs of many priorities on one node: they start in the same order as without the plane."""
    configure(own_hal)
    own_hal.up("--restart", *SMALL, "--with", "spot")
    chance = random.Random(1)
    plane = processes.Plane(own_hal.home, "spot")
    with own_hal.client() as client:
        hold = client.submit({"command": ["sleep", "1"]})
        priorities = [chance.randrange(5) for _ in range(JOBS)]
        specs = [{"command": ["sleep", "0.1"], "priority": priority} for priority in priorities]
        ids = [job.id for job in client.submit(specs)]
        kills = sorted(chance.sample(range(1, JOBS), KILLS))
        order = []
        for ended in client.attempts(follow=True):
            if ended.job != str(hold.id):
                order.append(ended.job)
            if len(order) in kills:
                kills.remove(len(order))
                identity = plane.identity
                if identity is not None:
                    kill(identity, chance.choice((signal.SIGKILL, signal.SIGTERM)))
            if len(order) == JOBS:
                break
    expected = sorted(zip(ids, priorities, strict=True), key=lambda pair: (-pair[1], int(pair[0])))
    assert order == [str(job) for job, _ in expected]
    until(lambda: asked(own_hal, "/v1/progress").get("counted", 0) >= JOBS + 1, "the plane has read all of it")
    database = own_hal.root / "spot" / "spot.sqlite"
    counted = subprocess.run(
        [sys.executable, "-c", f"import sqlite3; print(*sqlite3.connect({str(database)!r}).execute("
         "'SELECT attempts FROM nodes').fetchone())"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert int(counted) == JOBS + 1


def test_the_gate_in_python_conforms(own_hal: LiveHal) -> None:
    configure(own_hal)
    own_hal.up("--restart", *SMALL, "--with", "spot")
    assert faults(check_gate(own_hal.root / "gates" / "budget.sock")) == []


@pytest.mark.skipif(shutil.which("socat") is None, reason="no socat: apt-get install socat")
def test_the_gate_in_shell_conforms(tmp_path: Path) -> None:
    path = tmp_path / "budget.sock"
    argv = ["env", f"HAL_OVER_BUDGET={tmp_path / 'over'}", "socat", f"UNIX-LISTEN:{path},fork,backlog=128,mode=600",
            f"EXEC:{PLANE / 'budget.sh'}"]  # fmt: skip
    with running(argv, path):
        assert faults(check_gate(path)) == []


@pytest.mark.skipif(shutil.which("socat") is None, reason="no socat: apt-get install socat")
def test_the_gate_in_shell_refuses_whoever_has_spent_the_budget(tmp_path: Path) -> None:
    (tmp_path / "over").write_text("bob\nann\n")
    request = '{"version":1,"ask":"enter","gate":"budget","phase":"preparing","job":1,"task":0,"attempt":1,"rank":0,'
    request += '"node":"n1","user":"%s","deadline_ms":1000,"argument":""}\n'
    answers = [
        subprocess.run([PLANE / "budget.sh"], input=request % user, capture_output=True, text=True,
                       env={**os.environ, "HAL_OVER_BUDGET": str(tmp_path / "over")}).stdout
        for user in ("ann", "an", "carol")
    ]  # fmt: skip
    assert [json.loads(answer)["state"] for answer in answers] == ["refused", "ready", "ready"]
