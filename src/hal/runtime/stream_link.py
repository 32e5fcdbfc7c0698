"""A non-blocking connection for a loop of `select.poll`: a socket, or TLS over one, read and written in the same way.

Only the standard library, so that it can run without packages.
"""

from __future__ import annotations

import contextlib
import select
import socket
from typing import Any, Final

READ_BYTES: Final = 1 << 18
"""Bytes read at once."""
KEEPALIVE_S: Final = 15
"""An idle connection is probed this often; after three probes without an answer it is over."""
UNANSWERED_MS: Final = 45_000
"""What was sent and is not acknowledged for so long ends a connection."""


class Link:
    """One connection. What is broken reads as ended; `broken` says so."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over a connected socket, or one in TLS whose handshake is over."""
        sock.setblocking(False)
        self._sock = sock
        self._encrypted = hasattr(sock, "pending")
        self.broken = ""
        """Why it ended, if it did not end in order."""
        if sock.family != socket.AF_UNIX:
            keep_alive(sock)
        else:
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                sock.setsockopt(socket.SOL_SOCKET, option, READ_BYTES)

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def pending(self) -> bool:
        """Whether bytes are there which `poll` does not show."""
        sock: Any = self._sock
        return bool(self._encrypted and sock.pending())

    def read(self) -> bytes | None:
        """Return bytes; None: there are none now; b"": it has ended."""
        try:
            return self._sock.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            if self._waits(error):
                return None
            self.broken = str(error)
            return b""

    def write(self, data: memoryview) -> int:
        """Write what is taken now; returns how many bytes. Of a broken connection, everything is taken."""
        if self.broken:
            return len(data)
        try:
            return self._sock.send(data[:READ_BYTES])
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            if self._waits(error):
                return 0
            self.broken = str(error)
            return len(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _waits(self, error: OSError) -> bool:
        if not self._encrypted:
            return False
        import ssl  # is loaded, where there is TLS

        return isinstance(error, ssl.SSLWantReadError | ssl.SSLWantWriteError)


def keep_alive(sock: socket.socket) -> None:
    """Let a connection end whose other side is gone without a word."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED_MS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Watched:
    """The descriptors that a loop waits for, and for what."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._events: dict[int, int] = {}

    def want(self, fd: int, *, read: bool = False, write: bool = False, gone: bool = False) -> None:
        """Wait for these; for none of them: not at all, not even for its end.

        Args:
            gone: also for its other side to close, which is seen even if nothing is read.
        """
        events = (select.POLLIN if read else 0) | (select.POLLOUT if write else 0)
        events |= select.POLLRDHUP if gone else 0
        known = self._events.get(fd, 0)
        if events == known:
            return
        if not events:
            self._poll.unregister(fd)
            del self._events[fd]
            return
        if known:
            self._poll.modify(fd, events)
        else:
            self._poll.register(fd, events)
        self._events[fd] = events

    def wait(self, timeout_ms: float | None = None) -> dict[int, int]:
        """Return what is ready: its events by descriptor."""
        return dict(self._poll.poll(timeout_ms))
