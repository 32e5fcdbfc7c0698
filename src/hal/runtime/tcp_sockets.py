"""Listening sockets of TCP. Separate from `sockets`, which the keeper imports: the keeper has no event loop."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any, Final

from hal.runtime.sockets import BACKLOG

NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""Of a machine without addresses of a family."""


async def bind_tcp(host: str, port: int) -> list[socket.socket]:
    """Create listening sockets at all addresses of a host.

    Args:
        host: '': this machine, by IPv4 and IPv6, as far as it has them.
    Raises:
        OSError: the port is taken, or the host is not an address of this machine.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_ADDRCONFIG
    )
    bound: list[socket.socket] = []
    try:
        for family, kind, protocol, _, where in dict.fromkeys(found):
            try:
                bound.append(_listening(family, kind, protocol, where))
            except OSError as error:
                if host or error.errno not in NOT_HERE:
                    raise
        if not bound:
            raise OSError(errno.EADDRNOTAVAIL, "this machine has no address")
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
