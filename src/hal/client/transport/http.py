"""The transport of the sync client: a pool of connections over Unix or TCP sockets.

Thread-safe: at most `MAX_CONNECTIONS` requests are under way at once, others wait.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Mapping

from hal.client.addresses.address import Address
from hal.client.addresses.endpoints import Endpoint
from hal.client.transport.exchange import (
    ANSWER_TIMEOUT_S,
    MAX_ANSWER_BYTES,
    MAX_CONNECTIONS,
    MAX_STREAMS,
    RECONNECT_S,
    STREAM_TIMEOUT_S,
    Answer,
    BrokenConnectionError,
    BrokenStreamError,
    Request,
    too_long,
)
from hal.client.transport.http_answer import ERROR_STATUS, HttpAnswer, MalformedAnswerError
from hal.client.transport.problems import error_from_answer
from hal.client.transport.transport import Transport

_BROKEN = (MalformedAnswerError, OSError)


class _Connection:
    """An HTTP connection over whatever socket the address gives."""

    def __init__(self, address: Address, endpoint: Endpoint | None, timeout_s: float) -> None:
        self.endpoint = endpoint
        self.sock: socket.socket | None = None
        """None until the first request."""
        self._address = address
        self._timeout_s = timeout_s

    def ask(self, request: Request, *, whole: bool) -> HttpAnswer:
        """Send a request, and read the head of its answer.

        Raises:
            SpecError: it cannot be sent as HTTP; as `Request.sent`.
            UnreachableError, DeniedError: as `Address.connect`.
            MalformedAnswerError, OSError: the connection broke.
        """
        sent = request.sent(self._address, self.endpoint)
        if self.sock is None:
            self.sock = self._address.connect(self._timeout_s, self.endpoint)
        self.sock.sendall(sent)
        return HttpAnswer(self.sock, whole=whole)

    def set_timeout(self, timeout_s: float) -> None:
        """For the next request."""
        self._timeout_s = timeout_s
        if self.sock is not None:
            self.sock.settimeout(timeout_s)

    def close(self) -> None:
        """Closing twice does nothing."""
        if self.sock is not None:
            self.sock.close()

    def interrupt(self) -> None:
        """Make a reader in another thread stop, as if the connection had broken."""
        with contextlib.suppress(OSError):
            if self.sock is not None:
                self.sock.shutdown(socket.SHUT_RDWR)

    @property
    def stale(self) -> bool:
        """The other side has closed it (or sent what nobody asked for)."""
        if self.sock is None:
            return False
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))


class SocketStream:
    """An answer that is read as it comes."""

    def __init__(self, connection: _Connection, answer: HttpAnswer, on_close: threading.Semaphore) -> None:
        self._connection = connection
        self._pieces = answer.pieces()
        self._on_close: threading.Semaphore | None = on_close
        self.headers: Mapping[str, str] = answer.headers

    def read(self) -> bytes | None:
        """As `Stream.read`."""
        try:
            return next(self._pieces, None)
        except _BROKEN as error:
            raise BrokenStreamError(f"the stream broke off: {error}") from error

    def close(self) -> None:
        """Closing twice does nothing."""
        if self._on_close is not None:
            self._connection.close()
            self._on_close.release()
            self._on_close = None

    def interrupt(self) -> None:
        """Make a reader in another thread stop, as if the connection had broken."""
        self._connection.interrupt()


def read_whole(answer: HttpAnswer) -> bytes:
    """The body.

    Raises:
        InternalError: it is longer than `MAX_ANSWER_BYTES`; no more of it was kept.
        MalformedAnswerError, OSError: the connection broke.
    """
    if (answer.length or 0) > MAX_ANSWER_BYTES:
        raise too_long()
    pieces: list[bytes] = []
    size = 0
    for piece in answer.pieces():
        pieces.append(piece)
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            raise too_long()
    return b"".join(pieces)


class Connections(Transport):
    """The pool."""

    def __init__(self, address: Address, *, reconnect_s: float = RECONNECT_S) -> None:
        super().__init__(address, reconnect_s=reconnect_s)
        self._idle: list[_Connection] = []
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._streams = threading.BoundedSemaphore(MAX_STREAMS)

    def close(self) -> None:
        """Close what is idle; requests under way finish and close theirs."""
        with self._lock:
            self.closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _send_once(self, request: Request, endpoint: Endpoint | None) -> Answer:
        with self._slots:
            connection = self._take(endpoint, ANSWER_TIMEOUT_S + request.wait_s)
            try:
                answer = connection.ask(request, whole=True)
                body = read_whole(answer)
            except _BROKEN as error:
                connection.close()
                raise _broken(error) from error
            except BaseException:
                connection.close()
                raise
            self._give(connection, reusable=answer.reusable)
            return Answer(answer.status, answer.headers, body)

    def _stream_once(self, request: Request, endpoint: Endpoint | None) -> SocketStream:
        self._streams.acquire()
        connection = _Connection(self.address, endpoint, STREAM_TIMEOUT_S)
        try:
            answer = connection.ask(request, whole=False)
            self._answered = True
            if answer.status >= ERROR_STATUS:
                raise error_from_answer(answer.status, read_whole(answer))
        except BaseException as error:
            connection.close()
            self._streams.release()
            if isinstance(error, _BROKEN):
                raise _broken(error) from error
            raise
        return SocketStream(connection, answer, self._streams)

    def _take(self, endpoint: Endpoint | None, timeout_s: float) -> _Connection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return _Connection(self.address, endpoint, timeout_s)
            if connection.endpoint == endpoint and not connection.stale:
                connection.set_timeout(timeout_s)
                return connection
            connection.close()

    def _give(self, connection: _Connection, *, reusable: bool) -> None:
        with self._lock:
            if reusable and not self.closed:
                self._idle.append(connection)
                return
        connection.close()

    def _probe(self, endpoint: Endpoint) -> None:
        from hal.client.addresses.trust import refuse_plain

        refuse_plain(endpoint)


def _broken(error: BaseException) -> BrokenConnectionError:
    return BrokenConnectionError(str(error) or type(error).__name__, timed_out=isinstance(error, TimeoutError))
