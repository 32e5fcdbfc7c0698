"""Who is at the other end of a connection. Imports nothing, so that the keeper may use it."""

from __future__ import annotations

from typing import NamedTuple


class Peer(NamedTuple):
    """As the kernel says (SO_PEERCRED)."""

    pid: int
    uid: int
    gid: int
