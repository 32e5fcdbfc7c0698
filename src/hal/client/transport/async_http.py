"""The transport of the asyncio client: httpx.

Addresses, trust, retries and errors are those of the sync client.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any

import httpx

from hal.client.addresses.address import DIAL_TIMEOUT_S, Address
from hal.client.addresses.endpoints import Endpoint
from hal.client.addresses.server_identity import check_tcp, check_unix, refuse_plain
from hal.client.transport.async_transport import AsyncTransport
from hal.client.transport.exchange import (
    ANSWER_TIMEOUT_S,
    MAX_ANSWER_BYTES,
    MAX_CONNECTIONS,
    MAX_STREAMS,
    RECONNECT_S,
    STREAM_TIMEOUT_S,
    Answer,
    BrokenConnectionError,
    BrokenStreamError,
    Request,
    refuse_closed,
    too_long,
)
from hal.client.transport.pace import LEAST_BYTES_PER_S, TOO_SLOW, Pace
from hal.client.transport.problems import error_from_answer

LIMITS = httpx.Limits(max_connections=MAX_CONNECTIONS + MAX_STREAMS, max_keepalive_connections=MAX_CONNECTIONS)


async def _check_connected(address: Address, endpoint: Endpoint | None, event: str, about: Mapping[str, Any]) -> None:
    """Look who serves a new connection without TLS, before anything is sent on it; httpx calls this.

    Raises:
        DeniedError: somebody who is not meant.
    """
    if not event.startswith("connection.connect_") or not event.endswith(".complete"):
        return
    connection = about["return_value"].get_extra_info("socket")
    try:
        if endpoint is None:
            check_unix(address, connection)
        else:
            check_tcp(address, endpoint, connection)
    except BaseException:
        await about["return_value"].aclose()
        raise


def _plain(uds: str | None = None) -> httpx.AsyncHTTPTransport:
    """Without TLS. It trusts no authority: to read all those of the machine takes a client longer than its request."""
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.AsyncHTTPTransport(uds=uds, verify=nobody, limits=LIMITS, trust_env=False)


def _client(transport: httpx.AsyncHTTPTransport, endpoint: Endpoint | None = None) -> httpx.AsyncClient:
    base = endpoint.url if endpoint is not None else "http://localhost"
    return httpx.AsyncClient(transport=transport, base_url=base, trust_env=False)


class HttpxStream:
    """An answer that is read as it comes."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._pieces = response.aiter_raw()
        self.headers: Mapping[str, str] = dict(response.headers)

    async def read(self) -> bytes | None:
        """As `AsyncStream.read`."""
        try:
            return await anext(self._pieces, None)
        except httpx.TransportError as error:
            raise BrokenStreamError(f"the stream broke off: {error}") from error

    async def aclose(self) -> None:
        """Closing twice does nothing."""
        await self._response.aclose()


