"""The Unix socket at which a script of HAL takes orders of its starter: one process serves it, others find that out.

Only the standard library, so that it can run without packages.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from typing import Final

BACKLOG: Final = 128
"""Orders of which the connection was not accepted yet."""
ORDER_S: Final = 2.0
"""How long the other side may take to send an order that it has begun."""


class OrderSocket:
    """Listens from the start; serves the process's user and root."""

    def __init__(self, path: str) -> None:
        """
        Raises:
            FileExistsError: another process serves it.
            OSError: the path cannot be used.
        """
        self._path = path
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(path)
            except FileNotFoundError:
                pass
            except ConnectionRefusedError:
                os.unlink(path)
            else:
                raise FileExistsError(f"{path} is served already")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._listener.bind(path)
        os.chmod(path, 0o600)
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        self._inode = os.lstat(path).st_ino

    def fileno(self) -> int:
        return self._listener.fileno()

    @property
    def served(self) -> bool:
        """Whether the path still leads here."""
        try:
            return os.lstat(self._path).st_ino == self._inode
        except OSError:
            return False

    def accept(self) -> socket.socket | None:
        """Accept somebody who may give orders, who has `ORDER_S` for it; None: nobody came, or somebody else."""
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        if user_of(accepted) in (0, os.geteuid()):
            accepted.settimeout(ORDER_S)
            return accepted
        accepted.close()
        return None

    def close(self) -> None:
        """Listen no more; the path stays."""
        self._listener.close()

    def remove(self) -> None:
        """Remove the path, if it leads here."""
        if self.served:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)


def user_of(accepted: socket.socket) -> int:
    """The user id of the process at the other end of a Unix socket, as the kernel says."""
    return int(struct.unpack("3i", accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])
