"""Streams into steps on a HAL of root: what runs there is the step's user, and nobody enters another user's step."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from hal.client.step_streams import StepStream, failure_of
from hal.client.transport.exchange import Request
from hal.core.model import DeniedError, HALError, NotFoundError
from hal.daemons.agent.keeper.sandbox_probe import find_sandbox
from hal.wire.step_streams import EXIT, FAIL, HELLO, MessageReader, message
from tests.attacks.other_user import as_user
from tests.attacks.stream_site import Site
from tests.e2e.conftest import until


def said(stream: StepStream) -> str:
    """Everything that a command writes, until it has ended."""
    text = b"".join(body for kind, body in stream.early if kind not in (EXIT, FAIL))
    if any(kind in (EXIT, FAIL) for kind, _ in stream.early):
        return text.decode()
    sock = socket.socket(fileno=os.dup(stream.link.fileno()))
    sock.settimeout(60)
    while data := sock.recv(1 << 16):
        for kind, body in stream.reader.feed(data):
            if kind in (EXIT, FAIL):
                return text.decode()
            text += bytes(body)
    return text.decode()


def inside(site: Site, script: str, job: int | None = None) -> str:
    """What a script writes inside a step, entered by alice."""
    return said(site.open(site.connections(site.alice.name), job, argv=["sh", "-c", script]))


def test_a_command_has_the_ids_of_the_user_and_no_right_of_roots(site: Site) -> None:
    text = inside(site, "id -u; id -g; id -G; grep -E '^(Uid|Gid|CapEff|CapPrm|CapAmb)' /proc/self/status")
    uid, gid, groups, *status = text.splitlines()
    assert (int(uid), int(gid)) == (site.alice.uid, site.alice.gid)
    assert {int(one) for one in groups.split()} == {site.alice.gid, site.alice.group}
    assert [set(line.split()[1:]) for line in status] == [{uid}, {gid}, {"0" * 16}, {"0" * 16}, {"0" * 16}]


def test_nothing_of_the_agents_is_open_in_a_command(site: Site) -> None:
    """Its three streams, and what `ls` itself opens."""
    assert set(inside(site, "ls /proc/self/fd").split()) == {"0", "1", "2", "3"}


def test_a_terminal_belongs_to_the_user_alone(site: Site) -> None:
    stream = site.open(
        site.connections(site.alice.name), argv=["stat", "-c", "%u %a", "/dev/fd/0", "-L"], terminal=True
    )
    assert said(stream).split() == [str(site.alice.uid), "600"]


@pytest.mark.parametrize(("who", "error"), [("user", NotFoundError), ("operator", DeniedError)])
def test_nobody_enters_another_users_step(site: Site, who: str, error: type[HALError]) -> None:
    """To a user there is no such job; an operator, who sees it, would act as its user."""
    with pytest.raises(error):
        site.open(site.connections(site.bob.name, who), argv=["true"])


def test_a_step_enters_no_step_of_another_user(site: Site) -> None:
    """Its token speaks for its own job."""
    script = 'printf "%s\\n%s" "$HAL_STEP_TOKEN" "$HAL_NODE"; exec sleep 600'
    with site.hal.client() as client:
        made = client.submit(["sh", "-c", script], user=site.bob.name)
        until(lambda: "\n" in made.logs(), "it did not run")
        token = made.logs().split()[0]
    stolen = site.with_token(token)
    with pytest.raises(HALError):
        site.open(stolen, argv=["true"])
    assert said(site.open(stolen, int(made.id), argv=["id", "-un"])).strip() == site.bob.name


def test_who_comes_without_the_ticket_gets_nothing_and_stops_nobody(site: Site) -> None:
    """The socket is where other users can reach it, and /proc/net/unix names it."""
    connections = site.connections(site.alice.name)
    asked = json.dumps({"kind": "exec", "argv": ["id", "-un"], "here": True}).encode()
    answer = json.loads(connections.send(Request("POST", f"/v1/jobs/{site.job}/streams", body=asked)).body)

    def guess() -> bytes:
        silent = socket.socket(socket.AF_UNIX)
        silent.connect(answer["socket"])
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(60)
            sock.connect(answer["socket"])
            sock.sendall(message(HELLO, b"x" * len(answer["ticket"])))
            return sock.recv(1 << 12)

    (kind, body), *_ = MessageReader().feed(as_user(site.bob.uid, guess))
    assert (kind, failure_of(bytes(body)).code) == (FAIL, "denied")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(60)
        sock.connect(answer["socket"])
        sock.sendall(message(HELLO, answer["ticket"].encode()))
        data = b""
        while site.alice.name.encode() not in data:
            piece = sock.recv(1 << 12)
            assert piece, data
            data += piece


@pytest.mark.skipif(not find_sandbox(), reason="no sandbox here: apt-get install bubblewrap")
@pytest.mark.parametrize("user", ["alice", "root"])
def test_a_sandbox_holds_for_a_command_inside_it(site: Site, user: str) -> None:
    """Its processes, its files, its network; no capability, not even root's."""
    with site.hal.client() as client:
        name = site.alice.name if user == "alice" else "root"
        made = client.submit(["sleep", "600"], user=name, sandbox="yes,no-network")
        until(lambda: made.refresh().state == "running", "it did not run")
        connections = client.connections if user == "root" else site.connections(name)
        script = "ls /proc | grep -c '^[0-9]'; ls -A /dev/shm | wc -l; grep -c : /proc/net/dev; touch /etc/hal-x; true"
        script += "; grep -E '^(CapEff|CapPrm|NoNewPrivs)' /proc/self/status"
        seen, *rest = said(site.open(connections, int(made.id), argv=["sh", "-c", script])).splitlines()
        assert int(seen) < 12
        assert [line for line in rest if "hal-x" not in line] == [
            "0",
            "1",
            "CapPrm:\t" + "0" * 16,
            "CapEff:\t" + "0" * 16,
            "NoNewPrivs:\t1",
        ]
        assert not Path("/etc/hal-x").exists()
        made.cancel()
