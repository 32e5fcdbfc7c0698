"""A durable session in the simulation: broker, client and workers are killed between any two of their callbacks, the
disk fills up, and every task is answered nevertheless, always with its own result; those that may run once run once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from hal.core.model.errors import HALError, TimedOutError, UnreachableError
from hal.planes.sessions.serving import BrokerService, SessionTerms
from hal.runtime.interface import Connection, Runtime, UnixAddress
from hal.runtime.virtual_directory import UNBOUNDED
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.agree import SPOKEN
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import (
    SESSION_CLOSED,
    SESSION_PAUSES,
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
COMPACT_BYTES = 4_000
"""So that journals are written anew while the session runs."""
IDLE_MS = 60_000
TOKEN = "5e" * 32


def address_of(runtime: Runtime) -> UnixAddress:
    """Where the broker listens."""
    return UnixAddress(runtime.paths.keeper_socket("session"))


async def broker(runtime: Runtime) -> bool:
    """Serve until it is stopped; returns whether the session is over."""
    journal = runtime.open_directory(runtime.paths.root / "journal")
    terms = SessionTerms("s", TOKEN, journal=journal, compact_bytes=COMPACT_BYTES)
    service = BrokerService(runtime, terms)
    try:
        await service.restore()
    except OSError:
        return False  # the disk is full
    await runtime.listen(address_of(runtime), service.serve, conversation=SESSIONS)
    await runtime.stopping.wait()
    service.close(service.broken, SESSION_CLOSED if service.ended else SESSION_PAUSES)
    return service.ended


async def broker_again(runtime: Runtime) -> None:
    """One that is always started again."""
    await broker(runtime)


async def opened(runtime: Runtime, role: Role) -> tuple[Connection, SessionOpened]:
    """Dial the broker until it answers."""
    while not runtime.stopping.is_set():
        try:
            connection = await runtime.connect(address_of(runtime), conversation=SESSIONS)
            hello = OpenSession(versions=SPOKEN, role=role, session="s", token=TOKEN, client="c")
            await connection.send(hello)
            answer = await connection.receive()
            if isinstance(answer, SessionOpened):
                return connection, answer
        except HALError:
            pass
        await runtime.sleep(runtime.random().randint(5, 50))
    raise UnreachableError("it was told to end")


async def worker(begun: Counter[bytes], runtime: Runtime, most_ms: int = 2) -> None:
    """Answers each task with its argument, reversed, until the session is over.

    Args:
        begun: how often each task began.
        most_ms: how long a task takes at most.
    """
    while not runtime.stopping.is_set():
        try:
            connection, _ = await opened(runtime, Role.WORKER)
            while (frame := await connection.receive()) is not None:
                if isinstance(frame, Goodbye) and frame.code == SESSION_CLOSED:
                    return
                if isinstance(frame, RecallTasks):
                    await connection.send(TasksReturned(run=0, index=0))
                if not isinstance(frame, RunTasks):
                    continue
                at = 0
                for index, size in enumerate(memoryview(frame.sizes).cast("I")):
                    result = bytes(frame.payload[at : at + size])[::-1]
                    at += size
                    begun[result[::-1]] += 1
                    await runtime.sleep(runtime.random().randint(0, most_ms))
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

    def __init__(self, *, once: bool = False) -> None:
        self.once = once
        self.results: dict[int, bytes] = {}
        self.lost: set[int] = set()

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
                first=first,
                function=function,
                sizes=sizes(*map(len, parts)),
                payload=b"".join(parts),
                attempts=2,
                once=self.once,
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
            task, result = frame.block + frame.index + offset, bytes(frame.payload[at : at + size])
            at += size
            if frame.statuses[offset] == (TaskStatus.LOST if self.once else TaskStatus.QUARANTINED):
                self.lost.add(task)
            else:
                assert frame.statuses[offset] == TaskStatus.DONE, result
            assert self.results.setdefault(task, result) == result, "two results of one task"


def some(seeds: int) -> list[object]:
    """The first three in every run."""
    return [1, 2, 3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, seeds))]


def play(seed: int, client: Client, *, others: bool = False, full: bool = False) -> Counter[bytes]:
    """Let the client work while brokers are killed; returns how often each task began.

    Args:
        others: the client and the workers are killed, too.
        full: the disk is full now and then.
    """
    begun: Counter[bytes] = Counter()
    with VirtualWorld(seed) as world:
        host = world.host("n1")
        rng: random.Random = world.rng("faults")

        async def again(
            name: str, main: Callable[[Runtime], Awaitable[None]], kills: int, steps: int, *, forever: bool = False
        ) -> None:
            """Start it, kill it after some of its callbacks, and so on; the last one lives, or is started again."""
            for _ in range(kills):
                process = world.start(host, name, main)
                process.kill_after(rng.randint(1, steps))
                try:
                    await process.wait(IDLE_MS)
                except TimedOutError:
                    return  # all is done, and it has nothing to do any more
            await world.start(host, name, main).wait()
            while forever:
                await asyncio.sleep(0.05)
                await world.start(host, name, main).wait()

        async def fill_disk() -> None:
            while len(client.results) < BLOCKS * COUNT:
                await asyncio.sleep(rng.uniform(0.01, 0.3))
                host.directories.capacity_bytes = host.directories.used_bytes + rng.randint(0, 2_000)
                await asyncio.sleep(rng.uniform(0.01, 0.3))
                host.directories.capacity_bytes = UNBOUNDED

        async def drive() -> None:
            work = asyncio.create_task(again("client", client.run, KILLS // 2 * others, 200))
            beside = [asyncio.create_task(again("broker", broker_again, KILLS, 600, forever=True))]
            beside += [
                asyncio.create_task(again(f"worker-{number}", partial(worker, begun), KILLS // 2 * others, 300))
                for number in range(2)
            ]
            beside += [asyncio.create_task(fill_disk())] if full else []
            await work
            for task in beside:
                task.cancel()

        world.run(drive())
    assert client.results.keys() == set(range(BLOCKS * COUNT))
    for task, result in client.results.items():
        assert task in client.lost or result == f"task {task}".encode()[::-1]
    return begun


@pytest.mark.parametrize("seed", some(60))
def test_safety_every_task_is_answered_whatever_dies(seed: int) -> None:
    """With its own result, and no other one later."""
    play(seed, Client())


@pytest.mark.parametrize("seed", some(40))
def test_safety_clients_and_workers_die_too(seed: int) -> None:
    """What the client had received is delivered again only unchanged."""
    play(seed, Client(), others=True)


@pytest.mark.parametrize("seed", some(20))
def test_safety_a_full_disk_loses_nothing(seed: int) -> None:
    """The broker ends, and the next one goes on when there is room."""
    play(seed, Client(), full=True)


@pytest.mark.parametrize("seed", some(40))
def test_safety_what_may_run_once_runs_once(seed: int) -> None:
    """Whatever is killed; a task that has no result may have run, and says so."""
    client = Client(once=True)
    begun = play(seed, client, others=True)
    assert max(begun.values()) == 1
    done = BLOCKS * COUNT - len(client.lost)
    assert done
    assert len(begun) >= done
