"""Addresses by which other machines reach a node: how they are written, and which ones a node may state.

Pure. A node that joined is reached where the controller sees it, unless it states another address that the operator
allows: an address goes into the environment of other nodes' steps, so a node may not direct them anywhere it likes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Final

from hal.core.model.errors import SpecError, shown

MAX_ADDRESS: Final = 253
MAX_PATTERNS: Final = 64
"""Patterns of addresses that nodes may state."""
KNOWN_ADDRESSES: Final = 1 << 15
"""Of so many it is remembered how they are written: each node that dials is compared with all others."""
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*\Z")
_ALL_DIGITS: Final = re.compile(r"[0-9.]+\Z")


def is_node_address(text: str) -> bool:
    """Whether it is an IP address or a host name, without a port."""
    if _is_ip(text):
        return True
    return len(text) <= MAX_ADDRESS and _NAME.match(text) is not None and _ALL_DIGITS.match(text) is None


def check_node_address(text: str, field: str = "--address") -> str:
    """Return the address; '' is none.

    Raises:
        SpecError: it is neither an IP address nor a host name.
    """
    if text and not is_node_address(text):
        raise SpecError(
            f"{field}: '{shown(text)}' is not an address", hint="an IP address or a host name, without a port"
        )
    return text


def check_patterns(patterns: Sequence[str], field: str) -> tuple[str, ...]:
    """Return the patterns of addresses that nodes may state.

    Raises:
        SpecError: one is neither a network (`10.1.0.0/16`), a domain (`*.ib.example.org`) nor an address; or too many.
    """
    if len(patterns) > MAX_PATTERNS:
        raise SpecError(f"{field}: {len(patterns)} patterns; at most {MAX_PATTERNS} are allowed")
    for pattern in patterns:
        if not (_is_network(pattern) or is_node_address(pattern.removeprefix("*."))):
            raise SpecError(
                f"{field}: '{shown(pattern)}' is not a pattern of addresses",
                hint='"10.1.0.0/16", "*.ib.example.org" or a single address',
            )
    return tuple(patterns)


def may_state(address: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns allows the address."""
    return any(_matches(address, pattern) for pattern in patterns)


def same_address(one: str, other: str) -> bool:
    """Whether both are written for the same address."""
    return _canonical(one) == _canonical(other)


@lru_cache(maxsize=KNOWN_ADDRESSES)
def _canonical(address: str) -> str:
    """The one way to write that address."""
    return str(ip_address(address)) if _is_ip(address) else address.lower()


def _matches(address: str, pattern: str) -> bool:
    if _is_network(pattern):
        return _is_ip(address) and ip_address(address) in ip_network(pattern, strict=False)
    if pattern.startswith("*."):
        return not _is_ip(address) and address.lower().endswith(pattern[1:].lower())
    return same_address(address, pattern)


def _is_ip(text: str) -> bool:
    try:
        return len(text) <= MAX_ADDRESS and "%" not in text and bool(ip_address(text))
    except ValueError:
        return False


def _is_network(text: str) -> bool:
    try:
        return "/" in text and len(text) <= MAX_ADDRESS and bool(ip_network(text, strict=False))
    except ValueError:
        return False
