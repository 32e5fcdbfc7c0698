"""Connections for payloads: as many as there may be processes, and no more; tasks do not wait for a slow disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from hal.planes.sessions import serving
from hal.planes.sessions.serving import BrokerService, SessionTerms
from hal.runtime.interface import Connection, Runtime, UnixAddress
from hal.runtime.payload_files import PayloadFiles
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.agree import SPOKEN
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import (
    SESSIONS,
    AskFile,
    FilePiece,
    FileStored,
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
from tests.runtime.real_runtime import run_real

TOKEN = "5e" * 32
STUCK_S = 30.0
NAME, DATA = "c1-w-1", b"payload"


class StuckFiles(PayloadFiles):
    """On a disk that does nothing until it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.go_on = threading.Event()

    def read(self, name: str, length: int) -> Generator[tuple[bytes, int], None, None]:
        assert self.go_on.wait(STUCK_S), "the broker waits for the disk"
        yield from super().read(name, length)

    def append(self, fd: int, data: bytes) -> None:
        assert self.go_on.wait(STUCK_S), "the broker waits for the disk"
        super().append(fd, data)


async def a_task(runtime: Runtime, address: UnixAddress) -> bytes:
    """The result of one that a client submits and a worker runs."""
    ends: list[Connection] = []
    for role in (Role.WORKER, Role.CLIENT):
        ends.append(await runtime.connect(address, conversation=SESSIONS))
        await ends[-1].send(OpenSession(versions=SPOKEN, role=role, session="s", token=TOKEN))
    worker, client = ends
    assert isinstance(await worker.receive(), SessionOpened)
    opened = await client.receive()
    assert isinstance(opened, SessionOpened)
    function = opened.number << 32 | 1
    await client.send(StoreObject(ref=function, data=b"f"))
    await client.send(SubmitTasks(first=0, function=function, sizes=sizes(1), payload=b"x"))
    while not isinstance(run := await worker.receive(), RunTasks):
        assert run is not None
    await worker.send(TasksDone(run=run.run, index=0, statuses=b"\0", sizes=sizes(1), payload=b"y", took_us=1))
    while not isinstance(answer := await client.receive(), TaskResults):
        assert answer is not None
    return answer.payload


@pytest.mark.parametrize("writes", [False, True], ids=["reads", "writes"])
def test_tasks_go_on_while_the_disk_is_stuck(tmp_path: Path, *, writes: bool) -> None:
    """A process of another machine sends or fetches a payload meanwhile, and has it when the disk goes on."""
    files = StuckFiles(tmp_path)
    if not writes:
        (tmp_path / NAME).write_bytes(DATA)

    async def main(runtime: Runtime) -> None:
        address = UnixAddress(runtime.paths.wire_socket())
        service = BrokerService(runtime, SessionTerms("s", TOKEN, files=files))
        await runtime.listen(address, service.serve, conversation=SESSIONS)
        remote = await runtime.connect(address, conversation=SESSIONS)
        await remote.send(OpenSession(versions=SPOKEN, role=Role.CLIENT, session="s", token=TOKEN, files=True))
        assert isinstance(await remote.receive(), SessionOpened)
        piece = FilePiece(name=NAME, size=len(DATA), data=DATA)
        await remote.send(piece if writes else AskFile(name=NAME))
        answer = asyncio.ensure_future(remote.receive())
        assert await a_task(runtime, address) == b"y"
        assert not answer.done()
        files.go_on.set()
        assert await answer == (FileStored() if writes else piece)

    run_real(tmp_path, main)
    assert (tmp_path / NAME).read_bytes() == DATA


def test_a_payload_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    """Its process ends after the first piece, or goes on with another payload."""
    reasons: list[object] = []

    async def main(runtime: Runtime) -> None:
        address = UnixAddress(runtime.paths.wire_socket())
        service = BrokerService(runtime, SessionTerms("s", TOKEN, files=PayloadFiles(tmp_path)))
        await runtime.listen(address, service.serve, conversation=SESSIONS)
        for wrong in (False, True):
            remote = await runtime.connect(address, conversation=SESSIONS)
            await remote.send(OpenSession(versions=SPOKEN, role=Role.CLIENT, session="s", token=TOKEN, files=True))
            await remote.receive()
            await remote.send(FilePiece(name=NAME, size=9, data=b"abc", more=True))
            if wrong:
                await remote.send(FilePiece(name="c1-w-2", size=9, data=b"abc", more=True))
                reasons.append(await remote.receive())
            remote.close()
        while list(tmp_path.glob("c1-*")) or service._file_connections:
            await runtime.sleep(10)

    run_real(tmp_path, main)
    [refusal] = reasons
    assert isinstance(refusal, Goodbye)
    assert "does not go on like that" in refusal.reason


def test_connections_for_payloads_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two may be open: a third is refused, until one is closed."""
    monkeypatch.setattr(serving, "MAX_FILE_CONNECTIONS", 2)
    answers: list[object] = []

    async def broker(runtime: Runtime) -> None:
        service = BrokerService(runtime, SessionTerms("s", TOKEN, files=PayloadFiles(tmp_path)))
        await runtime.listen(UnixAddress(runtime.paths.wire_socket()), service.serve, conversation=SESSIONS)
        await runtime.stopping.wait()

    async def opened(runtime: Runtime) -> Connection:
        connection = await runtime.connect(UnixAddress(runtime.paths.wire_socket()), conversation=SESSIONS)
        await connection.send(OpenSession(versions=SPOKEN, role=Role.CLIENT, session="s", token=TOKEN, files=True))
        answers.append(type(await connection.receive()))
        return connection

    async def clients(runtime: Runtime) -> None:
        await runtime.sleep(1_000)
        first = await opened(runtime)
        await opened(runtime)
        await opened(runtime)
        first.close()
        await runtime.sleep(1_000)
        await opened(runtime)

    with VirtualWorld(1) as world:
        host = world.host("n1")

        async def drive() -> None:
            world.start(host, "broker", broker)
            await world.start(host, "clients", clients).wait()

        world.run(drive())
    assert answers == [SessionOpened, SessionOpened, Goodbye, SessionOpened]
