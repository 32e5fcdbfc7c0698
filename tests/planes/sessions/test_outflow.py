"""A client that never reads, in the simulation: it is told why it is not kept, and no other one notices."""

from __future__ import annotations

import pytest

from hal.core.interfaces.directory import Directory
from hal.planes.sessions.outflow import RESULTS_NOT_TAKEN, FlowBounds
from hal.planes.sessions.serving import BrokerService, SessionTerms
from hal.runtime.interface import Connection, Runtime, UnixAddress
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.agree import SPOKEN
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import (
    SESSIONS,
    OpenSession,
    RunTasks,
    SessionOpened,
    StoreObject,
    SubmitTasks,
    TaskResults,
    TasksDone,
)
from hal.wire.roles import Role
from tests.planes.sessions.wired_broker import sizes

TOKEN = "5e" * 32
RESULT = bytes(500_000)
TASKS = 200


async def opened(runtime: Runtime, role: Role) -> tuple[Connection, int]:
    connection = await runtime.connect(UnixAddress(runtime.paths.wire_socket()), conversation=SESSIONS)
    await connection.send(OpenSession(versions=SPOKEN, role=role, session="s", token=TOKEN))
    answer = await connection.receive()
    assert isinstance(answer, SessionOpened)
    return connection, answer.number


async def work(runtime: Runtime) -> None:
    """A worker whose results are large."""
    connection, _ = await opened(runtime, Role.WORKER)
    while (frame := await connection.receive()) is not None:
        if isinstance(frame, RunTasks):
            for index in range(len(frame.sizes) // 4):
                done = TasksDone(
                    run=frame.run, index=index, statuses=b"\0", sizes=sizes(len(RESULT)), payload=RESULT, took_us=10
                )
                await connection.send(done)


class Client:
    """Submits tasks, and reads what it is sent once it may."""

    def __init__(self) -> None:
        self.results = 0
        self.told: Goodbye | None = None

    async def submit(self, runtime: Runtime) -> Connection:
        connection, number = await opened(runtime, Role.CLIENT)
        function = number << 32 | 1
        await connection.send(StoreObject(ref=function, data=b"f"))
        for first in range(TASKS):
            await connection.send(SubmitTasks(first=first, function=function, sizes=sizes(1), payload=b"x"))
        return connection

    async def read(self, connection: Connection) -> None:
        while self.results < TASKS and self.told is None:
            match await connection.receive():
                case TaskResults() as frame:
                    self.results += len(frame.statuses)
                case Goodbye() as goodbye:
                    self.told = goodbye
                case None:
                    return


def run(bounds: FlowBounds, *, files: bool) -> tuple[Client, Client]:
    """A client that reads only when another one has all of its results; returns both."""
    slow, other = Client(), Client()

    async def broker(runtime: Runtime) -> None:
        place: Directory | None = runtime.open_directory(runtime.paths.root / "waiting") if files else None
        service = BrokerService(runtime, SessionTerms("s", TOKEN, waiting=place, flow=bounds))
        await runtime.listen(UnixAddress(runtime.paths.wire_socket()), service.serve, conversation=SESSIONS)
        await runtime.stopping.wait()

    async def clients(runtime: Runtime) -> None:
        connection = await slow.submit(runtime)
        await other.read(await other.submit(runtime))
        await slow.read(connection)

    with VirtualWorld(1) as world:
        host = world.host("n1")

        async def drive() -> None:
            world.start(host, "broker", broker)
            await host_ready()
            world.start(host, "worker", work)
            await world.start(host, "client", clients).wait()

        async def host_ready() -> None:
            await world.start(host, "wait", lambda runtime: runtime.sleep(1_000)).wait()

        world.run(drive())
    return slow, other


@pytest.mark.parametrize("files", [True, False])
def test_a_client_that_reads_late_has_all_of_its_results(files: bool) -> None:
    """Of which most waited for it at the broker."""
    slow, other = run(FlowBounds(direct_bytes=1 << 20, memory_bytes=4 << 20, pressed_bytes=20 << 20), files=files)
    assert (slow.results, slow.told) == (TASKS, None)
    assert other.results == TASKS


def test_a_client_for_which_too_much_waits_is_told() -> None:
    """What is too much for it harms no other client."""
    bounds = FlowBounds(direct_bytes=1 << 20, memory_bytes=4 << 20, pressed_bytes=80 << 20, most_bytes=20 << 20)
    slow, other = run(bounds, files=True)
    assert slow.told is not None
    assert slow.told.code == RESULTS_NOT_TAKEN
    assert other.results == TASKS
