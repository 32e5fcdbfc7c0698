"""The collector beside a real HAL: lines outlive their node, nobody finds another's, spans reach a receiver."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from hal.core.model import StepId
from hal.core.model.trace_ids import job_span, run_span
from hal.daemons.collector.reception import WIRE_SOCKET
from hal.runtime.real_runtime import RealRuntime
from hal.runtime.telemetry_sender import TelemetrySender
from hal.wire.frames.telemetry import Spans
from hal.wire.roles import Role
from tests.e2e.conftest import LiveHal, new_home, until
from tests.e2e.test_gates import READY, WAITING, Stage
from tests.e2e.test_secrets import kill
from tests.runtime.real_runtime import run_real

pytestmark = pytest.mark.slow
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
OTHER = "1" * 32
EDGES = "2" * 32
SENT = "3" * 32
PARENT = "00f067aa0ba902b7"


class Receiver:
    """Takes OTLP over HTTP, as the official classes read it."""

    def __init__(self) -> None:
        self.spans: list[object] = []
        self.lines: list[str] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/v1/traces":
                    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                        receiver.spans += [span for scope in resource.scope_spans for span in scope.spans]
                else:
                    for resource in ExportLogsServiceRequest.FromString(body).resource_logs:
                        records = [record for scope in resource.scope_logs for record in scope.log_records]
                        receiver.lines += [record.body.string_value for record in records]
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture(scope="module")
def collected(receiver: Receiver) -> Iterator[LiveHal]:
    """Two nodes and a collector that sends to the receiver."""
    live = LiveHal(new_home())
    try:
        live.home.config.write_text(
            "[gates.stage]\n[tracing]\nprocesses = 1.0\n"
            f'[observability.traces.otlp]\nendpoint = "{receiver.url}/v1/traces"\n'
            f'[observability.logs.otlp]\nendpoint = "{receiver.url}/v1/logs"\n'
        )
        live.up("--restart", "--nodes", "2", "--cpus", "2", "--memory", "1GiB", "--with", "observability")
        until(lambda: "announced" in _health(live) and _health(live)["announced"], "the collector is known")
        yield live
    finally:
        live.remove()


def _health(live: LiveHal) -> dict[str, object]:
    """Of the part that takes telemetry."""
    import http.client
    import socket

    directory = live.home.known_socket_dir()
    assert directory is not None
    connection = http.client.HTTPConnection("hal")
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(directory / "observability.sock"))
        connection.request("GET", "/v1/health")
        found: dict[str, object] = json.loads(connection.getresponse().read())["parts"]["telemetry"]["values"]
    except (OSError, KeyError):
        return {}
    finally:
        connection.close()
    return found


def _found(live: LiveHal, *args: str, **env: str) -> list[dict[str, object]]:
    """The lines that a search finds."""
    ran = live.run("logs", "--search", *args, "-o", "json", **env)
    assert ran.code == 0, ran.err
    lines: list[dict[str, object]] = json.loads(ran.out)
    return lines


def test_lines_of_a_job_are_found_and_no_secret_with_them(collected: LiveHal) -> None:
    """A job prints the value of a secret that HAL has given it, and a line."""
    collected.run("secret", "set", "pass", text="hunter2-hunter2", check=True)
    job = collected.run(
        "submit", "--secret", "pass", "--", "sh", "-c",
        'echo "needle $(cat $HAL_SECRETS_DIR/pass)"; printf "\\033[31mred\\033[0m needle\\n" >&2',
        check=True,
    ).out.strip()  # fmt: skip
    collected.run("wait", job, check=True)
    until(lambda: len(_found(collected, "needle", "--job", job)) == 2, "both lines are found")
    texts = {str(line["text"]) for line in _found(collected, "needle", "--job", job)}
    assert "needle [hidden]" in texts
    assert _found(collected, "hunter2") == []
    shown = collected.run("logs", "--search", "red", "--job", job, check=True).out
    assert "\\x1b[31mred" in shown
    assert "\x1b" not in shown


def test_a_user_finds_neither_lines_nor_traces_of_others(collected: LiveHal) -> None:
    """Nor what HAL's processes log; an operator finds all of it."""
    job = collected.run("submit", "--", "echo", "confidential").out.strip()
    collected.run("wait", job, check=True)
    until(lambda: _found(collected, "confidential"), "the line is found")
    until(lambda: collected.run("trace", job).code == 0, "the trace is there")
    token = collected.run("api-token", "create", "mallory", check=True).out.strip()
    directory = collected.home.known_socket_dir()
    assert directory is not None
    hers = {"HAL_URL": f"unix://{directory}/api.sock", "HAL_TOKEN": token, "HAL_HOME": str(collected.root)}
    assert _found(collected, "confidential", **hers) == []
    assert _found(collected, "", "--component", "controller", **hers) == []
    assert collected.run("trace", job, **hers).code != 0
    assert "there is no" in collected.run("trace", job, **hers).err
    assert _found(collected, "", "--component", "controller") != []


