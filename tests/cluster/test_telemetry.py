"""Telemetry of a node on another host: over TLS with certificates, and through a network that is cut."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.cluster.hosts import WIRE_PORT, Cluster, Network, until

SETTINGS = '[node.telemetry]\nevery = "1s"\n'
PORT = WIRE_PORT + 9


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Network() as network:
        made = Cluster(network, 1)
        head, (worker,) = made.head, made.workers
        head.home.config.write_text(
            f'[server]\nwire = "{head.address}:{WIRE_PORT}"\ntcp = "{head.address}:{PORT + 1}"\n'
            f'[observability]\nwire = "{head.address}:{PORT}"\nlisten = "{head.address}:{PORT + 2}"\n'
            f'address = "{head.address}"\n{SETTINGS}'
        )
        worker.home.create()
        worker.home.config.write_text(SETTINGS)
        shape = ("--name", "head", "--cpus", "2", "--memory", "1GiB")
        head.hal("up", "--restart", *shape, "--with", "observability")
        made.join(worker)
        yield made


def ask(cluster: Cluster, path: str) -> Any:
    """The collector's answer; None while it does not answer."""
    sockets = cluster.head.home.known_socket_dir()
    assert sockets is not None
    with suppress(OSError), closing(HTTPConnection("hal", timeout=30)) as connection:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(sockets / "observability.sock"))
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    return None


def age_ms(cluster: Cluster, node: str) -> int:
    """How old what the collector knows of a node is."""
    found = ask(cluster, "/v1/nodes/latest") or {"nodes": [], "age_ms": []}
    return int(dict(zip(found["nodes"], found["age_ms"], strict=True)).get(node, 1 << 60))


def test_a_node_of_another_host_sends_over_tls_in_its_own_name(cluster: Cluster) -> None:
    """It was told where by the controller; the collector has got a certificate by itself."""
    until(lambda: age_ms(cluster, "w1") < 5_000, "the worker is heard")
    until(lambda: age_ms(cluster, "head") < 5_000, "the head's own node is heard, over a socket")
    with cluster.head.client() as client:
        (plane,) = client.planes()
    assert f"{cluster.head.address}:{PORT}" in plane.wire


def test_the_collector_is_asked_from_another_host(cluster: Cluster) -> None:
    """It finds out where from the controller, and shows its own token there; a user sees what is theirs."""
    head, (laptop,) = cluster.head, cluster.workers
    head.hal("run", "-q", "-u", "ada", "--", "echo", "hi")
    fingerprint = json.loads(head.hal("status", "--json").out)["fingerprint"]
    laptop.env = {"HAL_URL": f"https://{head.address}:{PORT + 1}", "HAL_FINGERPRINT": fingerprint}
    try:
        for user, role, seen in (("olga", "operator", {"ada"}), ("bob", "user", set())):
            laptop.env["HAL_TOKEN"] = head.hal("api-token", "create", user, "--role", role).out.strip()

            def used() -> set[str]:
                return {row["key"] for row in json.loads(laptop.hal("usage", "--by", "user", "--json").out)["rows"]}

            if seen:
                until(lambda: used() == {"ada"}, "the operator sees what has ended")
            assert used() == seen
    finally:
        laptop.env = {}


FORGING = """
import asyncio, sys
from pathlib import Path
from hal.core.model import StepId
from hal.runtime.authority import NodeIdentity
from hal.runtime.home import Home
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log
from hal.runtime.real_runtime import RealRuntime
from hal.runtime.telemetry_sender import TelemetrySender
from hal.wire.frames.telemetry import LogLine, Severity
from hal.wire.roles import Role

home, collector, job = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])


async def main():
    runtime = RealRuntime("forging", Home(home), open_log(LogFile(home / "forging.log"), "forging"), seed=1)
    identity = NodeIdentity(home / "nodes" / "w1" / "identity")
    sender = TelemetrySender(runtime, Role.AGENT, "head", identity.credentials, local=False)
    sender.dial((collector,))
    sending = asyncio.ensure_future(sender.run())
    step = StepId(job, 0, 1, 0)
    sender.lines([
        LogLine(1, Severity.INFO, "step", "forged output", step, "stdout", 1000, fields={"user": "ada"}),
        LogLine(1, Severity.INFO, "controller", "forged event"),
        LogLine(1, Severity.INFO, "agent", "forged report", step),
        LogLine(1, Severity.INFO, "agent", "unmistakable event"),
    ])
    await sender.flush(20_000)
    assert not sender.queued_bytes, (home / "forging.log").read_text()


asyncio.run(main())
"""


def test_safety_a_node_sends_lines_of_its_own_attempts_alone(cluster: Cluster) -> None:
    """With the certificate of w1 somebody sends lines of a job of the head's node, and in the controller's name: none
    is kept, and all three are counted. What w1's own job prints is kept as its user's."""
    head, (worker,) = cluster.head, cluster.workers

    def found(query: str) -> list[tuple[str, str]]:
        page = ask(cluster, f"/v1/logs/search?query={query}") or {"lines": []}
        return [(line["text"], line.get("user", "")) for line in page["lines"] if line.get("node") == "w1"]

    until(lambda: age_ms(cluster, "w1") < 5_000, "the worker is heard")
    with head.client() as client:
        other = client.submit(["echo", "of-head"], user="ada", constraints=["hal.node=head"])
        other.wait()
        collector = f"{head.address}:{PORT}"
        sent = worker.start(sys.executable, "-c", FORGING, str(worker.home.root), collector, str(other.id))
        assert sent.wait(60) == 0, sent.communicate()[1]
        client.submit(["echo", "honest-output"], user="ada", constraints=["hal.node=w1"]).wait()
    until(lambda: found("unmistakable"), "the node's own line is kept")
    until(lambda: found("honest") == [("honest-output", "ada")], "what the node's own job prints is kept")
    assert found("forged") == []
    refused = ask(cluster, "/v1/health")["parts"]["attribution"]["values"]
    assert (refused["lines_refused"], refused["lines_dropped"]) == (3, 0)


def test_a_network_that_is_cut_loses_no_samples_and_holds_up_nothing(cluster: Cluster) -> None:
    """While it is cut, the head's work goes on; afterwards the samples of the time in between are there."""
    until(lambda: age_ms(cluster, "w1") < 5_000, "the worker is heard")
    worker = cluster.workers[0]
    worker.part()
    until(lambda: age_ms(cluster, "w1") > 12_000, "the worker is not heard")
    assert cluster.head.hal("run", "--", "echo", "through").out == "through\n"
    assert age_ms(cluster, "head") < 5_000
    worker.heal()
    until(lambda: age_ms(cluster, "w1") < 3_000, "the worker is heard again", 180.0)
    cluster.until_node(worker, "up")
    (series,) = ask(cluster, "/v1/series?node=w1&name=hal_node_cpus")["series"]
    gaps = [after - before for before, after in zip(series["at_ms"], series["at_ms"][1:], strict=False)]
    assert max(gaps) < 8_000
    assert ask(cluster, "/v1/health")["parts"]["telemetry"]["values"]["values_dropped_by_senders"] == 0
