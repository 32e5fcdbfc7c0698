"""Where a process listens over TCP, as the kernel says. Linux's /proc only; standard library only."""

from __future__ import annotations

import os
import socket
import struct
from typing import Final

_LISTEN: Final = "0A"
"""State of a socket that listens, in /proc/PID/net/tcp."""
MAX_LINES: Final = 100_000
"""Sockets of one table that are looked at."""


def listening_at(pid: int) -> list[tuple[str, int]] | None:
    """Addresses and ports, sorted; None: it belongs to another user, or has ended."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return None
    inodes = set()
    for name in names:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            with open(f"/proc/{pid}/net/{table}") as lines:
                next(lines, None)
                for _, line in zip(range(MAX_LINES), lines, strict=False):
                    fields = line.split()
                    if len(fields) > 9 and fields[3] == _LISTEN and fields[9] in inodes:
                        found.add(_address(fields[1], family))
        except OSError:
            continue
    return sorted(found)


def _address(text: str, family: socket.AddressFamily) -> tuple[str, int]:
    """`0100007F:1F90`: words of an address in the machine's byte order, and a port."""
    words, _, port = text.partition(":")
    packed = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
    return socket.inet_ntop(family, packed), int(port, 16)
