"""The connections of the file services of nodes: bundles that are read there, what was collected and is stored here.

A node reads what a step needs that it has been started there, as long as the step has not ended, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, NamedTuple

from hal.core.model import DeniedError, HALError, JobSpec, NotFoundError, OverloadedError, StepId
from hal.core.model.bundle import BUNDLE_PREFIX
from hal.daemons.controller.files.bundles import Bundles
from hal.daemons.controller.files.collected import Collected
from hal.daemons.controller.nodes.admission import NodeAdmission
from hal.planes.tasks import TaskPlane
from hal.runtime.home import check_node_name
from hal.runtime.interface import Connection, Runtime
from hal.runtime.read_ahead import read_ahead
from hal.wire.agree import agree_version
from hal.wire.errors import MalformedFrameError
from hal.wire.frames.conversation import Frame
from hal.wire.frames.files import (
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

SILENT_MS: Final = 60_000
"""A service that asks nothing for so long, or sends nothing of an archive, is disconnected."""
READ_AT_ONCE: Final = 4
"""Segments that are read together for one connection; twice as many are in memory."""
MAX_OF_NODE: Final = 16
"""Connections of one node at once."""
MAX_OPEN: Final = 512
"""Connections of all nodes at once."""


class _Subject(NamedTuple):
    """The step that a node has been started."""

    step: StepId
    user: str
    spec: JobSpec


class NodeFiles:
    """Serves them."""

    def __init__(
        self, runtime: Runtime, plane: TaskPlane, admission: NodeAdmission, bundles: Bundles, collected: Collected
    ) -> None:
        self._runtime = runtime
        self._plane = plane
        self._admission = admission
        self._bundles = bundles
        self._collected = collected
        self._open: dict[str, int] = {}
        """Connections by node."""

    async def serve(self, connection: Connection, hello: OpenFiles) -> None:
        """Serve one, from its first frame to its end.

        Raises:
            DeniedError: it does not speak for that node, or asks for what the node has no step for.
            HALError: it cannot be served; says why.
        """
        agree_version(hello.versions)
        node = check_node_name(hello.node)
        self._admission.check(connection, node)
        if self._open.get(node, 0) >= MAX_OF_NODE or sum(self._open.values()) >= MAX_OPEN:
            raise OverloadedError(f"node '{node}' has too many connections for files", hint="it tries again")
        self._open[node] = self._open.get(node, 0) + 1
        try:
            await self._answer(connection, node)
        finally:
            self._open[node] -= 1
            if not self._open[node]:
                del self._open[node]

    async def _answer(self, connection: Connection, node: str) -> None:
        readable: frozenset[str] = frozenset()
        while (frame := await connection.receive(SILENT_MS)) is not None:
            match frame:
                case ReadBundle():
                    subject = self._subject(node, frame.step)
                    data, readable = await self._bundles.read(subject.user, subject.spec.ship)
                    await connection.send(BundleManifest(data=data))
                case ReadSegments():
                    if not readable.issuperset(frame.digests):
                        raise DeniedError("these segments are not of the bundle that was read")
                    await self._send(connection, frame.digests)
                case StoreCollected():
                    await self._store(connection, node, frame.step)
                case _:
                    raise _unexpected(frame)

    async def _send(self, connection: Connection, digests: Sequence[str]) -> None:
        names = [BUNDLE_PREFIX + digest for digest in digests]
        reads = [
            partial(self._bundles.read_blobs, names[at : at + READ_AT_ONCE])
            for at in range(0, len(names), READ_AT_ONCE)
        ]
        async with aclosing(read_ahead(reads)) as read:
            async for some in read:
                for data in some:
                    await connection.send(BundleSegment(data=data))

    def _subject(self, node: str, step: StepId) -> _Subject:
        """
        Raises:
            DeniedError: no such step has been started there, or it has ended.
        """
        live = self._plane.job(step.job)
        active = live.active.get(step.task) if live is not None else None
        if (
            live is None
            or active is None
            or active.attempt != step.attempt
            or not 0 <= step.rank < len(active.nodes)
            or active.nodes[step.rank] != node
        ):
            raise DeniedError(f"step {step} is not one of node '{node}' now")
        return _Subject(step, live.user, live.spec)

    async def _store(self, connection: Connection, node: str, step: StepId) -> None:
        subject = self._subject(node, step)
        if not subject.spec.collect:
            raise DeniedError(f"nothing is to be collected of step {step}")
        if await self._collected.has(step):
            await connection.send(CollectBounds(size_bytes=0, files=0, stored=True))
            return
        archive = await self._collected.begin(step, subject.user)
        try:
            await connection.send(CollectBounds(size_bytes=archive.limits.size_bytes, files=archive.limits.files))
            while not isinstance(frame := await connection.receive(SILENT_MS), CollectedEnd):
                if frame is None:
                    raise NotFoundError("the connection broke before the archive was complete")
                if not isinstance(frame, CollectedPiece):
                    raise _unexpected(frame)
                await archive.write(frame.data)
            self._subject(node, step)  # it may have been given to another node meanwhile
            await archive.finish(frame.files)
        except BaseException:
            await archive.abort()
            raise
        await connection.send(CollectedStored())


def _unexpected(frame: Frame) -> HALError:
    return MalformedFrameError(f"a file service does not send {type(frame).__name__} here")
