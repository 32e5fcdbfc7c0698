"""The conformance suite of gates: the services of the examples pass it, and each fault is found by the check for it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from hal.conformance import NonConformance
from hal.conformance.plane.gate import CHECKS, Result, Service, check_gate, main
from hal.core.model.gate import GatePhase
from hal.core.model.gate_protocol import (
    GateAnswer,
    GateAsk,
    GateRequest,
    GateVerdictWord,
    decode_request,
    encode_answer,
)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "gates"
DEADLINE_S = 60.0
READY = GateAnswer(state=GateVerdictWord.READY)
REFUSED = GateAnswer(state=GateVerdictWord.REFUSED, reason="no")


@contextmanager
def running(argv: list[str], path: Path) -> Iterator[Path]:
    """A service as a process of its own, once it listens at its socket."""
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
    deadline_s = time.monotonic() + DEADLINE_S
    try:
        while not listens(path):
            assert process.poll() is None, f"{argv} ended"
            assert time.monotonic() < deadline_s, f"{argv} serves nothing"
            threading.Event().wait(0.01)
        yield path
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def faults(results: list[Result]) -> list[Result]:
    return [one for one in results if one.fault]


@pytest.mark.slow
def test_the_service_in_python_conforms(tmp_path: Path) -> None:
    """In both phases; its data set is copied on demand."""
    (tmp_path / "data" / "genome").mkdir(parents=True)
    (tmp_path / "data" / "genome" / "reads").write_text("ACGT")
    argv = [sys.executable, str(EXAMPLES / "stage.py"), *map(str, (tmp_path, tmp_path / "data", tmp_path / "scratch"))]
    with running(argv, tmp_path / "gates" / "stage.sock") as path:
        assert faults(check_gate(path, argument="genome")) == []
        assert faults(check_gate(path, argument="genome", phase=GatePhase.FINALISING)) == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("socat") is None, reason="no socat: apt-get install socat")
def test_the_service_in_shell_conforms(tmp_path: Path) -> None:
    """One shell for each connection, behind socat."""
    path = tmp_path / "maintenance.sock"
    flag = f"HAL_MAINTENANCE={tmp_path / 'flag'}"
    listen = f"UNIX-LISTEN:{path},fork,mode=600,backlog=64"
    with running(["env", flag, "socat", listen, f"EXEC:{EXAMPLES / 'maintenance.sh'}"], path):
        assert faults(check_gate(path, argument="scratch")) == []


@pytest.mark.skipif(shutil.which("socat") is None, reason="no socat: apt-get install socat")
def test_the_service_in_shell_lets_nobody_in_during_maintenance(tmp_path: Path) -> None:
    """All of the node, or the resource that the argument names."""
    path, flag = tmp_path / "maintenance.sock", tmp_path / "flag"
    listen = f"UNIX-LISTEN:{path},fork,mode=600"
    argv = ["env", f"HAL_MAINTENANCE={flag}", "socat", listen, f"EXEC:{EXAMPLES / 'maintenance.sh'}"]
    with running(argv, path):
        service = Service(path, phase=GatePhase.PREPARING, argument="scratch")
        (tmp_path / "flag.scratch").touch()
        assert service.ask(service.request()).state is GateVerdictWord.WAITING
        assert service.ask(service.request(argument="other")).state is GateVerdictWord.READY
        flag.touch()
        assert service.ask(service.request(argument="other")).reason == "the node is in maintenance"


# ── each fault is found ───────────────────────────────────────────────────────────────────────────────────────────

Answer = Callable[["Faulty", bytes], bytes]


class Faulty:
    """A service that breaks one rule; what it remembers."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.seen: set[tuple[int, int, int, int]] = set()
        self.cancelled: set[int] = set()
        self.turn = threading.Lock()


def good(request: GateRequest) -> bytes:
    return encode_answer(READY)


def parsed(line: bytes) -> GateRequest | None:
    try:
        return decode_request(line)
    except Exception:
        return None


def refuses_all(me: Faulty, line: bytes) -> bytes:
    return encode_answer(REFUSED)


def waits_for_ever(me: Faulty, line: bytes) -> bytes:
    return encode_answer(GateAnswer(state=GateVerdictWord.WAITING, again_ms=20))


def changes_its_mind(me: Faulty, line: bytes) -> bytes:
    request = parsed(line)
    if request is None:
        return encode_answer(REFUSED)
    key = (request.job, request.task, request.attempt, request.rank)
    again = key in me.seen
    me.seen.add(key)
    return encode_answer(REFUSED if again else READY)


