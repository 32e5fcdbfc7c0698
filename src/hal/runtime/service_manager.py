"""What a service manager is told: that HAL works, what it does, that it stops. The protocol of sd_notify(3).

Nothing is told where NOTIFY_SOCKET is not set. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Final

VARIABLE: Final = "NOTIFY_SOCKET"
WATCHDOG_VARIABLE: Final = "WATCHDOG_USEC"
READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
ALIVE: Final = "WATCHDOG=1"


def notify(*lines: str) -> bool:
    """Tell the service manager of this process; returns whether there is one that could be told."""
    address = os.environ.get(VARIABLE, "")
    if not address.startswith(("/", "@")):
        return False
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        to.connect("\0" + address[1:] if address.startswith("@") else address)
        to.send("\n".join(lines).encode())
        return True
    return False


def status(text: str) -> str:
    """The line that says in words what is going on."""
    return f"STATUS={' '.join(text.split())}"


def watchdog_s() -> float | None:
    """Within how many seconds the service manager wants to hear ALIVE again and again; None: it does not."""
    text = os.environ.get(WATCHDOG_VARIABLE, "")
    owner = os.environ.get("WATCHDOG_PID", "")
    if not text.isdecimal() or not int(text) or (owner and owner != str(os.getpid())):
        return None
    return int(text) / 1e6
