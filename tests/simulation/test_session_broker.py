"""A durable session's broker in the simulation: it is killed between any two of its callbacks, and every task is
answered nevertheless, always with its own result."""

from __future__ import annotations

import random

import pytest

from hal.core.model.errors import HALError, TimedOutError
from hal.planes.sessions.serving import BrokerService, SessionTerms
from hal.runtime.interface import Connection, Runtime, UnixAddress
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.agree import SPOKEN
from hal.wire.frames.sessions import (
    SESSIONS,
    AcknowledgeResults,
    KeptTasks,
    OpenSession,
    RecallTasks,
    RunTasks,
    SessionOpened,
    StoreObject,
    SubmitTasks,
    TaskResults,
    TasksDone,
    TasksReturned,
    TaskStatus,
)
from hal.wire.roles import Role
from tests.planes.sessions.wired_broker import sizes

BLOCKS, COUNT, KILLS = 12, 40, 8
IDLE_MS = 60_000
TOKEN = "5e" * 32


async def broker(runtime: Runtime) -> None:
    terms = SessionTerms("s", TOKEN, "", runtime.open_directory(runtime.paths.root / "journal"))
    service = BrokerService(runtime, terms)
    await service.restore()
    await runtime.listen(UnixAddress(runtime.paths.wire_socket()), service.serve, conversation=SESSIONS)
    await runtime.stopping.wait()


async def opened(runtime: Runtime, role: Role) -> tuple[Connection, SessionOpened]:
    """Dial the broker until it answers."""
    while True:
        try:
            connection = await runtime.connect(UnixAddress(runtime.paths.wire_socket()), conversation=SESSIONS)
            hello = OpenSession(versions=SPOKEN, role=role, session="s", token=TOKEN, client="c")
            await connection.send(hello)
            answer = await connection.receive()
            if isinstance(answer, SessionOpened):
                return connection, answer
        except HALError:
            pass
        await runtime.sleep(runtime.random().randint(5, 50))


async def worker(runtime: Runtime) -> None:
    """Answers each task with its argument, reversed."""
    while not runtime.stopping.is_set():
        connection, _ = await opened(runtime, Role.WORKER)
        try:
            while (frame := await connection.receive()) is not None:
                if isinstance(frame, RecallTasks):
                    await connection.send(TasksReturned(run=0, index=0))
                if not isinstance(frame, RunTasks):
                    continue
                at = 0
                for index, size in enumerate(memoryview(frame.sizes).cast("I")):
                    result = bytes(frame.payload[at : at + size])[::-1]
                    at += size
                    await runtime.sleep(runtime.random().randint(0, 2))
                    done = TasksDone(
                        run=frame.run,
                        index=index,
                        statuses=bytes([TaskStatus.DONE]),
                        sizes=sizes(len(result)),
                        payload=result,
                        took_us=runtime.random().randint(1, 500),
                    )
                    await connection.send(done)
        except HALError:
            continue


class Client:
    """Submits blocks, and again what was not answered when it lost its connection."""

    def __init__(self) -> None:
        self.results: dict[int, bytes] = {}

    async def run(self, runtime: Runtime) -> None:
        wanted = BLOCKS * COUNT
        while len(self.results) < wanted:
            connection, answer = await opened(runtime, Role.CLIENT)
            try:
                await self._talk(connection, answer.number << 32 | 1)
            except HALError:
                continue

    async def _talk(self, connection: Connection, function: int) -> None:
        await connection.send(StoreObject(ref=function, data=b"f"))
        for first in range(0, BLOCKS * COUNT, COUNT):
            if all(task in self.results for task in range(first, first + COUNT)):
                continue
            parts = [f"task {task}".encode() for task in range(first, first + COUNT)]
            block = SubmitTasks(
                first=first, function=function, sizes=sizes(*map(len, parts)), payload=b"".join(parts), attempts=2
            )
            await connection.send(block)
        while len(self.results) < BLOCKS * COUNT:
            frame = await connection.receive()
            if frame is None:
                return
            if isinstance(frame, KeptTasks):
                continue
            if isinstance(frame, TaskResults):
                self._keep(frame)
                await connection.send(AcknowledgeResults(results=((frame.block, frame.index),)))

    def _keep(self, frame: TaskResults) -> None:
        at = 0
        for offset, size in enumerate(memoryview(frame.sizes).cast("I")):
            assert frame.statuses[offset] in (TaskStatus.DONE, TaskStatus.QUARANTINED)
            task, result = frame.block + frame.index + offset, bytes(frame.payload[at : at + size])
            at += size
            assert self.results.setdefault(task, result) == result, "two results of one task"


@pytest.mark.parametrize("seed", [1, 2, 3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 60))])
def test_safety_every_task_is_answered_whatever_dies(seed: int) -> None:
    """With its own result, and no other one later."""
    client = Client()
    with VirtualWorld(seed) as world:
        host = world.host("n1")
        rng: random.Random = world.rng("faults")
        for number in range(2):
            world.start(host, f"worker-{number}", worker)

        async def kill_brokers() -> None:
            for _ in range(KILLS):
                process = world.start(host, "broker", broker)
                process.kill_after(rng.randint(1, 600))
                try:
                    await process.wait(IDLE_MS)
                except TimedOutError:
                    return  # all is done, and it has nothing to do any more
            world.start(host, "broker", broker)

        async def drive() -> None:
            work = world.start(host, "client", client.run)
            await kill_brokers()
            await work.wait()

        world.run(drive())
    expected = {task: f"task {task}".encode()[::-1] for task in range(BLOCKS * COUNT)}
    assert client.results == expected