def knows_jobs_only(me: Faulty, line: bytes) -> bytes:
    request = parsed(line)
    if request is None:
        return encode_answer(REFUSED)
    key = (request.job, request.task, request.attempt, request.rank)
    others = {one for one in me.seen if one[0] == request.job and one != key}
    me.seen.add(key)
    return encode_answer(REFUSED if others else READY)


def lets_anything_in(me: Faulty, line: bytes) -> bytes:
    return encode_answer(READY)


def answers_in_prose(me: Faulty, line: bytes) -> bytes:
    return b"OK\n"


def knows_no_other_field(me: Faulty, line: bytes) -> bytes:
    request = parsed(line)
    return encode_answer(REFUSED if request is None or b'"later"' in line else READY)


def forgets_no_cancel(me: Faulty, line: bytes) -> bytes:
    request = parsed(line)
    if request is None:
        return encode_answer(REFUSED)
    if request.ask is GateAsk.CANCEL:
        me.cancelled.add(request.job)
    return encode_answer(REFUSED if request.job in me.cancelled else READY)


def runs_its_argument(me: Faulty, line: bytes) -> bytes:
    request = parsed(line)
    if request is None:
        return encode_answer(REFUSED)
    subprocess.run(["sh", "-c", f": {request.argument}"], check=False, stderr=subprocess.DEVNULL)
    return encode_answer(READY)


def conforms(me: Faulty, line: bytes) -> bytes:
    return encode_answer(READY if parsed(line) is not None else REFUSED)


@contextmanager
def serving(path: Path, answer: Answer, *, threads: bool = True) -> Iterator[Service]:
    """A service in this process; without threads, one connection after the other."""
    me = Faulty(answer)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            try:
                line = self.rfile.readline(1 << 16)
                with me.turn:
                    self.wfile.write(me.answer(me, line))
            except OSError:
                return

    class Server(socketserver.UnixStreamServer):
        request_queue_size = 64

        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing: it goes on."""

    class Threads(socketserver.ThreadingMixIn, Server):
        daemon_threads = True

    server = (Threads if threads else Server)(str(path), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield Service(path, phase=GatePhase.PREPARING, argument="genome", patience_s=0.2)
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("answer", "check"), [
    (refuses_all, "lets_an_attempt_continue"),
    (waits_for_ever, "lets_an_attempt_continue"),
    (answers_in_prose, "lets_an_attempt_continue"),
    (changes_its_mind, "says_the_same_again"),
    (knows_jobs_only, "tells_attempts_ranks_and_tasks_apart"),
    (knows_no_other_field, "ignores_fields_that_it_does_not_know"),
    (lets_anything_in, "lets_nothing_in_that_is_no_request"),
    (lets_anything_in, "bounds_what_it_reads"),
    (runs_its_argument, "takes_arguments_as_data"),
    (forgets_no_cancel, "takes_a_cancel"),
])  # fmt: skip
def test_a_service_that_breaks_a_rule_is_found_by_its_check(tmp_path: Path, answer: Answer, check: str) -> None:
    """By name, and a service that keeps it passes the same check."""
    (rule,) = [one for one in CHECKS if one.__name__ == check]
    with serving(tmp_path / "bad.sock", answer) as service, pytest.raises(NonConformance):
        rule(service)
    with serving(tmp_path / "good.sock", conforms) as service:
        rule(service)


def test_a_service_that_serves_one_after_the_other_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent connection keeps everybody waiting."""
    monkeypatch.setattr("hal.conformance.plane.gate.ANSWER_MS", 300)
    (rule,) = [one for one in CHECKS if one.__name__ == "serves_several_at_once"]
    slow = serving(tmp_path / "bad.sock", conforms, threads=False)
    with slow as service, pytest.raises(NonConformance, match="requests at once"):
        rule(service)


def test_the_command_prints_a_line_for_each_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And its exit code says whether all are kept."""
    with serving(tmp_path / "good.sock", conforms):
        assert main([str(tmp_path / "good.sock"), "--patience", "5"]) == 0
    assert capsys.readouterr().out.count("ok    ") == len(CHECKS)
    assert main([str(tmp_path / "gone.sock")]) == 1
    assert "nobody serves" in capsys.readouterr().out


def test_the_schema_of_the_protocol_is_that_of_its_lines() -> None:
    """spec/gate.schema.json accepts what agents send and what services answer."""
    import jsonschema

    from hal.core.model.gate_protocol import encode_request, protocol_schema

    request = Service(Path("stage.sock"), phase=GatePhase.PREPARING, argument="genome").request()
    for line in (encode_request(request), encode_answer(REFUSED)):
        jsonschema.validate(msgspec.json.decode(line), protocol_schema())
