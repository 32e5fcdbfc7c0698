"""One shell, two runtimes: what is promised by the interface holds on the real and on the virtual one alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hal.core.model.errors import ConflictError, HALError, SpecError, TimedOutError, UnreachableError
from hal.core.model.ids import StepId
from hal.runtime.interface import MAX_BLOCKING_CALLS, Connection, Credentials, Lane, Runtime, TcpAddress, UnixAddress
from hal.runtime.virtual_process import VirtualRuntime
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.connection import FrameConnection
from hal.wire.frames.agent_keeper import ExitsAck, Signal
from hal.wire.frames.hello import Goodbye
from hal.wire.peer import CertifiedName
from tests.runtime.certified import Certified
from tests.runtime.real_runtime import run_real

Shell = Callable[[Runtime], Awaitable[None]]
Run = Callable[[Shell], None]


def wire(runtime: Runtime) -> UnixAddress:
    return UnixAddress(runtime.paths.wire_socket())


async def echo(connection: Connection) -> None:
    while (frame := await connection.receive()) is not None:
        await connection.send(frame)


@pytest.fixture(params=["real", "virtual"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a shell to its end on the runtime of that kind."""

    def on_the_real_one(shell: Shell) -> None:
        run_real(tmp_path, shell)

    def on_the_virtual_one(shell: Shell) -> None:
        ended: list[bool] = []

        async def main(runtime: Runtime) -> None:
            await shell(runtime)
            ended.append(True)

        with VirtualWorld(seed=1) as world:
            process = world.start(world.host("n1"), "test", main)

            async def drive() -> None:
                await process.wait()

            world.run(drive())
        assert ended

    return on_the_real_one if request.param == "real" else on_the_virtual_one


def test_frames_of_many_connections_keep_their_own_order(run: Run) -> None:
    """20 connections at once, 100 frames each."""

    async def shell(runtime: Runtime) -> None:
        await runtime.listen(wire(runtime), echo)

        async def one(number: int) -> None:
            connection = await runtime.connect(wire(runtime))
            for task in range(100):
                connection.send_nowait(ExitsAck(steps=(StepId(number + 1, task, 1, 0),)))
            for task in range(100):
                assert await connection.receive() == ExitsAck(steps=(StepId(number + 1, task, 1, 0),))
            connection.close()

        await asyncio.gather(*(one(number) for number in range(20)))

    run(shell)


def test_an_error_of_the_server_reaches_the_client_with_its_code(run: Run) -> None:
    """As a Goodbye, then the end; the server serves the next one."""

    async def shell(runtime: Runtime) -> None:
        async def refuse(_: Connection) -> None:
            raise SpecError("no such thing")

        await runtime.listen(wire(runtime), refuse)
        for _ in range(2):
            connection = await runtime.connect(wire(runtime))
            assert await connection.receive() == Goodbye(code="invalid-spec", reason="no such thing")
            assert await connection.receive() is None

    run(shell)


def test_a_frame_that_is_none_ends_the_connection_with_a_goodbye(run: Run) -> None:
    """The one who sent it is told why."""

    async def shell(runtime: Runtime) -> None:
        await runtime.listen(wire(runtime), echo)
        connection = await runtime.connect(wire(runtime))
        assert isinstance(connection, FrameConnection)
        assert connection.transport is not None
        connection.transport.write(b"\x02\0\0\0\xc1\xc1")
        answer = await connection.receive()
        assert isinstance(answer, Goodbye)
        assert answer.code == "malformed-frame"
        assert await connection.receive() is None

    run(shell)


def test_closing_a_listener_closes_what_it_accepted(run: Run) -> None:
    """And the address is free for the next one."""

    async def shell(runtime: Runtime) -> None:
        listener = await runtime.listen(wire(runtime), echo)
        connection = await runtime.connect(wire(runtime))
        await connection.send(Goodbye(code="hello"))
        assert await connection.receive() == Goodbye(code="hello")
        assert listener.connections == 1
        await listener.close()
        assert await connection.receive() is None
        with pytest.raises(UnreachableError):
            await runtime.connect(wire(runtime))
        await (await runtime.listen(wire(runtime), echo)).close()

    run(shell)


def test_an_address_is_served_once(run: Run) -> None:
    """The second listener is a ConflictError."""

    async def shell(runtime: Runtime) -> None:
        await runtime.listen(wire(runtime), echo)
        with pytest.raises(ConflictError, match="served by another process"):
            await runtime.listen(wire(runtime), echo)

    run(shell)


def test_a_closed_connection_refuses_frames_and_says_why(run: Run) -> None:
    """After close and after abort, here and there."""

    async def shell(runtime: Runtime) -> None:
        ended = asyncio.Event()

        async def serve(connection: Connection) -> None:
            assert await connection.receive() is None
            with pytest.raises(UnreachableError):
                connection.send_nowait(Goodbye())
            ended.set()

        await runtime.listen(wire(runtime), serve)
        connection = await runtime.connect(wire(runtime))
        connection.abort()
        with pytest.raises(UnreachableError, match="aborted here"):
            await connection.send(Goodbye())
        assert await connection.receive() is None
        await connection.wait_closed()
        await ended.wait()

    run(shell)


