"""Asks a controller who shows a token, and what else a daemon beside it wants to know: each request on a connection of
its own.

The token goes to the controller only (see `dialling`), and into no log, error or file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from hal.core.model import UnreachableError
from hal.core.model.errors import error_from_code
from hal.rest.callers import IDENTIFY_BY
from hal.rest.dialling import Streams, dial_any
from hal.rest.identity import UnauthorizedError
from hal.rest.problem import Problem
from hal.rest.who import PATH, WhoView

ANSWER_TIMEOUT_S: Final = 5.0
"""From the connection to the end of the answer."""
MAX_ANSWER_BYTES: Final = 64 << 10
MAX_TOKEN_CHARS: Final = 1_000
MOST_BYTES: Final = 64 << 20
"""Of any other answer."""
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
                request = _Request("GET", PATH, token, by_token=bool(token))
                status, body = await _exchange(streams, request, MAX_ANSWER_BYTES)
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

    async def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        wait_s: float = 0.0,
        most_bytes: int = MOST_BYTES,
    ) -> bytes:
        """Ask for anything else, as this process itself; returns the body of the answer.

        Args:
            wait_s: how long the controller may wait before it answers.
            most_bytes: longest answer.
        Raises:
            HALError: it refuses; of the class that its code names.
            UnreachableError: no controller answers at present; whether it did what was asked is not known.
        """
        target = f"{path}?{urlencode(query)}" if query else path
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S + wait_s):
                _, streams = await dial_any(self._addresses, self._authority)
                request = _Request(method, target, self._own_token, body)
                status, answer = await _exchange(streams, request, most_bytes)
        except UnreachableError as error:
            raise UnreachableError(f"the controller does not answer: {error.message}", hint=AGAIN) from None
        except (OSError, EOFError, TimeoutError, ValueError, asyncio.LimitOverrunError) as error:
            raise UnreachableError(f"the controller does not answer: {type(error).__name__}", hint=AGAIN) from None
        if 200 <= status < 300:
            return answer
        try:
            problem = _PROBLEM.decode(answer)
        except msgspec.DecodeError:
            raise UnreachableError(f"the controller answers {path} with status {status}", hint=AGAIN) from None
        raise error_from_code(problem.code, problem.detail, problem.hint)


class _Request(NamedTuple):
    method: str
    target: str
    token: str
    body: bytes = b""
    by_token: bool = False
    """The token says who asks, not the kernel."""

    def encode(self) -> bytes:
        head = f"{self.method} {self.target} HTTP/1.1\r\nHost: hal\r\nConnection: close\r\n"
        if self.token:
            head += f"Authorization: Bearer {self.token}\r\n"
        if self.by_token:
            head += f"{IDENTIFY_BY.decode()}: token\r\n"
        if self.body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(self.body)}\r\n"
        return f"{head}\r\n".encode() + self.body


def _may_be_sent(token: str) -> bool:
    """It is one word that ends no header."""
    return len(token) <= MAX_TOKEN_CHARS and token.isascii() and token.isprintable() and " " not in token


async def _exchange(streams: Streams, request: _Request, most_bytes: int) -> tuple[int, bytes]:
    """Status and body of the answer.

    Raises:
        OSError, EOFError, ValueError, LimitOverrunError: it broke off, or is not understood.
    """
    reader, writer = streams
    try:
        writer.write(request.encode())
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].split(b"\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        length = int(headers.get(b"content-length", b""))
        if not 0 <= length <= most_bytes:
            raise ValueError("too long")
        return int(first.split(b" ", 2)[1]), await reader.readexactly(length)
    finally:
        writer.close()
