"""The address where a controller listens, as people write it: `HOST`, `HOST:PORT`, `[IPV6]:PORT`. Pure."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

from hal.core.model.errors import SpecError, shown

DEFAULT_PORT: Final = 7_422
"""Default port of a controller for agents of other machines."""
MAX_CONTROLLERS: Final = 16

_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9]([A-Za-z0-9._-]{0,252})))(?::([0-9]{1,5}))?")


def parse_address(text: str, field: str = "--controller") -> tuple[str, int]:
    """Parse an address; without a port, the default port is used.

    Raises:
        SpecError: it is neither HOST nor HOST:PORT.
    """
    found = _ADDRESS.fullmatch(text.strip())
    port = DEFAULT_PORT if found is None or found[4] is None else int(found[4])
    if found is None or not 0 < port < 65_536:
        raise SpecError(f"{field}: '{shown(text)}' is not HOST[:PORT]", hint=f"write head.example.org:{DEFAULT_PORT}")
    return found[1] or found[2], port


def format_address(host: str, port: int) -> str:
    """Format an address as text that `parse_address` reads back."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_controllers(text: str) -> tuple[str, ...]:
    """Parse several addresses, separated by commas, each with its port.

    Raises:
        SpecError: there are none or too many, or one is not an address.
    """
    parts = [part for part in text.split(",") if part.strip()]
    if not 1 <= len(parts) <= MAX_CONTROLLERS:
        raise SpecError(f"--controller: {len(parts)} addresses", hint=f"between 1 and {MAX_CONTROLLERS}")
    return tuple(dict.fromkeys(format_address(*parse_address(part)) for part in parts))


def is_loopback(host: str) -> bool:
    """Whether only this machine is reached there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
