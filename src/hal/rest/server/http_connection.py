"""One connection of REST: uvicorn's HTTP protocol with a bound on all that its peer may send, keep or leave unread.

Bytes that are no body (heads, chunk lines, trailers) are counted here; time is the matter of `Connections`, in whose
tables a connection stands while it sends a head or a body, while it is idle, and while it does not read its answer.
"""

from __future__ import annotations

import asyncio
import enum
from typing import Any, Final

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from hal.core.model import HALError, SpecError
from hal.rest.callers import LocalPeer
from hal.rest.errors import HeadersError, TooLargeError
from hal.rest.identity import Identity
from hal.rest.problems import PROBLEM_JSON, RETRY_AFTER_S, problem_of
from hal.rest.server.connections import Connections, TrackedConnection
from hal.runtime.sockets import unread_bytes

MAX_HEADERS: Final = 100
MAX_HEAD_BYTES: Final = 64 << 10
"""Of request line and headers, and of trailers: beyond the piece in which they began (at most 256 KiB)."""
MAX_CHUNK_LINE_BYTES: Final = 1 << 20
"""Of chunk lines and their extensions in one body, beside one byte for each byte of it."""
MAX_PIPELINED: Final = 32
"""Requests that wait for the answer to an earlier one of their connection."""
UNADMITTED_BYTES: Final = 512 << 10
"""Of a body that nobody has admitted: what one read and uvicorn's flow control let pass before the guard has looked."""
LINGER_BYTES: Final = 64 << 10
"""Of a body that is read and thrown away after its request was answered; then the connection is closed."""


class Reading(enum.Enum):
    """What of a request is expected next."""

    NOTHING = enum.auto()
    """The last one is complete."""
    HEAD = enum.auto()
    BODY = enum.auto()
    """Or its trailers."""


