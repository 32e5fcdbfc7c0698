"""Whatever bytes come, a served connection ends in order: no fault, no hang, nothing left of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.daemons.controller.config import Config
from hal.daemons.controller.service.nodes.nodes import NodeAction, NodesBody
from hal.planes.tasks import Submitter
from hal.runtime.interface import Address, Credentials, TcpAddress, UnixAddress
from hal.wire.address import parse_address
from hal.wire.agree import SPOKEN
from hal.wire.codec import encode
from hal.wire.connection import FrameConnection
from hal.wire.frames.hello import Hello, Welcome
from hal.wire.roles import Role
from tests.daemons.controller.running import Running, running
from tests.examples import examples
from tests.wire.test_codec import FRAMES

MOST_ALERTS = 100
"""Bytes that may be answered to what is no TLS."""

DAMAGE = st.tuples(st.integers(0, 1 << 16), st.integers(0, 255))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid frame of any kind with some bytes changed, cut short, or with another behind it."""
    data = bytearray(encode(draw(FRAMES)))
    for place, value in draw(st.lists(DAMAGE, max_size=4)):
        data[place % len(data)] = value
    kept = draw(st.integers(0, len(data))) if draw(st.booleans()) else len(data)
    return bytes(data[:kept]) + (encode(draw(FRAMES)) if draw(st.booleans()) else b"")


SAID = st.lists(st.binary(max_size=300) | damaged() | FRAMES.map(encode), min_size=1, max_size=5).map(b"".join)
HELLO = Hello(role=Role.AGENT, versions=SPOKEN, name="fuzz", boot_id="b", capacity={"cpu": 1_000})


class Fuzzed:
    """A controller that lives through all examples."""

    def __init__(self, runner: asyncio.Runner, hal: Running) -> None:
        self.runner = runner
        self.hal = hal
        self.unix = UnixAddress(hal.runtime.paths.wire_socket())
        self.tls = TcpAddress(*parse_address(hal.api.status.health().wire))

    async def say(self, address: Address, greet: bool, data: bytes) -> None:
        """One connection: perhaps a hello, then these bytes, then its end."""
        connection = await self.hal.runtime.connect(address, credentials=Credentials())
        assert isinstance(connection, FrameConnection)
        assert connection.transport is not None
        connection.transport.write((encode(HELLO) if greet else b"") + data)
        connection.close()
        await connection.wait_closed()
        assert not self.hal.runtime.failed.done(), self.hal.runtime.failed.result()

    async def take_in(self) -> None:
        """A node is still taken in once a person has looked (it has lied), and nothing is left of what came before."""
        await self.hal.api.nodes.control(NodeAction.UNCORDON, NodesBody(nodes=["fuzz"]), Submitter("ada"))
        connection = await self.hal.runtime.connect(self.unix)
        await connection.send(HELLO)
        assert isinstance(await connection.receive(60_000), Welcome)
        connection.close()
        await connection.wait_closed()
        await self.hal.until(lambda: not self.hal.api.nodes.get("fuzz").connected)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    home = tmp_path_factory.mktemp("fuzz") / "home"
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        opened = running(home, Config(wire=("127.0.0.1", 0)))
        hal = runner.run(opened.__aenter__())
        made = Fuzzed(runner, hal)
        yield made
        runner.run(made.take_in())
        runner.run(opened.__aexit__(None, None, None))


@given(SAID, st.booleans(), st.booleans())
def test_a_controller_outlives_whatever_its_agents_say(fuzzed: Fuzzed, data: bytes, tls: bool, greet: bool) -> None:
    """Before the hello and after it, on the Unix socket and over TLS without a certificate: no fault, and at the end a
    node is still taken in."""
    fuzzed.runner.run(fuzzed.say(fuzzed.tls if tls else fuzzed.unix, greet, data))


@settings(max_examples=examples(30))
@given(st.binary(min_size=1, max_size=600))
def test_a_port_outlives_what_is_no_tls(fuzzed: Fuzzed, data: bytes) -> None:
    """Bytes that are no handshake: the connection ends, with an alert of TLS at most."""

    async def say() -> None:
        reader, writer = await asyncio.open_connection(*fuzzed.tls)
        writer.write(data)
        writer.write_eof()
        with contextlib.suppress(ConnectionError):
            assert len(await reader.read()) < MOST_ALERTS
        writer.close()
        assert not fuzzed.hal.runtime.failed.done()

    fuzzed.runner.run(say())
