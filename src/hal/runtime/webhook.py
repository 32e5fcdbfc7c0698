"""Posts one JSON text to the URL of a user; blocking, within a deadline altogether.

Users choose the URL, and this process may reach what they may not: so the host must be one that the site allows, and
the address is checked as the connection is made, not before. Nothing is followed, and of the answer only the status is
read. A host that the site names itself may have any address; one that only fits a pattern must have a public one.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Final

from hal.core.model import DeniedError, HALError, UnreachableError, one_line
from hal.core.model.notification import check_url

DEADLINE_S: Final = 10.0
"""From looking up the name to the status of the answer."""
MAX_STATUS_BYTES: Final = 1_024
"""Of the first line of the answer."""
MAX_ADDRESSES: Final = 8
"""Addresses of one name that are tried."""
ANY: Final = "*"
NO_HEADERS: Final[Mapping[str, str]] = {}

_EMBEDDING: Final = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")))
"""Addresses of IPv6 that lead to one of IPv4, which may be any."""


class WebhookRefused(HALError):
    """The URL does not take it, however often it is sent."""

    code = "refused"


def is_allowed(host: str, allowed: Sequence[str]) -> bool:
    """Whether the site allows webhooks to that host: it is named, or `*.DOMAIN` or `*` fits it."""
    host = host.lower().rstrip(".")
    return any(one in (ANY, host) or (one.startswith("*.") and host.endswith(one[1:])) for one in allowed)


def is_public(address: str) -> bool:
    """Whether an address is one of the internet: not loopback, private, link-local, multicast, nor leading to such."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        elif found.is_site_local or any(found in network for network in _EMBEDDING):
            return False
    return found.is_global and not found.is_multicast


def post(
    url: str, body: bytes, allowed: Sequence[str], *, authorities: str = "", headers: Mapping[str, str] = NO_HEADERS
) -> None:
    """Post the text; the answer must be of success.

    Args:
        allowed: see `is_allowed`.
        authorities: a PEM file; empty: those of the machine.
        headers: further ones; each value is one line.
    Raises:
        DeniedError: the site does not allow that host, or its address.
        WebhookRefused: it answered with a status of 300 to 499, but 408 and 429.
        UnreachableError: it does not answer, not in time, or with another status.
    """
    scheme, host, port, path = check_url(url)
    if not is_allowed(host, allowed):
        raise DeniedError(f"webhooks to {one_line(host, 200)} are not allowed here", hint="[notifications] in hal.toml")
    over_s = time.monotonic() + DEADLINE_S
    try:
        with _connected(host, port, over_s, any_address=host.lower().rstrip(".") in allowed) as plain:
            if scheme == "http":
                status = _exchange(plain, host, port, path, body, over_s, headers)
            else:
                context = ssl.create_default_context(cafile=authorities or None)
                with context.wrap_socket(plain, server_hostname=host) as encrypted:
                    status = _exchange(encrypted, host, port, path, body, over_s, headers)
    except (OSError, ValueError) as error:
        raise UnreachableError(f"webhook of {one_line(host, 200)}: {one_line(str(error), 200)}") from error
    if 200 <= status < 300:
        return
    words = f"webhook of {one_line(host, 200)} answered {status}"
    raise WebhookRefused(words) if 300 <= status < 500 and status not in (408, 429) else UnreachableError(words)


def _connected(host: str, port: int, over_s: float, *, any_address: bool) -> socket.socket:
    """A connection to an address that was checked: the name is looked up once.

    Raises:
        DeniedError: it has addresses, and none of them is allowed.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[:MAX_ADDRESSES]
    usable = [one for one in found if any_address or is_public(str(one[4][0]))]
    if found and not usable:
        raise DeniedError(
            f"{one_line(host, 200)} has no public address: {found[0][4][0]}",
            hint="an operator can name this host itself under webhook_hosts",
        )
    last: OSError = TimeoutError("no address")
    for family, kind, protocol, _, address in usable:
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(_left(over_s))
            made.connect(address)
        except OSError as error:
            made.close()
            last = error
        else:
            return made
    raise last


def _exchange(
    made: socket.socket, host: str, port: int, path: str, body: bytes, over_s: float, headers: Mapping[str, str]
) -> int:
    """Send the request; the status of the answer."""
    named = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {named}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nUser-Agent: HAL\r\nConnection: close\r\n"
    )
    head += "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    made.settimeout(_left(over_s))
    made.sendall(head.encode("ascii") + body)
    line = b""
    while b"\n" not in line and len(line) < MAX_STATUS_BYTES:
        made.settimeout(_left(over_s))
        piece = made.recv(MAX_STATUS_BYTES - len(line))
        if not piece:
            break
        line += piece
    words = line.partition(b"\n")[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not (words[1].isdigit() and len(words[1]) == 3):
        raise ValueError("its answer is not HTTP")
    return int(words[1])


def _left(over_s: float) -> float:
    left_s = over_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("it did not answer in time")
    return left_s
