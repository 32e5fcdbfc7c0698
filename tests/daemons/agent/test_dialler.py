"""Whom an agent dials: it stays with the controller that works, goes round when one fails, and follows a hint."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.core.model.errors import SpecError
from hal.daemons.agent.agent import Agent, AgentSettings
from hal.daemons.agent.dialler import Controllers
from hal.runtime.authority import NodeIdentity
from hal.runtime.interface import Connection, Credentials, Runtime, TcpAddress, UnixAddress
from hal.runtime.virtual_world import VirtualHost, VirtualWorld
from hal.wire.address import format_address, parse_address, parse_controllers
from hal.wire.frames.hello import Goodbye, Hello, Welcome
from hal.wire.join_token import JoinToken, read_join_token
from hal.wire.peer import CertifiedName
from hal.wire.roles import Role

A, B, C = (TcpAddress(name, 7_422) for name in "abc")


def test_the_next_is_dialled_when_one_fails_and_after_the_last_the_first() -> None:
    """In the order given."""
    dialled = Controllers([A, B, C])
    seen = []
    for _ in range(4):
        seen.append(dialled.address)
        dialled.failed()
    assert seen == [A, B, C, A]


def test_the_leader_that_is_named_is_dialled_next() -> None:
    """One of the list, or one that nobody knew; when that fails, the round goes on."""
    dialled = Controllers([A, B, C])
    dialled.not_leader("c:7422")
    assert dialled.address == C
    dialled.not_leader("[fd00::9]:99")
    assert dialled.address == TcpAddress("fd00::9", 99)
    dialled.failed()
    assert dialled.address == A


@pytest.mark.parametrize("named", ["", "not an address", "host:99999"])
def test_a_leader_that_is_not_known_leads_to_the_next(named: str) -> None:
    """Also where what was named is nonsense."""
    dialled = Controllers([A, B])
    dialled.not_leader(named)
    assert dialled.address == B


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True), st.integers(1, 65_535))
def test_an_address_is_read_back_as_it_was_written(host: str, port: int) -> None:
    """Names, and addresses of IPv6 in brackets."""
    assert parse_address(format_address(host, port)) == (host, port)
    assert parse_address(format_address("fd00::1", port)) == ("fd00::1", port)


@pytest.mark.parametrize("text", ["", ",", "a:0", "a:70000", "a b", "a:", "-a", "http://a", ",".join("a" * 17)])
def test_what_is_no_address_is_a_spec_error(text: str) -> None:
    """It names the option; doubles count once."""
    with pytest.raises(SpecError, match="--controller"):
        parse_controllers(text if "," not in text or text == "," else ",".join(f"a{n}" for n in range(17)))
    assert parse_controllers("a,a:7422,b:1") == ("a:7422", "b:1")


def test_a_token_is_read_back_as_it_was_written_and_never_repeated() -> None:
    """A part of one is told from no token at all; neither error has the text in it."""
    token = JoinToken("0123abcd", "f" * 32, "A" * 43)
    assert read_join_token(f" {token.text}\n") == token
    for text, words in ((token.text[:-1], "incomplete"), ("hunter2", "not a join token")):
        with pytest.raises(SpecError, match=words) as raised:
            read_join_token(text)
        assert text not in str(raised.value)


# ── the agent itself, on virtual hosts ────────────────────────────────────────────────────────────────────────────────


async def keeper_main(runtime: Runtime) -> None:
    """A keeper that holds nothing."""

    async def serve(agent: Connection) -> None:
        while (frame := await agent.receive()) is not None:
            if isinstance(frame, Hello):
                agent.send_nowait(Welcome(role=Role.KEEPER, version=1, capacity={"cpu": 1_000}, boot_id="b"))

    await runtime.listen(UnixAddress(runtime.paths.keeper_socket("n1")), serve)
    await runtime.stopping.wait()


class Followers:
    """Controllers on hosts a, b and c; `leader` is the one that takes agents in, as the others tell if they know."""

    def __init__(self, world: VirtualWorld, *, telling: bool) -> None:
        self.leader = "a"
        self.taken_in: list[str] = []
        self._telling = telling
        for name in "abc":
            host = world.host(name)
            credentials = certified(host, CertifiedName("controller", name, name))
            world.start(host, "controller", self._main(name, credentials))

    def _main(self, name: str, credentials: Credentials) -> Any:
        async def main(runtime: Runtime) -> None:
            async def serve(agent: Connection) -> None:
                hello = await agent.receive()
                assert isinstance(hello, Hello)
                assert agent.certified == CertifiedName("agent", "n1", "1")
                if name != self.leader:
                    agent.send_nowait(self._not_leader())
                    agent.close()
                    return
                self.taken_in.append(name)
                agent.send_nowait(Welcome(role=Role.CONTROLLER, version=1, heartbeat_ms=500))
                while await agent.receive() is not None:
                    if name != self.leader:
                        agent.send_nowait(self._not_leader())
                        agent.close()
                        return

            await runtime.listen(TcpAddress(name, 7_422), serve, credentials)
            await runtime.stopping.wait()

        return main

    def _not_leader(self) -> Goodbye:
        return Goodbye(code="not-leader", reason=f"{self.leader}:7422" if self._telling else "")


def certified(host: VirtualHost, name: CertifiedName) -> Credentials:
    identity = NodeIdentity(host.home.node("n1").identity)
    assert identity.credentials.certificate is not None
    host.certify(identity.credentials.certificate, name)
    return identity.credentials


@pytest.mark.parametrize("telling", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_an_agent_finds_the_leader_wherever_it_goes(seed: int, telling: bool) -> None:
    """Whether followers know who leads or not, when the leader changes under a live connection, when its host dies."""
    with VirtualWorld(seed=seed) as world:
        followers = Followers(world, telling=telling)
        machine = world.host("n1")
        identity = NodeIdentity(machine.home.node("n1").identity)
        certified(machine, CertifiedName("agent", "n1", "1"))

        async def agent(runtime: Runtime) -> int:
            keeper = UnixAddress(runtime.paths.keeper_socket("n1"))
            return await Agent(
                runtime, AgentSettings("n1", A, keeper, [], others=[B, C], identity=Joined(identity))
            ).run()

        async def drive() -> None:
            world.start(machine, "keeper", keeper_main)
            world.start(machine, "agent", agent)
            await world.until(lambda: followers.taken_in == ["a"], limit_ms=60_000, what="taken in")
            followers.leader = "c"
            await world.until(lambda: followers.taken_in[-1] == "c", limit_ms=60_000, what="taken in")
            followers.leader = "b"
            world.hosts["c"].power_off()
            await world.until(lambda: followers.taken_in[-1] == "b", limit_ms=60_000, what="taken in")

        world.run(drive())


class Joined(NodeIdentity):
    """A node on a virtual disk: its certificate never comes to its end."""

    def __init__(self, of: NodeIdentity) -> None:
        super().__init__(of.credentials.certificate.parent)  # type: ignore[union-attr]

    def renewal_ms(self) -> int:
        return 1 << 60
