"""Copy lines to the machine's own syslog: one datagram each, never blocking.

Whoever can change HAL's files cannot change what has reached the machine's log, and where that forwards it.
"""

from __future__ import annotations

import os
import socket
from typing import Final

SYSLOG: Final = "/dev/log"
MAX_BYTES: Final = 2_048
"""Longest line; a longer one is cut."""
_AUTHPRIV_INFO: Final = 10 << 3 | 6


class Syslog:
    """Sends lines; lines that the machine's log does not accept at once are counted and dropped."""

    def __init__(self, name: str, path: str = SYSLOG) -> None:
        self._prefix = b"<%d>%b[%d]: " % (_AUTHPRIV_INFO, name.encode(), os.getpid())
        self._path = path
        self._socket: socket.socket | None = None
        self.lost = 0
        """Lines dropped since the last one that was accepted."""

    def send(self, line: bytes) -> None:
        """Send one line, without its newline."""
        lost = b"(%d lines before this were dropped) " % self.lost if self.lost else b""
        try:
            if self._socket is None:
                made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
                self._socket = made
                made.connect(self._path)
            self._socket.send(self._prefix + lost + line[:MAX_BYTES])
            self.lost = 0
        except BlockingIOError:
            self.lost += 1
        except OSError:  # nobody listens, or syslog has restarted: the next line reconnects
            self.lost += 1
            self.close()

    def close(self) -> None:
        """Close the socket; the next line opens it again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
