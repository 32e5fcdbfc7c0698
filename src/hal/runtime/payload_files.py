"""Files of a session's directory of payloads, in pieces.

For a broker that has them for processes of other machines, and for values that the processes of such a machine share.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Collection, Generator, Iterator
from pathlib import Path
from typing import Final

from hal.runtime.exchange import LOCK, check_name, check_room, exchange_path, remove_exchange
from hal.runtime.privacy import is_private
from hal.runtime.regular_files import open_regular

OTHERWISE: Final = Path("/var/tmp")
"""Where the directory is on a machine that has none in memory."""
PART: Final = "-part"
"""Behind the name of a file that is not all there."""
SHARED: Final = "n"
"""Behind the session's id in the name of the directory of a machine that is not the broker's."""
MAX_TRIES: Final = 100


class PayloadFiles:
    """Of one directory. All calls raise OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, name: str, length: int) -> Generator[tuple[bytes, int], None, None]:
        """Yield a payload in pieces of this length, each with its size."""
        fd = open_regular(self._path / check_name(name))
        try:
            size = os.fstat(fd).st_size
            at = 0
            while at < size:
                data = os.pread(fd, length, at)
                if not data:
                    raise OSError(errno.EIO, "the payload became shorter", name)
                at += len(data)
                yield data, size
        finally:
            os.close(fd)

    def begin(self, name: str, size: int) -> int:
        """Make a file for a payload that comes; returns its descriptor."""
        check_room(self._path, size)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self._path / f"{check_name(name)}{PART}", flags, 0o600)

    def append(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    def finish(self, fd: int, name: str, size: int) -> None:
        """All of it has come."""
        if os.fstat(fd).st_size != size:
            raise OSError(errno.EIO, "not all of the payload came", name)
        (self._path / f"{name}{PART}").replace(self._path / name)
        os.close(fd)

    def discard(self, fd: int, name: str) -> None:
        """It will not come."""
        os.close(fd)
        (self._path / f"{name}{PART}").unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self._path / check_name(name)).unlink()

    def remove_of(self, client: int) -> None:
        """Remove what a client has left behind."""
        self._remove_all(f"c{client}-*")

    def remove_others(self, clients: Collection[int]) -> None:
        """Remove what others than these clients have left behind."""
        kept = tuple(f"c{client}-" for client in clients)
        self._remove_all("c*-*", kept)

    def _remove_all(self, pattern: str, kept: tuple[str, ...] = ()) -> None:
        for file in self._path.glob(pattern):
            if not file.name.startswith(kept):
                with contextlib.suppress(OSError):
                    file.unlink()


class SharedDirectory:
    """Of one session, on a machine that is not the broker's: the last process that leaves removes it."""

    def __init__(self, session: str) -> None:
        """
        Raises:
            OSError: somebody else has made it, or it cannot be made.
        """
        self.path = exchange_path(f"{session}{SHARED}", OTHERWISE)
        for _ in range(MAX_TRIES):
            self.path.mkdir(mode=0o700, exist_ok=True)
            if not is_private(self.path):
                raise OSError(errno.EPERM, "not a private directory of this user", str(self.path))
            with contextlib.suppress(FileNotFoundError):  # it was just removed by the last one
                self._member = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                fcntl.flock(self._member, fcntl.LOCK_SH)
                if os.fstat(self._member).st_nlink:
                    return
                os.close(self._member)
        raise OSError(errno.EAGAIN, "others remove it again and again", str(self.path))

    @contextlib.contextmanager
    def filling(self, name: str, size: int) -> Iterator[tuple[Path, int]]:
        """Its file of a payload, and a descriptor to fill it if it is not there, or -1; others wait meanwhile."""
        here, part = self.path / check_name(name), self.path / f"{name}{PART}"
        turn = os.open(self.path / "turn", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(turn, fcntl.LOCK_EX)
            if here.exists():
                yield here, -1
                return
            check_room(self.path, size)
            part.unlink(missing_ok=True)
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                yield here, fd
                part.replace(here)
            finally:
                os.close(fd)
                part.unlink(missing_ok=True)
        finally:
            os.close(turn)

    def remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self.path / check_name(name)).unlink()

    def leave(self) -> None:
        """This process needs it no longer."""
        with contextlib.suppress(OSError):
            fcntl.flock(self._member, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_exchange(self.path)
        os.close(self._member)
