"""The file service's connections to the controller: what is shipped is read, what was collected is stored.

One connection for each piece of work, dialled with the node's certificate, or the controller's own socket.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, TypeVar

from hal.core.model import HALError, StepId, UnreachableError
from hal.core.model.errors import error_from_code
from hal.daemons.agent.dialler import Controllers
from hal.runtime.interface import Address, Connection, Credentials, Runtime
from hal.wire.agree import NOT_LEADER, SPOKEN
from hal.wire.errors import MalformedFrameError
from hal.wire.frames.conversation import Frame
from hal.wire.frames.files import (
    MAX_SEGMENTS_ASKED,
    PIECE_BYTES,
    BundleManifest,
    BundleSegment,
    CollectBounds,
    CollectedEnd,
    CollectedPiece,
    CollectedStored,
    OpenFiles,
    ReadBundle,
    ReadSegments,
    StoreCollected,
)
from hal.wire.frames.hello import Goodbye

F = TypeVar("F", bound=Frame)

ANSWER_MS: Final = 30_000
"""How long the controller may take for one frame."""


class NotLeadingError(UnreachableError):
    """It was no leader that answered; another one is asked next."""


class ControllerLink:
    """How the controller is reached."""

    def __init__(
        self, runtime: Runtime, node: str, addresses: Sequence[Address], credentials: Callable[[], Credentials | None]
    ) -> None:
        self._runtime = runtime
        self._node = node
        self._controllers = Controllers(addresses)
        self._credentials = credentials

    async def open(self) -> FilesConnection:
        """
        Raises:
            UnreachableError: nobody answers.
        """
        try:
            connection = await self._runtime.connect(self._controllers.address, credentials=self._credentials())
            await connection.send(OpenFiles(versions=SPOKEN, node=self._node))
        except HALError:
            self._controllers.failed()
            raise
        return FilesConnection(connection, self._controllers)


class FilesConnection:
    """One connection."""

    def __init__(self, connection: Connection, controllers: Controllers) -> None:
        self._connection = connection
        self._controllers = controllers

    def close(self) -> None:
        """Harmless if it is closed."""
        self._connection.close()

    async def manifest(self, step: StepId) -> bytes:
        """The manifest of a step's bundle, as the controller sends it."""
        await self._connection.send(ReadBundle(step=step))
        return (await self._expect(BundleManifest)).data

    async def segments(self, digests: Sequence[str]) -> AsyncIterator[bytes]:
        """Segments of the bundle whose manifest was read last; whoever asks verifies them."""
        for at in range(0, len(digests), MAX_SEGMENTS_ASKED):
            some = tuple(digests[at : at + MAX_SEGMENTS_ASKED])
            await self._connection.send(ReadSegments(digests=some))
            for _ in some:
                yield (await self._expect(BundleSegment)).data

    async def bounds(self, step: StepId) -> CollectBounds:
        """How much may be stored of a step."""
        await self._connection.send(StoreCollected(step=step))
        return await self._expect(CollectBounds)

    async def store(self, data: bytes) -> None:
        """Send a part of the archive."""
        for at in range(0, len(data), PIECE_BYTES):
            await self._connection.send(CollectedPiece(data=data[at : at + PIECE_BYTES]))

    async def stored(self, files: int) -> None:
        """The archive is complete; returns when it is stored."""
        await self._connection.send(CollectedEnd(files=files))
        await self._expect(CollectedStored)

    async def _expect(self, kind: type[F]) -> F:
        """
        Raises:
            HALError: as the controller says.
            NotLeadingError: it does not lead.
            UnreachableError: the connection broke.
        """
        frame = await self._connection.receive(ANSWER_MS)
        if isinstance(frame, kind):
            return frame
        if isinstance(frame, Goodbye) and frame.code == NOT_LEADER:
            self._controllers.not_leader(frame.reason)
            raise NotLeadingError("this controller does not lead")
        if isinstance(frame, Goodbye):
            raise error_from_code(frame.code, frame.reason, frame.hint)
        if frame is None:
            self._controllers.failed()
            raise UnreachableError(f"the controller closed the connection: {self._connection.close_reason}")
        raise MalformedFrameError(f"the controller sent a {type(frame).__name__} frame")
