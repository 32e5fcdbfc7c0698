"""A helper's end of the socket to its keeper; `helper_link` is the other end.

Messages are lists after a 4-byte little-endian length: from the keeper marshalled tuples, to it JSON, because it must
not believe every helper: one that serves a user belongs to that user. Such a helper also gets open files (SCM_RIGHTS),
in the order in which the messages take them.
"""

from __future__ import annotations

import marshal
import os
import select
import time
from _json import encode_basestring_ascii
from typing import Any

READ_BYTES = 1 << 16
"""Bytes read at once; a larger buffer would be mapped and unmapped for each message, however small it is."""
MAX_QUEUED = 16
"""Messages without urgency after which the keeper gets a report nevertheless: eight ends, each with a start."""
COMPANY_MS = 10
"""How long such a message may wait for others."""
MAX_TEXT = 4_096
"""Characters of a text in a message to the keeper; the rest is cut off."""
MAX_DESCRIPTORS = 253
"""Descriptors that the kernel passes at once."""
SOL_SOCKET, SCM_RIGHTS, MSG_CMSG_CLOEXEC = 1, 1, 0x40000000


class KeeperLink:
    """The messages in both directions."""

    def __init__(self, fd: int, *, descriptors: bool = False) -> None:
        """Args:
        descriptors: open files come with the messages.
        """
        self.fd = fd
        self._socket: Any = None
        self._received: list[int] = []
        """Open files that no message has taken yet."""
        if descriptors:
            from _socket import socket  # one more module to load, for those alone that need it

            self._socket = socket(fileno=fd)
        self.closed = False
        """Whether the keeper has closed its end: nothing more is sent."""
        self._queued: list[tuple[Any, ...]] = []
        self._urgent = False
        self._due_ns = 0
        """When queued messages must be sent, by the monotonic clock."""
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self._buffer = bytearray()

    def has_input(self) -> bool:
        """Whether `read` would not block."""
        return bool(self._poll.poll(0))

    def read(self) -> list[tuple[Any, ...]] | None:
        """Return the messages that are complete; None at the end of the keeper's stream, which closes the link."""
        try:
            data = os.read(self.fd, READ_BYTES) if self._socket is None else self._receive()
        except ConnectionError:
            data = b""
        if not data:
            self.closed = True
            return None
        buffer = self._buffer
        buffer += data
        at = 0
        messages: list[tuple[Any, ...]] = []
        while len(buffer) - at >= 4:
            end = at + 4 + int.from_bytes(buffer[at : at + 4], "little")
            if len(buffer) < end:
                break
            messages += marshal.loads(memoryview(buffer)[at + 4 : end])
            at = end
        del buffer[:at]
        return messages

    def _receive(self) -> bytes:
        data: bytes
        data, ancillary, _, _ = self._socket.recvmsg(READ_BYTES, (MAX_DESCRIPTORS + 4) * 4 + 16, MSG_CMSG_CLOEXEC)
        for level, kind, payload in ancillary:
            if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
                self._received += memoryview(payload)[: len(payload) // 4 * 4].cast("i").tolist()
        return data

    def take(self, count: int) -> list[int]:
        """Take the next open files that came with the messages; whoever takes them closes them."""
        taken, self._received = self._received[:count], self._received[count:]
        return taken

    def report(self, *message: Any) -> None:
        """Queue an urgent message; `flush` sends all."""
        self._queued.append(message)
        self._urgent = True

    def report_later(self, *message: Any) -> None:
        """Queue a message that may wait for others."""
        if not self._queued:
            self._due_ns = time.monotonic_ns() + COMPANY_MS * 1_000_000
        self._queued.append(message)

    @property
    def due_ns(self) -> int | None:
        """When the queue must be sent, by the monotonic clock; 0: now; None: it is empty."""
        if not self._queued:
            return None
        return 0 if self._urgent or len(self._queued) >= MAX_QUEUED else self._due_ns

    def flush(self) -> None:
        """Send the queue; a closed link drops it."""
        if not self._queued:
            return
        body = _json(self._queued).encode("ascii")
        data = len(body).to_bytes(4, "little") + body
        self._queued.clear()
        self._urgent = False
        while data and not self.closed:
            try:
                data = data[os.write(self.fd, data) :]
            except ConnectionError:
                self.closed = True


def _json(value: Any) -> str:
    if isinstance(value, str):
        # A name of a file may be no text: what is not is replaced.
        text = value[:MAX_TEXT] if value.isascii() else value[:MAX_TEXT].encode("utf-8", "replace").decode()
        return encode_basestring_ascii(text)
    if isinstance(value, int):
        return str(int(value))
    return f"[{','.join([_json(one) for one in value])}]"
