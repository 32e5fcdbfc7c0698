"""uvicorn's HTTP protocol with a bound on the head of a request, which its parser would gather without end."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hal.daemons.controller.api.problems import PROBLEM_JSON, HeadersError, problem_of

MAX_HEAD_BYTES: Final = 64 << 10
"""Of request line and headers, beyond what came with the piece in which they began (at most 256 KiB)."""


class BoundedHead(HttpToolsProtocol):
    """A connection whose requests' heads are bounded."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._in_head = True
        self._begun = False
        self._head_bytes = 0

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._begun = False
        super().data_received(data)
        if self._in_head and not self._begun and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse()

    def on_message_begin(self) -> None:
        """See httptools."""
        self._in_head = self._begun = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """See httptools."""
        self._in_head = False
        super().on_headers_complete()

    def _refuse(self) -> None:
        problem = problem_of(HeadersError(f"the head of the request is longer than {MAX_HEAD_BYTES} bytes"))
        body = msgspec.json.encode(problem)
        head = (
            f"HTTP/1.1 {problem.status} Request Header Fields Too Large\r\nContent-Type: {PROBLEM_JSON}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
