"""Large payloads of tasks as files of one node: written once, mapped by whoever reads them, never sent.

A session has one directory of mode 0700 for them, in memory where there is room. Files are named by their writer with
the number of the client whose tasks they belong to first, so that what a client leaves behind can be removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import re
import secrets
import shutil
import struct
import time
from collections.abc import Sequence
from itertools import count, islice
from pathlib import Path
from typing import Final, Protocol

from hal.core.model.errors import ConflictError
from hal.runtime.privacy import is_private, write_private
from hal.runtime.regular_files import open_regular, read_regular

MEMORY: Final = Path("/dev/shm")
DISK: Final = Path("/var/tmp")
MARK: Final = 1
"""First byte of a payload that is such a file; its size and name follow."""
_HEAD: Final = struct.Struct("<BQ")
MAX_NAME: Final = 64
_NAME: Final = re.compile(r"c[0-9]+-[A-Za-z0-9-]+")
"""No file of the session's own has such a name."""
SPARE: Final = 2
"""A file takes at most this part of the free space: one half."""
PREFIX: Final = "hal-session-"
LOCK: Final = "broker.lock"
"""In the directory; a broker holds it as long as it lives."""
TOKEN_BYTES: Final = 32
"""Of what that file says: who reads there what the broker has told it is on the broker's machine."""
KEPT: Final = "kept"
"""In the directory of a session that outlives its broker: where its journal is."""
MAX_PATH_BYTES: Final = 4_096
AWAY: Final = ".away"
"""The end of the name of a file that says since when the brokers of a session are not reached."""
FORGOTTEN_S: Final = 86_400.0
"""Such a file is removed when it is as old as that."""
YOUNG_S: Final = 60.0
"""A directory without a lock is left alone so long: its broker may be about to take it."""
MAX_SWEPT: Final = 1_000
"""Directories of others that a broker looks at."""
Bytes = bytes | bytearray | memoryview


def make_exchange(session: str, otherwise: Path, *, kept: str = "") -> Path:
    """Make the directory of a session, which this process holds from now on, and remove those that dead brokers left.

    Args:
        otherwise: its parent if this machine has no directory in memory.
        kept: the journal of the session: as long as it is there, the directory stays when this process dies, for the
            broker that is started again. '': it goes with this process.
    Raises:
        OSError: somebody else has made it.
        ConflictError: another process holds it.
    """
    path = exchange_path(session, otherwise)
    path.mkdir(mode=0o700, exist_ok=True)  # a broker that is started again finds its own
    if not is_private(path):
        raise OSError(errno.EPERM, "not a private directory of this user", str(path))
    held = _hold(path)
    if held is None:
        raise ConflictError(f"another broker serves the session of {path}")
    if not os.fstat(held).st_size:
        os.write(held, secrets.token_hex(TOKEN_BYTES).encode())
    if kept:
        write_private(path / KEPT, kept)
    for other in islice(path.parent.glob(f"{PREFIX}*"), MAX_SWEPT):
        if other != path:
            _remove_if_left(other)
    return path


def make_waiting_directory(session: str, otherwise: Path) -> Path:
    """Make the directory on disk for what waits in a session, which this process holds from now on, empty; and remove
    those that dead brokers left.

    Args:
        otherwise: its parent if this machine has no place on disk for it.
    """
    path = (DISK if os.access(DISK, os.W_OK) else otherwise) / f"{PREFIX}{session}"
    remove_exchange(path)
    path.mkdir(mode=0o700)
    _hold(path)
    for other in islice(path.parent.glob(f"{PREFIX}*"), MAX_SWEPT):
        if other != path:
            _remove_if_left(other)
    return path


def exchange_path(session: str, otherwise: Path) -> Path:
    """Where the directory of a session is; see `make_exchange`."""
    return (MEMORY if os.access(MEMORY, os.W_OK) else otherwise) / f"{PREFIX}{session}"


def token_of(path: Path) -> str:
    """What is known of a broker's directory to whoever can read there; '' to all others."""
    if not is_private(path):
        return ""
    try:
        return read_regular(path / LOCK, 2 * TOKEN_BYTES).decode("ascii", "replace")
    except OSError:
        return ""


def _hold(path: Path) -> int | None:
    """Take the lock of a directory; returns its file, which holds it until it is closed. None: somebody else has it."""
    fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _remove_if_left(path: Path) -> None:
    """Remove the directory of a broker of this user that has died, unless somebody will need it."""
    with contextlib.suppress(OSError):
        if path.name.endswith(AWAY):
            info = path.lstat()
            if info.st_uid == os.geteuid() and time.time() - info.st_mtime > FORGOTTEN_S:
                path.unlink()
            return
        if not is_private(path) or _is_needed(path):
            return
        if not (path / LOCK).exists() and time.time() - path.stat().st_mtime < YOUNG_S:
            return
        held = _hold(path)
        if held is not None:
            remove_exchange(path)
            os.close(held)


