"""`hal.connect()` and `hal.aconnect()`: find a HAL, and make sure that it answers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hal.client.address import find_address

if TYPE_CHECKING:
    from hal.client.aio import AsyncClient
    from hal.client.sync import Client


def connect(home: str | os.PathLike[str] | None = None, url: str | None = None, token: str | None = None) -> Client:
    """A client of the HAL that is meant: by home, by URL, else $HAL_URL, else $HAL_HOME or the default home.

    Args:
        home: its HAL_HOME on this machine.
        url: `http://host:port` (started with `hal up --tcp`) or `unix:///path/of/api.sock`.
        token: bearer token for http; default $HAL_TOKEN, else the `token` file in the home directory.
    Raises:
        UnreachableError: no HAL answers there; says how to start it.
        DeniedError: it belongs to somebody else, or the token is wrong.
        SpecError: the URL is not one.
    """
    from hal.client.sync import Client

    client = Client(find_address(home, url, token))
    client.version()
    return client


async def aconnect(
    home: str | os.PathLike[str] | None = None, url: str | None = None, token: str | None = None
) -> AsyncClient:
    """As `connect`, for asyncio."""
    from hal.client.aio import AsyncClient

    client = AsyncClient(find_address(home, url, token))
    try:
        await client.version()
    except BaseException:
        await client.aclose()
        raise
    return client
