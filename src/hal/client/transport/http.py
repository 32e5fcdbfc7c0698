"""The transport of the sync client: a pool of connections (http.client over Unix or TCP sockets).

Thread-safe: at most `MAX_CONNECTIONS` requests are under way at once, others wait.
"""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import threading
from collections.abc import Mapping

from hal.client.addresses.address import Address
from hal.client.addresses.endpoints import Endpoint
from hal.client.transport.exchange import (
    ANSWER_TIMEOUT_S,
    CHUNK_BYTES,
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
from hal.client.transport.pace import PacedResponse, StreamedResponse
from hal.client.transport.problems import error_from_answer
from hal.client.transport.transport import Transport

_BROKEN = (ConnectionError, http.client.HTTPException, TimeoutError, OSError)


class _Connection(http.client.HTTPConnection):
    """An HTTP connection over whatever socket the address gives."""

    response_class: type[PacedResponse] = PacedResponse

    def __init__(self, address: Address, endpoint: Endpoint | None, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self.endpoint = endpoint
        self._address = address
        self._timeout_s = timeout_s

    def connect(self) -> None:
        self.sock: socket.socket = self._address.connect(self._timeout_s, self.endpoint)

    @property
    def stale(self) -> bool:
        """The other side has closed it (or sent what nobody asked for)."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))


class SocketStream:
    """An answer that is read as it comes."""

    def __init__(
        self, connection: _Connection, response: http.client.HTTPResponse, on_close: threading.Semaphore
    ) -> None:
        self._connection = connection
        self._response = response
        self._on_close: threading.Semaphore | None = on_close
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.getheaders()}

    def read(self) -> bytes | None:
        """As `Stream.read`."""
        try:
            chunk = self._response.read1(CHUNK_BYTES)
        except (*_BROKEN, ValueError) as error:  # ValueError: its framing is malformed
            raise BrokenStreamError(f"the stream broke off: {error}") from error
        if chunk:
            return chunk
        # `length` counts down to 0 if the size was announced; a chunked answer that is cut raises an exception.
        if self._response.length:
            raise BrokenStreamError("the stream broke off")
        return None

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
                response = self._exchange(connection, request)
                body = read_whole(response)
            except _BROKEN as error:
                connection.close()
                raise _broken(error) from error
            except BaseException:
                connection.close()
                raise
            headers = {name.lower(): value for name, value in response.getheaders()}
            self._give(connection, reusable=not response.will_close)
            return Answer(response.status, headers, body)

    def _stream_once(self, request: Request, endpoint: Endpoint | None) -> SocketStream:
        self._streams.acquire()
        connection = _Connection(self.address, endpoint, STREAM_TIMEOUT_S)
        connection.response_class = StreamedResponse
        try:
            response = self._exchange(connection, request)
            self._answered = True
            if response.status >= 400:
                raise error_from_answer(response.status, read_whole(response))
        except BaseException as error:
            connection.close()
            self._streams.release()
            if isinstance(error, _BROKEN):
                raise _broken(error) from error
            raise
        return SocketStream(connection, response, self._streams)

    def _exchange(self, connection: _Connection, request: Request) -> http.client.HTTPResponse:
        headers = request.all_headers(self.address, connection.endpoint)
        connection.request(request.method, request.target, body=request.body, headers=headers)
        return connection.getresponse()

    def _take(self, endpoint: Endpoint | None, timeout_s: float) -> _Connection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return _Connection(self.address, endpoint, timeout_s)
            if connection.endpoint == endpoint and not connection.stale:
                connection.sock.settimeout(timeout_s)
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
