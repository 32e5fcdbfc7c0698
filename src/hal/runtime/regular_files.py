"""Opening files in directories where a job can write: through no link, without waiting, and regular files only.

A job can put a FIFO (whose open waits for the other end), a link to another file, a socket or a device in the place of
any file that its user may replace. Nothing of that may stop a daemon or make it write elsewhere. O_NOFOLLOW,
O_NONBLOCK (also against file leases, whose break an open waits for) and a look at what was opened keep that; a new file
is created exclusively, so that nothing that was there is written to.

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
"""Added, with a random word, to the name of what lay in the place of a file of HAL's own."""
_SURE: Final = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_IN_THE_WAY: Final = (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENODEV, errno.ENOTDIR)
"""What open(2) answers when something else than a file (or a directory) is there."""


class NotRegularError(OSError):
    """Something else than the file lies in its place: a FIFO, link, socket, device, directory; `strerror` says what."""


def open_regular(
    path: StrPath,
    flags: int = os.O_RDONLY,
    *,
    mode: int = PRIVATE_MODE,
    dir_fd: int | None = None,
    follow: bool = False,
) -> int:
    """A descriptor of the regular file; never waits.

    Args:
        flags: O_CREAT among them: what is created is ours; what was there must be regular.
        follow: where people may keep a link of their own (hal.toml, a program); what it leads to must be regular.
    Raises:
        NotRegularError: something else is there.
        OSError: as open(2).
    """
    with contextlib.suppress(FileNotFoundError):  # first a look: to open a device may already do something
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
    """A descriptor of a new, empty file. A regular file of that name is removed first; nothing is written to it.

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
    """A descriptor of a new, empty file that is to be renamed; whatever lay there is removed, and not looked at.

    Raises:
        OSError: as open(2) and unlink(2): a directory is there.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path, dir_fd=dir_fd)
    return os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=dir_fd)


def open_directory(path: StrPath, *, dir_fd: int | None = None, flags: int = os.O_PATH) -> int:
    """A descriptor of the directory.

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
    """At most the first `limit` bytes.

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
    """A descriptor of a file of HAL's own (a log, a lock), made when there is none.

    Whatever else lies in its place is set aside, so that a start does not fail until a person has removed it; but
    /dev/null may stand for a file that nobody wants.

    Raises:
        OSError: as open(2); also that it could not be set aside.
    """
    flags |= os.O_CREAT
    try:
        fd = open_regular(path, flags)
    except NotRegularError:
        if os.fspath(path) == os.devnull:
            return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        set_aside(path)
        fd = open_regular(path, flags)
    os.set_blocking(fd, True)  # others may get it as their output
    return fd


def set_aside(path: StrPath) -> None:
    """Give what lies there a name that nothing has, for people to look at. Only in a private directory of this user, as
    all of HAL's are: what lies elsewhere is not ours to rename, however it came to be asked for.

    Raises:
        NotRegularError: it lies elsewhere.
        OSError: as rename(2).
    """
    info = os.stat(os.path.dirname(path) or ".")
    if info.st_uid != os.geteuid() or info.st_mode & 0o077:
        raise NotRegularError(errno.EINVAL, "something else lies in the place of the file; remove it", os.fspath(path))
    os.rename(path, f"{os.fspath(path)}{SET_ASIDE}{os.urandom(4).hex()}")


def kind_of(mode: int) -> str:
    """What a file of that mode is, for people."""
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
    """The error in words; `error` itself when it is about another part of the path."""
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
    return NotRegularError(errno.EINVAL, f"{kind_of(mode)} lies in the place of the {wanted}", whole)
