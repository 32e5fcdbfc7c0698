"""Posts bytes to a URL that the site has configured; blocking, within a deadline. Nothing is followed."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from hal.core.model import UnreachableError, one_line

DEADLINE_S: Final = 10.0
"""For each of connecting, sending and the answer."""
MAX_ANSWER_BYTES: Final = 64 << 10
LONGEST_WAIT_S: Final = 300


def post_bytes(url: str, body: bytes, headers: Mapping[str, str], *, authorities: str = "") -> tuple[int, int]:
    """The status of the answer, and after how many seconds it asks to be tried again (0: it does not say).

    Args:
        authorities: a PEM file; empty: those of the machine.
    Raises:
        UnreachableError: nobody answers there; repeats neither headers nor body.
    """
    parts = urlsplit(url)
    connection: http.client.HTTPConnection
    try:
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=authorities or None)
            connection = http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=DEADLINE_S, context=context
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE_S)
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", path, body, {**headers, "User-Agent": "HAL", "Connection": "close"})
            answer = connection.getresponse()
            answer.read(MAX_ANSWER_BYTES)
            after = answer.headers.get("Retry-After", "")
            wait_s = min(int(after), LONGEST_WAIT_S) if after.isascii() and after.isdigit() and len(after) < 9 else 0
            return answer.status, wait_s
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        where, why = one_line(parts.hostname or "", 200), one_line(str(error) or type(error).__name__, 200)
        raise UnreachableError(f"{where} does not answer: {why}") from error
