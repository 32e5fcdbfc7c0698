"""Byte streams: the same promises on both runtimes, over Unix sockets and over TLS."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hal.core.model.errors import ConflictError, DeniedError, HALError, SpecError, TimedOutError, UnreachableError
from hal.runtime.interface import Address, ByteStream, Credentials, Runtime, TcpAddress, UnixAddress
from hal.runtime.virtual_network import Conditions
from hal.runtime.virtual_process import VirtualRuntime
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.block_stream import MAX_BLOCK_BYTES, MAX_INCOMING_BYTES, BlockStream
from hal.wire.peer import CertifiedName
from hal.wire.roles import Role
from hal.wire.transport_end import WRITE_HIGH_BYTES
from tests.runtime.certified import Certified
from tests.runtime.real_runtime import run_real

Serve = Callable[[ByteStream], Awaitable[None]]
Shell = Callable[["Ends"], Awaitable[None]]
LONG = random.Random(1).randbytes(3 * MAX_BLOCK_BYTES + 17)


class Ends:
    """A runtime, and where and as whom its streams are served and dialled."""

    def __init__(self, runtime: Runtime, *, tls: bool, hal: Certified) -> None:
        self.runtime = runtime
        self._server: Credentials | None = None
        self._client: Credentials | None = None
        self._address: Address = UnixAddress(runtime.paths.wire_socket())
        if tls:
            self._server, self._client = hal.credentials(Role.SERVICE, "cache"), hal.credentials(Role.WORKER, "w1")
            self._address = TcpAddress("127.0.0.1", 0)
            if isinstance(runtime, VirtualRuntime):
                self._address = TcpAddress(runtime.host.name, 7_500)
                for credentials, role in ((self._server, Role.SERVICE), (self._client, Role.WORKER)):
                    assert credentials.certificate is not None
                    runtime.host.certify(credentials.certificate, CertifiedName(role, "x", "1"))

    async def serve(self, serve: Serve) -> None:
        listener = await self.runtime.serve(self._address, serve, self._server)
        self._address = listener.address

    async def dial(self) -> ByteStream:
        return await self.runtime.dial(self._address, credentials=self._client)


Run = Callable[[Shell], None]


@pytest.fixture(params=["real-unix", "real-tls", "virtual-unix", "virtual-tls"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a shell to its end."""
    kind, _, transport = request.param.partition("-")
    tls, hal = transport == "tls", Certified(tmp_path)

    def on_the_real_one(shell: Shell) -> None:
        run_real(tmp_path, lambda runtime: shell(Ends(runtime, tls=tls, hal=hal)))

    def on_the_virtual_one(shell: Shell) -> None:
        ended: list[bool] = []

        async def main(runtime: Runtime) -> None:
            await shell(Ends(runtime, tls=tls, hal=hal))
            ended.append(True)

        with VirtualWorld(seed=1, conditions=Conditions(split_chance=0.5, again_chance=0.5)) as world:
            process = world.start(world.host("n1"), "test", main)

            async def drive() -> None:
                await process.wait()

            world.run(drive())
        assert ended

    return on_the_real_one if kind == "real" else on_the_virtual_one


async def read_all(stream: ByteStream) -> bytes:
    """Everything until the other end's end."""
    pieces = []
    while piece := await stream.read():
        pieces.append(piece)
    return b"".join(pieces)


async def read_exactly(stream: ByteStream, size: int) -> bytes:
    """So many bytes, in however many pieces they arrive."""
    data = b""
    while len(data) < size and (piece := await stream.read(size - len(data))):
        data += piece
    return data


async def write_until_it_waits(stream: ByteStream) -> int:
    """Blocks written before the other end's silence was a TimedOutError."""
    written = 0
    while True:
        try:
            await stream.write(bytes([written % 251]) * 65_536, timeout_ms=300)
        except TimedOutError:
            return written
        written += 1


async def echo(stream: ByteStream) -> None:
    """Everything back at once, then the end."""
    while piece := await stream.read(1 << 16):
        await stream.write(piece)


def test_bytes_arrive_as_they_were_written(run: Run) -> None:
    """Both ways at once, longer than a block."""

    async def shell(ends: Ends) -> None:
        await ends.serve(echo)
        stream = await ends.dial()
        reading = asyncio.ensure_future(read_all(stream))
        await stream.write(LONG)
        await stream.write(b"")
        await stream.write(bytearray(b"tail"))
        stream.end()
        assert await reading == LONG + b"tail"
        await stream.wait_closed()

    run(shell)


