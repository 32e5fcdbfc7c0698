"""Requests and answers as values, and the pool of connections that carries them (http.client over Unix or TCP sockets).

Thread-safe: at most `MAX_CONNECTIONS` requests are under way at once, others wait. A request that may be repeated
(reads, and writes that carry an idempotency key) is tried again while a controller restarts, for `reconnect_s`.
"""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType

from hal.client.address import Address
from hal.client.backoff import Turn
from hal.client.errors import BROKE_OFF, ENDING, NO_LEADER, error_from_answer
from hal.client.pacing import PacedResponse, StreamedResponse
from hal.client.places import Place, Rotation, Search
from hal.core.model.errors import ConflictError, HALError, InternalError, UnreachableError

MAX_CONNECTIONS = 16
"""Requests under way at once in one client."""
MAX_STREAMS = 256
"""Followed logs and event feeds open at once in one client."""
ANSWER_TIMEOUT_S = 30.0
"""How long a controller may take to answer, beyond what the request itself asks to wait."""
STREAM_TIMEOUT_S = 60.0
"""A stream that is silent for longer is opened again where it stopped."""
RECONNECT_S = 30.0
"""How long requests are tried again after a controller that answered before stopped answering."""
CHUNK_BYTES = 64 << 10
MAX_ANSWER_BYTES = 128 << 20
"""Of one answer that is not a stream: as much as the largest request that a controller takes."""
TOO_MANY = 429
"""The status that says to come again later."""

LOST = UnreachableError("nobody leads")
"""Why a request is sent again that a follower could not pass on."""

