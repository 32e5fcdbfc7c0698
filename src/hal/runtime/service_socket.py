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
    loop = asyncio.get_running_loop()
    until_s = loop.time() + timeout_ms / 1000
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sock:
            while not _connect(sock, path):  # noqa: ASYNC110 - the kernel does not say when a Unix socket accepts again
                await asyncio.sleep(min(BUSY_S, _left_s(until_s)))
            sent = _send(sock, line)
            if sent < len(line):
                await asyncio.wait_for(loop.sock_sendall(sock, line[sent:]), _left_s(until_s))
            answer = await _Answer(sock, _left_s(until_s), most).wait()
    except TimeoutError:
        raise TimedOutError(f"{path} did not answer within {timeout_ms} ms") from None
    except OSError as error:
        raise UnreachableError(f"{path}: {error.strerror}") from error
    end = answer.find(b"\n")
    return bytes(answer[: most + 1] if end < 0 else answer[: end + 1])


class _Answer:
    """What comes on a connection until it is enough. By callbacks: a question is asked at each gated start, and layers
    of coroutines around each call cost more than the calls."""

    def __init__(self, sock: socket.socket, timeout_s: float, most: int) -> None:
        self._sock = sock
        self._most = most
        self._answer = bytearray()
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[OSError | None] = self._loop.create_future()
        self._timer = self._loop.call_later(timeout_s, self._end, TimeoutError())
        self._loop.add_reader(sock.fileno(), self._read)

    async def wait(self) -> bytearray:
        """
        Raises:
            TimeoutError: it takes too long.
            OSError: the connection broke.
        """
        try:
            error = await self._ended
        finally:
            self._timer.cancel()
            self._loop.remove_reader(self._sock.fileno())
        if error is not None:
            raise error
        return self._answer

    def _read(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error)
            return
        self._answer += data
        if not data or b"\n" in data or len(self._answer) > self._most:
            self._end(None)

    def _end(self, error: OSError | None) -> None:
        if not self._ended.done():
            self._ended.set_result(error)


def _left_s(until_s: float) -> float:
    """
    Raises:
        TimeoutError: none.
    """
    left_s = until_s - asyncio.get_running_loop().time()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _send(sock: socket.socket, line: bytes) -> int:
    """Send what the kernel takes now; returns how many bytes."""
    try:
        return sock.send(line)
    except BlockingIOError:
        return 0


def _connect(sock: socket.socket, path: Path) -> bool:
    """Connect to a service that may be trusted; False if it accepts no further connection at the moment."""
    parent, name = os.path.split(path)
    try:
        directory = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise UnreachableError(f"nobody serves {path}: {error.strerror}") from error
    try:
        _check_owner(os.fstat(directory), parent)
        info = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISSOCK(info.st_mode):
            raise DeniedError(f"{path} is not a socket")
        _check_owner(info, path, writable=False)
        sock.connect(f"/proc/self/fd/{directory}/{name}")
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


def _check_owner(info: os.stat_result, what: Path | str, *, writable: bool = True) -> None:
    if info.st_uid not in (0, os.geteuid()):
        raise DeniedError(f"{what} belongs to user id {info.st_uid}, who is neither you nor root")
    if writable and others_may_write(info):
        raise DeniedError(f"{what} can be written to by others, who could put a socket of their own there")
