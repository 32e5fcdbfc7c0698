"""Serves payloads over 1 MiB to processes of other machines: over connections of their own, one after the other."""

from __future__ import annotations

from typing import Final

from hal.core.model.errors import SpecError
from hal.runtime.interface import Connection
from hal.runtime.payload_files import PayloadFiles
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import MAX_INLINE_BYTES, AskFile, DropFiles, FilePiece, FileStored

PIECE_BYTES: Final = MAX_INLINE_BYTES


async def serve_files(connection: Connection, files: PayloadFiles) -> None:
    """Serve one connection until it ends.

    Raises:
        SpecError: it broke the rules.
    """
    coming: _Coming | None = None
    try:
        while (frame := await connection.receive()) is not None:
            match frame:
                case FilePiece():
                    coming = coming or _Coming(files, frame.name, frame.size)
                    coming.take(frame)
                    if not frame.more:
                        error = coming.end()
                        coming = None
                        await connection.send(FileStored(error=error))
                case AskFile():
                    await _send(connection, files, frame.name)
                case DropFiles():
                    for name in frame.names:
                        files.remove(name)
                case Goodbye():
                    return
                case _:
                    raise SpecError(f"a connection for payloads does not send {type(frame).__name__}")
    finally:
        if coming is not None:
            coming.discard()


async def _send(connection: Connection, files: PayloadFiles, name: str) -> None:
    """Send a payload, no faster than it is read."""
    sent = 0
    try:
        for data, size in files.read(name, PIECE_BYTES):
            sent += len(data)
            await connection.send(FilePiece(name=name, size=size, data=data, more=sent < size))
    except OSError as error:
        await connection.send(FileStored(error=f"payload {name}: {error.strerror or error}"))


class _Coming:
    """A payload that comes in pieces; what goes wrong is said at its end."""

    def __init__(self, files: PayloadFiles, name: str, size: int) -> None:
        self._files, self._name, self._size = files, name, size
        self._got = 0
        self._fd: int | None = None
        self._error = ""
        try:
            self._fd = files.begin(name, size)
        except OSError as error:
            self._error = error.strerror or str(error)

    def take(self, frame: FilePiece) -> None:
        """
        Raises:
            SpecError: it is not the next piece.
        """
        self._got += len(frame.data)
        if frame.name != self._name or frame.size != self._size or self._got > self._size:
            self.discard()
            raise SpecError(f"the payload {self._name} of {self._size} bytes does not go on like that")
        if self._fd is None:
            return
        try:
            self._files.append(self._fd, frame.data)
        except OSError as error:
            self._error = error.strerror or str(error)
            self.discard()

    def end(self) -> str:
        """That was the last piece; returns what went wrong."""
        if self._fd is not None:
            try:
                self._files.finish(self._fd, self._name, self._size)
                self._fd = None
            except OSError as error:
                self._error = error.strerror or str(error)
                self.discard()
        return self._error

    def discard(self) -> None:
        if self._fd is not None:
            self._files.discard(self._fd, self._name)
            self._fd = None
