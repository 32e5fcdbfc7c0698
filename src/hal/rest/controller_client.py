"""Asks a controller who shows a token: one small request on a connection of its own.

The token goes to the controller only (see `dialling`), and into no log, error or file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from hal.core.model import UnreachableError
from hal.rest.callers import IDENTIFY_BY
from hal.rest.dialling import Streams, dial_any
from hal.rest.identity import UnauthorizedError
from hal.rest.problem import Problem
from hal.rest.who import PATH, WhoView

ANSWER_TIMEOUT_S: Final = 5.0
"""From the connection to the end of the answer."""
MAX_ANSWER_BYTES: Final = 64 << 10
MAX_TOKEN_CHARS: Final = 1_000
AGAIN: Final = "the controller may be starting: try again in a few seconds"

_WHO: Final = msgspec.json.Decoder(WhoView)
_PROBLEM: Final = msgspec.json.Decoder(Problem)


class ControllerClient:
    """Of one HAL."""

    def __init__(self, addresses: Sequence[str], authority: Path, *, own_token: str = "") -> None:
        """
        Args:
            own_token: by which the controller knows this process, where it has no socket on this host.
            addresses: of its controllers, `unix:/path` and `https://host:port`; the first that answers is asked.
            authority: certificate file of the HAL's own, by which it is known over TLS.
        """
        self._addresses = tuple(addresses)
        self._authority = authority
        self._own_token = own_token

    async def who(self, token: str) -> WhoView:
        """Who shows that token; '': who this process itself is to the controller.

        Raises:
            UnauthorizedError: it opens nothing; says why.
            UnreachableError: no controller says so at present.
        """
        token = token or self._own_token
        if not _may_be_sent(token):
            raise UnauthorizedError("the bearer token is wrong")
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                _, streams = await dial_any(self._addresses, self._authority)
                status, body = await _exchange(streams, token)
        except UnreachableError as error:
            raise UnreachableError(f"the controller does not answer: {error.message}", hint=AGAIN) from None
        except (OSError, EOFError, TimeoutError, ValueError, asyncio.LimitOverrunError) as error:
            # Not the error's own text: whatever was sent could be in it.
            raise UnreachableError(f"the controller does not answer: {type(error).__name__}", hint=AGAIN) from None
        try:
            if status == 200:
                return _WHO.decode(body)
            problem = _PROBLEM.decode(body)
        except msgspec.DecodeError:
            raise UnreachableError("the controller's answer is not understood", hint=AGAIN) from None
        if status in (401, 403):
            raise UnauthorizedError(problem.detail, hint=problem.hint)
        raise UnreachableError(f"the controller cannot say who this token is: {problem.detail}", hint=AGAIN)


def _may_be_sent(token: str) -> bool:
    """It is one word that ends no header."""
    return len(token) <= MAX_TOKEN_CHARS and token.isascii() and token.isprintable() and " " not in token


async def _exchange(streams: Streams, token: str) -> tuple[int, bytes]:
    """Status and body of the answer.

    Raises:
        OSError, EOFError, ValueError, LimitOverrunError: it broke off, or is not understood.
    """
    reader, writer = streams
    try:
        shown = f"Authorization: Bearer {token}\r\n{IDENTIFY_BY.decode()}: token\r\n" if token else ""
        writer.write(f"GET {PATH} HTTP/1.1\r\nHost: hal\r\n{shown}Connection: close\r\n\r\n".encode())
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].split(b"\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        length = int(headers.get(b"content-length", b""))
        if not 0 <= length <= MAX_ANSWER_BYTES:
            raise ValueError("too long")
        return int(first.split(b" ", 2)[1]), await reader.readexactly(length)
    finally:
        writer.close()
