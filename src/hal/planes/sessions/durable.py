"""Clients of a durable session: they may come back, and find what they submitted and were not yet told.

What a client sends is journalled and handed to the broker at once; what it is answered leaves after it is journalled.
Results are kept until they are acknowledged. A frame that arrives again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from hal.core.model.errors import DeniedError
from hal.planes.sessions.blocks import SENT, Block, TaskRange
from hal.planes.sessions.broker import Broker
from hal.planes.sessions.journal import Journal, Kind, Part, Record, encode_record
from hal.planes.sessions.submitters import Outbox, Submitter, drop_frames
from hal.wire.frames.conversation import Frame
from hal.wire.frames.sessions import (
    MAX_CANCELLED,
    SESSIONS,
    AcknowledgeResults,
    CancelTasks,
    DropObjects,
    KeptTasks,
    StoreObject,
    SubmitTasks,
    TaskResults,
)

KEPT_BYTES: Final = 64 << 20
"""Of results that a client has not acknowledged; beyond it, none of its tasks is handed out until half of them are."""
MAX_CLIENTS: Final = 1_000
"""Keys of clients that have not closed their session."""


class DurableClient:
    """One client, by its key; its connection comes and goes.

    Attributes:
        submitter: as the broker knows it.
        blocks: of which not all results were acknowledged, by the id of their first task.
        kept: results that were not acknowledged, by block and index.
        unacknowledged: tasks of each block whose results were not.
        next_task: beyond all ids of tasks.
        next_object: beyond all of its objects.
        owner: of the process that is this client now; None: none is connected.
        outbox: the same, once that process was told what is kept.
    """

    def __init__(self, key: str, journal: Journal, note_kept: Callable[[DurableClient], None]) -> None:
        """
        Args:
            note_kept: called when it has more results to receive.
        """
        self.key = key
        self.submitter: Submitter
        self.blocks: dict[int, SubmitTasks] = {}
        self.kept: dict[tuple[int, int], TaskResults] = {}
        self.unacknowledged: dict[int, int] = {}
        self.acknowledged: dict[int, list[tuple[int, int]]] = {}
        """Of blocks that are not all acknowledged: index and number."""
        self.next_task = 0
        self.next_object = 0
        self.kept_bytes = 0
        self.owner: Outbox | None = None
        self.outbox: Outbox | None = None
        self._journal = journal
        self._note_kept = partial(note_kept, self)

    # ── as the broker's outbox ────────────────────────────────────────────────────────────────────────────────────

    def send_nowait(self, frame: Frame) -> None:
        """Send it once what it follows from is journalled."""
        if isinstance(frame, TaskResults):
            self.keep(frame)
            self._note_kept()
            self._journal.append(Kind.ANSWERED, self.submitter.number, frame)
        self._journal.after_commit(lambda: self._send(frame))

    def _send(self, frame: Frame) -> None:
        if self.outbox is not None:
            self.outbox.send_nowait(frame)

    # ── what arrives ──────────────────────────────────────────────────────────────────────────────────────────────

    def knows(self, frame: SubmitTasks) -> bool:
        """Whether it was received before."""
        return frame.first < self.next_task

    def note_block(self, frame: SubmitTasks) -> None:
        count = len(frame.sizes) // 4
        self.blocks[frame.first] = frame
        self.unacknowledged[frame.first] = count
        self.next_task = max(self.next_task, frame.first + count)

    def note_object(self, frame: StoreObject) -> None:
        self.next_object = max(self.next_object, (frame.ref & 0xFFFFFFFF) + 1)

    def keep(self, frame: TaskResults) -> None:
        if frame.block in self.blocks and (frame.block, frame.index) not in self.kept:
            self.kept[frame.block, frame.index] = frame
            self.kept_bytes += len(frame.payload)

    def acknowledge(self, frame: AcknowledgeResults) -> None:
        """Forget results that the client has."""
        for block, index in frame.results:
            found = self.kept.pop((block, index), None)
            if found is None:
                continue
            self.kept_bytes -= len(found.payload)
            count = len(found.statuses)
            self.unacknowledged[block] -= count
            self.acknowledged.setdefault(block, []).append((index, count))
            if not self.unacknowledged[block]:
                for kept in (self.blocks, self.unacknowledged, self.acknowledged):
                    kept.pop(block)

    # ── coming back ───────────────────────────────────────────────────────────────────────────────────────────────

    def attach(self, outbox: Outbox) -> None:
        """It came, or came back: tell it what is kept for it, unless it is gone already."""
        if self.owner is not outbox:
            return
        ranges = [one for block in self.blocks for one in self._missing(block)]
        for at in range(0, len(ranges) or 1, MAX_CANCELLED):
            part = tuple(ranges[at : at + MAX_CANCELLED])
            outbox.send_nowait(
                KeptTasks(
                    tasks=part,
                    more=at + MAX_CANCELLED < len(ranges),
                    next_task=self.next_task,
                    next_object=self.next_object,
                )
            )
        kept = list(self.kept.values())

        def begin() -> None:
            if self.owner is not outbox:
                return
            self.outbox = outbox
            for frame in kept:
                outbox.send_nowait(frame)

        self._journal.after_commit(begin)

    def _missing(self, block: int) -> list[tuple[int, int, int]]:
        """Block, index and number of tasks that are not acknowledged."""
        at, found = 0, []
        for index, count in sorted(self.acknowledged.get(block, [])):
            if at < index:
                found.append((block, at, index - at))
            at = index + count
        total = len(self.blocks[block].sizes) // 4
        return [*found, (block, at, total - at)] if at < total else found


class DurableClients:
    """All of them."""

    def __init__(self, broker: Broker, journal: Journal) -> None:
        self._broker = broker
        self._journal = journal
        self._clients: dict[str, DurableClient] = {}
        broker.ledger = self

    def open(self, key: str) -> DurableClient:
        """A client came with its key.

        Raises:
            DeniedError: there are too many.
        """
        client = self._clients.get(key)
        if client is None:
            if len(self._clients) >= MAX_CLIENTS:
                raise DeniedError(f"{MAX_CLIENTS} clients have not closed their session yet")
            client = self._clients[key] = DurableClient(key, self._journal, self._note_kept)
            client.submitter = self._broker.add_submitter(client)
            self._journal.append(Kind.CLIENT, client.submitter.number, key.encode())
        return client

    def take_over(self, client: DurableClient, outbox: Outbox) -> Outbox | None:
        """A process is this client from now on; returns the outbox of the one that was."""
        former, client.owner, client.outbox = client.owner, outbox, None
        if former is not None:
            self._drop_incomplete(client)
        return former

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call this once all that clients have sent so far is on the disk."""
        self._journal.after_commit(call)

    def receive(self, client: DurableClient, frame: Frame, now_ms: int) -> None:
        """Act on a frame of a client, unless it was received before.

        Raises: as the broker.
        """
        submitter = client.submitter
        match frame:
            case SubmitTasks():
                if client.knows(frame):
                    submitter.acknowledged = False  # whoever sends it again waits for a word as for the first time
                    return
                self._broker.submit(submitter, frame, now_ms)
                client.note_block(frame)
                self._journal.append(Kind.SENT, submitter.number, frame)
            case StoreObject():
                if self._broker.has_object(submitter, frame.ref):
                    return
                self._broker.store_object(submitter, frame)
                client.note_object(frame)
                self._journal.append(Kind.SENT, submitter.number, frame)
            case DropObjects():
                self._broker.drop_objects(submitter, frame)
                self._journal.append(Kind.SENT, submitter.number, frame)
            case AcknowledgeResults():
                client.acknowledge(frame)
                self._journal.append(Kind.SENT, submitter.number, frame)
                if submitter.pressed and client.kept_bytes <= KEPT_BYTES // 2:
                    self._broker.press(submitter, on=False)
                    self._broker.dispatch(now_ms)
            case CancelTasks():
                self._broker.cancel(submitter, frame)

    def _note_kept(self, client: DurableClient) -> None:
        if client.kept_bytes > KEPT_BYTES:
            self._broker.press(client.submitter, on=True)

    def detach(self, client: DurableClient, outbox: Outbox) -> None:
        """Its connection is gone."""
        if client.owner is outbox:
            client.owner = client.outbox = None
            self._drop_incomplete(client)

    def _drop_incomplete(self, client: DurableClient) -> None:
        """Whoever comes back sends these again from the beginning; so the journal forgets the pieces, too."""
        for frame in drop_frames(self._broker.drop_incomplete(client.submitter)):
            self._journal.append(Kind.SENT, client.submitter.number, frame)

    def hand_out(self, submitter: Submitter, block: Block, start: int, end: int, send: Callable[[], None]) -> None:
        """As the broker's ledger: remember on the disk that these may have begun, then send them."""
        if not isinstance(submitter.outbox, DurableClient):
            send()
            return
        self._journal.append(Kind.BEGUN, submitter.number, Part(block.frame.first, start, end).encode())
        self._journal.after_commit(send)

    def take_back(self, submitter: Submitter, tasks: TaskRange) -> None:
        """As the broker's ledger: these may be sent again."""
        if isinstance(submitter.outbox, DurableClient):
            part = Part(tasks.block.frame.first, tasks.start, tasks.end)
            self._journal.append(Kind.RETURNED, submitter.number, part.encode())

    def close(self, client: DurableClient) -> None:
        """It has closed its session."""
        self._journal.append(Kind.LEFT, client.submitter.number, b"")
        del self._clients[client.key]
        self._broker.remove_submitter(client.submitter)

    @property
    def attached(self) -> bool:
        """Whether one is connected, or has tasks that run or will."""
        return any(client.owner is not None or _has_work(client.submitter) for client in self._clients.values())

    @property
    def keeps_results(self) -> bool:
        """Whether there are tasks whose results were not acknowledged."""
        return any(client.blocks for client in self._clients.values())

    # ── the journal ───────────────────────────────────────────────────────────────────────────────────────────────

    def restore(self, records: list[Record], now_ms: int) -> None:
        """Take up what an earlier broker has left; tasks without a result wait again."""
        by_number: dict[int, DurableClient] = {}
        objects: dict[int, dict[int, list[StoreObject]]] = {}
        begun: dict[tuple[int, int], set[int]] = {}
        for record in records:
            if record.kind is Kind.CLIENT:
                client = DurableClient(record.body.decode(), self._journal, self._note_kept)
                client.submitter = self._broker.add_submitter(client, number=record.client)
                by_number[record.client] = client
                objects[record.client] = {}
                continue
            found = by_number.get(record.client)
            if found is None:
                continue
            if record.kind is Kind.LEFT:
                self._broker.remove_submitter(by_number.pop(record.client).submitter)
                continue
            if record.kind in (Kind.BEGUN, Kind.RETURNED):
                part = Part.decode(record.body)
                indexes = begun.setdefault((record.client, part.block), set())
                which = range(part.start, part.end)
                (indexes.update if record.kind is Kind.BEGUN else indexes.difference_update)(which)
                continue
            match SESSIONS.decode(record.body):
                case SubmitTasks() as frame if not found.knows(frame):
                    found.note_block(frame)
                case StoreObject() as frame:
                    found.note_object(frame)
                    pieces = objects[record.client].setdefault(frame.ref, [])
                    if pieces and not pieces[-1].more:
                        pieces.clear()
                    pieces.append(frame)
                case DropObjects() as frame:
                    for ref in frame.refs:
                        objects[record.client].pop(ref, None)
                case AcknowledgeResults() as frame:
                    found.acknowledge(frame)
                case TaskResults() as frame:
                    found.keep(frame)
        for number, client in by_number.items():
            self._clients[client.key] = client
            for pieces in objects[number].values():
                for piece in pieces:
                    self._broker.store_object(client.submitter, piece)
            self._broker.drop_incomplete(client.submitter)
            for first, block in client.blocks.items():
                ended = [(index, len(frame.statuses)) for (of, index), frame in client.kept.items() if of == first]
                ended += client.acknowledged.get(first, [])
                may_run = frozenset(begun.get((number, first), ()))
                self._broker.restore_block(client.submitter, block, ended, now_ms, may_run)
            self._note_kept(client)

    def snapshot(self) -> list[bytes]:
        """The records of what is still needed."""
        records: list[bytes] = []
        for client in self._clients.values():
            number = client.submitter.number
            records.append(encode_record(Kind.CLIENT, number, client.key.encode()))
            for pieces in client.submitter.objects.values():
                records += [encode_record(Kind.SENT, number, piece) for piece in pieces]
            for block in client.blocks.values():
                records.append(encode_record(Kind.SENT, number, block))
            for held in client.submitter.blocks.values():
                if held.frame.once:
                    for start, end in held.ranges(SENT):
                        records.append(encode_record(Kind.BEGUN, number, Part(held.frame.first, start, end).encode()))
            for block_id, parts in client.acknowledged.items():
                for index, count in parts:
                    done = TaskResults(
                        block=block_id, index=index, statuses=bytes(count), sizes=bytes(4 * count), payload=b""
                    )
                    records.append(encode_record(Kind.ANSWERED, number, done))
                    told = AcknowledgeResults(results=((block_id, index),))
                    records.append(encode_record(Kind.SENT, number, told))
            records += [encode_record(Kind.ANSWERED, number, frame) for frame in client.kept.values()]
        return records


def _has_work(submitter: Submitter) -> bool:
    return submitter.unanswered > (submitter.waiting_tasks if submitter.pressed else 0)
