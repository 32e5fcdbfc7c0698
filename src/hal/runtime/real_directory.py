"""A private directory of flat files on the disk; see `hal.core.interfaces.directory.Directory`.

Every call goes through the descriptor of the directory, follows no link and accepts regular files only, because a job
of the same user can put anything into the place of a file. Locks are flock(2) on descriptions of their own, so that
they exclude threads of one process, too, and end with the process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from pathlib import Path
from typing import Final

from hal.core.interfaces.directory import Data, Directory, DirectoryEntry
from hal.core.model.errors import DeniedError, InternalError, NotFoundError
from hal.runtime.privacy import PRIVATE_DIR_MODE, PRIVATE_FILE_MODE
from hal.runtime.regular_files import NotRegularError, open_directory, open_regular

MAX_WRITE_BYTES: Final = 1 << 30
"""Bytes written by one system call; the kernel writes at most 2 GiB."""


class FileLock:
    """A lock that is held; made by `RealDirectory.lock`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealDirectory:
    """One directory; made by `open_private_directory`."""

    def __init__(self, fd: int, label: str) -> None:
        self._fd = fd
        self._label = label

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self._fd)

    @property
    def label(self) -> str:
        return self._label

    def child(self, name: str) -> RealDirectory:
        with contextlib.suppress(FileExistsError):
            os.mkdir(_component(name), PRIVATE_DIR_MODE, dir_fd=self._fd)
            os.fsync(self._fd)  # or a power failure takes it, with all that was flushed in it
        return _opened(name, f"{self._label}/{name}", dir_fd=self._fd)

    def create(self, name: str, data: Data, *, flush: bool = False) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(_component(name), flags, PRIVATE_FILE_MODE, dir_fd=self._fd)
        try:
            _write_all(fd, data)
            if flush:
                os.fsync(fd)
        except BaseException:
            self.remove(name)
            raise
        finally:
            os.close(fd)

    def read(self, name: str, limit: int) -> bytes:
        fd = self._open(name, os.O_RDONLY)
        try:
            size = min(limit, os.fstat(fd).st_size + 1)
            data = os.read(fd, size)
            while len(data) < limit and (more := os.read(fd, limit - len(data))):
                data += more
            return data
        finally:
            os.close(fd)

    def overwrite(self, name: str, data: Data) -> None:
        fd = self._open(name, os.O_WRONLY | os.O_CREAT)
        try:
            _write_all(fd, data)
        finally:
            os.close(fd)

    def append(self, name: str, data: Data) -> None:
        fd = self._open(name, os.O_WRONLY | os.O_APPEND)
        try:
            _write_all(fd, data)
        finally:
            os.close(fd)

    def move(self, name: str, target: Directory, target_name: str, *, flush: bool = False) -> None:
        if not isinstance(target, RealDirectory):
            raise InternalError(f"{target.label} is not on this disk")
        os.rename(_component(name), _component(target_name), src_dir_fd=self._fd, dst_dir_fd=target._fd)
        if flush:
            os.fsync(target._fd)

    def flush(self, name: str) -> None:
        fd = self._open(name, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.fsync(self._fd)
        finally:
            os.close(fd)

    def touch(self, name: str) -> None:
        now_ns = time.time_ns()  # the kernel's own clock for files is coarser: some milliseconds
        with contextlib.suppress(FileNotFoundError):
            os.utime(_component(name), ns=(now_ns, now_ns), dir_fd=self._fd, follow_symlinks=False)

    def find(self, name: str) -> DirectoryEntry | None:
        try:
            info = os.stat(_component(name), dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return DirectoryEntry(name, info.st_size, info.st_mtime_ns) if stat.S_ISREG(info.st_mode) else None

    def remove(self, name: str) -> bool:
        try:
            os.unlink(_component(name), dir_fd=self._fd)
        except FileNotFoundError:
            return False
        return True

    def entries(self) -> list[DirectoryEntry]:
        found = []
        with os.scandir(self._fd) as files:
            for file in files:
                with contextlib.suppress(FileNotFoundError):
                    info = file.stat(follow_symlinks=False)
                    if stat.S_ISREG(info.st_mode):
                        found.append(DirectoryEntry(file.name, info.st_size, info.st_mtime_ns))
        return found

    def lock(self, name: str, *, wait: bool) -> FileLock | None:
        fd = self._open(name, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return FileLock(fd)

    def _open(self, name: str, flags: int) -> int:
        return open_regular(_component(name), flags, mode=PRIVATE_FILE_MODE, dir_fd=self._fd)


def open_private_directory(path: Path) -> RealDirectory:
    """Open a directory that belongs to this user and is closed to everybody else; created if missing.

    Raises:
        NotFoundError: its parent does not exist.
        DeniedError: something else is there, or others may use it, or it cannot be created.
    """
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, PRIVATE_DIR_MODE)
    except FileNotFoundError:
        raise NotFoundError(f"{path.parent} does not exist", hint="create it first") from None
    except OSError as error:
        raise DeniedError(f"{path} cannot be created: {error.strerror}") from error
    return _opened(path, str(path))


def _opened(path: Path | str, label: str, *, dir_fd: int | None = None) -> RealDirectory:
    try:
        fd = open_directory(path, dir_fd=dir_fd, flags=os.O_RDONLY)
    except NotRegularError as error:
        raise DeniedError(
            f"{label} cannot be used: {error.strerror}", hint="remove it, or choose another path"
        ) from error
    except OSError as error:
        raise DeniedError(f"{label} cannot be opened: {error.strerror}") from error
    directory = RealDirectory(fd, label)
    info = os.fstat(fd)
    if info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o077:
        raise DeniedError(f"{label} can be used by others", hint=f"it must be yours, and private: chmod 700 {label}")
    return directory


def _component(name: str) -> str:
    """The name, if it is one component of a path."""
    if "/" in name or name in ("", ".", ".."):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)
    return name


def _write_all(fd: int, data: Data) -> None:
    view = memoryview(data)
    while len(view):
        view = view[os.write(fd, view[:MAX_WRITE_BYTES]) :]
