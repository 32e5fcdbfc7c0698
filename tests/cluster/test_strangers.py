"""Every port that any process of HAL listens on refuses strangers."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from tests.cluster.hosts import DEADLINE_S, WIRE_PORT, Cluster, Host, Network
from tests.postgres_server import PostgresServer
from tests.runtime.certified import Certified

REST_PORT = 8_642
LISTENING = "0A"
_LINE = re.compile(r"^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) [0-9A-F:]+ ([0-9A-F]{2}) ", re.MULTILINE)


def ports(host: Host, protocol: str) -> set[int]:
    """Ports of a host's network that something is bound to: listens, for TCP."""
    process = host.start("cat", f"/proc/net/{protocol}", f"/proc/net/{protocol}6")
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, err
    return {int(port, 16) for port, state in _LINE.findall(out) if protocol == "udp" or state == LISTENING}


def stranger(at: Host, to: Host, port: int, foreign: Path) -> dict[str, Any]:
    """What a stranger on one host gets from a port of another."""
    program = str(Path(__file__).with_name("stranger.py"))
    process = at.start(sys.executable, program, to.address, str(port), str(foreign))
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, err
    got: dict[str, Any] = json.loads(out)
    return got


def test_every_port_refuses_strangers(tmp_path: Path) -> None:
    """Scanned on the host with everything switched on and on a worker, which listens nowhere: plain bytes, HTTP without
    a token, TLS without a certificate and with a foreign one each get a refusal or nothing; and jobs run as before."""
    foreign = Certified(tmp_path).node("w1").credentials.certificate
    assert foreign is not None
    with Network() as network:
        cluster = Cluster(network, 1)
        cluster.head.home.config.write_text(
            f'[server]\nwire = "0.0.0.0:{WIRE_PORT}"\ntcp = "0.0.0.0:{REST_PORT}"\nplain_tcp = true\n'
        )
        cluster.up()
        worker = cluster.workers[0]
        assert ports(worker, "tcp") | ports(worker, "udp") | ports(cluster.head, "udp") == set()
        assert ports(cluster.head, "tcp") == {WIRE_PORT, REST_PORT}

        wire = stranger(worker, cluster.head, WIRE_PORT, foreign)
        for said in ("http", "submit", "bytes", "frame"):
            assert len(wire[said]) < 100, wire  # an alert of TLS at most
        assert wire["tls"] == [["Goodbye", "denied"]]
        assert wire["foreign"] == []

        rest = stranger(worker, cluster.head, REST_PORT, foreign)
        for said in ("http", "submit"):
            assert rest[said].startswith("HTTP/1.1 401 "), rest
        for said in ("bytes", "frame"):
            assert re.match("HTTP/1.1 400 |$", rest[said]), rest
        assert rest["tls"] == rest["foreign"] == []

        with cluster.head.client() as client:
            job = client.submit(["true"], nodes=2, cpus=1, walltime="10m")
            assert job.wait(DEADLINE_S).state == "succeeded"
            assert len(list(client.jobs())) == 1
        assert cluster.node_state(worker) == "up"


def test_the_ports_of_a_leader_and_of_a_follower_over_tls_refuse_strangers(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """Both ports of both: to plain bytes nothing is said at all; over TLS what has no token gets 401, and nobody
    without a certificate hears where the leader is."""
    foreign = Certified(tmp_path).node("w1").credentials.certificate
    assert foreign is not None
    with Network() as network:
        leader, follower, away = (network.host(name) for name in ("a", "b", "c"))
        url = postgres.fresh()
        for one in (leader, follower):
            one.home.config.write_text(
                f'[store]\nurl = "{url}"\n[server]\nwire = "0.0.0.0:{WIRE_PORT}"\ntcp = "0.0.0.0:{REST_PORT}"\n'
            )
        leader.hal("up", "--name", "n1", "--cpus", "1", "--memory", "1GiB")
        shutil.copytree(leader.home.authority, follower.home.authority)
        follower.start_controller()
        with follower.client() as client:
            assert client.health().status == "following"
        for one in (leader, follower):
            assert ports(one, "tcp") == {WIRE_PORT, REST_PORT}
            assert ports(one, "udp") == set()
            wire, rest = (stranger(away, one, port, foreign) for port in (WIRE_PORT, REST_PORT))
            for said in ("http", "submit", "bytes", "frame"):
                assert len(wire[said]) < 100, wire  # an alert of TLS at most
                assert len(rest[said]) < 100, rest
            assert wire["tls"] == [["Goodbye", "denied"]]
            assert wire["foreign"] == []
            assert rest["tls"] == rest["foreign"] == []
            for said in ("http", "submit"):
                assert rest[f"{said} over tls"].startswith("HTTP/1.1 401 "), rest
