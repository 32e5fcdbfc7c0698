"""How requests are sent: to any controller of the address, again where that is safe, for as long as it is worth it.

What opens connections and reads answers is in the subclasses. The sync twin is generated from this file.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from asyncio import sleep
from typing import TYPE_CHECKING

from hal.client.addresses.endpoints import Endpoint
from hal.client.transport.exchange import RECONNECT_S, Answer, BrokenConnectionError, Request, refuse_closed
from hal.client.transport.problems import error_from_answer
from hal.client.transport.retries import Tries
from hal.client.transport.rotation import Rotation
from hal.core.model.errors import UnreachableError

if TYPE_CHECKING:
    from hal.client.addresses.address import Address
    from hal.client.transport.async_stream import AsyncStream


class AsyncTransport(ABC):
    """Connections to the controllers of one address."""

    def __init__(self, address: Address, *, reconnect_s: float = RECONNECT_S) -> None:
        self.address = address
        self.reconnect_s = reconnect_s
        self.closed = False
        self._rotation = Rotation(address.endpoints)
        self._answered = False

    async def send(self, request: Request) -> Answer:
        """Send a request and read its answer.

        Raises:
            ConflictError: the client was closed.
            UnreachableError: no controller answers; one that answered this client before was tried for `reconnect_s`.
            HALError: what the controller's problem document says.
        """
        refuse_closed(self.closed)
        tries = self._tries(request)
        while True:
            endpoint = self._rotation.current
            try:
                answer = await self._send_once(request, endpoint)
            except UnreachableError as error:
                delay_s = tries.after_unreachable(endpoint, error, time.monotonic())
            except BrokenConnectionError as error:
                await self._refuse_plain_to_tls(endpoint)
                delay_s = tries.after_break(endpoint, error, time.monotonic())
            else:
                again_s = tries.after_answer(endpoint, answer, time.monotonic())
                if again_s is None:
                    break
                delay_s = again_s
            await sleep(delay_s)
        self._answered = True
        self._rotation.answered(endpoint)
        if answer.status >= 400:
            raise error_from_answer(answer.status, answer.body)
        return answer

    async def stream(self, request: Request) -> AsyncStream:
        """Open an answer that is read as it comes; the caller closes it, and opens it again when it breaks.

        Raises:
            as `send`.
        """
        refuse_closed(self.closed)
        tries = self._tries(request)
        while True:
            endpoint = self._rotation.current
            try:
                opened = await self._stream_once(request, endpoint)
                self._rotation.answered(endpoint)
                return opened
            except UnreachableError as error:
                delay_s = tries.after_unreachable(endpoint, error, time.monotonic(), reached=self._answered)
            except BrokenConnectionError as error:
                await self._refuse_plain_to_tls(endpoint)
                delay_s = tries.after_break(endpoint, error, time.monotonic())
            await sleep(delay_s)

    @abstractmethod
    async def aclose(self) -> None:
        """Close what is idle; requests under way finish and close theirs."""

    @abstractmethod
    async def _send_once(self, request: Request, endpoint: Endpoint | None) -> Answer:
        """Send a request to one controller and read the whole answer, whatever its status.

        Raises:
            UnreachableError: it could not be reached; the request was not sent.
            BrokenConnectionError: the connection broke, or the answer took too long.
        """

    @abstractmethod
    async def _stream_once(self, request: Request, endpoint: Endpoint | None) -> AsyncStream:
        """Open a streamed answer of one controller.

        Raises:
            UnreachableError, BrokenConnectionError: as `_send_once`.
            HALError: what the controller's problem document says.
        """

    @abstractmethod
    async def _probe(self, endpoint: Endpoint) -> None:
        """Refuse a controller that expects TLS where the address has none; as `trust.refuse_plain`."""

    def _tries(self, request: Request) -> Tries:
        return Tries(request, self.address, self._rotation, answered=self._answered, reconnect_s=self.reconnect_s)

    async def _refuse_plain_to_tls(self, endpoint: Endpoint | None) -> None:
        """After a break: is it because TLS is expected there?"""
        if endpoint is not None and not endpoint.tls and not self._answered:
            await self._probe(endpoint)
