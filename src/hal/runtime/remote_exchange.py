"""Large payloads of tasks for a process on another machine than the broker: piece by piece, over a connection of their
own, so that no task waits behind them.

What one task needs comes into memory of the process. A value for many tasks becomes a file of a directory of this
machine, which all processes of the session here share: it is sent to each machine once. The last of them that ends
removes the directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, Final

from hal.core.model.errors import HALError, UnreachableError
from hal.runtime.exchange import Bytes, map_file, map_whole, named, payload_of
from hal.runtime.frame_link import FrameLink
from hal.runtime.payload_files import SharedDirectory
from hal.wire.frames.sessions import MAX_INLINE_BYTES, AskFile, DropFiles, FilePiece, FileStored

Connect = Callable[[], FrameLink[Any]]
PIECE_BYTES: Final = MAX_INLINE_BYTES
"""Sent at once."""


class RemoteExchange:
    """The payloads of a session as a process of another machine sees them; used as an `Exchange`.

    Args:
        session: its id.
        writer: unique among its processes.
        connect: opens a connection for payloads.
    """

    def __init__(self, session: str, writer: str, connect: Connect) -> None:
        self._session = session
        self._connect = connect
        self._writer = writer
        self._numbers = count(1)
        self._using = threading.Lock()
        """Held from a question to the end of its answer."""
        self._link: FrameLink[Any] | None = None
        self._directory: SharedDirectory | None = None
        """Once a value for many tasks was read."""

    def write(self, pieces: Sequence[Bytes], client: int) -> bytes:
        """Send a payload to the broker's machine; returns what stands for it.

        Raises:
            OSError: there is no room for it, or the connection broke, among others.
        """
        name = f"c{client}-{self._writer}-{next(self._numbers)}"
        size = sum(memoryview(piece).nbytes for piece in pieces)
        with self._linked() as link:
            for data, more in _cut(pieces, size):
                link.send(FilePiece(name=name, size=size, data=data, more=more))
            answer = _next(link)
        if not isinstance(answer, FileStored) or answer.error:
            reason = getattr(answer, "error", "") or "it answered something else"
            raise OSError(errno.ENOSPC, f"the broker has not taken a payload of {size} bytes: {reason}")
        return payload_of(name, size)

    def read(self, payload: Bytes, *, last: bool = False) -> memoryview:
        """Fetch what a payload stands for.

        Args:
            last: remove the file at the broker.
        Raises:
            OSError: it is not at the broker, or there is no memory for it.
        """
        name, size = named(payload)
        fd = os.memfd_create("hal-session", os.MFD_CLOEXEC)
        try:
            self._fetch(name, size, fd)
            mapped = map_whole(fd, size)
        finally:
            os.close(fd)
        if last:
            self.remove(payload)
        return mapped

    def read_shared(self, payload: Bytes) -> memoryview:
        """The same of a value that other processes of this machine need, too; it is here until `forget`.

        Raises: as `read`; OSError: there is no room for it.
        """
        name, size = named(payload)
        if self._directory is None:
            self._directory = SharedDirectory(self._session)
        with self._directory.filling(name, size) as (path, fd):
            if fd >= 0:
                self._fetch(name, size, fd)
        return map_file(path, size)

    def forget(self, payload: Bytes) -> None:
        """Remove a value for many tasks from this machine."""
        if self._directory is not None:
            self._directory.remove(named(payload)[0])

    def remove(self, payload: Bytes) -> None:
        """Remove the file that a payload stands for, at the broker."""
        with contextlib.suppress(OSError), self._linked() as link:
            link.send(DropFiles(names=(named(payload)[0],)))

    def close(self) -> None:
        """This process needs nothing of it any more."""
        with self._using:
            self._hang_up()
        if self._directory is not None:
            self._directory.leave()

    def _fetch(self, name: str, size: int, fd: int) -> None:
        got, more = 0, True
        with self._linked() as link:
            link.send(AskFile(name=name))
            while more:
                answer = _next(link)
                if not isinstance(answer, FilePiece):
                    raise OSError(errno.ENOENT, getattr(answer, "error", "no such payload"), name)
                view = memoryview(answer.data)
                while view:
                    view = view[os.write(fd, view) :]
                got, more = got + len(answer.data), answer.more
        if got != size:
            raise OSError(errno.EIO, f"{got} bytes of {size} came", name)

    @contextlib.contextmanager
    def _linked(self) -> Iterator[FrameLink[Any]]:
        """The connection, for one question and its answer.

        Raises:
            OSError: it broke.
        """
        with self._using:
            try:
                if self._link is None:
                    self._link = self._connect()
                yield self._link
            except HALError as error:
                self._hang_up()
                raise OSError(errno.EIO, str(error)) from error
            except BaseException:
                self._hang_up()  # in the middle of an answer
                raise

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


def _next(link: FrameLink[Any]) -> Any:
    """The next frame.

    Raises:
        UnreachableError: the connection ended.
    """
    frames = link.receive()
    if not frames:
        raise UnreachableError("the broker closed the connection")
    link.put_back(frames[1:])
    return frames[0]


def _cut(pieces: Sequence[Bytes], size: int) -> Iterator[tuple[bytes, bool]]:
    """Pieces for the wire, and whether more follow."""
    sent, rest = 0, bytearray()
    for piece in pieces:
        view = memoryview(piece).cast("B")
        at = 0
        while at < len(view):
            part = view[at : at + PIECE_BYTES - len(rest)]
            rest += part
            at += len(part)
            if len(rest) == PIECE_BYTES:
                sent += len(rest)
                yield bytes(rest), sent < size
                rest.clear()
    if rest:
        yield bytes(rest), False
