"""`hal.connect()` and `hal.aconnect()`: find a HAL, and make sure that it answers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hal.client.address import find_address

if TYPE_CHECKING:
    from hal.client.aio import AsyncClient
    from hal.client.sync import Client


def connect(
    home: str | os.PathLike[str] | None = None,
    url: str | None = None,
    token: str | None = None,
    fingerprint: str | None = None,
    *,
    plain: bool = False,
) -> Client:
    """A client of the HAL that is meant: by home, by URL, else $HAL_URL, else $HAL_HOME or the default home.

    Args:
        home: its HAL_HOME on this machine.
        url: `https://host:port` (started with `hal up --tcp`), several controllers of one HAL with commas between: any
            that answers is asked; or `unix:///path/of/api.sock`.
        token: bearer token for URLs; default $HAL_TOKEN, else what `hal login` kept for them, else the `token` file in
            the home directory where the URL is that of its own HAL.
        fingerprint: of the HAL's own authority (`hal status` there tells it), for https where no authority of this
            machine has signed the certificate; default $HAL_FINGERPRINT, else what `hal login` kept.
        plain: send token and jobs over `http://` to any machine and to whoever answers there; default $HAL_PLAIN, else
            what `hal login --plain` kept. Without it that goes to this machine only, and only to a server of this user,
            of root, or of whom `hal login` found there.
    Raises:
        UnreachableError: no HAL answers there; says how to start it.
        DeniedError: it belongs to somebody else, or the token is wrong.
        SpecError: the URL is not one, or what is no fingerprint.
    """
    from hal.client.sync import Client

    client = Client(find_address(home, url, token, fingerprint, plain=plain))
    client.version()
    return client


async def aconnect(
    home: str | os.PathLike[str] | None = None,
    url: str | None = None,
    token: str | None = None,
    fingerprint: str | None = None,
    *,
    plain: bool = False,
) -> AsyncClient:
    """As `connect`, for asyncio."""
    from hal.client.aio import AsyncClient

    client = AsyncClient(find_address(home, url, token, fingerprint, plain=plain))
    try:
        await client.version()
    except BaseException:
        await client.aclose()
        raise
    return client
