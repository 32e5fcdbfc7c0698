"""The identity of the other end of a connection. Imports nothing, so that the keeper may use it."""

from __future__ import annotations

from typing import NamedTuple


class Peer(NamedTuple):
    """As reported by the kernel (SO_PEERCRED)."""

    pid: int
    uid: int
    gid: int


class CertifiedName(NamedTuple):
    """As stated in the other end's certificate, which this HAL's authority has signed."""

    role: str
    """As in `hal.wire.roles`, or one of a newer HAL."""
    name: str
    """Of the node, or of the process; of a controller, for people."""
    serial: str
    """Of the certificate, in lower-case hex digits."""
