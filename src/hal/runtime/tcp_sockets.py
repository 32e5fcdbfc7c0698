"""Listening sockets of TCP. Separate from `sockets`, which the keeper imports: the keeper has no event loop."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from hal.runtime.sockets import BACKLOG


async def bind_tcp(host: str, port: int) -> list[socket.socket]:
    """Create listening sockets at all addresses of a host.

    Raises:
        OSError: the port is taken, or the host is not an address of this machine.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_ADDRCONFIG
    )
    bound: list[socket.socket] = []
    try:
        for family, kind, protocol, _, where in dict.fromkeys(found):
            bound.append(_listening(family, kind, protocol, where))
    except OSError:
        for sock in bound:
            sock.close()
        raise
    return bound


def _listening(family: int, kind: int, protocol: int, where: Any) -> socket.socket:
    sock = socket.socket(family, kind | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(where)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