def test_peers_are_known(run: Run) -> None:
    """Process and user of the other end, at both ends."""

    async def shell(runtime: Runtime) -> None:
        async def serve(connection: Connection) -> None:
            assert connection.peer is not None
            await connection.send(Signal(epoch=connection.peer.pid, steps=(), name="USR1"))

        await runtime.listen(wire(runtime), serve)
        connection = await runtime.connect(wire(runtime))
        assert connection.peer is not None
        assert connection.peer.pid == runtime.pid
        assert await connection.receive() == Signal(epoch=runtime.pid, steps=(), name="USR1")

    run(shell)


def test_certificates_say_who_is_there_over_tcp(run: Run, tmp_path: Path) -> None:
    """At both ends; one that shows none is nobody, and where no controller has one, nobody is spoken to."""
    hal = Certified(tmp_path)
    node = hal.node("n1").credentials

    async def shell(runtime: Runtime) -> None:
        certify(runtime, hal.controller, CertifiedName("controller", "controller", "1"))
        certify(runtime, node, CertifiedName("agent", "n1", "2"))
        seen: list[tuple[str, str] | None] = []

        async def serve(connection: Connection) -> None:
            assert connection.peer is None
            seen.append(role_and_name(connection))
            await echo(connection)

        listener = await runtime.listen(tcp(runtime), serve, hal.controller)
        for credentials in (node, Credentials(hal.controller.authority)):
            connection = await runtime.connect(listener.address, credentials=credentials)
            await connection.send(Goodbye(code="hello"))
            assert await connection.receive() == Goodbye(code="hello")
            assert role_and_name(connection) == ("controller", "controller")
            assert connection.peer is None
            connection.close()
        assert seen == [("agent", "n1"), None]

    run(shell)


def tcp(runtime: Runtime) -> TcpAddress:
    """A port that is free."""
    return TcpAddress(runtime.host.name, 7_422) if isinstance(runtime, VirtualRuntime) else TcpAddress("127.0.0.1", 0)


def certify(runtime: Runtime, credentials: Credentials, name: CertifiedName) -> None:
    """In a virtual world a certificate is the name itself."""
    if isinstance(runtime, VirtualRuntime) and credentials.certificate is not None:
        runtime.host.certify(credentials.certificate, name)


def role_and_name(connection: Connection) -> tuple[str, str] | None:
    return None if connection.certified is None else connection.certified[:2]


def test_blocking_calls_are_in_order_and_their_errors_are_raised(run: Run) -> None:
    """Of one lane, whatever their callers do."""

    async def shell(runtime: Runtime) -> None:
        order: list[int] = []

        def call(number: int) -> int:
            order.append(number)
            if number == 5:
                raise ConflictError("five")
            return number

        async def one(number: int) -> int | str:
            try:
                return await runtime.run_blocking(lambda: call(number), Lane.WRITER)
            except HALError as error:
                return error.message

        answers = await asyncio.gather(*(one(number) for number in range(10)))
        assert answers == [0, 1, 2, 3, 4, "five", 6, 7, 8, 9]
        assert order == list(range(10))

    run(shell)


def test_lanes_are_bounded(run: Run) -> None:
    """One call more than the bound is refused."""

    async def shell(runtime: Runtime) -> None:
        calls = [asyncio.ensure_future(runtime.run_blocking(lambda: None)) for _ in range(MAX_BLOCKING_CALLS + 1)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, HALError)]
        assert len(refused) <= 1
        assert all(error.code == "overloaded" for error in refused)
        await runtime.run_blocking(lambda: None)

    run(shell)


def test_timers_can_be_cancelled_and_receives_time_out(run: Run) -> None:
    """Neither leaves anything behind."""

    async def shell(runtime: Runtime) -> None:
        fired: list[str] = []
        runtime.call_later(1, lambda: fired.append("one"))
        cancelled = runtime.call_later(1, lambda: fired.append("never"))
        cancelled.cancel()
        await runtime.listen(wire(runtime), echo)
        connection = await runtime.connect(wire(runtime))
        with pytest.raises(TimedOutError):
            await connection.receive(timeout_ms=50)
        assert fired == ["one"]
        await connection.send(Goodbye(code="x"))
        assert await connection.receive() == Goodbye(code="x")

    run(shell)


def test_stopping_is_asked_for_once_and_seen_by_all(run: Run) -> None:
    """`stop` sets the event that main waits for."""

    async def shell(runtime: Runtime) -> None:
        waiting = runtime.spawn_task(runtime.stopping.wait(), "wait")
        runtime.stop("a test")
        runtime.stop("again")
        assert await waiting is True

    run(shell)


def test_ids_are_32_hex_digits_and_all_different(run: Run) -> None:
    """1,000 of them."""

    async def shell(runtime: Runtime) -> None:
        ids = {runtime.new_id() for _ in range(1_000)}
        assert len(ids) == 1_000
        assert all(len(one) == 32 and int(one, 16) >= 0 for one in ids)

    run(shell)
