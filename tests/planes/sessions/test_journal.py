"""The journal of a durable session: torn ends, what an earlier broker has left, what is written anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.core.interfaces.directory import Directory
from hal.planes.sessions.broker import Broker
from hal.planes.sessions.durable import DurableClient, DurableClients
from hal.planes.sessions.journal import Journal, Kind, Record, decode_records, encode_record
from hal.runtime.interface import Runtime
from hal.runtime.virtual_world import VirtualHost, VirtualWorld
from hal.wire.frames.sessions import AcknowledgeResults, KeptTasks, StoreObject, SubmitTasks, TaskResults
from tests.planes.sessions.wired_broker import Outbox, Worker, sizes

RECORDS = [Record(Kind.CLIENT, 3, b"key"), Record(Kind.SENT, 3, b"x" * 100), Record(Kind.LEFT, 3, b"")]
DATA = b"".join(encode_record(*record) for record in RECORDS)


def test_records_come_back() -> None:
    """In order."""
    assert list(decode_records(DATA)) == RECORDS


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_a_torn_or_damaged_end_is_dropped(at: int, mask: int) -> None:
    """Whatever is left or changed: a prefix of the records."""
    damaged = bytearray(DATA)
    damaged[at] ^= mask
    for data in (DATA[:at], bytes(damaged)):
        found = list(decode_records(data))
        assert found == RECORDS[: len(found)]


@pytest.fixture
def host() -> Iterator[tuple[VirtualWorld, VirtualHost]]:
    with VirtualWorld(seed=1) as world:
        yield world, world.host("n1")


class Session:
    """A broker with its journal, inside of a process."""

    def __init__(self, runtime: Runtime, directory: Directory) -> None:
        self.broker = Broker()
        self.errors: list[OSError] = []
        self.journal = Journal(runtime, directory, self.errors.append)
        self.clients = DurableClients(self.broker, self.journal)

    async def begin(self) -> None:
        self.clients.restore(self.journal.read(), 0)
        await self.journal.begin(self.clients.snapshot)

    def come(self, key: str) -> tuple[DurableClient, Outbox]:
        outbox = Outbox()
        client = self.clients.open(key)
        client.attach(outbox)
        return client, outbox


def submit(session: Session, client: DurableClient, first: int, count: int) -> None:
    function = (client.submitter.number << 32) + 1
    session.clients.receive(client, StoreObject(ref=function, data=b"f"), 0)
    block = SubmitTasks(first=first, function=function, sizes=sizes(*[1] * count), payload=b"x" * count)
    session.clients.receive(client, block, 0)
    session.clients.receive(client, block, 0)  # again: it changes nothing


def results_in(outbox: Outbox) -> list[TaskResults]:
    return [frame for frame in outbox.frames if isinstance(frame, TaskResults)]


def test_what_was_not_acknowledged_is_there_after_a_restart(host: tuple[VirtualWorld, VirtualHost]) -> None:
    """Results are sent again; tasks without one wait again; what was acknowledged is gone. However often."""
    world, machine = host
    seen: list[object] = []

    async def first(runtime: Runtime) -> None:
        session = Session(runtime, runtime.open_directory(runtime.paths.root / "journal"))
        await session.begin()
        client, outbox = session.come("c")
        submit(session, client, 0, 10)
        worker = Worker(session.broker)
        for count in (2, 3):
            worker.finish(count)
        await runtime.sleep(1_000)
        told = results_in(outbox)[0]
        session.clients.receive(client, AcknowledgeResults(results=((told.block, told.index),)), 0)
        seen.append(sum(len(frame.statuses) for frame in results_in(outbox)))
        seen.append(len(told.statuses))
        await runtime.sleep(1_000)

    async def later(runtime: Runtime) -> None:
        session = Session(runtime, runtime.open_directory(runtime.paths.root / "journal"))
        await session.begin()
        client, outbox = session.come("c")
        await runtime.sleep(1_000)
        (kept,) = [frame for frame in outbox.frames if isinstance(frame, KeptTasks)]
        seen.append(sum(count for _, _, count in kept.tasks))
        seen.append(sum(len(frame.statuses) for frame in results_in(outbox)))
        seen.append(client.submitter.waiting_tasks)

    async def drive() -> None:
        for main in (first, later, later):
            await world.start(machine, "broker", main).wait()

    world.run(drive())
    done, acknowledged = seen[:2]
    assert isinstance(done, int)
    assert isinstance(acknowledged, int)
    assert 0 < acknowledged < done
    assert seen[2:] == [10 - acknowledged, done - acknowledged, 10 - done] * 2


def test_a_client_that_left_is_forgotten(host: tuple[VirtualWorld, VirtualHost]) -> None:
    """Its key is a new client's."""
    world, machine = host
    seen: list[int] = []

    async def first(runtime: Runtime) -> None:
        session = Session(runtime, runtime.open_directory(runtime.paths.root / "journal"))
        await session.begin()
        client, _ = session.come("c")
        submit(session, client, 0, 10)
        session.clients.close(client)
        await runtime.sleep(1_000)

    async def later(runtime: Runtime) -> None:
        session = Session(runtime, runtime.open_directory(runtime.paths.root / "journal"))
        await session.begin()
        seen.append(len(session.broker.submitters))

    async def drive() -> None:
        await world.start(machine, "broker", first).wait()
        await world.start(machine, "broker", later).wait()

    world.run(drive())
    assert seen == [0]