def test_what_a_job_keeps_to_itself_is_not_collected(collected: LiveHal) -> None:
    """It is still printed by its node."""
    quiet = collected.run("submit", "--env", "HAL_COLLECT_OUTPUT=0", "--", "echo", "quietly").out.strip()
    loud = collected.run("submit", "--", "echo", "loudly").out.strip()
    collected.run("wait", quiet, loud, check=True)
    until(lambda: _found(collected, "loudly"), "the other one is collected")
    assert _found(collected, "quietly") == []
    assert collected.run("logs", quiet).out == "quietly\n"


def test_spans_and_lines_reach_a_receiver_of_otlp(collected: LiveHal, receiver: Receiver) -> None:
    """The job goes on with a trace from outside; what it sends itself would be below its run."""
    job, seen = collected.run(
        "run", "--traceparent", f"00-{TRACE}-{PARENT}-01", "--", "sh", "-c", "echo $HAL_JOB_ID $TRACEPARENT", check=True
    ).out.split()
    assert seen == f"00-{TRACE}-{run_span(TRACE, int(job), 0, 1)}-01"

    def spans() -> dict[str, object]:
        return {one.span_id.hex(): one for one in receiver.spans if one.trace_id.hex() == TRACE}  # type: ignore[attr-defined]

    until(lambda: run_span(TRACE, int(job), 0, 1) in spans(), "the run is sent")
    assert job_span(TRACE, int(job)) in spans()
    until(lambda: any(seen in line for line in receiver.lines), "the line is sent")
    shown = json.loads(collected.run("trace", job, "-o", "json", check=True).out)
    assert (shown["trace_id"], shown["spans"][0]["parent_id"]) == (TRACE, PARENT)
    assert {span["span_id"] for span in shown["spans"]} == set(spans())


def test_what_is_sent_has_gates_edges_and_the_attempt_before(
    collected: LiveHal, receiver: Receiver, tmp_path: Path
) -> None:
    """A job waits for another one and at a gate, fails once and is tried again; both go on with traces of others."""
    before = collected.run("submit", "--traceparent", f"00-{OTHER}-{PARENT}-01", "--", "true", check=True).out.strip()
    stage = Stage(collected)
    stage.answers[""] = WAITING
    try:
        failing = f"test -e {tmp_path}/tried || {{ touch {tmp_path}/tried; exit 3; }}"
        ran = collected.run(
            "submit", "--traceparent", f"00-{EDGES}-{PARENT}-01", "--after", f"afterok:{before}", "--gate", "stage",
            "--retries", "1", "--", "sh", "-c", failing, check=True,
        )  # fmt: skip
        job = ran.out.strip()
        until(lambda: "stage" in collected.run("why", job).out, "it waits at the gate")
        stage.answers[""] = READY
        collected.run("wait", job, check=True)
    finally:
        stage.close()

    def spans() -> dict[str, Any]:
        return {one.name: one for one in receiver.spans if one.trace_id.hex() == EDGES}  # type: ignore[attr-defined]

    until(lambda: f"attempt {job}.0.2" in spans(), "the second attempt is sent")
    found = spans()
    whole = next(one for name, one in found.items() if name.startswith(f"job {job}"))
    assert whole.parent_span_id.hex() == PARENT
    assert [(link.trace_id.hex(), link.span_id.hex()) for link in whole.links] == [
        (OTHER, job_span(OTHER, int(before)))
    ]
    second = found[f"attempt {job}.0.2"]
    assert [link.span_id for link in second.links] == [found[f"attempt {job}.0.1"].span_id]
    assert any(name.startswith("gate stage on n") for name in found)


def test_a_job_that_began_its_trace_passes_it_on_where_the_site_wants_that(collected: LiveHal) -> None:
    job, seen = collected.run("run", "--", "sh", "-c", "echo $HAL_JOB_ID $TRACEPARENT", check=True).out.split()
    until(lambda: collected.run("trace", job).code == 0, "the trace is there")
    trace_id = json.loads(collected.run("trace", job, "-o", "json", check=True).out)["trace_id"]
    assert seen == f"00-{trace_id}-{run_span(trace_id, int(job), 0, 1)}-01"


