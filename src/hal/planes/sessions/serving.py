"""Serves a broker's connections: who may open the session, and frames in and out of the broker."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from hal.core.interfaces.directory import Directory
from hal.core.model.errors import DeniedError, HALError, OverloadedError, SpecError
from hal.planes.sessions.broker import LATE_MS, Broker
from hal.planes.sessions.durable import DurableClient, DurableClients
from hal.planes.sessions.files import LANE, serve_files
from hal.planes.sessions.journal import COMPACT_BYTES, Journal
from hal.planes.sessions.outflow import FlowBounds, Outflow
from hal.planes.sessions.slots import Slot
from hal.planes.sessions.spill import Spill
from hal.runtime.interface import Connection, Runtime
from hal.runtime.payload_files import PayloadFiles
from hal.wire.agree import agree_version
from hal.wire.frames.conversation import WIRE_VERSION, Frame
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import (
    CLIENT_REPLACED,
    SESSION_CLOSED,
    AcknowledgeResults,
    AskFailures,
    AskNumbers,
    CancelTasks,
    DropObjects,
    EndSession,
    LeaveSlot,
    MoveSlots,
    OpenSession,
    RetireSlots,
    SessionNumbers,
    SessionOpened,
    StoreObject,
    SubmitTasks,
    TaskGoesOn,
    TasksDone,
    TasksReturned,
    TaskWaits,
)
from hal.wire.roles import Role

HELLO_MS: Final = 10_000
"""How long a process may take to open the session."""
ACKNOWLEDGE_MS: Final = 1
"""A block to which nothing was answered meanwhile is confirmed after so long."""
DEATH_MS: Final = 2_500
"""How long the worker that replaces one that died may take to say how that one ended; longer than the longest pause
before it is started."""
MAX_SLOTS: Final = 4_096
MAX_SUBMITTERS: Final = 4_096
MAX_FILE_CONNECTIONS: Final = MAX_SLOTS + MAX_SUBMITTERS
"""For payloads; each process of another machine has one."""


class SessionTerms(NamedTuple):
    """What a broker must know of its session."""

    id: str
    token: str
    directory: str = ""
    """For payloads by reference, on this node; '' if there is none."""
    journal: Directory | None = None
    """Of a durable session."""
    place: str = ""
    """What the file `broker.lock` in the directory for payloads says."""
    files: PayloadFiles | None = None
    """Of that directory, for processes of other machines."""
    waiting: Directory | None = None
    """For what waits for processes that read slowly; None: all of it is kept in memory."""
    flow: FlowBounds = FlowBounds()
    """How much of that there may be."""
    compact_bytes: int = COMPACT_BYTES
    """See `Journal`."""
    shapes: tuple[str, ...] = ()
    """Of its slots, beside that of the session itself."""


class BrokerService:
    """One session's broker, served on any number of addresses."""

    def __init__(self, runtime: Runtime, terms: SessionTerms) -> None:
        self.broker = Broker(terms.shapes)
        self.broker.forget_client = self._forget_client
        self._runtime = runtime
        self._terms = terms
        self._spill = Spill(runtime, terms.waiting)
        self._durable: DurableClients | None = None
        self._connections: dict[Connection, None] = {}
        self._file_connections = 0
        self._looks_for_late = False
        self._since_ms = runtime.monotonic_ms()
        self.broken = ""
        """Why the session cannot go on: its journal cannot be written."""
        self.ended = False
        """A client has said that the session is over."""
        self.last_client_ms = runtime.monotonic_ms()
        """When the last client left, or this broker began, if there is none now."""

    async def restore(self) -> None:
        """Read the journal of a durable session, and begin a new one; before anybody is served.

        Raises:
            OSError: it cannot be read or written.
        """
        if self._terms.journal is None:
            return
        journal = Journal(
            self._runtime, self._terms.journal, self._note_broken, compact_bytes=self._terms.compact_bytes
        )
        records = await self._runtime.run_blocking(journal.read)
        durable = DurableClients(self.broker, journal)
        durable.restore(records, self._runtime.monotonic_ms())
        await journal.begin(durable.snapshot)
        self._durable = durable
        if self._terms.files is not None:
            await self._runtime.run_blocking(
                partial(self._terms.files.remove_others, set(self.broker.submitters)), LANE
            )

    def _note_broken(self, error: OSError) -> None:
        assert self._terms.journal is not None
        self.broken = f"the journal {self._terms.journal.label} cannot be written: {error.strerror or error}"
        self._runtime.stop(self.broken)

    def numbers(self, *, each: bool = False) -> SessionNumbers:
        """How the session goes.

        Args:
            each: of each slot, too.
        """
        now_ms = self._runtime.monotonic_ms()
        return self.broker.numbers(now_ms, now_ms - self._since_ms, each=each)

    @property
    def keeps_results(self) -> bool:
        """Whether a client of a durable session may come back for what it was not told."""
        return self._durable is not None and self._durable.keeps_results

    @property
    def has_clients(self) -> bool:
        """Whether somebody else than tasks may submit, or waits for tasks."""
        if self._durable is not None and self._durable.attached:
            return True
        return any(
            not one.worker and not isinstance(one.outbox, DurableClient) for one in self.broker.submitters.values()
        )

    async def serve(self, connection: Connection) -> None:
        """Serve one connection until it closes; see `OnConnect`.

        Raises:
            DeniedError: it may not open this session.
            SpecError, OverloadedError: it broke the rules.
        """
        hello = await self._opened(connection)
        self._connections[connection] = None
        try:
            if hello.files and self._terms.files is not None:
                await self._serve_files(connection, self._terms.files)
            elif hello.role is Role.CLIENT and hello.client and self._durable is not None:
                await self._serve_durable(connection, hello.client, self._durable)
            elif hello.role is Role.CLIENT:
                await self._serve_client(connection, hello.worker)
            else:
                await self._serve_worker(connection, hello)
        finally:
            del self._connections[connection]

    def close(self, reason: str, code: str = SESSION_CLOSED) -> None:
        """Say goodbye to everybody: workers end, and what clients wait for fails, unless the session only pauses."""
        for connection in list(self._connections):
            if not connection.closed:
                connection.send_nowait(Goodbye(code=code, reason=reason))
                connection.close()

    async def _opened(self, connection: Connection) -> OpenSession:
        hello = await connection.receive(HELLO_MS)
        if not isinstance(hello, OpenSession):
            raise SpecError("the first frame must open the session")
        agree_version(hello.versions)
        known = hmac.compare_digest(hello.token.encode(), self._terms.token.encode())
        if not known or hello.session != self._terms.id:
            raise DeniedError("this is not the token of this session")
        if hello.role not in (Role.CLIENT, Role.WORKER):
            raise DeniedError(f"a broker does not serve a {hello.role}")
        if hello.files and self._terms.files is not None:
            full, most = self._file_connections, MAX_FILE_CONNECTIONS
        elif hello.role is Role.CLIENT:
            full, most = len(self.broker.submitters), MAX_SUBMITTERS
        else:
            full, most = len(self.broker.slots), MAX_SLOTS
        if full >= most:
            raise DeniedError(f"this session has {full} processes of the kind already")
        return hello

    async def _serve_client(self, connection: Connection, worker: int) -> None:
        broker = self.broker

        def press(pressed: bool) -> None:
            broker.press(submitter, on=pressed)
            if not pressed:
                broker.dispatch(self._runtime.monotonic_ms())

        def forget() -> None:
            if submitter.number in broker.submitters:
                broker.remove_submitter(submitter)

        outflow = Outflow(
            self._runtime,
            connection,
            self._spill,
            self._terms.flow,
            pressed=press,
            failed=lambda: self._runtime.call_later(0, forget),  # it may be in the middle of its tasks
        )
        submitter = broker.add_submitter(outflow, worker)
        connection.send_nowait(self._welcome(submitter.number))
        acknowledging = False

        def acknowledge() -> None:
            nonlocal acknowledging
            acknowledging = False
            broker.acknowledge(submitter)

        try:
            while (frame := await connection.receive()) is not None:
                if outflow.failed:
                    continue
                match frame:
                    case SubmitTasks():
                        broker.submit(submitter, frame, self._runtime.monotonic_ms())
                        if not acknowledging:
                            acknowledging = True
                            self._runtime.call_later(ACKNOWLEDGE_MS, acknowledge)
                    case StoreObject():
                        broker.store_object(submitter, frame)
                    case DropObjects():
                        broker.drop_objects(submitter, frame)
                    case CancelTasks():
                        broker.cancel(submitter, frame)
                    case AskNumbers():
                        submitter.asks = True
                        outflow.send_nowait(self.numbers(each=frame.slots))
                    case AskFailures():
                        found = broker.measures.failures(self._runtime.monotonic_ms(), frame.tag, frame.function)
                        outflow.send_nowait(found)
                    case RetireSlots():
                        broker.retire(frame.keep, frame.shape)
                    case MoveSlots():
                        broker.move(frame.count, frame.shape, frame.shard)
                    case EndSession():
                        self.ended = True
                        self._runtime.stop("a client has ended the session")
                    case Goodbye():
                        return
                    case _:
                        raise SpecError(f"a client does not send {type(frame).__name__}")
                self._look_for_late()
        finally:
            forget()
            if not self.has_clients:
                self.last_client_ms = self._runtime.monotonic_ms()

    async def _serve_durable(self, connection: Connection, key: str, clients: DurableClients) -> None:
        outbox = _Outbox(connection)
        client = clients.open(key)
        former = clients.take_over(client, outbox)
        if isinstance(former, _Outbox):
            former.close(Goodbye(code=CLIENT_REPLACED, reason="another process has come as this client"))

        def welcome() -> None:
            if connection.closed:
                return
            outbox.send_nowait(self._welcome(client.submitter.number))
            client.attach(outbox)

        clients.after_commit(welcome)  # it comes back by its number
        acknowledging = False

        def acknowledge() -> None:
            nonlocal acknowledging
            acknowledging = False
            self.broker.acknowledge(client.submitter)

        try:
            while (frame := await connection.receive()) is not None:
                if client.owner is not outbox:
                    return  # what it has sent before it was closed
                match frame:
                    case SubmitTasks():
                        clients.receive(client, frame, self._runtime.monotonic_ms())
                        if not acknowledging:
                            acknowledging = True
                            self._runtime.call_later(ACKNOWLEDGE_MS, acknowledge)
                    case StoreObject() | DropObjects() | CancelTasks() | AcknowledgeResults():
                        clients.receive(client, frame, self._runtime.monotonic_ms())
                    case Goodbye():
                        clients.close(client)
                        return
                    case _:
                        raise SpecError(f"a client does not send {type(frame).__name__}")
                self._look_for_late()
        finally:
            clients.detach(client, outbox)
            if not self.has_clients:
                self.last_client_ms = self._runtime.monotonic_ms()

    async def _serve_worker(self, connection: Connection, hello: OpenSession) -> None:
        broker = self.broker
        outbox = Outflow(self._runtime, connection, self._spill, self._terms.flow, failed=connection.abort)
        if hello.former:
            broker.explain_death(hello.former, hello.name, hello.death, self._runtime.monotonic_ms())
        slot: Slot = broker.add_slot(
            hello.name, outbox, self._runtime.monotonic_ms(), hello.task, shape=hello.shape, worker=hello.first
        )
        connection.send_nowait(self._welcome(slot.number))
        broker.dispatch(self._runtime.monotonic_ms())
        try:
            while (frame := await connection.receive()) is not None:
                match frame:
                    case TasksDone():
                        broker.finish(slot, frame, self._runtime.monotonic_ms())
                    case TaskWaits():
                        broker.note_waiting(slot, frame.run, self._runtime.monotonic_ms(), waits=True)
                    case TaskGoesOn():
                        broker.note_waiting(slot, frame.run, self._runtime.monotonic_ms(), waits=False)
                    case TasksReturned():
                        broker.return_tasks(slot, frame, self._runtime.monotonic_ms())
                    case LeaveSlot():
                        broker.leave(slot)
                    case Goodbye():
                        return
                    case _:
                        raise SpecError(f"a worker does not send {type(frame).__name__}")
                self._look_for_late()
        finally:
            if broker.remove_slot(slot, self._runtime.monotonic_ms(), explained=hello.replaced):
                self._runtime.call_later(DEATH_MS, partial(self._give_up_on, slot))

    async def _serve_files(self, connection: Connection, files: PayloadFiles) -> None:
        self._file_connections += 1
        try:
            connection.send_nowait(self._welcome(0))
            await serve_files(self._runtime, connection, files)
        finally:
            self._file_connections -= 1

    def _forget_client(self, number: int) -> None:
        """Remove the payloads of a client that is gone; who still reads one has it open."""
        files = self._terms.files
        if files is not None:
            self._runtime.spawn_task(self._remove(partial(files.remove_of, number)), "payloads")

    async def _remove(self, remove: Callable[[], None]) -> None:
        with suppress(OverloadedError):  # the next broker, or the end of the session, removes them
            await self._runtime.run_blocking(remove, LANE)

    def _give_up_on(self, slot: Slot) -> None:
        """No worker came that knows how this one ended."""
        self.broker.explain_death(slot.number, slot.name, "", self._runtime.monotonic_ms())

    def _welcome(self, number: int) -> SessionOpened:
        broker = self.broker
        return SessionOpened(
            version=WIRE_VERSION,
            number=number,
            window_tasks=broker.window_tasks,
            window_bytes=broker.window_bytes,
            directory=self._terms.directory,
            place=self._terms.place,
        )

    def _look_for_late(self) -> None:
        if not self._looks_for_late and self.broker.idle_beside_work:
            self._looks_for_late = True
            self._runtime.call_later(LATE_MS, self._recall_late)

    def _recall_late(self) -> None:
        self._looks_for_late = False
        if self.broker.recall_late(self._runtime.monotonic_ms()):
            self._looks_for_late = True
            self._runtime.call_later(LATE_MS, self._recall_late)


class _Outbox:
    """Frames to one process; one that does not read is disconnected, and its end is noticed where it is served."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send_nowait(self, frame: Frame) -> None:
        try:
            self._connection.send_nowait(frame)
        except HALError:
            self._connection.abort()

    def close(self, goodbye: Goodbye) -> None:
        self.send_nowait(goodbye)
        self._connection.close()
