"""The pace at which an answer has to arrive: a server that sends a byte now and then keeps nobody waiting for ever.

Its head, interim answers before it included, comes within the time that an answer may take; its body then at no less
than `LEAST_BYTES_PER_S` in the long run. What is read as it comes (a followed log, the feed) has no pace.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any, Final

LEAST_BYTES_PER_S: Final = 16 << 10
ERROR_STATUS: Final = 400
TOO_SLOW: Final = "the answer comes too slowly"


class Pace:
    """Of one answer."""

    def __init__(self, now_s: float, patience_s: float) -> None:
        """
        Args:
            patience_s: how long its head may take, and its body more than its length explains.
        """
        self._patience_s = patience_s
        self._since_s = now_s
        self._received: int | None = None

    def head_is_read(self, now_s: float) -> None:
        """Its body begins."""
        self._since_s, self._received = now_s, 0

    def came(self, amount: int) -> None:
        """So many bytes more."""
        if self._received is not None:
            self._received += amount

    def left_s(self, now_s: float) -> float:
        """How long the next byte may take; 0 or less: it is too late."""
        return self._since_s + self._patience_s + (self._received or 0) / LEAST_BYTES_PER_S - now_s


class PacedResponse(http.client.HTTPResponse):
    """One that is read whole."""

    whole = True

    def __init__(self, sock: socket.socket, *args: Any, **named: Any) -> None:
        super().__init__(sock, *args, **named)
        self._reader = _Reader(self.fp.detach(), sock)
        self.fp = io.BufferedReader(self._reader)

    def begin(self) -> None:
        """As the standard library's, with an error for a malformed number."""
        try:
            super().begin()
        except ValueError as error:
            raise http.client.HTTPException(f"the head of the answer is malformed: {error}") from error
        if self.whole or self.status >= ERROR_STATUS:
            self._reader.head_is_read()
        else:
            self._reader.has_no_pace()


class StreamedResponse(PacedResponse):
    """One that is read as it comes, unless it is an error."""

    whole = False


class _Reader(io.RawIOBase):
    """What comes from a socket, at that pace."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket) -> None:
        self._raw = raw
        self._sock = sock
        self._timeout_s = sock.gettimeout()
        self._pace = None if self._timeout_s is None else Pace(time.monotonic(), self._timeout_s)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """As the socket's.

        Raises:
            TimeoutError: it comes too slowly.
        """
        pace, timeout_s = self._pace, self._timeout_s
        if pace is None or timeout_s is None:
            return self._raw.readinto(buffer)
        left_s = pace.left_s(time.monotonic())
        if left_s <= 0:
            raise TimeoutError(TOO_SLOW)
        if left_s < timeout_s:
            self._sock.settimeout(left_s)
        amount: int = self._raw.readinto(buffer) or 0
        pace.came(amount)
        return amount

    def head_is_read(self) -> None:
        """A body that is read whole begins."""
        if self._pace is not None:
            self._pace.head_is_read(time.monotonic())

    def has_no_pace(self) -> None:
        """It is read as it comes."""
        self._pace = None
        if not self._raw.closed:
            self._sock.settimeout(self._timeout_s)

    def close(self) -> None:
        self._raw.close()
        super().close()