class HttpConnection(HttpToolsProtocol):
    """See the module. The guard finds it in the request's scope: `state["connection"]`."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        shared: Connections,
        *,
        where: str,
        private: bool = False,
        peer: LocalPeer | None = None,
    ) -> None:
        """
        Args:
            where: the address or user id it comes from.
            private: it came over the socket in HAL's own directory.
            peer: as the kernel named it; None over TCP.
        """
        super().__init__(config, state, {"connection": self} if peer is None else {"connection": self, "peer": peer})
        self.where = where
        self.private = private
        self.user = ""
        """Whose requests were let in last; empty: a stranger so far."""
        self.accepted_s = self.loop.time()
        self.opening: asyncio.Task[Any] | None = None
        """Its TLS handshake, or what stands for it without TLS."""
        self.table: dict[TrackedConnection, int] | None = None
        """In which of the tables of `Connections` it stands, if in any."""
        self.body_bytes = 0
        """Of the request that is being read."""
        self.counted_bytes = 0
        """Of these: judged by `Connections` already."""
        self.unsent_bytes = 0
        """Of answers, when its peer was last seen not to read them."""
        self.held_bytes = 0
        """Of the answer that is sent: still to be handed over, piece by piece."""
        self.unsent_of = ""
        """The user to whom these are counted."""
        self._shared = shared
        self._dropped = False
        self._reading = Reading.NOTHING
        self._begun = False
        self._piece_body_bytes = 0
        self._may_read_bytes = UNADMITTED_BYTES
        self._other_bytes = 0
        self._since_body_bytes = 0
        self._answering: RequestResponseCycle | None = None

    # ── asyncio.Protocol ──────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A fault here is this connection's only."""
        try:
            super().connection_made(transport)
        except Exception as error:
            self._shared.note("closed a connection: it could not be opened", self.where, str(error))
            self._dropped = True
        if self._dropped:
            transport.abort()
        else:
            self._enter_table(self._shared.heads)

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever still works for it learns of it, also behind a pipelined request."""
        super().connection_lost(exc)
        self._disconnect()
        self._enter_table(None)
        self._shared.leave(self)

    def data_received(self, data: bytes) -> None:
        """Parse; then look whether it was too much."""
        self._begun = False
        self._piece_body_bytes = 0
        super().data_received(data)
        if self.transport.is_closing():
            self._note_closing()
            return
        if self._reading is Reading.BODY:
            self._enter_table(self._shared.bodies)
        elif self._reading is Reading.HEAD or self.cycle is None or self.cycle.response_complete:
            self._enter_table(self._shared.heads)
        else:
            self._enter_table(None)
        self._bound(len(data) - self._piece_body_bytes)

    def pause_writing(self) -> None:
        """Note that the peer reads more slowly than it is answered."""
        if not self.held_bytes:
            super().pause_writing()
        self._shared.stall(self)

    def resume_writing(self) -> None:
        """Note that the peer has read."""
        self._shared.unstall(self)
        super().resume_writing()

    # ── httptools ─────────────────────────────────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        """See httptools."""
        self._begun = True
        self._reading = Reading.HEAD
        self._may_read_bytes = UNADMITTED_BYTES
        self.body_bytes = self.counted_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """As uvicorn's; trailers, and headers that the guard refuses anyway, are not kept."""
        if self._reading is not Reading.HEAD or len(self.headers) > MAX_HEADERS:
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """See httptools."""
        self._reading = Reading.BODY
        if len(self.pipeline) >= MAX_PIPELINED:
            raise SpecError(f"more than {MAX_PIPELINED} requests wait on this connection")  # the parser ends it
        super().on_headers_complete()
        if self.pipeline:
            self.flow.resume_reading()  # its end must be seen, for the answer under way may be a stream

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        self._piece_body_bytes += len(body)
        self.body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        self._reading = Reading.NOTHING
        super().on_message_complete()

    # ── uvicorn ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """As uvicorn's, but for the timer: `Connections` closes what is idle."""
        if self.transport.is_closing():
            self._note_closing()
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._reading is Reading.NOTHING:
            self._enter_table(self._shared.idle_private if self.private else self._shared.idle)
        elif self._reading is Reading.BODY:
            self._may_read_bytes = self.body_bytes + LINGER_BYTES

    # ── the guard ─────────────────────────────────────────────────────────────────────────────────────────────────

    def identify(self, identity: Identity) -> None:
        """A request of theirs was let in.

        Raises:
            TooManyError: they have too many connections; this one is to be closed.
        """
        if self.user != identity.user:
            self._shared.identify(self, identity)

    def know_relay(self) -> None:
        """Note that it comes from one of our own, which passes requests on and has shown its secret."""
        self._shared.know_relay(self.where)

    def admit_body(self, limit: int) -> None:
        """Set how many bytes the body of the present request may have."""
        self._may_read_bytes = limit + UNADMITTED_BYTES

    def hold(self, left_bytes: int) -> None:
        """So much of an answer is made and not handed over: it counts as unread, and nobody waits with it for its peer,
        since as long as a request is answered its body counts as kept."""
        self.held_bytes = left_bytes
        if not left_bytes and self in self._shared.stalled:
            super().pause_writing()

    # ── Connections ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def closing(self) -> bool:
        """It is being closed."""
        return self.transport is not None and self.transport.is_closing()

    @property
    def waits_for_us(self) -> bool:
        """It is not read from at present, so its peer cannot be blamed for sending nothing."""
        return self.flow.read_paused

    @property
    def unread_bytes(self) -> int:
        """Of its answers: here, and in the kernel's hands."""
        buffered = int(self.transport.get_write_buffer_size())
        return self.held_bytes + buffered + unread_bytes(self.transport.get_extra_info("socket").fileno())

    def cut(self, error: HALError | None = None) -> None:
        """Close it, after an answer that says why where none has begun."""
        if self.transport is None or self.transport.is_closing():
            return
        answering = self._answering
        untouched = answering is None or answering.response_complete or not answering.response_started
        if error is not None and untouched and not self.flow.write_paused:
            self.transport.write(refusal(error))
        self._disconnect()
        self.transport.close()
        self._note_closing()

    def drop(self) -> None:
        """Close it at once, whatever it is doing."""
        self._dropped = True
        if self.transport is not None:
            self._disconnect()
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    # ── private ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _enter_table(self, table: dict[TrackedConnection, int] | None) -> None:
        """Stand in that table, from now on; not for the first time where it stands there already."""
        if self.table is table:
            return
        if self.table is not None:
            self.table.pop(self, None)
        self.table = table
        if table is not None:
            table[self] = self._shared.second
            self.counted_bytes = self.body_bytes

    def _note_closing(self) -> None:
        self._enter_table(None)
        self._shared.closing.setdefault(self, self._shared.second)

    def _disconnect(self) -> None:
        for cycle in (self._answering, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()

    def _bound(self, other_bytes: int) -> None:
        """Cut it where it has sent too much: of what is no body, or of a body that nobody wants."""
        if self._begun:
            self._other_bytes = self._since_body_bytes = 0
        else:
            self._other_bytes += other_bytes
            self._since_body_bytes = other_bytes + (0 if self._piece_body_bytes else self._since_body_bytes)
        if self._since_body_bytes > MAX_HEAD_BYTES:
            self._shared.note("closed a connection: its head or trailers are too long", self.where)
            self.cut(HeadersError(f"the head of the request, or its trailers, are longer than {MAX_HEAD_BYTES} bytes"))
        elif self._other_bytes > MAX_CHUNK_LINE_BYTES + self.body_bytes:
            self._shared.note("closed a connection: its chunk lines are too long", self.where)
            self.cut(HeadersError("the lines between the chunks of the request are longer than the chunks"))
        elif self.body_bytes > self._may_read_bytes and self._reading is Reading.BODY:
            self._shared.note("closed a connection: it sent a body that is not wanted", self.where)
            self.cut(TooLargeError("the request's body is not wanted, or longer than was admitted"))
        elif self.pipeline and self.flow.read_paused:
            self._shared.note("closed a connection: it sent a long body in advance", self.where)
            self.cut(TooLargeError("a body is sent before the request before it was answered"))


def refusal(error: HALError) -> bytes:
    """A whole answer, after which the connection is closed."""
    problem = problem_of(error)
    body = msgspec.json.encode(problem)
    later = f"Retry-After: {RETRY_AFTER_S}\r\n" if problem.status in (429, 503) else ""
    head = (
        f"HTTP/1.1 {problem.status} {problem.title}\r\nContent-Type: {PROBLEM_JSON}\r\n{later}"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
