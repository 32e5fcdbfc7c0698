"""One request that has been let in, read as far as its row of the table of endpoints says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, ClassVar, Protocol

from hal.rest.audit import AuditLog
from hal.rest.errors import SenderGoneError
from hal.rest.identity import Visit
from hal.rest.parameters import AnyRequest, Params


class ClientConnection(Protocol):
    """The connection of whoever is answered, as far as a long answer goes."""

    def hold(self, left_bytes: int) -> None:
        """Count bytes of the answer that were made and not sent yet."""

    def drop(self) -> None:
        """Close it at once: what was begun ends without its end, and nobody takes it for whole."""


class Call:
    """What a handler is given beside the service that it asks. A daemon may have a kind of its own, with what its paths
    name."""

    __slots__ = ("body", "params", "raw", "request", "visit")

    params_type: ClassVar[type[Params]] = Params
    """How query parameters are read."""

    def __init__(
        self,
        request: AnyRequest,
        visit: Visit,
        params: Any,
        raw: bytes = b"",
        body: Any = None,
    ) -> None:
        """
        Args:
            params: of `params_type`.
        """
        self.request = request
        self.visit = visit
        """Who asks, and how far their right reaches."""
        self.params = params
        """Its query parameters: those of the row, no others."""
        self.raw = raw
        """The body as it came; empty where the row has none, or reads it as a stream."""
        self.body = body
        """As the row reads it; None where the handler does."""

    @property
    def connection(self) -> ClientConnection | None:
        """None where it is not one of HAL's own server."""
        connection: ClientConnection | None = self.request.scope["state"].get("connection")
        return connection

    @property
    def audit(self) -> AuditLog:
        """The log in which it is noted."""
        audit: AuditLog = self.request.scope["state"]["audit"]
        return audit

    @property
    def version(self) -> int:
        """The version of the interface in which it is answered: the one that was asked for, else the newest."""
        version: int = self.request.scope["state"]["version"]
        return version

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield the body piece by piece as it comes, where the row says `stream_bytes`. While nobody asks for the next
        piece, its sender is held up.

        Raises:
            TooLargeError: it is longer than the row allows; what came until then has been handed over.
            SenderGoneError: it broke off: undo what was begun.
        """
        while True:
            message: Any = await self.request.receive()
            if message["type"] != "http.request":
                raise SenderGoneError("the sender disconnected before the end of the body")
            if piece := message.get("body", b""):
                yield piece
            if not message.get("more_body"):
                return

    def path(self, name: str) -> str:
        """A part of the path, by its name in the row."""
        part: str = self.request.path_params[name]
        return part.replace("%2F", "/")  # the guard left it so

    def header(self, name: str) -> str | None:
        """A header of the request."""
        return self.request.headers.get(name)
