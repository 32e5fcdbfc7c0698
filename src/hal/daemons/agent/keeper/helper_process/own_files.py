"""The files that a job has named for the standard streams of its steps.

They are opened as the step would open them, by its user and in its work directory; but a helper serves other steps
too, so nothing that could keep it waiting is opened (a FIFO, a device), and no link of somebody else is followed to a
file that is written.
"""

from __future__ import annotations

import os
import stat

from hal.daemons.agent.keeper.helper_process.spawn_failures import NODE_ERRORS, CannotSpawnError, CannotSpawnHereError
from hal.runtime.regular_files import NotRegularError, open_regular

Streams = tuple[str, str, str, bool]
"""Paths of stdin, stdout and stderr, "" for a stream that HAL provides; and whether the files are added to."""

NAMES = ("stdin", "stdout", "stderr")
MODE = 0o666
"""Of a file that is created, without what the umask of steps forbids."""


def open_own(streams: Streams, opened: list[int]) -> dict[int, int]:
    """Open the files of a step, relative to the current directory; a file named twice is opened once.

    Args:
        opened: gets the descriptors, which the caller closes.
    Returns: a descriptor for each stream that has a file, by its number.
    Raises:
        CannotSpawnError: the job's fault.
        CannotSpawnHereError: this node's fault.
    """
    *paths, append = streams
    writing = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if append else os.O_TRUNC)
    found: dict[int, int] = {}
    known: dict[str, int] = {}
    for number, path in enumerate(paths):
        if not path:
            continue
        fd = known.get(path) if number else None
        if fd is None:
            fd = _open(NAMES[number], path, writing if number else os.O_RDONLY)
            opened.append(fd)
            if number:
                known[path] = fd
        found[number] = fd
    return found


def _open(name: str, path: str, flags: int) -> int:
    try:
        if path == os.devnull:
            return os.open(path, flags & ~(os.O_CREAT | os.O_TRUNC) | os.O_CLOEXEC)
        follow = flags == os.O_RDONLY or _is_own_link(path)
        fd = open_regular(path, flags & ~os.O_TRUNC, mode=MODE, follow=follow)
        try:
            os.set_blocking(fd, True)
            if flags != os.O_RDONLY:
                _begin(fd, f"{name} '{path}'", empty=bool(flags & os.O_TRUNC))
        except BaseException:
            os.close(fd)
            raise
    except NotRegularError as error:
        raise CannotSpawnError(126, f"{name} '{path}' cannot be used: {error.strerror}") from None
    except OSError as error:
        reason = f"{name} '{path}' cannot be opened: {error.strerror}"
        if error.errno in NODE_ERRORS:
            raise CannotSpawnHereError(reason) from None
        raise CannotSpawnError(126, reason) from None
    return fd


def _begin(fd: int, what: str, *, empty: bool) -> None:
    """Begin to write to a file, unless somebody else has put it into a directory like /tmp, who could read what is
    written: as the kernel has it with fs.protected_regular.

    Raises:
        CannotSpawnError: somebody has.
        OSError: it cannot be emptied.
    """
    info = os.fstat(fd)
    if info.st_uid != os.geteuid():
        place = os.stat(os.path.dirname(os.readlink(f"/proc/self/fd/{fd}")))
        if place.st_mode & stat.S_ISVTX and place.st_mode & stat.S_IWOTH and info.st_uid != place.st_uid:
            raise CannotSpawnError(126, f"{what} cannot be used: it is another user's, where everybody may write")
    if empty:
        os.ftruncate(fd, 0)


def _is_own_link(path: str) -> bool:
    """Whether it is a link of this user, or of root: of another's nobody knows where it will lead in a moment."""
    try:
        return os.lstat(path).st_uid in (0, os.geteuid())
    except OSError:
        return False
