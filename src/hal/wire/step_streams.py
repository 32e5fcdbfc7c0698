"""What is said on a stream to a step: messages in both directions, and what waits to be written. Pure.

A message is a head of 5 bytes (its kind, and its length as an unsigned little-endian number) and its bytes. Only the
standard library is imported: the process that serves a stream at a node runs without packages. spec/frames.md
describes the messages for other languages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

HEAD: Final = Struct("<BI")
SIZE: Final = Struct("<HH")
CODE: Final = Struct("<i")
HELLO: Final = 0
"""Who comes to the stream: the ticket. The first message of its client."""
DATA: Final = 1
"""Client to step: bytes of its input."""
END: Final = 2
"""No more bytes follow in this direction."""
RESIZE: Final = 3
"""Client to step: rows and columns of the terminal, 16 bits each."""
SIGNAL: Final = 4
"""Client to step: the number of a signal, one byte."""
VARIABLES: Final = 5
"""Client to step, of ranks: `NAME=VALUE` of the variables that they get, each with a zero byte behind it."""
BEGIN: Final = 6
"""Client to step, of ranks: begin them in this directory; empty: the step's. Nothing runs before."""
OPENED: Final = 10
"""Step to client: it is open."""
OUT: Final = 11
"""Step to client: bytes of its output."""
ERR: Final = 12
"""Step to client: bytes of its errors."""
EXIT: Final = 13
"""Step to client: the exit code, 32 bits; the last message, but of ranks, where END is."""
FAIL: Final = 14
"""Step to client: a code, a zero byte, a text for people; the last message."""
RANK: Final = 15
"""Step to client: the rank, 32 bits, that the next messages are about: output, errors, exit code."""
BULK: Final = frozenset({DATA, VARIABLES, OUT, ERR})
"""Kinds whose bytes are handed over piece by piece, as they come."""
MAX_BULK_BYTES: Final = 1 << 20
MAX_MESSAGE_BYTES: Final = 1 << 12
"""Of all other kinds."""
TICKET_BYTES: Final = 32
MEET: Final = b"HAL-MEET-1 "
"""How whoever comes to a relay begins; then `N` or `C`, and the name of the meeting. What follows is passed on."""
NODE: Final = b"N"
CLIENT: Final = b"C"
MEETING_BYTES: Final = 64
"""Hexadecimal digits of the name of a meeting."""


class MalformedStreamError(ValueError):
    """The other end does not keep to this description."""


def message(kind: int, body: bytes = b"") -> bytes:
    """Build a message."""
    return HEAD.pack(kind, len(body)) + body


def failure(code: str, text: str) -> bytes:
    """Build the last message of a stream that failed; the text is cut to what a message may have."""
    return message(FAIL, b"\0".join((code.encode(), text.encode()))[:MAX_MESSAGE_BYTES])


def meet(role: bytes, meeting: str) -> bytes:
    """Build what is said to a relay first.

    Args:
        role: `NODE` or `CLIENT`.
    """
    return MEET + role + meeting.encode()


class MessageReader:
    """Takes messages out of the bytes that arrive."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._kind = 0
        self._left = 0
        """Bytes of the current message that have not arrived."""
        self._body = bytearray()
        """What has arrived of it, unless it is bulk."""

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes | memoryview]]:
        """Return the messages in these bytes; of bulk, each piece that has arrived.

        Raises:
            MalformedStreamError: one is too long.
        """
        view = memoryview(data)
        at = 0
        while at < len(view):
            if not self._left:
                needed = HEAD.size - len(self._head)
                self._head += view[at : at + needed]
                at += needed
                if len(self._head) < HEAD.size:
                    return
                self._kind, self._left = HEAD.unpack(self._head)
                self._head.clear()
                if self._left > (MAX_BULK_BYTES if self._kind in BULK else MAX_MESSAGE_BYTES):
                    raise MalformedStreamError(f"a message of {self._left} bytes was announced")
                if not self._left:
                    yield self._kind, b""
                continue
            piece = view[at : at + self._left]
            at += len(piece)
            self._left -= len(piece)
            if self._kind in BULK:
                yield self._kind, piece
                continue
            self._body += piece
            if not self._left:
                body, self._body = bytes(self._body), bytearray()
                yield self._kind, body


class Backlog:
    """What waits to be written, in order."""

    def __init__(self) -> None:
        self.bytes = 0
        self._pieces: deque[memoryview] = deque()

    def put(self, *pieces: bytes | memoryview) -> None:
        """Add pieces, which must not change."""
        for piece in pieces:
            if piece:
                self._pieces.append(memoryview(piece))
                self.bytes += len(piece)

    def flush(self, write: Callable[[memoryview], int]) -> None:
        """Write as much as is taken; `write` returns how many bytes that were, 0 if none are taken now."""
        while self._pieces:
            first = self._pieces[0]
            written = write(first)
            self.bytes -= written
            if written == len(first):
                self._pieces.popleft()
                continue
            if not written:
                return
            self._pieces[0] = first[written:]

    def clear(self) -> None:
        """Drop all of it."""
        self._pieces.clear()
        self.bytes = 0
