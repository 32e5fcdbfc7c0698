"""`hal.connect()` and `hal.aconnect()`: find a HAL, and make sure that it answers."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hal.client.address_lookup import find_address

if TYPE_CHECKING:
    from hal.client.async_client import AsyncClient
    from hal.client.sync_client import Client


def connect(
    home: str | os.PathLike[str] | None = None,
    url: str | None = None,
    token: str | None = None,
    fingerprint: str | None = None,
    *,
    plain: bool = False,
) -> Client:
    """Connect to a HAL: by home or URL, else by $HAL_URL, else by $HAL_HOME, the login or the default home.

    Args:
        home: its HAL_HOME on this machine.
        url: `https://host:port` (started with `hal up --tcp`), several controllers of one HAL separated by commas, of
            which any is used; or `unix:///path/of/api.sock`.
        token: bearer token for URLs; default $HAL_TOKEN, else that of the login, else the `token` file in the home
            directory if the URL is that of its HAL. Without one, a Unix socket takes whom the kernel names.
        fingerprint: of the HAL's own authority (`hal status` there shows it), for https if no authority of this machine
            has signed the certificate; default $HAL_FINGERPRINT, else that of the login.
        plain: send token and jobs over `http://` to any machine, whoever answers; default $HAL_PLAIN, else that of
            the login. Without it they are sent only to this machine, to a server of this user, of root, or of the user
            that `hal login` found there.
    Raises:
        UnreachableError: no HAL answers there; the hint is how to start it.
        DeniedError: it belongs to another user, or the token is wrong.
        SpecError: the URL or the fingerprint is malformed.
    """
    from hal.client.sync_client import Client

    client = Client(find_address(home, url, token, fingerprint, plain=plain))
    client.version()
    return client


def aconnect(
    home: str | os.PathLike[str] | None = None,
    url: str | None = None,
    token: str | None = None,
    fingerprint: str | None = None,
    *,
    plain: bool = False,
) -> Connecting:
    """As `connect`, for asyncio: `client = await hal.aconnect()`, or `async with hal.aconnect() as client:`."""
    return Connecting(_connected(home, url, token, fingerprint, plain=plain))


class Connecting(Coroutine[Any, Any, "AsyncClient"]):
    """A client to be: wait for it, or open it as a context manager that closes it."""

    def __init__(self, making: Coroutine[Any, Any, AsyncClient]) -> None:
        self._making = making
        self._client: AsyncClient | None = None

    def __await__(self) -> Generator[Any, Any, AsyncClient]:
        return self._making.__await__()

    def send(self, value: Any) -> Any:
        """See `Coroutine`."""
        return self._making.send(value)

    def throw(self, *error: Any) -> Any:
        """See `Coroutine`."""
        return self._making.throw(*error)

    def close(self) -> None:
        """See `Coroutine`."""
        self._making.close()

    async def __aenter__(self) -> AsyncClient:
        self._client = await self._making
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.aclose()


async def _connected(
    home: str | os.PathLike[str] | None, url: str | None, token: str | None, fingerprint: str | None, *, plain: bool
) -> AsyncClient:
    from hal.client.async_client import AsyncClient

    client = AsyncClient(find_address(home, url, token, fingerprint, plain=plain))
    try:
        await client.version()
    except BaseException:
        await client.aclose()
        raise
    return client
