"""Requests and answers as values, the bounds of an exchange, and when one is repeated. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hal.client.transport.problems import BROKE_OFF, ENDING, NO_LEADER, error_from_answer
from hal.core.model.errors import ConflictError, HALError, InternalError, SpecError, shown

if TYPE_CHECKING:
    from hal.client.addresses.address import Address
    from hal.client.addresses.endpoints import Endpoint

MAX_CONNECTIONS: Final = 16
"""Requests under way at once in one client."""
MAX_STREAMS: Final = 256
"""Followed logs and event feeds open at once in one client."""
ANSWER_TIMEOUT_S: Final = 30.0
"""How long a controller may take to answer, beyond what the request itself asks to wait."""
STREAM_TIMEOUT_S: Final = 60.0
"""A stream that is silent for longer is opened again where it stopped."""
RECONNECT_S: Final = 30.0
"""How long requests are tried again after a controller that answered before stopped answering."""
CHUNK_BYTES: Final = 64 << 10
MAX_ANSWER_BYTES: Final = 128 << 20
"""Of one answer that is not a stream: as much as the largest request that a controller accepts."""
WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
"""Methods whose requests say how long their body is, also if they have none."""
TOO_MANY: Final = 429
"""The status that asks to come again later."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    """Sending it twice does what sending it once does."""
    wait_s: float = 0.0
    """How long the controller was asked to wait before it answers."""

    @property
    def target(self) -> str:
        """Path and query as sent."""
        if not self.query:
            return self.path
        from urllib.parse import urlencode

        return f"{self.path}?{urlencode(self.query)}"

    def sent(self, address: Address, endpoint: Endpoint | None) -> bytes:
        """The request as HTTP/1.1 has it.

        Raises:
            SpecError: a header, or the path, has characters that HTTP does not allow: a token with a line end.
        """
        headers = self.all_headers(address, endpoint)
        if self.body is not None or self.method in WITH_BODY:
            headers["Content-Length"] = str(len(self.body or b""))
        lines = [f"{self.method} {self.target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        head = "\r\n".join(lines)
        if not (self.target.isascii() and self.target.isprintable()) or " " in self.target:
            raise SpecError(f"'{shown(self.target)}' cannot be asked for: it is no path of a URL")
        for name, value in headers.items():
            if not (value.isascii() and value.isprintable()):
                raise SpecError(f"{name}: has characters that no HTTP header may have", hint="is the token whole?")
        return head.encode() + b"\r\n\r\n" + (self.body or b"")

    def all_headers(self, address: Address, endpoint: Endpoint | None) -> dict[str, str]:
        """Its headers and those that every request to this controller carries."""
        headers = {
            "Host": endpoint.name if endpoint is not None else "localhost",
            "Accept": "application/json",
            "Accept-Encoding": "identity",  # what is unpacked has no bound
            **self.headers,
        }
        if self.body is not None:
            headers.setdefault("Content-Type", "application/json")
        if address.token:
            headers["Authorization"] = f"Bearer {address.token}"
        if address.by_token:
            headers["HAL-Identify-By"] = "token"
        return headers


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class BrokenStreamError(HALError):
    """A stream ended before its end was announced; opened again where it stopped, nothing is lost."""

    code = "broken-stream"


class BrokenConnectionError(Exception):
    """A connection broke before a request was answered, or the answer took too long."""

    def __init__(self, why: str, *, timed_out: bool) -> None:
        super().__init__(why)
        self.timed_out = timed_out


def too_long() -> InternalError:
    """The error for an answer that has no end, or none that anybody would wait for."""
    return InternalError(
        f"the controller's answer is longer than {MAX_ANSWER_BYTES >> 20} MiB",
        hint="check that a controller of HAL answers at this address",
    )


def lost_leader(request: Request, answer: Answer) -> bool:
    """Whether no leader answered (but a follower, or a controller that is ending), and the request may be repeated."""
    if answer.status not in (502, 503):
        return False
    code = error_from_answer(answer.status, answer.body).code
    return code == NO_LEADER or (code in (BROKE_OFF, ENDING) and request.repeatable)


def refuse_closed(closed: bool) -> None:
    """Refuse to send with a client that was closed.

    Raises:
        ConflictError: it was.
    """
    if closed:
        raise ConflictError("this client is closed", hint="make another one with hal.connect()")
