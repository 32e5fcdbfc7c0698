"""Reading one HTTP answer from a socket, at a pace (`pace`), within bounds.

`httptools` parses; `http.client` would take as long to load as everything else that a small command needs.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from hal.client.transport.exchange import CHUNK_BYTES
from hal.client.transport.pace import TOO_SLOW, Pace

MAX_HEAD_BYTES: Final = 128 << 10
"""Of the head of an answer, with interim answers before it."""
MAX_HEADERS: Final = 256
ERROR_STATUS: Final = 400
INTERIM: Final = range(100, 200)
"""Statuses of answers that precede the answer."""


class MalformedAnswerError(Exception):
    """What came is no HTTP answer, or ended in the middle."""


class HttpAnswer:
    """Its head is read when it is made; its body then, in pieces.

    Attributes:
        status: of the answer.
        headers: their names in lower case.
        length: of the body, if it was announced.
        reusable: another request may follow on the connection, once the body has been read.
    """

    def __init__(self, sock: socket.socket, *, whole: bool) -> None:
        """Read the head.

        Args:
            whole: the body is to come at a pace; that of an error does in any case.
        Raises:
            MalformedAnswerError: see there.
            TimeoutError: it comes too slowly.
            OSError: the connection broke.
        """
        self.status = 0
        self.headers: dict[str, str] = {}
        self.length: int | None = None
        self.reusable = False
        self._sock = sock
        self._timeout_s = sock.gettimeout()
        self._pace = None if self._timeout_s is None else Pace(time.monotonic(), self._timeout_s)
        self._parser = HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._named = 0
        """Headers so far."""
        self._in_body = False
        self._complete = False
        size = 0
        while not self._in_body:
            data = self._receive()
            if not data:
                raise MalformedAnswerError("the connection ended before the answer came")
            size += len(data)
            self._feed(data)
            if size > MAX_HEAD_BYTES and not self._in_body:
                raise MalformedAnswerError(f"the head of the answer is longer than {MAX_HEAD_BYTES >> 10} KiB")
        if self._pace is None:
            return
        if whole or self.status >= ERROR_STATUS:
            self._pace.head_is_read(time.monotonic())
        else:
            self._pace = None
            self._sock.settimeout(self._timeout_s)

    def pieces(self) -> Iterator[bytes]:
        """The body, as it comes.

        Raises:
            as the constructor.
        """
        while True:
            if self._pieces:
                some, self._pieces = b"".join(self._pieces), []
                yield some
            if self._complete:
                return
            data = self._receive()
            if data:
                self._feed(data)
                continue
            if self.length is not None or "transfer-encoding" in self.headers:
                raise MalformedAnswerError("the connection ended before the whole answer came")
            return

    def _receive(self) -> bytes:
        if self._pace is None or self._timeout_s is None:
            return self._sock.recv(CHUNK_BYTES)
        left_s = self._pace.left_s(time.monotonic())
        if left_s <= 0:
            raise TimeoutError(TOO_SLOW)
        self._sock.settimeout(min(left_s, self._timeout_s))
        data = self._sock.recv(CHUNK_BYTES)
        self._pace.came(len(data))
        return data

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self._complete:  # what follows a whole answer does not matter
                raise MalformedAnswerError(f"the answer is malformed: {error}") from error
            self.reusable = False

    # ── called by the parser ──────────────────────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        """An answer, or an interim one; behind a whole one nobody asked for anything."""
        if self._complete:
            self.reusable = False
        else:
            self.headers.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, also of a chunked body's end."""
        self._named += 1
        if self._named > MAX_HEADERS:
            raise HttpParserError("too many headers")
        if not self._in_body:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is whole."""
        if self._in_body or self._parser.get_status_code() in INTERIM:
            return
        self.status = self._parser.get_status_code()
        self.reusable = self._parser.should_keep_alive()
        self.length = int(self.headers["content-length"]) if "content-length" in self.headers else None
        self._in_body = True

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if not self._complete:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The end of the answer, or of an interim one."""
        self._complete = self._complete or self._in_body
