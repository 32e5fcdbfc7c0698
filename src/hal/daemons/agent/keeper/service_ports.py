"""Which ports the steps of services on this node serve at: numbers that no other step of this keeper has, and at which
nobody listens.

The range lies below the one from which Linux gives connections their ports. A number is given to the next step that
asks for one only after all the others were: what still speaks to a step that has ended hardly meets its successor.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Callable
from typing import Final

from hal.wire.frames.agent_keeper import TemplateService

FIRST_PORT: Final = 20_000
PORTS: Final = 12_000
"""Numbers from that one on."""
MAX_TRIES: Final = 256
"""Numbers that are tried for one port."""


class ServicePorts:
    """Chooses them."""

    def __init__(self, node: str, is_free: Callable[[int], bool]) -> None:
        """Args:
        node: where to begin depends on it, so that the nodes of one machine hardly meet.
        is_free: whether nobody listens at a port.
        """
        self._next = zlib.crc32(node.encode()) % PORTS
        self._is_free = is_free

    def choose(self, service: TemplateService, is_taken: Callable[[int], bool]) -> tuple[int, ...] | None:
        """Return a number for each port of a step; None: none was found.

        Args:
            is_taken: whether another step has it.
        """
        chosen: list[int] = []
        for _, number in service.ports:
            found = number or self._find(lambda port: port in chosen or is_taken(port))
            if not found:
                return None
            chosen.append(found)
        return tuple(chosen)

    def _find(self, is_taken: Callable[[int], bool]) -> int:
        for _ in range(MAX_TRIES):
            port = FIRST_PORT + self._next
            self._next = (self._next + 1) % PORTS
            if not is_taken(port) and self._is_free(port):
                return port
        return 0


def is_port_free(port: int) -> bool:
    """Whether nobody listens at that TCP port of this machine, on any address."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.bind(("", port))
    except OSError:
        return False
    return True
