"""Ask a service of this host: one line to its Unix socket, one line back.

The socket must be in a directory that only its owner may write, and directory, socket and server must belong to this
user or to root: whoever else could put a socket there would decide in the service's name. The directory is opened once
and the socket reached through it, so nothing can be exchanged in between, and the path may be of any length.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path
from typing import Final

from hal.core.model.errors import DeniedError, TimedOutError, UnreachableError
from hal.runtime.privacy import others_may_write
from hal.runtime.sockets import is_trusted_peer, peer_of_socket

READ_BYTES: Final = 4_096
BUSY_S: Final = 0.005
"""Pause before connecting again to a service that has too many connections to accept another one now."""


async def ask_service(path: Path, line: bytes, *, timeout_ms: int, most: int) -> bytes:
    """Send a line and return what is answered up to its newline, or up to the end; at most one byte more than `most`.

    Raises:
        UnreachableError: nobody serves the socket, or the connection broke.
        TimedOutError: no whole line within the time.
        DeniedError: somebody else could be in the service's place.
    """
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await _exchange(path, line, most)
    except TimeoutError:
        raise TimedOutError(f"{path} did not answer within {timeout_ms} ms") from None


async def _exchange(path: Path, line: bytes, most: int) -> bytes:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sock:
        while not _connect(sock, path):  # noqa: ASYNC110 - the kernel does not say when a Unix socket accepts again
            await asyncio.sleep(BUSY_S)
        answer = bytearray()
        try:
            await loop.sock_sendall(sock, line)
            while b"\n" not in answer and len(answer) <= most:
                data = await loop.sock_recv(sock, READ_BYTES)
                if not data:
                    break
                answer += data
        except OSError as error:
            raise UnreachableError(f"{path}: {error.strerror}") from error
    end = answer.find(b"\n")
    return bytes(answer[: most + 1] if end < 0 else answer[: end + 1])


def _connect(sock: socket.socket, path: Path) -> bool:
    """Connect to a service that may be trusted; False if it accepts no further connection at the moment."""
    try:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise UnreachableError(f"nobody serves {path}: {error.strerror}") from error
    try:
        _check_owner(os.fstat(directory), str(path.parent))
        info = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISSOCK(info.st_mode):
            raise DeniedError(f"{path} is not a socket")
        _check_owner(info, str(path), writable=False)
        sock.connect(f"/proc/self/fd/{directory}/{path.name}")
    except BlockingIOError:
        return False
    except OSError as error:
        raise UnreachableError(f"nobody serves {path}: {error.strerror}") from error
    finally:
        os.close(directory)
    peer = peer_of_socket(sock)
    if not is_trusted_peer(peer):
        raise DeniedError(f"{path} is served by user id {peer.uid}, who is neither you nor root")
    return True


def _check_owner(info: os.stat_result, what: str, *, writable: bool = True) -> None:
    if info.st_uid not in (0, os.geteuid()):
        raise DeniedError(f"{what} belongs to user id {info.st_uid}, who is neither you nor root")
    if writable and others_may_write(info):
        raise DeniedError(f"{what} can be written to by others, who could put a socket of their own there")
