"""The bundles that a node has, and how they come from a controller: once, verified, and in order."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator

import pytest

from hal.core.model import ConflictError, StepId, UnreachableError
from hal.core.model.bundle import Entry, EntryKind, Manifest, Segment, encode_manifest, name_of
from hal.daemons.agent.keeper.file_service.bundle_cache import AT_ONCE, BundleCache
from hal.daemons.agent.keeper.file_service.controller_link import ControllerLink
from hal.runtime.interface import Connection, Runtime, UnixAddress
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.frames.files import BundleManifest, BundleSegment, OpenFiles, ReadBundle, ReadSegments

STEP = StepId(7, 0, 1, 0)
MAX_BYTES = 64 << 20
PIECES = [bytes([number]) * (1_000 + number) for number in range(3 * AT_ONCE)]


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def manifest_of(pieces: list[bytes]) -> bytes:
    size = sum(map(len, pieces))
    segments = tuple(Segment(digest_of(piece), len(piece)) for piece in pieces)
    return encode_manifest(Manifest(entries=(Entry("a", EntryKind.FILE, size),), segments=segments))


class Controller:
    """Serves one bundle; keeps what it was asked."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.manifest = manifest_of(pieces)
        self.segments = {digest_of(piece): piece for piece in pieces}
        self.asked: list[str] = []
        self.connections = 0
        self.breaks_after = 1_000_000
        """Segments, in all; then it hangs up once."""

    async def serve(self, connection: Connection) -> None:
        assert isinstance(await connection.receive(), OpenFiles)
        self.connections += 1
        while (frame := await connection.receive()) is not None:
            if isinstance(frame, ReadBundle):
                await connection.send(BundleManifest(data=self.manifest))
                continue
            assert isinstance(frame, ReadSegments)
            for digest in frame.digests:
                if len(self.asked) == self.breaks_after:
                    self.breaks_after = 1_000_000
                    connection.close()
                    return
                self.asked.append(digest)
                await connection.send(BundleSegment(data=self.segments[digest]))


@pytest.fixture
def world() -> Iterator[VirtualWorld]:
    with VirtualWorld(seed=1) as made:
        yield made


def with_cache(world: VirtualWorld, controller: Controller, work: Callable[[BundleCache], Awaitable[None]]) -> None:
    """A node and its controller, in two processes."""
    host = world.host("n1")

    async def serve(runtime: Runtime) -> None:
        await runtime.listen(UnixAddress(host.home.wire_socket()), controller.serve)
        await runtime.stopping.wait()

    async def main(runtime: Runtime) -> None:
        link = ControllerLink(runtime, "n1", [UnixAddress(host.home.wire_socket())], lambda: None)
        cache = BundleCache(runtime, link, host.home.node("n1").files, MAX_BYTES)
        await cache.open()
        await work(cache)

    world.start(host, "controller", serve)
    world.run(world.start(host, "files-n1", main).wait())


async def read(cache: BundleCache, manifest: bytes) -> list[bytes]:
    """All of a bundle."""
    async with cache.bundle(name_of(manifest), STEP, lambda note: None) as bundle:
        return [data async for data in bundle.contents]


def test_a_bundle_comes_once_and_is_read_from_the_store_afterwards(world: VirtualWorld) -> None:
    controller = Controller(PIECES)

    async def work(cache: BundleCache) -> None:
        assert await read(cache, controller.manifest) == PIECES
        assert await read(cache, controller.manifest) == PIECES

    with_cache(world, controller, work)
    assert controller.connections == 1
    assert controller.asked == [digest_of(piece) for piece in PIECES]


def test_only_what_is_not_here_comes(world: VirtualWorld) -> None:
    """Every third segment is another, and comes in its place."""
    other = [piece if at % 3 else piece + b"new" for at, piece in enumerate(PIECES)]
    controller = Controller(PIECES)

    async def work(cache: BundleCache) -> None:
        await read(cache, controller.manifest)
        controller.__init__(other)  # type: ignore[misc]
        assert await read(cache, controller.manifest) == other

    with_cache(world, controller, work)
    assert controller.asked == [digest_of(piece) for piece in other[::3]]


def test_equal_segments_come_once(world: VirtualWorld) -> None:
    pieces = [*PIECES[:2], PIECES[0], PIECES[2], PIECES[0]]
    controller = Controller(pieces)

    async def work(cache: BundleCache) -> None:
        assert await read(cache, controller.manifest) == pieces

    with_cache(world, controller, work)
    assert controller.asked == [digest_of(piece) for piece in PIECES[:3]]


@pytest.mark.parametrize("at", [0, 5, len(PIECES) - 1])
def test_other_bytes_are_never_taken_for_a_bundle(world: VirtualWorld, at: int) -> None:
    """Whoever fills a directory with them learns it at the latest at the end, and nothing is kept under that name."""
    controller = Controller(PIECES)
    digest = digest_of(PIECES[at])
    controller.segments[digest] = b"x" * len(PIECES[at])

    async def work(cache: BundleCache) -> None:
        with pytest.raises(ConflictError, match=f"other bytes than segment {digest}"):
            await read(cache, controller.manifest)
        controller.segments[digest] = PIECES[at]
        controller.asked.clear()
        assert await read(cache, controller.manifest) == PIECES

    with_cache(world, controller, work)
    assert digest in controller.asked


def test_another_manifest_is_refused(world: VirtualWorld) -> None:
    controller = Controller(PIECES)

    async def work(cache: BundleCache) -> None:
        with pytest.raises(ConflictError, match="something else"):
            await read(cache, manifest_of(PIECES[:1]))

    with_cache(world, controller, work)


def test_what_has_come_before_the_connection_broke_does_not_come_again(world: VirtualWorld) -> None:
    controller = Controller(PIECES)
    controller.breaks_after = 5

    async def work(cache: BundleCache) -> None:
        with pytest.raises(UnreachableError):
            await read(cache, controller.manifest)
        assert await read(cache, controller.manifest) == PIECES

    with_cache(world, controller, work)
    assert controller.connections == 2
    assert sorted(controller.asked) == sorted(map(digest_of, PIECES))


def test_who_wants_a_bundle_that_comes_waits_for_it(world: VirtualWorld) -> None:
    controller = Controller(PIECES)

    async def work(cache: BundleCache) -> None:
        found = await asyncio.gather(*(read(cache, controller.manifest) for _ in range(3)))
        assert found == [PIECES] * 3

    with_cache(world, controller, work)
    assert controller.connections == 1


def test_who_gives_up_leaves_the_bundle_to_the_next(world: VirtualWorld) -> None:
    controller = Controller(PIECES)

    async def work(cache: BundleCache) -> None:
        async with cache.bundle(name_of(controller.manifest), STEP, lambda note: None) as bundle:
            assert await anext(bundle.contents) == PIECES[0]
        assert await read(cache, controller.manifest) == PIECES

    with_cache(world, controller, work)
    assert controller.connections == 2
