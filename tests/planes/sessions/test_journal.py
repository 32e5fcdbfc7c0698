"""The journal of a durable session: torn ends, what an earlier broker has left, what is written anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.core.interfaces.directory import Directory
from hal.planes.sessions import durable
from hal.planes.sessions.broker import Broker
from hal.planes.sessions.durable import DurableClient, DurableClients
from hal.planes.sessions.journal import COMPACT_BYTES, Journal, Kind, Record, decode_records, encode_record
from hal.runtime.interface import Runtime
from hal.runtime.virtual_world import VirtualHost, VirtualWorld
from hal.wire.frames.sessions import (
    AcknowledgeResults,
    CancelTasks,
    KeptTasks,
    StoreObject,
    SubmitTasks,
    TaskResults,
    TaskStatus,
)
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

    def __init__(self, runtime: Runtime, directory: Directory, compact_bytes: int = COMPACT_BYTES) -> None:
        self.broker = Broker()
        self.errors: list[OSError] = []
        self.journal = Journal(runtime, directory, self.errors.append, compact_bytes=compact_bytes)
        self.clients = DurableClients(self.broker, self.journal)

    async def begin(self) -> None:
        self.clients.restore(self.journal.read(), 0)
        await self.journal.begin(self.clients.snapshot)

    def come(self, key: str) -> tuple[DurableClient, Outbox]:
        outbox = Outbox()
        client = self.clients.open(key)
        self.clients.take_over(client, outbox)
        client.attach(outbox)
        return client, outbox


def submit(session: Session, client: DurableClient, first: int, count: int, *, once: bool = False) -> None:
    function = (client.submitter.number << 32) + 1
    session.clients.receive(client, StoreObject(ref=function, data=b"f"), 0)
    block = SubmitTasks(first=first, function=function, sizes=sizes(*[1] * count), payload=b"x" * count, once=once)
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


def test_results_that_nobody_fetches_hold_tasks_up(
    host: tuple[VirtualWorld, VirtualHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of one client, until it has acknowledged half; the same after a restart. Another client's tasks go on."""
    monkeypatch.setattr(durable, "KEPT_BYTES", 20)
    world, machine = host

    async def first(runtime: Runtime) -> None:
        session = Session(runtime, runtime.open_directory(runtime.paths.root / "journal"))
        await session.begin()
        client, _ = session.come("c")
        await runtime.sleep(1_000)
        submit(session, client, 0, 100)
        worker = Worker(session.broker)
        while worker.finish(took_us=1_000):
            pass
        assert client.submitter.pressed
        assert 20 < client.kept_bytes < 30
        assert session.clients.attached
        session.clients.receive(client, CancelTasks(ranges=((90, 10),)), 0)
        client.owner = client.outbox = None
        assert not session.clients.attached
        assert session.clients.keeps_results
        await runtime.sleep(1_000)

    async def later(runtime: Runtime) -> None:
        session = Session(runtime, runtime.open_directory(runtime.paths.root / "journal"))
        await session.begin()
        client, _ = session.come("c")
        other, _ = session.come("d")
        worker = Worker(session.broker)
        assert not worker.arguments
        submit(session, other, 0, 5)
        assert len(worker.finish(5)) == 5
        await runtime.sleep(1_000)
        while client.kept:
            told = tuple(list(client.kept)[:4])
            session.clients.receive(client, AcknowledgeResults(results=told), 0)
            worker.finish(4, took_us=1_000)
        assert not client.submitter.pressed
        assert not client.blocks
        assert not client.kept_bytes
        assert session.broker.numbers(0, 1).waiting == 0

    async def drive() -> None:
        for main in (first, later):
            await world.start(machine, "broker", main).wait()

    world.run(drive())