def test_a_span_that_a_process_sends_is_in_the_trace_and_at_the_receiver(
    collected: LiveHal, receiver: Receiver, tmp_path: Path
) -> None:
    """What stands for an agent sends one below the run of a job's attempt."""
    job = int(collected.run("submit", "--traceparent", f"00-{SENT}-{PARENT}-01", "--", "true", check=True).out)
    collected.run("wait", job, check=True)
    now_us = time.time_ns() // 1_000
    below = Spans(
        batch=0,
        names=("copy inputs",),
        traces=bytes.fromhex(SENT),
        spans=bytes.fromhex("00000000000000aa"),
        parents=bytes.fromhex(run_span(SENT, job, 0, 1)),
        starts_us=struct.pack("<Q", now_us - 5_000),
        ends_us=struct.pack("<Q", now_us),
        statuses=b"\x01",
        steps=(StepId(job, 0, 1, 0),),
        fields=({"bytes": "1024"},),
    )

    async def main(runtime: RealRuntime) -> None:
        sender = TelemetrySender(runtime, Role.AGENT, "n1")
        sender.dial((f"unix:{collected.home.socket_dir() / WIRE_SOCKET}",))
        sending = runtime.spawn_task(sender.run(), "sender")
        sender.spans(below)
        await sender.flush(10_000)
        sending.cancel()

    run_real(tmp_path, main)
    until(lambda: "copy inputs" in collected.run("trace", str(job)).out, "it is shown")
    until(lambda: any(one.name == "copy inputs" for one in receiver.spans), "it is sent")  # type: ignore[attr-defined]
    shown = json.loads(collected.run("trace", str(job), "-o", "json", check=True).out)["spans"]
    (copied,) = [span for span in shown if span["name"] == "copy inputs"]
    assert (copied["parent_id"], copied["attributes"]["hal.sender"]) == (run_span(SENT, job, 0, 1), "n1")


def test_the_output_of_a_job_outlives_its_node(collected: LiveHal) -> None:
    """Nothing starts its processes again, and its disk is gone: `hal logs` prints what was collected, and says so."""
    where = ("--constraint", "hal.node=n2")
    job = collected.run("submit", *where, "--", "sh", "-c", "echo first; echo second", check=True).out.strip()
    array = collected.run(
        "submit", *where, "--array", "0-1", "--", "sh", "-c", "echo of $HAL_TASK", check=True
    ).out.strip()
    collected.run("wait", job, array, check=True)
    until(lambda: len(_found(collected, "", "--job", job)) == 2, "both lines are kept")
    until(lambda: len(_found(collected, "", "--job", array)) == 2, "lines of both tasks are kept")
    kill(collected, "supervisor", "keeper-n2", "agent-n2")
    shutil.rmtree(collected.home.node("n2").root / "steps")
    ran = collected.run("logs", job, "--stream", "stdout")
    assert (ran.code, ran.out) == (0, "first\nsecond\n"), ran.err
    assert "as far as the collector has kept it" in ran.err
    ran = collected.run("logs", array, "--stream", "stdout")
    assert (ran.code, ran.out) == (0, "[0] of 0\n[1] of 1\n"), ran.err
    assert "2 outputs were printed" in ran.err


def test_an_output_is_followed_with_what_was_collected_when_its_node_is_away(
    collected: LiveHal, tmp_path: Path
) -> None:
    """Keeper and agent are dead while the job runs on, and its disk is gone; whoever begins to follow then gets the
    line all the same. (The test before has ended the supervisor.)"""
    where, go = ("--constraint", "hal.node=n1"), tmp_path / "go"
    script = f"echo followed; while ! test -e {go}; do sleep .2; done"
    job = collected.run("submit", *where, "--", "sh", "-c", script, check=True).out.strip()
    until(lambda: len(_found(collected, "followed", "--job", job)) == 1, "its line is kept")
    kill(collected, "keeper-n1", "agent-n1")
    shutil.rmtree(collected.home.node("n1").root / "steps")
    followed = subprocess.Popen(
        collected.command("logs", "-f", job), env=collected.environment, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert followed.stdout is not None
        assert followed.stdout.readline() == "followed\n"
        assert followed.stderr is not None
        assert "what the collector has kept is printed" in followed.stderr.readline()
    finally:
        go.touch()
        followed.kill()
        followed.wait()
