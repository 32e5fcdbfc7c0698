"""The bundles that a node has: segments and manifests in a blob store, fetched once however many steps wait for them.

What is in it came from the controller and is verified when it comes and when it is read. A step may be given a bundle
whose name the controller has sent with the step: whose it is, the controller has checked.

A bundle that comes is handed on while it comes, so that its directory is filled meanwhile; whoever fills it waits for
its end, and for what was verified and stored until then, before a step gets it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Container, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from hal.blobs import open_blobs
from hal.core.interfaces.blobs import BlobStore
from hal.core.model import ConflictError, NotFoundError, StepId
from hal.core.model.bundle import BUNDLE_PREFIX, Manifest, Segment, name_of, parse_manifest
from hal.daemons.agent.keeper.file_service.controller_link import ControllerLink, FilesConnection
from hal.runtime.interface import Lane, Runtime
from hal.runtime.read_ahead import read_ahead

T = TypeVar("T")

MAX_BLOB_FILES: Final = 1_000_000
AT_ONCE: Final = 4
"""Segments that one call on the lane reads; twice as many are in memory."""
MAX_STORING: Final = 8
"""Segments that have come and are not stored yet: they are in memory."""
MAX_FETCHES: Final = 8
"""Bundles that come at once; more wait."""
FETCH_TRIES: Final = 3
"""How often a bundle is fetched of which a part is evicted before it is used."""


class Bundle(NamedTuple):
    """One that is here, or comes."""

    manifest: Manifest
    contents: AsyncIterator[bytes]
    """Of its files, one behind the other. May raise NotFoundError: a part was evicted meanwhile; and what fetching
    may raise."""
    here: bool
    """Nothing of it must come."""


class BundleCache:
    """Of one node."""

    def __init__(self, runtime: Runtime, link: ControllerLink, kept: Path, max_bytes: int) -> None:
        self._runtime = runtime
        self._link = link
        self._kept = kept
        self._max_bytes = max_bytes
        self._store: BlobStore | None = None
        self._fetching: dict[str, asyncio.Lock] = {}
        """By bundle, while somebody waits for it."""
        self._room = asyncio.Semaphore(MAX_FETCHES)

    async def open(self) -> None:
        """Open the store.

        Raises:
            HALError: it cannot be used.
        """
        if self._store is None:
            self._store = await self._blocking(self._open)

    def _open(self) -> BlobStore:
        directory = self._runtime.open_directory(self._kept / "blobs")
        return open_blobs(directory, self._runtime.new_id(), max_bytes=self._max_bytes, max_files=MAX_BLOB_FILES)

    @asynccontextmanager
    async def bundle(self, name: str, step: StepId, note: Callable[[str], None]) -> AsyncIterator[Bundle]:
        """A bundle that the step's job ships. Others who want one that comes wait until it is used once.

        Args:
            note: is told how far it has come, for people.
        Raises:
            HALError: the controller refuses, or cannot be reached; or it does not fit.
        """
        lock = self._fetching.setdefault(name, asyncio.Lock())
        try:
            async with lock:
                manifest = await self._blocking(partial(self._known, name))
                missing = None if manifest is None else await self._missing(manifest)
                if manifest is None or missing:
                    async with self._room, self._fetched(name, step, note) as bundle:
                        yield bundle
                    return
        finally:
            if not lock.locked():
                self._fetching.pop(name, None)
        async with aclosing(self._stored(manifest.segments)) as contents:
            yield Bundle(manifest, contents, here=True)

    @asynccontextmanager
    async def _fetched(self, name: str, step: StepId, note: Callable[[str], None]) -> AsyncIterator[Bundle]:
        link = await self._link.open()
        try:
            data = await link.manifest(step)
            if name_of(data) != name:
                raise ConflictError(f"the controller sent something else than the bundle {name}")
            manifest = parse_manifest(data)
            if manifest.size_bytes + len(data) > self._max_bytes:
                raise ConflictError(
                    f"the bundle has {manifest.size_bytes:,} bytes, and this node keeps {self._max_bytes:,} for all",
                    hint="raise files_cache under [node] in its hal.toml",
                )
            await self._blocking(partial(self._opened.put, data))
            missing = await self._missing(manifest)
            async with aclosing(self._coming(link, manifest, missing, note)) as contents:
                yield Bundle(manifest, contents, here=False)
        finally:
            link.close()

    async def _coming(
        self, link: FilesConnection, manifest: Manifest, missing: dict[str, int], note: Callable[[str], None]
    ) -> AsyncGenerator[bytes, None]:
        """The contents, of which these segments come from the controller. They end when all is verified and stored."""
        coming = link.segments(list(missing))
        total, done = sum(missing.values()), 0
        storing: deque[asyncio.Future[None]] = deque()
        try:
            for comes, segments in groupby(_first_of(manifest.segments, missing), itemgetter(0)):
                if not comes:
                    async with aclosing(self._stored([one for _, one in segments])) as contents:
                        async for data in contents:
                            yield data
                    continue
                for _, segment in segments:
                    data = await anext(coming)
                    while len(storing) >= MAX_STORING:
                        await storing.popleft()
                    storing.append(asyncio.ensure_future(self._blocking(partial(self._keep, segment, data))))
                    done += len(data)
                    note(f"{done >> 20} of {total >> 20} MiB have come")
                    yield data
            while storing:
                await storing.popleft()
        finally:
            for future in storing:
                future.cancel()

    async def _stored(self, segments: Sequence[Segment]) -> AsyncGenerator[bytes, None]:
        """Contents that are in the store.

        Raises:
            NotFoundError: a part was evicted meanwhile.
        """
        calls = [
            partial(self._blocking, partial(_read, self._opened, segments[at : at + AT_ONCE]))
            for at in range(0, len(segments), AT_ONCE)
        ]
        async with aclosing(read_ahead(calls)) as read:
            async for some in read:
                for data in some:
                    yield data

    async def _missing(self, manifest: Manifest) -> dict[str, int]:
        """Segments that are not here, and their sizes."""

        def look() -> dict[str, int]:
            found = self._opened.find
            wanted = {segment.digest: segment.size for segment in manifest.segments}
            return {digest: size for digest, size in wanted.items() if found(BUNDLE_PREFIX + digest) is None}

        return await self._blocking(look)

    # ── on the lane's thread ──────────────────────────────────────────────────────────────────────────────────────

    def _known(self, name: str) -> Manifest | None:
        try:
            return parse_manifest(self._opened.read(name))
        except NotFoundError:
            return None

    def _keep(self, segment: Segment, data: bytes) -> None:
        """
        Raises:
            ConflictError: it is something else.
        """
        if self._opened.put(data) != BUNDLE_PREFIX + segment.digest:
            raise ConflictError(f"the controller sent other bytes than segment {segment.digest}")

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _opened(self) -> BlobStore:
        assert self._store is not None
        return self._store

    async def _blocking(self, call: Callable[[], T]) -> T:
        return await self._runtime.run_blocking(call, Lane.FILES)


def _read(store: BlobStore, segments: Sequence[Segment]) -> list[bytes]:
    return [store.read(BUNDLE_PREFIX + segment.digest) for segment in segments]


def _first_of(segments: Sequence[Segment], missing: Container[str]) -> Iterator[tuple[bool, Segment]]:
    """Each segment, and whether it is the first of those that are missing with that digest: it comes once."""
    seen: set[str] = set()
    for segment in segments:
        yield segment.digest in missing and segment.digest not in seen, segment
        seen.add(segment.digest)
