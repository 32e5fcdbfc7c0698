"""Connections over real Unix sockets: order, bounds, bad peers, closing."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hal.core.model.errors import (
    ConflictError,
    DeniedError,
    InternalError,
    OverloadedError,
    TimedOutError,
    UnreachableError,
)
from hal.core.model.ids import StepId
from hal.runtime.interface import Connection, TcpAddress, UnixAddress
from hal.runtime.real_runtime import RealRuntime
from hal.wire.codec import FrameDecoder, encode
from hal.wire.connection import MAX_INCOMING_FRAMES
from hal.wire.frames.agent_keeper import ExitsAck, LogChunk, Signal, Stream
from hal.wire.frames.controller_agent import CONTROLLER_AGENT
from hal.wire.frames.hello import Goodbye
from tests.runtime.real_runtime import log_text, run_real

STEP = StepId(1, 0, 1, 0)
NOBODY = 65_534


def address(runtime: RealRuntime) -> UnixAddress:
    return UnixAddress(runtime.paths.wire_socket())


async def echo(connection: Connection) -> None:
    """Send back whatever comes."""
    while (frame := await connection.receive()) is not None:
        await connection.send(frame)


def test_thousands_of_frames_come_back_in_order(tmp_path: Path) -> None:
    """10,000 frames each way through one socket, none lost, doubled or overtaken."""

    async def main(runtime: RealRuntime) -> None:
        await runtime.listen(address(runtime), echo)
        connection = await runtime.connect(address(runtime))
        for number in range(10_000):
            await connection.send(ExitsAck(steps=(StepId(number + 1, 0, 1, 0),)))
        for number in range(10_000):
            assert await connection.receive() == ExitsAck(steps=(StepId(number + 1, 0, 1, 0),))

    run_real(tmp_path, main)


def test_frames_of_one_turn_of_the_loop_leave_in_one_write(tmp_path: Path) -> None:
    """100 small frames sent without waiting arrive at a plain socket in one piece."""

    async def main(runtime: RealRuntime) -> None:
        async def serve(connection: Connection) -> None:
            for number in range(100):
                connection.send_nowait(Signal(epoch=number, steps=(STEP,), name="USR1"))
            await connection.receive()

        await runtime.listen(address(runtime), serve)
        reader, writer = await asyncio.open_unix_connection(str(address(runtime).path))
        first = await reader.read(1 << 20)
        assert len(FrameDecoder(CONTROLLER_AGENT).feed(first)) == 100
        writer.close()

    run_real(tmp_path, main)


def test_a_slow_reader_makes_the_sender_wait_and_then_overloads_it(tmp_path: Path) -> None:
    """`send` waits while the other end reads nothing; `send_nowait` says OverloadedError once the bound is reached."""

    async def main(runtime: RealRuntime) -> None:
        silent = asyncio.Event()

        async def serve(_: Connection) -> None:
            await silent.wait()

        await runtime.listen(address(runtime), serve)
        connection = await runtime.connect(address(runtime))
        frame = LogChunk(request=1, step=STEP, stream=Stream.STDOUT, offset=0, data=bytes(1 << 20), size=0, ended=True)
        overloaded = False
        for _ in range(5_000):
            try:
                connection.send_nowait(frame)
            except OverloadedError:
                overloaded = True
                break
        assert overloaded
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await connection.send(frame)
        silent.set()
        connection.abort()

    run_real(tmp_path, main)


def test_frames_that_nobody_receives_are_bounded(tmp_path: Path) -> None:
    """A peer that floods fills its own socket, not this process: reading stops, and goes on once frames are taken."""

    async def main(runtime: RealRuntime) -> None:
        taken = 0
        flooded = asyncio.Event()
        done = asyncio.Event()

        async def serve(connection: Connection) -> None:
            nonlocal taken
            await flooded.wait()
            while taken < 50_000 and await connection.receive() is not None:
                taken += 1
            done.set()

        await runtime.listen(address(runtime), serve)
        connection = await runtime.connect(address(runtime))

        async def flood() -> None:
            for number in range(50_000):
                await connection.send(Signal(epoch=number, steps=(STEP,), name="USR1"))

        flooding = asyncio.create_task(flood())
        await asyncio.wait((flooding,), timeout=0.2)
        assert not flooding.done(), f"more than {MAX_INCOMING_FRAMES} frames were taken in unasked"
        flooded.set()
        await flooding
        await done.wait()
        assert taken == 50_000

    run_real(tmp_path, main)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x05\0\0\0\xc1\xc1\xc1\xc1\xc1", "malformed-frame"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "frame-too-long"),
        (b"\xff\xff\xff\xff", "frame-too-long"),
    ],
)
def test_a_peer_that_speaks_something_else_is_told_and_dropped(tmp_path: Path, data: bytes, code: str) -> None:
    """It gets a Goodbye with the code, the connection closes, and one line is logged; the server goes on."""

    async def main(runtime: RealRuntime) -> None:
        await runtime.listen(address(runtime), echo)
        reader, writer = await asyncio.open_unix_connection(str(address(runtime).path))
        writer.write(data)
        answer = FrameDecoder(CONTROLLER_AGENT).feed(await reader.read())
        assert [frame.code for frame in answer if isinstance(frame, Goodbye)] == [code]
        writer.close()
        connection = await runtime.connect(address(runtime))
        await connection.send(Goodbye(code="still there"))
        assert await connection.receive() == Goodbye(code="still there")

    run_real(tmp_path, main)
    assert log_text(tmp_path).count("malformed frame") == 1


def test_the_good_frames_before_a_bad_one_are_received(tmp_path: Path) -> None:
    """Then the connection shows as closed, with the reason."""

    async def main(runtime: RealRuntime) -> None:
        seen: list[object] = []
        ended = asyncio.Event()

        async def serve(connection: Connection) -> None:
            while (frame := await connection.receive()) is not None:
                seen.append(frame)
            assert "is not a known frame" in connection.close_reason
            ended.set()

        await runtime.listen(address(runtime), serve)
        _, writer = await asyncio.open_unix_connection(str(address(runtime).path))
        writer.write(encode(Goodbye(code="good")) + b"\x01\0\0\0\xc1")
        await ended.wait()
        assert seen == [Goodbye(code="good")]
        writer.close()

    run_real(tmp_path, main)


def test_a_stream_that_ends_inside_a_frame_is_seen_as_closed(tmp_path: Path) -> None:
    """The reason says that the frame was cut off."""

    async def main(runtime: RealRuntime) -> None:
        reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def serve(connection: Connection) -> None:
            assert await connection.receive() is None
            reason.set_result(connection.close_reason)

        await runtime.listen(address(runtime), serve)
        _, writer = await asyncio.open_unix_connection(str(address(runtime).path))
        writer.write(encode(Goodbye())[:-1])
        writer.close()
        assert "inside a frame" in await reason

    run_real(tmp_path, main)


def test_an_error_while_serving_becomes_a_goodbye(tmp_path: Path) -> None:
    """A HALError that the serving coroutine raises is told to the other end with its code."""

    async def main(runtime: RealRuntime) -> None:
        async def serve(_: Connection) -> None:
            raise ConflictError("the node n1 is here already")

        await runtime.listen(address(runtime), serve)
        connection = await runtime.connect(address(runtime))
        assert await connection.receive() == Goodbye(code="conflict", reason="the node n1 is here already")
        assert await connection.receive() is None

    run_real(tmp_path, main)


def test_closing_delivers_what_was_queued(tmp_path: Path) -> None:
    """1,000 frames queued, then close: all arrive, then the end; sending after that says why it cannot."""

    async def main(runtime: RealRuntime) -> None:
        async def serve(connection: Connection) -> None:
            for number in range(1_000):
                connection.send_nowait(Signal(epoch=number, steps=(STEP,), name="USR1"))
            connection.close()
            with pytest.raises(UnreachableError, match="closed here"):
                connection.send_nowait(Goodbye())

        await runtime.listen(address(runtime), serve)
        connection = await runtime.connect(address(runtime))
        seen = 0
        while await connection.receive() is not None:
            seen += 1
        assert seen == 1_000
        assert connection.close_reason == "closed there"

    run_real(tmp_path, main)


def test_receiving_can_time_out_and_go_on(tmp_path: Path) -> None:
    """After TimedOutError the connection is as it was and the next frame is received."""

    async def main(runtime: RealRuntime) -> None:
        await runtime.listen(address(runtime), echo)
        connection = await runtime.connect(address(runtime))
        with pytest.raises(TimedOutError):
            await connection.receive(timeout_ms=10)
        await connection.send(Goodbye(code="late"))
        assert await connection.receive(timeout_ms=30_000) == Goodbye(code="late")

    run_real(tmp_path, main)


def test_a_receive_that_was_cancelled_loses_no_frame(tmp_path: Path) -> None:
    """A waiting receive is cancelled; the frame that comes after goes to the next one."""

    async def main(runtime: RealRuntime) -> None:
        await runtime.listen(address(runtime), echo)
        connection = await runtime.connect(address(runtime))
        waiting = asyncio.create_task(connection.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait((waiting,))
        await connection.send(Goodbye(code="kept"))
        assert await connection.receive() == Goodbye(code="kept")

    run_real(tmp_path, main)


def test_dialling_where_nobody_serves_says_so(tmp_path: Path) -> None:
    """No socket there, and a socket left by a dead process: both are UnreachableError."""

    async def main(runtime: RealRuntime) -> None:
        with pytest.raises(UnreachableError, match="nobody serves"):
            await runtime.connect(address(runtime))
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(address(runtime).path))
        left.close()
        with pytest.raises(UnreachableError, match="nobody serves"):
            await runtime.connect(address(runtime))

    run_real(tmp_path, main)


def test_a_dead_socket_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    """Serving a path that a crashed process left works; serving one that lives is a ConflictError."""

    async def main(runtime: RealRuntime) -> None:
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(address(runtime).path))
        left.close()
        listener = await runtime.listen(address(runtime), echo)
        with pytest.raises(ConflictError, match="served by another process"):
            await runtime.listen(address(runtime), echo)
        await listener.close()
        assert not address(runtime).path.exists()

    run_real(tmp_path, main)


def test_a_file_in_the_place_of_the_socket_is_left_alone(tmp_path: Path) -> None:
    """It is somebody's data."""

    async def main(runtime: RealRuntime) -> None:
        address(runtime).path.write_text("precious")
        with pytest.raises(ConflictError, match="is not a socket"):
            await runtime.listen(address(runtime), echo)
        assert address(runtime).path.read_text() == "precious"

    run_real(tmp_path, main)