def _is_needed(path: Path) -> bool:
    """Whether the next broker of a durable session may look for payloads in the directory."""
    if not (path / KEPT).exists():
        return False
    journal = read_regular(path / KEPT, MAX_PATH_BYTES).decode(errors="replace")
    return Path(journal).is_dir() if journal else any(name not in (KEPT, LOCK) for name in os.listdir(path))


def remove_exchange(path: Path) -> None:
    """Remove it with all its files."""
    shutil.rmtree(path, ignore_errors=True)


class Exchange:
    """The directory as one process sees it.

    Args:
        path: of the directory.
        writer: unique among its processes.
    Raises:
        OSError: it is not a private directory of this user.
    """

    def __init__(self, path: Path, writer: str) -> None:
        if not is_private(path):
            raise OSError(errno.EPERM, "not a private directory of this user", str(path))
        self._path = path
        self._writer = writer
        self._numbers = count(1)

    def write(self, pieces: Sequence[Bytes], client: int) -> bytes:
        """Write a payload into a file; returns what stands for it.

        Raises:
            OSError: there is no room for it, among others.
        """
        size = sum(memoryview(piece).nbytes for piece in pieces)
        check_room(self._path, size)
        name = f"c{client}-{self._writer}-{next(self._numbers)}"
        path = self._path / name
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                for piece in pieces:
                    file.write(piece)
        except OSError:
            path.unlink()
            raise
        return payload_of(name, size)

    def read(self, payload: Bytes, *, last: bool = False) -> memoryview:
        """Map the file that a payload stands for; what is written to the map is seen by nobody else.

        Args:
            last: remove the file.
        Raises:
            OSError: it is not there, or not of this user or size.
        """
        name, size = named(payload)
        mapped = map_file(self._path / name, size)
        if last:
            (self._path / name).unlink(missing_ok=True)
        return mapped

    def read_shared(self, payload: Bytes) -> memoryview:
        """The same of a value for many tasks."""
        return self.read(payload)

    def forget(self, payload: Bytes) -> None:
        """Who has written it removes it."""

    def close(self) -> None:
        """There is nothing to close."""

    def remove(self, payload: Bytes) -> None:
        """Remove the file that a payload stands for."""
        with contextlib.suppress(OSError):
            (self._path / named(payload)[0]).unlink()


class AnyExchange(Protocol):
    """How a process sees the payloads of its session: see `Exchange`, and `RemoteExchange` on other machines."""

    def write(self, pieces: Sequence[Bytes], client: int) -> bytes: ...

    def read(self, payload: Bytes, *, last: bool = False) -> memoryview: ...

    def read_shared(self, payload: Bytes) -> memoryview: ...

    def forget(self, payload: Bytes) -> None: ...

    def remove(self, payload: Bytes) -> None: ...

    def close(self) -> None: ...


def map_file(path: Path, size: int) -> memoryview:
    """Map a payload's file; what is written to the map is seen by nobody else.

    Raises:
        OSError: it is not there, or not of this user or size.
    """
    fd = open_regular(path)
    try:
        info = os.fstat(fd)
        if info.st_uid != os.geteuid() or info.st_size != size or not size:
            raise OSError(errno.EPERM, f"not the file of {size} bytes that was written for this session", str(path))
        return map_whole(fd, size)
    finally:
        os.close(fd)


def map_whole(fd: int, size: int) -> memoryview:
    """Map an open file of this size."""
    return memoryview(mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE))


def check_room(directory: Path, size: int) -> None:
    """Check that a payload of so many bytes leaves room for others.

    Raises:
        OSError: it does not.
    """
    room = os.statvfs(directory)
    if size > room.f_bavail * room.f_frsize // SPARE:
        raise OSError(errno.ENOSPC, f"a payload of {size} bytes needs more than half of what is free", str(directory))


def payload_of(name: str, size: int) -> bytes:
    """What stands for a file."""
    return _HEAD.pack(MARK, size) + name.encode()


def named(payload: Bytes) -> tuple[str, int]:
    """Name and size of the file that a payload stands for.

    Raises:
        OSError: it names none.
    """
    data = bytes(payload)
    if len(data) < _HEAD.size:
        raise OSError(errno.EINVAL, "not a payload that names a file")
    _, size = _HEAD.unpack_from(data)
    return check_name(data[_HEAD.size :].decode(errors="replace")), size


def check_name(name: str) -> str:
    """Return the name of a payload's file itself.

    Raises:
        OSError: it is not one.
    """
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise OSError(errno.EINVAL, "not the name of a file of a session", name)
    return name


def open_exchange(directory: str, place: str, writer: str) -> Exchange | None:
    """The broker's directory for a process of its machine; None: this one is on another machine.

    Args:
        directory, place: as the broker says.
        writer: as for `Exchange`.
    """
    path = Path(directory)
    if not directory or not place or token_of(path) != place:
        return None
    return Exchange(path, writer)


def size_of(payload: Bytes) -> int:
    """How many bytes a payload has, in its file or by itself."""
    return int(_HEAD.unpack_from(payload)[1]) if payload[:1] == b"\1" else len(payload)
