"""Gates on a real HAL: a service in Python and jobs that name it, from `hal run` to the socket and back."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model.gate import GatePhase
from hal.core.model.gate_protocol import (
    GateAnswer,
    GateAsk,
    GateRequest,
    GateVerdictWord,
    decode_request,
    encode_answer,
)
from tests.e2e.conftest import DEADLINE_S, LiveHal, until
from tests.e2e.test_documents import ROOT, run_page

READY = GateAnswer(state=GateVerdictWord.READY)
WAITING = GateAnswer(state=GateVerdictWord.WAITING, reason="12 of 40 GiB", again_ms=50)
REFUSED = GateAnswer(state=GateVerdictWord.REFUSED, reason="no space left")


class Stage:
    """The service `stage` of this machine's nodes; the test says what it answers to which node."""

    def __init__(self, live: LiveHal) -> None:
        self.asked: list[GateRequest] = []
        self.answers: dict[str, GateAnswer] = {}
        """By node; '': to every other one."""
        self.refuses_first = False
        """The node that is asked first is refused, now and later."""
        self._live = live
        directory = live.root / "gates"
        directory.mkdir(mode=0o700, exist_ok=True)
        self.path = directory / "stage.sock"
        self.path.unlink(missing_ok=True)
        self._server = _server(self.path, self._answer)

    def _answer(self, line: bytes) -> bytes:
        request = decode_request(line)
        self.asked.append(request)
        if self.refuses_first:
            self.answers.setdefault(self.asked[0].node, REFUSED)
        return encode_answer(self.answers.get(request.node, self.answers.get("", READY)))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _server(path: Path, answer: object) -> object:
    import socketserver

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(answer(self.rfile.readline()))  # type: ignore[operator]

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True
        request_queue_size = 64

    before = os.getcwd()
    os.chdir(path.parent)
    try:
        server = Server(path.name, Handler)
    finally:
        os.chdir(before)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    return server


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveHal]:
    """Two nodes, and the gate declared."""
    live = LiveHal(tmp_path_factory.mktemp("gates"))
    live.root.mkdir(exist_ok=True)
    (live.root / "hal.toml").write_text("[gates.stage]\n[gates.other]\n")
    live.up("--nodes", "2", "--cpus", "2", "--memory", "512MiB")
    try:
        yield live
    finally:
        live.run("down", "--kill")


@pytest.fixture
def stage(live: LiveHal) -> Iterator[Stage]:
    service = Stage(live)
    try:
        yield service
    finally:
        service.close()


def shown(live: LiveHal, job: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(live.run("show", job, "-o", "json", check=True).out)
    return found


@pytest.mark.slow
def test_a_job_begins_when_its_gate_lets_it_and_ends_when_its_gate_does(live: LiveHal, stage: Stage) -> None:
    """`hal why` and `hal show` name the gate and its reason meanwhile; the service knows who asks."""
    stage.answers[""] = WAITING
    job = live.run(
        "submit",
        "--gate",
        "stage,deadline=10m,argument=genome",
        "--gate",
        "stage,phase=finalising",
        "--",
        "true",
        check=True,
    ).out.strip()
    until(lambda: "does not let it begin yet" in live.run("why", job).out, "the gate is named")
    assert "12 of 40 GiB" in live.run("show", job, check=True).out
    stage.answers[""] = READY
    assert live.run("wait", job).code == 0
    first, last = stage.asked[0], stage.asked[-1]
    assert (first.phase, first.argument, first.ask) == (GatePhase.PREPARING, "genome", GateAsk.ENTER)
    assert last.phase is GatePhase.FINALISING
    assert first.user == last.user != ""


@pytest.mark.slow
def test_a_task_goes_elsewhere_and_its_job_excludes_the_node(live: LiveHal, stage: Stage) -> None:
    """One node has no space: both tasks of the array run on the other."""
    stage.refuses_first = True
    job = live.run("submit", "--array", "2", "--gate", "stage,policy=elsewhere", "--", "true", check=True).out.strip()
    assert live.run("wait", job).code == 0
    found = shown(live, job)
    full = stage.asked[0].node
    (other,) = {"n1", "n2"} - {full}
    assert found["spec"]["exclude"] == [full]  # type: ignore[index]
    assert [task["nodes"] for task in found["task_list"]] == [[other], [other]]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_gang_fails_with_the_gate_and_the_node_that_failed_it(live: LiveHal, stage: Stage) -> None:
    """No process of it runs; `hal run` fails."""
    stage.answers["n2"] = REFUSED
    ran = live.run("run", "-N", "2", "--gate", "stage,policy=fail", "--", "true")
    assert ran.code == 1
    (job,) = {str(one.job) for one in stage.asked if one.rank == 1}
    out = live.run("show", job, check=True).out
    assert re.search(r"failed .*refused +gate-failed: gate 'stage': no space left \(on n2\)", out)


@pytest.mark.slow
def test_a_cancelled_job_is_cancelled_at_its_gate(live: LiveHal, stage: Stage) -> None:
    """The service is told."""
    stage.answers[""] = WAITING
    job = live.run("submit", "--gate", "stage", "--", "true", check=True).out.strip()
    until(lambda: any(str(one.job) == job for one in stage.asked), "asked")
    live.run("cancel", job, check=True)
    assert live.run("wait", job).code != 0
    assert [one.ask for one in stage.asked if str(one.job) == job][-1] is GateAsk.CANCEL


@pytest.mark.slow
def test_the_example_of_gates_works(own_hal: LiveHal, tmp_path: Path) -> None:
    """docs/gates.md: the data set is there before the job begins; a path as the argument is refused."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    own_hal.up("--nodes", "1", "--cpus", "2", "--memory", "512MiB")
    own_hal.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    out = run_page("docs/gates.md", own_hal, tmp_path)
    assert "ACGT" in out
    assert "refused: see hal show" in out


def test_whoever_checks_a_gate_needs_no_running_hal(tmp_path: Path) -> None:
    """The command says that nobody serves the socket, for each rule."""
    argv = [sys.executable, "-m", "hal.conformance.plane.gate", str(tmp_path / "none.sock")]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL)
    assert ran.returncode == 1
    assert ran.stdout.count("FAIL") == ran.stdout.count("nobody serves") > 5
