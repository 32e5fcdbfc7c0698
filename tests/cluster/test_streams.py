"""Streams to steps on other hosts: over TLS to the node itself, and through a restart of the controller."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from hal.client.job import Job
from tests.cluster.hosts import DEADLINE_S, Cluster, Network, until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Network() as network:
        yield Cluster(network, 1).up()


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> Iterator[Job]:
    """A running job on the worker."""
    with cluster.head.client() as client:
        made = client.submit(["sleep", "1000"], constraints=["hal.node=w1"])
        until(lambda: made.refresh().state == "running", "it runs")
        yield made


def test_a_command_runs_inside_a_step_on_another_host(cluster: Cluster, job: Job) -> None:
    script = "echo on $HAL_NODE; wc -c; exit 3"
    ran = cluster.head.hal("exec", "-i", job.id, "--", "sh", "-c", script, check=False, stdin="x" * 300_000)
    assert (ran.code, ran.out.split()) == (3, ["on", "w1", "300000"]), ran.err


def test_a_stream_outlives_a_restart_of_the_controller(cluster: Cluster, job: Job) -> None:
    words = [sys.executable, "-m", "hal.cli.main", "exec", "-i", job.id, "--", "cat"]
    with subprocess.Popen(
        cluster.head.command(words), env=cluster.head.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as inside:
        assert inside.stdin is not None
        assert inside.stdout is not None
        for word in (b"before\n", b"after\n"):
            inside.stdin.write(word)
            inside.stdin.flush()
            assert inside.stdout.readline() == word
            if word == b"before\n":
                cluster.head.hal("down", "--leave")
                cluster.start_head()
        inside.stdin.close()
        assert inside.wait(DEADLINE_S) == 0
    # The tests that follow open streams, for which the node must be connected to the new controller.
    until(lambda: cluster.head.hal("exec", job.id, "--", "true", check=False).code == 0, "the node is connected again")


OTHER_CERTIFICATE = """
import json, sys
from hal.client import step_streams
from hal.client.address_lookup import find_address
from hal.client.transport.exchange import Request
body = json.dumps({"argv": ["true"], "here": True}).encode()
request = Request("POST", f"/v1/jobs/{sys.argv[1]}/streams", body=body)
where = json.loads(step_streams.connections_of(find_address()).send(request).body)
where["fingerprint"] = where["fingerprint"][::-1]
try:
    step_streams.connect(step_streams.Where(**where))
except Exception as error:
    print(type(error).__name__, error)
"""


def test_who_has_another_certificate_is_not_believed(cluster: Cluster, job: Job) -> None:
    """It is not even shown the ticket."""
    words = cluster.head.command([sys.executable, "-c", OTHER_CERTIFICATE, job.id])
    ran = subprocess.run(words, env=cluster.head.environment, capture_output=True, text=True, timeout=DEADLINE_S)
    assert ran.stdout.startswith("DeniedError who answers at "), ran


def test_a_port_of_a_step_on_another_host_is_reached(cluster: Cluster) -> None:
    script = (
        "import socket; c,_=socket.create_server(('127.0.0.1',8899)).accept()\n"
        "d=c.recv(9); c.sendall(d[::-1]); c.close()"
    )
    ask = (
        "import socket,sys; s=socket.create_connection(('127.0.0.1',int(sys.argv[1])))\n"
        "s.sendall(b'abc'); print(s.recv(9))"
    )
    with cluster.head.client() as client:
        made = client.submit([sys.executable, "-c", script], constraints=["hal.node=w1"])
        until(lambda: made.refresh().state == "running", "it runs")
    forward = cluster.head.start(sys.executable, "-m", "hal.cli.main", "forward", made.id, "0:8899")
    assert forward.stdout is not None
    here = forward.stdout.readline().partition(":")[2].split()[0]

    def reached() -> bool:
        words = cluster.head.command([sys.executable, "-c", ask, here])
        return b"cba" in subprocess.run(words, capture_output=True, timeout=DEADLINE_S, check=False).stdout

    until(reached, "the port answers")
    forward.kill()
    forward.communicate(timeout=DEADLINE_S)
