"""The client of a durable session itself, in the simulation: it submits functions by the hundred, and forgets them;
brokers, workers and connections die between any two of their callbacks; every task has its own result."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from hal.client.sessions import core as core_module
from hal.client.sessions import reconnection
from hal.client.sessions.answers import SessionFuture
from hal.client.sessions.core import Options, SessionCore
from hal.core.model.errors import HALError, TimedOutError, UnreachableError
from hal.runtime.interface import Connection, Runtime
from hal.runtime.session_file import SessionFile
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import (
    SESSION_CLOSED,
    DropObjects,
    KeptTasks,
    RecallTasks,
    RunTasks,
    SessionOpened,
    StoreObject,
    TasksDone,
    TasksReturned,
    TaskStatus,
)
from hal.wire.roles import Role
from tests.planes.sessions.wired_broker import sizes
from tests.simulation.test_session_broker import TOKEN, broker_again, opened

TASKS, KILLS = 400, 6
MOST_MS = 600_000


class VirtualLink:
    """What the client has in place of a socket: it is read until nothing is left, and written without waiting.

    Attributes:
        arrived: frames that were not read.
    """

    def __init__(self, connection: Connection, arrived: list[Frame]) -> None:
        self.connection = connection
        self.arrived = arrived

    def send(self, *frames: Frame) -> None:
        for frame in frames:
            if self.connection.closed:
                raise UnreachableError("the connection broke")
            self.connection.send_nowait(frame)

    def receive(self) -> list[Frame]:
        frames, self.arrived = self.arrived, []
        return frames

    def put_back(self, frames: list[Frame]) -> None:
        self.arrived = frames + self.arrived

    def close(self) -> None:
        self.connection.close()


class Core(SessionCore):
    """Reads when it is told to, in the thread of the simulation."""

    def _read(self) -> None:
        pass

    def read(self) -> None:
        """What has arrived."""
        self._read_link()


def new_function() -> Callable[[int], int]:
    """Another one than those before."""
    return lambda x: x


class Client:
    """Submits tasks one by one, of a function each or of few, as they come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tasks: int = TASKS) -> None:
        self.tasks = tasks
        self.futures: list[SessionFuture] = []
        self.core: Core
        self._dialled: tuple[VirtualLink, SessionOpened]
        for module in (core_module, reconnection):
            monkeypatch.setattr(module, "connect", lambda *_args, **_more: self._dialled)

    async def run(self, runtime: Runtime) -> None:
        rng = runtime.random()
        session = SessionFile(id="s", token=TOKEN, listen=("unix:/nowhere",), journal="/nowhere")
        await self._dial(runtime)
        self.core = Core(session, client="c")
        kept = new_function()
        while not self.ended:
            link: Any = self.core._link
            if link.connection.closed:
                await self._dial(runtime)
                durable = self.core._durable
                assert durable is not None
                again, reason = durable.dial_again(session, self.core.number, "")
                assert again is not None, reason
                self.core._go_on(again, durable)
                self.core.read()
                continue
            for _ in range(rng.choice((0, 0, 1, 1, 3, 30))):
                if len(self.futures) < self.tasks:
                    number = len(self.futures)
                    function = kept if rng.random() < 0.3 else new_function()
                    if rng.random() < 0.05:
                        kept = function
                    data = self.core.encode((number,))
                    self.futures.append(self.core.submit(function, data, frozenset(), Options()))
            await self._read_some(runtime, link)

    @property
    def ended(self) -> bool:
        return len(self.futures) == self.tasks and all(future.done() for future in self.futures)

    async def _read_some(self, runtime: Runtime, link: VirtualLink) -> None:
        try:
            while (frame := await link.connection.receive(runtime.random().choice((1, 2, 5, 200)))) is not None:
                link.arrived.append(frame)
                if runtime.random().random() < 0.5:
                    break
        except TimedOutError:
            pass
        if link.arrived:
            self.core.read()

    async def _dial(self, runtime: Runtime) -> None:
        while True:
            connection, answer = await opened(runtime, Role.CLIENT)
            arrived: list[Frame] = []
            try:
                while (frame := await connection.receive()) is not None:
                    arrived.append(frame)
                    if isinstance(frame, KeptTasks) and not frame.more:
                        self._dialled = VirtualLink(connection, arrived), answer
                        return
            except HALError:
                continue


