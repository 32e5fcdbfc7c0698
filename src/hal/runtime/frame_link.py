"""A blocking connection that carries frames, for processes without an event loop: workers, and clients of sessions.

Standard library sockets. One thread reads; any thread sends.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from pathlib import Path
from typing import Any, Final, Generic

from hal.core.model.errors import DeniedError, UnreachableError
from hal.runtime.sockets import is_trusted_peer, peer_of
from hal.wire.codec import FrameDecoder, encode
from hal.wire.frames.conversation import Conversation, F, Frame

READ_BYTES: Final = 1 << 16
"""Bytes read at once. `recv` allocates all of them before it knows how many come; from 128 KiB on, malloc asks the
kernel for them each time, which takes ten times as long as to read a small frame."""
BUFFER_BYTES: Final = 1 << 20
"""Asked of the kernel for each direction."""
_TIMEVAL: Final = struct.Struct("@ll")


class AwayError(UnreachableError):
    """The machine at the other end does not answer; it may come back."""


class FrameLink(Generic[F]):
    """Frames over one socket."""

    def __init__(self, sock: socket.socket, conversation: Conversation[F]) -> None:
        """Take over a connected socket."""
        self._tune(sock)
        sock.settimeout(None)
        self._sock = sock
        self._decoder: FrameDecoder[F] = FrameDecoder(conversation)
        self._sending = threading.Lock()
        self._first: list[F] = []
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def send(self, *frames: Frame) -> None:
        """Send frames, one behind the other, waiting while the other end does not read.

        Raises:
            UnreachableError: the connection broke.
            FrameTooLongError: one exceeds the wire's limit; none was sent.
        """
        data = encode(frames[0]) if len(frames) == 1 else b"".join([encode(frame) for frame in frames])
        try:
            with self._sending:
                self._write(data)
        except OSError as error:
            raise UnreachableError(f"the connection broke: {error.strerror or error}") from error

    def ready(self, timeout_s: float) -> bool:
        """Wait until `receive` would not wait, at most so long; returns whether it would not."""
        return bool(self._first or self._poll.poll(timeout_s * 1_000))

    def receive(self) -> list[F]:
        """Wait for frames, at least one; [] when the connection has ended. One thread at a time.

        Raises:
            MalformedFrameError: the other end sent what is not a frame of the conversation.
        """
        frames, self._first = self._first, []
        while not frames:
            try:
                data = self._read()
            except OSError:
                return []
            if not data:
                return []
            frames = self._decoder.feed(data)
        return frames

    def put_back(self, frames: list[F]) -> None:
        """Let these be received next."""
        self._first = frames

    def _tune(self, sock: socket.socket) -> None:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)

    def _write(self, data: bytes) -> None:
        self._sock.sendall(data)

    def _read(self) -> bytes:
        return self._sock.recv(READ_BYTES)

    def close(self) -> None:
        """Close it; who waits in `receive` gets []."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


def dial(path: Path, conversation: Conversation[Any], timeout_s: float) -> FrameLink[Any]:
    """Connect to a Unix socket.

    Raises:
        UnreachableError: nobody serves it.
        DeniedError: whoever serves it is neither this user nor root.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # A blocking connect waits for a place in the listener's queue; one with a timeout of Python's own would fail.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(*divmod(int(timeout_s * 1e6), 1_000_000)))
        sock.connect(str(path))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(0, 0))
    except OSError as error:
        sock.close()
        raise UnreachableError(f"nobody serves {path}: {error.strerror or error}") from error
    peer = peer_of(sock.fileno())
    if not is_trusted_peer(peer):
        sock.close()
        raise DeniedError(f"{path} is served by user id {peer.uid}, who is neither you nor root")
    return FrameLink(sock, conversation)