def test_peers_know_each_other_by_the_kernels_word(tmp_path: Path) -> None:
    """Both ends of a connection within this process name its pid and user."""

    async def main(runtime: RealRuntime) -> None:
        await runtime.listen(address(runtime), echo)
        connection = await runtime.connect(address(runtime))
        assert connection.peer is not None
        assert (connection.peer.pid, connection.peer.uid) == (os.getpid(), os.geteuid())

    run_real(tmp_path, main)


def test_nothing_is_said_over_tcp_without_credentials(tmp_path: Path) -> None:
    """Neither dialled nor served: a fault of whoever calls."""

    async def main(runtime: RealRuntime) -> None:
        with pytest.raises(InternalError, match="credentials"):
            await runtime.connect(TcpAddress("127.0.0.1", 1))
        with pytest.raises(InternalError, match="credentials"):
            await runtime.listen(TcpAddress("127.0.0.1", 0), echo)

    run_real(tmp_path, main)


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Whoever is root is nobody in this block."""
    before = os.geteuid()
    os.seteuid(before or NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_socket_of_another_user_is_not_spoken_to(tmp_path: Path) -> None:
    """A person who may not open the socket gets DeniedError; root may open all, and so dials as somebody else here."""

    async def main(runtime: RealRuntime) -> None:
        place = address(runtime)
        listener = await runtime.listen(place, echo)
        place.path.chmod(0)
        with pytest.raises(DeniedError), as_ordinary_user():
            await runtime.connect(place)
        await listener.close()

    run_real(tmp_path, main)