async def worker(missing: Counter[int], runtime: Runtime) -> None:
    """Answers each task with its arguments, until the session is over.

    Args:
        missing: functions that it was not sent before their tasks.
    """
    while not runtime.stopping.is_set():
        try:
            connection, _ = await opened(runtime, Role.WORKER)
            known: set[int] = set()
            while (frame := await connection.receive()) is not None:
                match frame:
                    case Goodbye() if frame.code == SESSION_CLOSED:
                        return
                    case StoreObject():
                        known.add(frame.ref)
                    case DropObjects():
                        known.difference_update(frame.refs)
                    case RecallTasks():
                        await connection.send(TasksReturned(run=0, index=0))
                    case RunTasks():
                        missing[frame.function] += frame.function not in known
                        await run_tasks(runtime, connection, frame)
        except HALError:
            continue


async def run_tasks(runtime: Runtime, connection: Connection, frame: RunTasks) -> None:
    """Report them one by one, or some together."""
    lengths = list(memoryview(frame.sizes).cast("I"))
    at = done = 0
    while done < len(lengths):
        count = runtime.random().randint(1, len(lengths) - done)
        part = lengths[done : done + count]
        await runtime.sleep(runtime.random().randint(0, 2))
        answer = TasksDone(
            run=frame.run,
            index=done,
            statuses=bytes([TaskStatus.DONE]) * count,
            sizes=sizes(*part),
            payload=bytes(frame.payload[at : at + sum(part)]),
            took_us=runtime.random().randint(1, 500) * count,
        )
        await connection.send(answer)
        at += sum(part)
        done += count


def play(seed: int, client: Client, *, workers_die: bool, breaks: bool) -> Counter[int]:
    """Let the client work while brokers are killed; returns the functions that workers were not sent."""
    missing: Counter[int] = Counter()
    with VirtualWorld(seed) as world:
        host = world.host("n1")
        rng: random.Random = world.rng("faults")

        async def again(name: str, main: Any, kills: int, steps: int) -> None:
            for _ in range(kills):
                process = world.start(host, name, main)
                process.kill_after(rng.randint(1, steps))
                await process.wait()
            while True:
                await world.start(host, name, main).wait()

        async def break_connections() -> None:
            while True:
                await asyncio.sleep(rng.uniform(0.001, 0.2))
                if hasattr(client, "core"):
                    link: Any = client.core._link
                    link.connection.abort()

        async def drive() -> None:
            beside = [asyncio.create_task(again("broker", broker_again, KILLS, 3_000))]
            beside += [
                asyncio.create_task(again(f"worker-{number}", partial(worker, missing), KILLS * workers_die, 1_000))
                for number in range(2)
            ]
            beside += [asyncio.create_task(break_connections())] if breaks else []
            await world.start(host, "client", client.run).wait(MOST_MS)
            for task in beside:
                task.cancel()

        world.run(drive())
    return missing


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 100))])
@pytest.mark.parametrize(("workers_die", "breaks"), [(False, False), (True, False), (True, True)])
def test_safety_every_future_has_its_result(
    monkeypatch: pytest.MonkeyPatch, seed: int, workers_die: bool, breaks: bool
) -> None:
    """Whatever dies, and in whatever moment the client has sent its functions, blocks and acknowledgements."""
    client = Client(monkeypatch)
    missing = play(seed, client, workers_die=workers_die, breaks=breaks)
    assert [future.result() for future in client.futures] == [(number,) for number in range(TASKS)]
    assert not +missing
