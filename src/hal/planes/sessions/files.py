"""Serves payloads over 1 MiB to processes of other machines: over connections of their own, one after the other.

Files are read and written on a thread of their own, so that no task waits for a slow disk or a large payload.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from hal.core.model.errors import SpecError
from hal.runtime.interface import Connection, Runtime
from hal.runtime.payload_files import PayloadFiles
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import MAX_INLINE_BYTES, AskFile, DropFiles, FilePiece, FileStored

PIECE_BYTES: Final = MAX_INLINE_BYTES
LANE: Final = "payloads"
"""The thread on which payloads are read, written and removed, in the order in which that was asked."""


async def serve_files(runtime: Runtime, connection: Connection, files: PayloadFiles) -> None:
    """Serve one connection until it ends.

    Raises:
        SpecError: it broke the rules.
        OverloadedError: too many others wait for the thread.
    """
    coming: _Coming | None = None
    try:
        while (frame := await connection.receive()) is not None:
            match frame:
                case FilePiece():
                    coming = coming or _Coming(files, frame.name, frame.size)
                    coming.check(frame)
                    await runtime.run_blocking(partial(coming.take, frame), LANE)
                    if not frame.more:
                        done, coming = coming, None
                        await connection.send(FileStored(error=done.error))
                case AskFile():
                    await _send(runtime, connection, files, frame.name)
                case DropFiles():
                    await runtime.run_blocking(partial(_remove, files, frame.names), LANE)
                case Goodbye():
                    return
                case _:
                    raise SpecError(f"a connection for payloads does not send {type(frame).__name__}")
    finally:
        if coming is not None:
            await runtime.run_blocking(coming.discard, LANE)


async def _send(runtime: Runtime, connection: Connection, files: PayloadFiles, name: str) -> None:
    """Send a payload, no faster than it is read."""
    sent = 0
    pieces = files.read(name, PIECE_BYTES)
    try:
        while (piece := await runtime.run_blocking(partial(next, pieces, None), LANE)) is not None:
            data, size = piece
            sent += len(data)
            await connection.send(FilePiece(name=name, size=size, data=data, more=sent < size))
    except OSError as error:
        await connection.send(FileStored(error=f"payload {name}: {error.strerror or error}"))
    finally:
        await runtime.run_blocking(pieces.close, LANE)


def _remove(files: PayloadFiles, names: tuple[str, ...]) -> None:
    for name in names:
        files.remove(name)


class _Coming:
    """A payload that comes in pieces; what goes wrong is said at its end. `take` and `discard` block, and are called in
    order.

    Attributes:
        error: what went wrong; '': nothing.
    """

    def __init__(self, files: PayloadFiles, name: str, size: int) -> None:
        self._files, self._name, self._size = files, name, size
        self._got = 0
        """Of the pieces that were checked."""
        self._fd: int | None = None
        self._begun = False
        self.error = ""

    def check(self, frame: FilePiece) -> None:
        """
        Raises:
            SpecError: it is not the next piece.
        """
        self._got += len(frame.data)
        if frame.name != self._name or frame.size != self._size or self._got > self._size:
            raise SpecError(f"the payload {self._name} of {self._size} bytes does not go on like that")

    def take(self, frame: FilePiece) -> None:
        """Write the next piece."""
        try:
            if not self._begun:
                self._begun = True
                self._fd = self._files.begin(self._name, self._size)
            if self._fd is not None:
                self._files.append(self._fd, frame.data)
                if not frame.more:
                    self._files.finish(self._fd, self._name, self._size)
                    self._fd = None
        except OSError as error:
            self.error = error.strerror or str(error)
            self.discard()

    def discard(self) -> None:
        """It will not come."""
        if self._fd is not None:
            self._files.discard(self._fd, self._name)
            self._fd = None
