"""A copy of lines to the machine's own syslog: a datagram each, never waited for.

Whoever can change HAL's files cannot change what has left for the machine's log, and what that passes on elsewhere.
"""

from __future__ import annotations

import os
import socket
from typing import Final

SYSLOG: Final = "/dev/log"
MAX_BYTES: Final = 2_048
"""Of a line; a longer one is cut."""
_AUTHPRIV_INFO: Final = 10 << 3 | 6


class Syslog:
    """Sends lines; what the machine's log does not take at once is counted and left out."""

    def __init__(self, name: str, path: str = SYSLOG) -> None:
        self._prefix = b"<%d>%b[%d]: " % (_AUTHPRIV_INFO, name.encode(), os.getpid())
        self._path = path
        self._socket: socket.socket | None = None
        self.lost = 0
        """Lines since the last that was taken."""

    def send(self, line: bytes) -> None:
        """One line, without its end."""
        lost = b"(%d lines before this were not taken) " % self.lost if self.lost else b""
        try:
            if self._socket is None:
                made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
                self._socket = made
                made.connect(self._path)
            self._socket.send(self._prefix + lost + line[:MAX_BYTES])
            self.lost = 0
        except BlockingIOError:
            self.lost += 1
        except OSError:  # nobody listens, or whoever did has begun again: the next line tries once more
            self.lost += 1
            self.close()

    def close(self) -> None:
        """The next line opens it again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
