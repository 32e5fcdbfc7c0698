"""Connections to a controller's REST: to its socket on this host, or to its port, once it is known who serves there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from hal.core.model import DeniedError, HALError, UnreachableError
from hal.runtime.interface import Credentials
from hal.runtime.sockets import is_trusted_peer, peer_of
from hal.runtime.tls import CONTROLLER_HOST, client_context
from hal.wire.address import is_loopback

DIAL_TIMEOUT_S: Final = 2.0
MAX_HEAD_BYTES: Final = 64 << 10
"""Of the answer; also how much of it is buffered."""
UNIX: Final = "unix:"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def dial_any(addresses: Sequence[str], authority: Path) -> tuple[str, Streams]:
    """The first of the addresses that answers, and the connection. A socket that this user may not use is left out.

    Args:
        addresses: `unix:/path` and URLs.
        authority: certificate file of the HAL's own, by which the controller is known over TLS.
    Raises:
        UnreachableError: none answers; says why of the last one.
    """
    why = "it serves no port"
    for address in addresses:
        if address.startswith(UNIX) and not os.access(address.removeprefix(UNIX), os.R_OK | os.W_OK):
            continue
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                return address, await dial(address, authority)
        except (OSError, TimeoutError, HALError) as error:
            why = str(error) or type(error).__name__
    raise UnreachableError(why)


async def dial(address: str, authority: Path) -> Streams:
    """One connection.

    Raises:
        DeniedError: whoever listens there on this host need not be the controller: it would learn a secret.
        OSError: nobody listens, or the connection broke.
    """
    if address.startswith(UNIX):
        reader, writer = await asyncio.open_unix_connection(address.removeprefix(UNIX), limit=MAX_HEAD_BYTES)
        peer = peer_of(writer.get_extra_info("socket").fileno())
        if not is_trusted_peer(peer):
            writer.close()
            raise DeniedError(f"on this host user id {peer.uid} serves that socket")
        return reader, writer
    parts = urlsplit(address)
    if parts.scheme == "http":
        if is_loopback(parts.hostname or ""):
            raise DeniedError("that is plain HTTP on the loopback address of its own host")
        return await asyncio.open_connection(parts.hostname, parts.port, limit=MAX_HEAD_BYTES)
    secured = client_context(Credentials(authority))
    return await asyncio.open_connection(
        parts.hostname, parts.port, limit=MAX_HEAD_BYTES, ssl=secured, server_hostname=CONTROLLER_HOST
    )
