"""Open files in directories where a job can write: following no link, without blocking, and regular files only.

A job can replace any file that its user may replace by a FIFO (whose open waits for the other end), a link to another
file, a socket or a device. None of this may block a daemon or make it write elsewhere. O_NOFOLLOW, O_NONBLOCK (also
against file leases, whose break an open waits for) and a check of what was opened prevent it; a new file is created
exclusively, so that an existing file is never written to.

Standard library only and cheap to import: helpers, which run without site packages, use it too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Final

StrPath = str | os.PathLike[str]

PRIVATE_MODE: Final = 0o600
READ_BYTES: Final = 1 << 16
SET_ASIDE: Final = ".set-aside-"
"""Added, with a random word, to the name of an unexpected file found in place of one of HAL's own."""
_SURE: Final = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_IN_THE_WAY: Final = (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENODEV, errno.ENOTDIR)
"""Errors of open(2) when something other than a file (or a directory) is there."""


class NotRegularError(OSError):
    """Something other than the file is at its path: a FIFO, link, socket, device or directory; `strerror` names it."""


def open_regular(
    path: StrPath,
    flags: int = os.O_RDONLY,
    *,
    mode: int = PRIVATE_MODE,
    dir_fd: int | None = None,
    follow: bool = False,
    listed: bool = False,
) -> int:
    """Open a regular file and return its descriptor; never blocks.

    Args:
        flags: with O_CREAT, a created file is ours; an existing one must be regular.
        follow: for paths where people may keep a link of their own (hal.toml, a program); its target must be regular.
        listed: a listing of its directory has just shown a regular file; it is checked when it is open only.
    Raises:
        NotRegularError: something else is there.
        OSError: as open(2).
    """
    if not listed:  # check first: opening a device may already have an effect
        with contextlib.suppress(FileNotFoundError):
            _check(path, os.stat(path, dir_fd=dir_fd, follow_symlinks=follow).st_mode, dir_fd)
    try:
        fd = os.open(path, flags | _SURE | (0 if follow else os.O_NOFOLLOW), mode, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in _IN_THE_WAY:
            raise _in_its_place(path, dir_fd, error) from None
        raise
    try:
        _check(path, os.fstat(fd).st_mode, dir_fd)
    except NotRegularError:
        os.close(fd)
        raise
    return fd


def create_regular(path: StrPath, flags: int, mode: int = PRIVATE_MODE, *, dir_fd: int | None = None) -> int:
    """Create a new, empty file and return its descriptor. A regular file of that name is removed first, never
    written to.

    Raises:
        NotRegularError: something else is there.
        OSError: as open(2).
    """
    flags |= os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, mode, dir_fd=dir_fd)
    except FileExistsError:
        _check(path, os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_mode, dir_fd)
    os.unlink(path, dir_fd=dir_fd)
    return os.open(path, flags, mode, dir_fd=dir_fd)


def create_scratch(
    path: StrPath, mode: int = PRIVATE_MODE, *, flags: int = os.O_WRONLY, dir_fd: int | None = None
) -> int:
    """Create a new, empty file that will be renamed, and return its descriptor; whatever was there is removed
    unseen.

    Raises:
        OSError: as open(2) and unlink(2): a directory is there.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path, dir_fd=dir_fd)
    return os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=dir_fd)


def open_directory(path: StrPath, *, dir_fd: int | None = None, flags: int = os.O_PATH) -> int:
    """Open a directory and return its descriptor.

    Raises:
        NotRegularError: something else is there.
        OSError: as open(2).
    """
    try:
        return os.open(path, flags | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in _IN_THE_WAY:
            raise _in_its_place(path, dir_fd, error, "directory") from None
        raise


def read_regular(path: StrPath, limit: int, *, dir_fd: int | None = None, follow: bool = False) -> bytes:
    """Read at most the first `limit` bytes.

    Raises:
        NotRegularError: something else is there.
        OSError: as open(2) and read(2).
    """
    fd = open_regular(path, dir_fd=dir_fd, follow=follow)
    try:
        data = b""
        while len(data) < limit and (more := os.read(fd, min(limit - len(data), READ_BYTES))):
            data += more
        return data
    finally:
        os.close(fd)


def open_own(path: StrPath, flags: int) -> int:
    """Open a file of HAL's own (a log, a lock), created if there is none, and return its descriptor.

    Anything else at its path is set aside, so that a start does not depend on a person removing it; but /dev/null may
    stand for an unwanted file.

    Raises:
        OSError: as open(2); also if it could not be set aside.
    """
    flags |= os.O_CREAT
    try:
        fd = open_regular(path, flags)
    except NotRegularError:
        if os.fspath(path) == os.devnull:
            return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        set_aside(path)
        fd = open_regular(path, flags)
    os.set_blocking(fd, True)  # another process may receive it as its output
    return fd


def set_aside(path: StrPath) -> None:
    """Rename what is there to a new, unused name, for people to examine. Only in a private directory of this user,
    as all of HAL's are: a file elsewhere is not ours to rename.

    Raises:
        NotRegularError: it is elsewhere.
        OSError: as rename(2).
    """
    info = os.stat(os.path.dirname(path) or ".")
    if info.st_uid != os.geteuid() or info.st_mode & 0o077:
        raise NotRegularError(errno.EINVAL, "something else is in the place of the file; remove it", os.fspath(path))
    os.rename(path, f"{os.fspath(path)}{SET_ASIDE}{os.urandom(4).hex()}")


def kind_of(mode: int) -> str:
    """The kind of a file of that mode, for people."""
    kinds = (
        (stat.S_ISREG, "a regular file"),
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((name for holds, name in kinds if holds(mode)), "a device")


def _check(path: StrPath, mode: int, dir_fd: int | None = None) -> None:
    if not stat.S_ISREG(mode):
        raise _not_regular(path, mode, dir_fd, "file")


def _in_its_place(path: StrPath, dir_fd: int | None, error: OSError, wanted: str = "file") -> OSError:
    """The error with a description; `error` itself if it is about another part of the path."""
    try:
        mode = os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_mode
    except OSError:
        return error
    return _not_regular(path, mode, dir_fd, wanted)


def _not_regular(path: StrPath, mode: int, dir_fd: int | None, wanted: str) -> NotRegularError:
    whole = os.fspath(path)
    if dir_fd is not None:
        with contextlib.suppress(OSError):
            whole = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), whole)
    return NotRegularError(errno.EINVAL, f"{kind_of(mode)} is in the place of the {wanted}", whole)