def test_one_direction_ends_and_the_other_goes_on(run: Run) -> None:
    """The answer is written after the whole question was read to its end."""

    async def shell(ends: Ends) -> None:
        async def answer(stream: ByteStream) -> None:
            question = await read_all(stream)
            await stream.write(b"%d bytes" % len(question))

        await ends.serve(answer)
        stream = await ends.dial()
        await stream.write(bytes(100_000))
        stream.end()
        stream.end()
        with pytest.raises(UnreachableError, match="this side has ended"):
            await stream.write(b"more")
        assert await read_all(stream) == b"100000 bytes"
        assert await stream.read() == b""

    run(shell)


def test_a_writer_waits_for_a_reader(run: Run) -> None:
    """What lies in between is bounded; nothing of it is lost when the reader goes on."""

    async def shell(ends: Ends) -> None:
        go_on, read = asyncio.Event(), asyncio.Event()
        arrived: list[bytes] = []

        async def serve(stream: ByteStream) -> None:
            await go_on.wait()
            arrived.append(await read_all(stream))
            read.set()

        await ends.serve(serve)
        stream = await ends.dial()
        written = await write_until_it_waits(stream)
        assert isinstance(stream, BlockStream)
        assert stream.transport is not None
        assert stream.transport.get_write_buffer_size() <= WRITE_HIGH_BYTES + MAX_INCOMING_BYTES + 2 * 65_540
        go_on.set()
        stream.end()
        await read.wait()
        assert arrived == [b"".join(bytes([number % 251]) * 65_536 for number in range(written))]

    run(shell)


def test_a_stream_that_breaks_is_never_taken_for_an_end(run: Run) -> None:
    """What arrived before is still read."""

    async def shell(ends: Ends) -> None:
        async def serve(stream: ByteStream) -> None:
            await stream.write(b"half")
            assert await read_exactly(stream, 3) == b"now"
            stream.abort()

        await ends.serve(serve)
        stream = await ends.dial()
        assert await read_exactly(stream, 4) == b"half"
        await stream.write(b"now")
        with pytest.raises(UnreachableError, match="broke before its end"):
            await stream.read()
        with pytest.raises(UnreachableError):
            await stream.write(b"more")

    run(shell)


def test_an_error_of_the_server_is_raised_at_the_client(run: Run) -> None:
    """With its code, its text and its hint; the next stream is served."""

    async def shell(ends: Ends) -> None:
        async def refuse(stream: ByteStream) -> None:
            raise SpecError(f"no such thing as {(await read_exactly(stream, 4)).decode()}", hint="ask for another")

        await ends.serve(refuse)
        for _ in range(2):
            stream = await ends.dial()
            await stream.write(b"that")
            with pytest.raises(SpecError, match=r"no such thing as that \(ask for another\)"):
                await stream.read()
            with pytest.raises(SpecError):
                await stream.write(b"more")

    run(shell)


def test_a_fault_of_the_server_ends_only_that_stream(run: Run) -> None:
    """The client is told that it was a fault, and not which."""

    async def shell(ends: Ends) -> None:
        async def fail(stream: ByteStream) -> None:
            if await read_exactly(stream, 4) == b"fail":
                raise ZeroDivisionError("a secret")
            await stream.write(b"fine")

        await ends.serve(fail)
        bad, good = await ends.dial(), await ends.dial()
        await bad.write(b"fail")
        with pytest.raises(HALError, match="hit a fault") as raised:
            await bad.read()
        assert "secret" not in str(raised.value)
        await good.write(b"work")
        assert await read_all(good) == b"fine"

    run(shell)


def test_streams_do_not_mix(run: Run) -> None:
    """Ten at once."""

    async def shell(ends: Ends) -> None:
        await ends.serve(echo)

        async def one(number: int) -> None:
            stream = await ends.dial()
            for _ in range(10):
                await stream.write(bytes([number]) * 1_000)
            stream.end()
            assert await read_all(stream) == bytes([number]) * 10_000

        await asyncio.gather(*(one(number) for number in range(10)))

    run(shell)