def test_what_a_worker_has_returned_has_not_begun(host: tuple[VirtualWorld, VirtualHost]) -> None:
    """Of tasks that may run once: after a restart it runs; what the worker kept is lost."""
    world, machine = host
    seen: list[int] = []

    async def first(runtime: Runtime) -> None:
        session = Session(runtime, runtime.open_directory(runtime.paths.root / "journal"))
        await session.begin()
        client, _ = session.come("c")
        submit(session, client, 0, 10, once=True)
        worker = Worker(session.broker)
        await runtime.sleep(1_000)
        worker.finish(took_us=1)
        await runtime.sleep(1_000)
        assert len(worker.arguments) == 9
        session.broker.leave(worker.slot)
        worker.give_back(begun=2)
        await runtime.sleep(1_000)

    async def later(runtime: Runtime) -> None:
        session = Session(runtime, runtime.open_directory(runtime.paths.root / "journal"))
        await session.begin()
        client, outbox = session.come("c")
        await runtime.sleep(1_000)
        statuses = b"".join(frame.statuses for frame in results_in(outbox))
        seen.extend((statuses.count(TaskStatus.LOST), client.submitter.waiting_tasks))

    async def drive() -> None:
        for main in (first, later, later):
            await world.start(machine, "broker", main).wait()

    world.run(drive())
    assert seen == [2, 7] * 2


def test_a_journal_stays_small(host: tuple[VirtualWorld, VirtualHost]) -> None:
    """However much goes through it: what is not needed any more is left out when it is written anew."""
    world, machine = host

    async def main(runtime: Runtime) -> None:
        directory = runtime.open_directory(runtime.paths.root / "journal")
        session = Session(runtime, directory, compact_bytes=10_000)
        await session.begin()
        client, _ = session.come("c")
        worker = Worker(session.broker)
        for number in range(100):
            submit(session, client, number * 1_000, 1_000)
            while worker.finish(1_000, took_us=1):
                pass
            session.clients.receive(client, AcknowledgeResults(results=tuple(client.kept)), 0)
            await runtime.sleep(200)
            assert sum(entry.size_bytes for entry in directory.entries()) < 40_000

    async def drive() -> None:
        assert await world.start(machine, "broker", main).wait() == 0

    world.run(drive())


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


def test_a_client_that_went_before_it_was_told_what_is_kept_is_not_connected(
    host: tuple[VirtualWorld, VirtualHost],
) -> None:
    """Its session would stay for ever. Another process is the client afterwards, and is told."""
    world, machine = host
    seen: list[object] = []

    async def main(runtime: Runtime) -> None:
        session = Session(runtime, runtime.open_directory(runtime.paths.root / "journal"))
        await session.begin()
        client, gone = session.come("c")
        session.clients.detach(client, gone)
        await runtime.sleep(1_000)
        seen.append(session.clients.attached)
        _, first = session.come("c")
        _, outbox = session.come("c")
        session.clients.detach(client, first)
        await runtime.sleep(1_000)
        seen.append(session.clients.attached)
        seen.append(client.outbox is outbox)

    async def drive() -> None:
        await world.start(machine, "broker", main).wait()

    world.run(drive())
    assert seen == [False, True, True]


@pytest.mark.parametrize("replaced", [True, False])
def test_an_object_of_which_a_part_came_is_sent_again_as_a_whole(
    host: tuple[VirtualWorld, VirtualHost], replaced: bool
) -> None:
    """By the process that is the client then, whether the former one is known to be gone or not; the journal has no
    more of it either."""
    world, machine = host
    seen: list[bytes] = []

    async def main(runtime: Runtime) -> None:
        session = Session(runtime, runtime.open_directory(runtime.paths.root / "journal"))
        await session.begin()
        client, outbox = session.come("c")
        ref = (client.submitter.number << 32) + 1
        session.clients.receive(client, StoreObject(ref=ref, data=b"one", more=True), 0)
        if not replaced:
            session.clients.detach(client, outbox)
        session.come("c")
        session.clients.detach(client, outbox)
        for data, more in ((b"one", True), (b"two", False)):
            session.clients.receive(client, StoreObject(ref=ref, data=data, more=more), 0)
        seen.extend(piece.data for piece in client.submitter.objects[ref])
        await runtime.sleep(1_000)

    async def later(runtime: Runtime) -> None:
        session = Session(runtime, runtime.open_directory(runtime.paths.root / "journal"))
        await session.begin()
        client, _ = session.come("c")
        for pieces in client.submitter.objects.values():
            seen.extend(piece.data for piece in pieces)

    async def drive() -> None:
        await world.start(machine, "broker", main).wait()
        await world.start(machine, "broker", later).wait()

    world.run(drive())
    assert seen == [b"one", b"two"] * 2