class AsyncConnections(AsyncTransport):
    """An httpx client for each controller."""

    def __init__(self, address: Address, *, reconnect_s: float = RECONNECT_S) -> None:
        super().__init__(address, reconnect_s=reconnect_s)
        self._http: dict[str, httpx.AsyncClient] = {}
        """By socket, or by URL of the controller."""

    async def aclose(self) -> None:
        """Close all connections."""
        self.closed = True
        await self._drop()

    async def _drop(self) -> None:
        clients, self._http = list(self._http.values()), {}
        for client in clients:
            await client.aclose()

    async def _send_once(self, request: Request, endpoint: Endpoint | None) -> Answer:
        try:
            client, more = await self._connected(endpoint)
            sent_s = ANSWER_TIMEOUT_S + request.wait_s + len(request.body or b"") / LEAST_BYTES_PER_S
            built = self._built(client, request, endpoint, more)
            response = await _in_time(client.send(built, stream=True), sent_s)
            return Answer(response.status_code, dict(response.headers), await _whole(response))
        except httpx.TransportError as error:
            raise self._told(endpoint, error) from error

    async def _stream_once(self, request: Request, endpoint: Endpoint | None) -> HttpxStream:
        try:
            client, more = await self._connected(endpoint)
            built = self._built(client, request, endpoint, more, STREAM_TIMEOUT_S)
            response = await _in_time(client.send(built, stream=True), STREAM_TIMEOUT_S)
            self._answered = True
            if response.status_code >= 400:
                raise error_from_answer(response.status_code, await _whole(response))
        except httpx.TransportError as error:
            raise self._told(endpoint, error) from error
        return HttpxStream(response)

    async def _probe(self, endpoint: Endpoint) -> None:
        from hal.client.addresses import trust

        await asyncio.to_thread(trust.refuse_plain, endpoint)

    async def _connected(self, endpoint: Endpoint | None) -> tuple[httpx.AsyncClient, dict[str, Any]]:
        """The httpx client for that controller, and the extensions of each request."""
        refuse_closed(self.closed)
        if endpoint is None:
            path = self.address.path()
            if path not in self._http:
                await self._drop()  # a restart has chosen another one
                self._http[path] = _client(_plain(uds=path))
            return self._http[path], {"trace": partial(_check_connected, self.address, None)}
        if not endpoint.tls:
            refuse_plain(self.address, endpoint)
            if endpoint.url not in self._http:
                self._http[endpoint.url] = _client(_plain(), endpoint)
            return self._http[endpoint.url], {"trace": partial(_check_connected, self.address, endpoint)}
        from hal.client.addresses.trust import context_for, server_name

        authority = await asyncio.to_thread(self.address.believed, endpoint)
        refuse_closed(self.closed)
        if endpoint.url not in self._http:
            secured = httpx.AsyncHTTPTransport(verify=context_for(authority), limits=LIMITS, trust_env=False)
            self._http[endpoint.url] = _client(secured, endpoint)
        return self._http[endpoint.url], {"sni_hostname": server_name(endpoint, authority)}

    def _built(
        self,
        client: httpx.AsyncClient,
        request: Request,
        endpoint: Endpoint | None,
        more: dict[str, Any],
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> httpx.Request:
        several = len(self.address.endpoints) > 1
        patience_s = timeout_s + request.wait_s
        return client.build_request(
            request.method,
            request.target,
            content=request.body,
            headers=request.all_headers(self.address, endpoint),
            timeout=httpx.Timeout(patience_s, connect=DIAL_TIMEOUT_S if several else patience_s),
            extensions=more,
        )

    def _told(self, endpoint: Endpoint | None, error: httpx.TransportError) -> Exception:
        """What went wrong, in the errors of a transport; a DeniedError where the controller is not trusted."""
        cause: BaseException | None = error
        while cause is not None and endpoint is not None and endpoint.tls:
            if isinstance(cause, ssl.SSLError):
                from hal.client.addresses.trust import tls_error

                return tls_error(endpoint, cause, self.address.authority or self.address.fingerprint)
            cause = cause.__cause__ or cause.__context__
        why = str(error) or repr(error)
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return self.address.unreachable(why, endpoint)
        return BrokenConnectionError(why, timed_out=isinstance(error, httpx.TimeoutException))


async def _in_time(sending: Awaitable[httpx.Response], patience_s: float) -> httpx.Response:
    """
    Raises:
        httpx.ReadTimeout: its head has not come, however little was missing.
    """
    try:
        async with asyncio.timeout(patience_s):
            return await sending
    except TimeoutError:
        raise httpx.ReadTimeout(TOO_SLOW) from None


async def _whole(response: httpx.Response) -> bytes:
    """The body, which is closed behind it; compressed it is not, for that was not asked for.

    Raises:
        InternalError: it is longer than `MAX_ANSWER_BYTES`; no more of it was kept.
        httpx.ReadTimeout: it comes too slowly.
    """
    parts, size = [], 0
    clock = asyncio.get_running_loop().time
    pace = Pace(clock(), ANSWER_TIMEOUT_S)
    pace.head_is_read(clock())
    try:
        async for piece in response.aiter_raw():
            size += len(piece)
            pace.came(len(piece))
            if size > MAX_ANSWER_BYTES:
                raise too_long()
            if pace.left_s(clock()) <= 0:
                raise httpx.ReadTimeout(TOO_SLOW)
            parts.append(piece)
    finally:
        await response.aclose()
    return b"".join(parts)