def test_reading_can_time_out(run: Run) -> None:
    """The stream is as it was."""

    async def shell(ends: Ends) -> None:
        await ends.serve(echo)
        stream = await ends.dial()
        with pytest.raises(TimedOutError):
            await stream.read(timeout_ms=20)
        await stream.write(b"still there")
        assert await read_exactly(stream, 5) == b"still"
        assert await read_exactly(stream, 6) == b" there"

    run(shell)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param((MAX_BLOCK_BYTES + 1).to_bytes(4, "little"), id="a block that is too long"),
        pytest.param(b"\xff\xff\xff\xff", id="an endless goodbye"),
        pytest.param(b"\x00\x00\x00\x80", id="an empty goodbye"),
        pytest.param(b"\x02\x00\x00\x80\xc1\xc1", id="a goodbye that is none"),
        pytest.param(b"\x00\x00\x00\x00\x01\x00\x00\x00x", id="bytes after the end"),
    ],
)
def test_what_breaks_the_protocol_ends_the_stream(run: Run, raw: bytes) -> None:
    """Whoever sent it is told; the server goes on."""

    async def shell(ends: Ends) -> None:
        await ends.serve(echo)
        stream = await ends.dial()
        assert isinstance(stream, BlockStream)
        assert stream.transport is not None
        stream.transport.write(raw)
        with pytest.raises(HALError, match=r"it announced|it sent"):
            await read_all(stream)
        again = await ends.dial()
        await again.write(b"x")
        again.end()
        assert await read_all(again) == b"x"

    run(shell)


def test_an_address_serves_streams_or_frames(run: Run) -> None:
    """A second listener there is a ConflictError."""

    async def shell(ends: Ends) -> None:
        await ends.serve(echo)
        with pytest.raises(ConflictError):
            await ends.serve(echo)

    run(shell)


# ── who may dial whom ─────────────────────────────────────────────────────────────────────────────────────────────────


Runner = Callable[[Callable[[Runtime], Awaitable[None]]], None]


@pytest.fixture(params=["real", "virtual"])
def shell_runner(request: pytest.FixtureRequest, tmp_path: Path) -> Runner:
    def on_the_virtual_one(shell: Callable[[Runtime], Awaitable[None]]) -> None:
        async def main(runtime: Runtime) -> None:
            await shell(runtime)

        with VirtualWorld(seed=1) as world:
            process = world.start(world.host("n1"), "test", main)

            async def drive() -> None:
                assert await process.wait() == 0

            world.run(drive())

    if request.param == "virtual":
        return on_the_virtual_one
    return lambda shell: run_real(tmp_path, shell)


def test_every_pair_of_roles_is_checked_at_both_ends(shell_runner: Runner, tmp_path: Path) -> None:
    """A worker cannot dial a controller, a client cannot pose as a broker: all pairs, by certificates alone. (What a
    controller serves strangers and the like are frames.)"""
    hal = Certified(tmp_path)
    certified = [role for role in Role if role is not Role.KEEPER]
    held = {role: hal.credentials(role, f"a-{role}") for role in certified}
    may = {
        (Role.AGENT, Role.CONTROLLER),
        *((role, Role.BROKER) for role in (Role.CLIENT, Role.WORKER)),
        *((role, Role.SERVICE) for role in (Role.AGENT, Role.BROKER, Role.CLIENT, Role.SERVICE, Role.WORKER)),
    }
    connected: set[tuple[Role, Role]] = set()

    async def shell(runtime: Runtime) -> None:
        for role, credentials in held.items():
            if isinstance(runtime, VirtualRuntime) and credentials.certificate is not None:
                runtime.host.certify(credentials.certificate, CertifiedName(role, f"a-{role}", "1"))
        for number, listener in enumerate(certified):
            at = TcpAddress("127.0.0.1", 0)
            if isinstance(runtime, VirtualRuntime):
                at = TcpAddress(runtime.host.name, 7_600 + number)
            served = await runtime.serve(at, echo, held[listener], listener)
            for expected in certified:
                for dialler in certified:
                    try:
                        stream = await runtime.dial(served.address, credentials=held[dialler], role=expected)
                        await stream.write(b"x")
                        assert await stream.read() == b"x"
                    except DeniedError:
                        continue
                    except UnreachableError:
                        continue  # TLS itself has refused: the certificate is not for that purpose
                    assert expected is listener
                    connected.add((dialler, listener))
                    stream.abort()
            await served.close()

    shell_runner(shell)
    assert connected == may


def test_a_service_serves_nobody_without_a_certificate(shell_runner: Runner, tmp_path: Path) -> None:
    """The client is told so."""
    hal = Certified(tmp_path)
    service = hal.credentials(Role.SERVICE, "cache")

    async def shell(runtime: Runtime) -> None:
        at = TcpAddress("127.0.0.1", 0)
        if isinstance(runtime, VirtualRuntime):
            at = TcpAddress(runtime.host.name, 7_700)
            assert service.certificate is not None
            runtime.host.certify(service.certificate, CertifiedName(Role.SERVICE, "cache", "1"))
        served = await runtime.serve(at, echo, service)
        stream = await runtime.dial(served.address, credentials=Credentials(service.authority))
        with pytest.raises(DeniedError, match="a service serves nobody without a certificate"):
            await stream.read()

    shell_runner(shell)