_BROKEN = (ConnectionError, http.client.HTTPException, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    """Sending it twice does what sending it once does."""
    wait_s: float = 0.0
    """How long the controller was asked to wait before it answers."""

    @property
    def target(self) -> str:
        """Path and query as sent."""
        if not self.query:
            return self.path
        from urllib.parse import urlencode

        return f"{self.path}?{urlencode(self.query)}"

    def all_headers(self, address: Address, place: Place | None) -> dict[str, str]:
        """With those that every request to this controller carries."""
        headers = {
            "Host": place.name if place is not None else "localhost",
            "Accept": "application/json",
            "Accept-Encoding": "identity",  # what is unpacked has no bound
            **self.headers,
        }
        if self.body is not None:
            headers["Content-Type"] = "application/json"
        if address.token:
            headers["Authorization"] = f"Bearer {address.token}"
        return headers


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class BrokenStreamError(HALError):
    """A stream ended before its end was announced; opened again where it stopped, nothing is lost."""

    code = "broken-stream"


class _Connection(http.client.HTTPConnection):
    """An HTTP connection over whatever socket the address gives."""

    response_class: type[PacedResponse] = PacedResponse

    def __init__(self, address: Address, place: Place | None, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self.place = place
        self._address = address
        self._timeout_s = timeout_s

    def connect(self) -> None:
        self.sock: socket.socket = self._address.connect(self._timeout_s, self.place)

    @property
    def stale(self) -> bool:
        """The other side has closed it (or sent what nobody asked for)."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))


class Stream:
    """An answer that is read as it comes. Close it, or use it as a context manager."""

    def __init__(
        self, connection: _Connection, response: http.client.HTTPResponse, on_close: threading.Semaphore
    ) -> None:
        self._connection = connection
        self._response = response
        self._on_close: threading.Semaphore | None = on_close
        self.headers = {name.lower(): value for name, value in response.getheaders()}

    def __iter__(self) -> Iterator[bytes]:
        """Bytes as they come, until the announced end.

        Raises:
            BrokenStreamError: the connection broke before that, or was silent for `STREAM_TIMEOUT_S`.
        """
        while True:
            try:
                chunk = self._response.read1(CHUNK_BYTES)
            except (*_BROKEN, ValueError) as error:  # ValueError: what frames it is malformed
                raise BrokenStreamError(f"the stream broke off: {error}") from error
            if not chunk:
                if not self._complete():
                    raise BrokenStreamError("the stream broke off")
                return
            yield chunk

    def _complete(self) -> bool:
        # `length` counts down to 0 when the size was announced; a chunked answer ends by an exception when it is cut.
        return not self._response.length

    def close(self) -> None:
        """Closing twice does nothing."""
        if self._on_close is not None:
            self._connection.close()
            self._on_close.release()
            self._on_close = None

    def interrupt(self) -> None:
        """Make a reader in another thread stop, as if the connection had broken."""
        with contextlib.suppress(OSError):
            if self._connection.sock is not None:
                self._connection.sock.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def read_whole(response: http.client.HTTPResponse) -> bytes:
    """The body.

    Raises:
        InternalError: it is longer than `MAX_ANSWER_BYTES`; no more of it was kept.
    """
    length = response.length or 0
    try:
        body = b"" if length > MAX_ANSWER_BYTES else response.read(MAX_ANSWER_BYTES + 1)
    except ValueError as error:
        raise http.client.HTTPException(f"the answer is malformed: {error}") from error
    if length > MAX_ANSWER_BYTES or len(body) > MAX_ANSWER_BYTES:
        raise too_long()
    if response.length:  # read(n) gives what there was; read() would have said that some is missing
        raise http.client.IncompleteRead(body, response.length)
    return body


def too_long() -> InternalError:
    """Of an answer that has no end, or none that anybody would wait for."""
    return InternalError(
        f"the controller's answer is longer than {MAX_ANSWER_BYTES >> 20} MiB", hint="is it a controller of HAL?"
    )


def again(request: Request, status: int, body: bytes) -> bool:
    """Whether no leader has answered, but a follower or one that ended, and the request may be sent again."""
    if status not in (502, 503):
        return False
    code = error_from_answer(status, body).code
    return code == NO_LEADER or (code in (BROKE_OFF, ENDING) and request.repeatable)


def refuse_closed(closed: bool) -> None:
    """Nothing is sent by a client that was closed.

    Raises:
        ConflictError: it was.
    """
    if closed:
        raise ConflictError("this client was closed", hint="make another one with hal.connect()")


class Connections:
    """The pool."""

    def __init__(self, address: Address, *, reconnect_s: float = RECONNECT_S) -> None:
        self.address = address
        self.reconnect_s = reconnect_s
        self._idle: list[_Connection] = []
        self._rotation = Rotation(address.places)
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._streams = threading.BoundedSemaphore(MAX_STREAMS)
        self._answered = False
        self.closed = False

    def send(self, request: Request) -> Answer:
        """The answer to a request.

        Raises:
            ConflictError: the client was closed.
            UnreachableError: no controller answers; for one that answered this client before, `reconnect_s` were spent.
            HALError: what the controller's problem document says.
        """
        refuse_closed(self.closed)
        turn = Turn()
        search = Search(self._rotation, answered=self._answered, reconnect_s=self.reconnect_s)
        while True:
            place = self._rotation.current
            try:
                answer = self._send_once(request, place)
                if answer.status == TOO_MANY:
                    # Nothing was done: any request may be sent again.
                    delay_s = turn.refused(answer.headers.get("retry-after"))
                elif not again(request, answer.status, answer.body):
                    break
                else:
                    # Nobody leads at the moment, or the leader was lost: another takes over within seconds.
                    delay_s = search.failed(place, LOST, time.monotonic(), reached=True)
                if delay_s is None:
                    break
            except UnreachableError as error:
                delay_s = search.failed(place, error, time.monotonic())
                if delay_s is None:
                    raise search.error(error) from error
            except _BROKEN as error:
                broken = self._broken(request, place, error)
                delay_s = search.failed(place, broken, time.monotonic(), reached=True) if request.repeatable else None
                if delay_s is None:
                    raise broken from error
            time.sleep(delay_s)
        self._answered = True
        self._rotation.answered(place)
        if answer.status >= 400:
            raise error_from_answer(answer.status, answer.body)
        return answer

    def stream(self, request: Request) -> Stream:
        """An answer that is read as it comes; the caller closes it and opens it again when it breaks.

        Raises:
            as `send`.
        """
        refuse_closed(self.closed)
        search = Search(self._rotation, answered=self._answered, reconnect_s=self.reconnect_s)
        while True:
            place = self._rotation.current
            try:
                return self._stream_once(request, place)
            except UnreachableError as error:
                delay_s = search.failed(place, error, time.monotonic(), reached=self._answered)
                if delay_s is None:
                    raise search.error(error) from error
            except _BROKEN as error:
                broken = self._broken(request, place, error)
                delay_s = search.failed(place, broken, time.monotonic(), reached=True)
                if delay_s is None:
                    raise broken from error
            time.sleep(delay_s)

    def close(self) -> None:
        """Close what is idle; requests under way finish and close theirs."""
        with self._lock:
            self.closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _send_once(self, request: Request, place: Place | None) -> Answer:
        with self._slots:
            connection = self._take(place, ANSWER_TIMEOUT_S + request.wait_s)
            try:
                response = self._exchange(connection, request)
                body = read_whole(response)
            except BaseException:
                connection.close()
                raise
            headers = {name.lower(): value for name, value in response.getheaders()}
            self._give(connection, reusable=not response.will_close)
            return Answer(response.status, headers, body)

    def _stream_once(self, request: Request, place: Place | None) -> Stream:
        self._streams.acquire()
        connection = _Connection(self.address, place, STREAM_TIMEOUT_S)
        connection.response_class = StreamedResponse
        try:
            response = self._exchange(connection, request)
            self._answered = True
            if response.status >= 400:
                raise error_from_answer(response.status, read_whole(response))
        except BaseException:
            connection.close()
            self._streams.release()
            raise
        return Stream(connection, response, self._streams)

    def _exchange(self, connection: _Connection, request: Request) -> http.client.HTTPResponse:
        headers = request.all_headers(self.address, connection.place)
        connection.request(request.method, request.target, body=request.body, headers=headers)
        return connection.getresponse()

    def _take(self, place: Place | None, timeout_s: float) -> _Connection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return _Connection(self.address, place, timeout_s)
            if connection.place == place and not connection.stale:
                connection.sock.settimeout(timeout_s)
                return connection
            connection.close()

    def _give(self, connection: _Connection, *, reusable: bool) -> None:
        with self._lock:
            if reusable and not self.closed:
                self._idle.append(connection)
                return
        connection.close()

    def _broken(self, request: Request, place: Place | None, error: Exception) -> UnreachableError:
        what = f"{request.method} {request.path}"
        if place is not None and not place.tls and not self._answered:
            from hal.client.trust import refuse_plain

            refuse_plain(place)
        if isinstance(error, TimeoutError):
            return UnreachableError(
                f"the controller did not answer {what} within {ANSWER_TIMEOUT_S + request.wait_s:.0f} s",
                hint="see its log, log/controller.log in HAL_HOME",
            )
        if not request.repeatable:
            return UnreachableError(
                f"the connection broke before {what} was answered: it may or may not have been done",
                hint="look before you try again: hal jobs",
            )
        return self.address.unreachable(f"the connection broke ({error or type(error).__name__})", place)
