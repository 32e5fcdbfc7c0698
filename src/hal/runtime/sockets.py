"""Unix sockets: serve a path without stealing it from a live process, and identify the other end."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct
import sys
import termios
from pathlib import Path
from typing import Final

from hal.core.model.errors import ConflictError, DeniedError, NotFoundError
from hal.runtime.home import MAX_SOCKET_PATH_BYTES
from hal.wire.peer import Peer

BACKLOG: Final = 1_024
PROBE_TIMEOUT_S: Final = 1.0
_UCRED: Final = struct.Struct("3i")


def bind_public(path: Path) -> socket.socket:
    """As `bind_unix`, but every user of the machine may connect; none of them may be able to replace the socket in
    its directory.

    Raises:
        DeniedError: others may write to the directory, or it belongs to another user.
        as `bind_unix`.
    """
    try:
        info = path.parent.stat()
    except FileNotFoundError:
        raise NotFoundError(f"{path.parent} does not exist", hint=f"create it: mkdir -m 755 {path.parent}") from None
    if info.st_uid not in (0, os.geteuid()) or stat.S_IMODE(info.st_mode) & 0o022:
        raise DeniedError(
            f"{path.parent} can be written to by others, who could put a socket of their own there",
            hint=f"create a directory of your own: mkdir -m 755 {path.parent / 'hal'}",
        )
    return bind_unix(path, mode=0o666)


def bind_unix(path: Path, *, mode: int = 0o600) -> socket.socket:
    """Create a listening socket at `path`, readable and writable by this user only; a dead one is replaced.

    The inode identifies the socket later (`unlink_unix`).

    Args:
        mode: of the socket's file.
    Raises:
        ConflictError: a live process serves it, or something other than a socket is there.
        NotFoundError: its directory does not exist.
        DeniedError: it may not be created there.
    """
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise ConflictError(f"{path} is too long for a socket", hint=f"at most {MAX_SOCKET_PATH_BYTES} bytes")
    _clear_dead(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        # Nobody else can connect between bind and chmod: the directory is private, or everybody may connect.
        listener.bind(str(path))
        path.chmod(mode)
        listener.listen(BACKLOG)
    except FileNotFoundError:
        listener.close()
        raise NotFoundError(f"{path.parent} does not exist", hint="the socket directory was removed") from None
    except PermissionError as error:
        listener.close()
        raise DeniedError(f"{path} cannot be served: {error.strerror}") from error
    except OSError as error:
        listener.close()
        raise ConflictError(f"{path} cannot be served: {error.strerror}") from error
    return listener


def unlink_unix(path: Path, inode: int) -> None:
    """Remove the socket file if it still has that inode."""
    try:
        if os.lstat(path).st_ino == inode:
            path.unlink()
    except FileNotFoundError:
        return


def peer_of(fd: int) -> Peer:
    """The process that connected (or, on the connecting side, the one that listens), as the kernel recorded it."""
    borrowed = socket.socket(fileno=fd)  # uses no descriptor of its own: there may be none left
    try:
        return peer_of_socket(borrowed)
    finally:
        borrowed.detach()


def peer_of_socket(sock: socket.socket) -> Peer:
    """As `peer_of`, for a socket object."""
    pid, uid, gid = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return Peer(pid, uid, gid)


def unread_bytes(fd: int) -> int:
    """Bytes written to that socket that the kernel still holds: the other end has not read, or not received, them."""
    try:
        return int.from_bytes(fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:
        return 0


def is_trusted_peer(peer: Peer) -> bool:
    """Whether the peer may connect: only this user and root."""
    return peer.uid in (0, os.geteuid())


def _clear_dead(path: Path) -> None:
    try:
        info = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISSOCK(info.st_mode):
        raise ConflictError(f"{path} exists and is not a socket", hint="remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            unlink_unix(path, info.st_ino)
            return
        except (TimeoutError, BlockingIOError):
            pass  # A full backlog or a stopped process: somebody serves it.
        except PermissionError as error:
            raise DeniedError(f"{path} belongs to somebody else") from error
    raise ConflictError(f"{path} is served by another process", hint="is HAL already running?")
