"""The bundles that users have shipped: whose they are, which are kept, and which go to make room.

A bundle belongs to the users who have sent it. Its name is no key: a user who knows another one's has nothing of it,
and is not told that it is there, before all of its content was sent by themselves. What a user has sent is known by
the index, and of uploads under way in memory; after a restart these begin again. A blob store holds manifests and
segments, and pins them for each owner; the index says what must be pinned and is put right when it is opened.

Bounds: bytes of all bundles and of one user's, the number of bundles, uploads in memory. What no live job needs goes
when it was not used for `bundles_kept`, or earlier to make room, the longest unused first.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hal.blobs import open_blobs
from hal.core.interfaces.blobs import BlobStore
from hal.core.interfaces.directory import Data, Directory
from hal.core.model import NotFoundError, OverloadedError, SpecError
from hal.core.model.bundle import BUNDLE_PREFIX, SEGMENT_BYTES, Segment, name_of, parse_manifest
from hal.daemons.controller.files.settings import FilesSection
from hal.rest.bodies import beside
from hal.runtime.interface import Lane, Runtime

T = TypeVar("T")

MAX_BUNDLES: Final = 10_000
"""Bundles of all users."""
MAX_UPLOADED: Final = 32_768
"""Segments of one user that are known before their bundle is complete."""
MAX_UPLOADERS: Final = 256
RECENT_BUNDLES: Final = 4
"""Newest bundles of a user whose segments are not sent again."""
MAX_WAITING: Final = 32
"""Uploads of segments under way: each holds a request's body in memory."""
USED_LATELY_MS: Final = 600_000
"""What was used within this time does not go: the job that names it may be on its way."""
MAX_BLOB_FILES: Final = 4_000_000
PUT_BYTES: Final = SEGMENT_BYTES
"""Of segments, what one call on the lane stores."""
INDEX: Final = "bundles.json"
MAX_INDEX_BYTES: Final = 64 << 20
MAX_COMPARED_BYTES: Final = 1 << 20
"""Longer manifests are not searched for what a user has sent: that would keep the loop from the interpreter."""
HOLDER_DIGITS: Final = 40
PINNED_AT_ONCE: Final = 256
"""Segments that are pinned in one step: the blob store is locked meanwhile."""

NeededBundles = Callable[[], Awaitable[Collection[str]]]
"""The names of the bundles that live jobs name."""


class BundleRow(Struct, frozen=True, array_like=True):
    """A bundle of one user."""

    owner: str
    id: str
    size_bytes: int
    files: int
    used_ms: int


class _Segments(Struct, frozen=True):
    """Of a manifest that was checked before: its segments alone."""

    segments: tuple[Segment, ...] = ()


class Offer(Struct, frozen=True, kw_only=True):
    """What is missing of a bundle that a user wants to ship; nothing: it is kept from now on."""

    id: str
    missing: tuple[int, ...]
    """Positions of segments in its manifest."""
    size_bytes: int
    files: int


class Bundles:
    """Of one controller."""

    def __init__(self, runtime: Runtime, section: FilesSection, needed: NeededBundles) -> None:
        self._runtime = runtime
        self._section = section
        self._needed = needed
        self.limits = section.ship_limits
        self._bounds = section.amount("bundles"), section.amount("user_bundles")
        self._changing = asyncio.Lock()
        self._rows: dict[tuple[str, str], BundleRow] = {}
        """By owner and name, once it is open; longest unused first."""
        self._uploaded: dict[str, dict[str, None]] = {}
        """Segments by owner, of bundles that are not complete; oldest first."""
        self._uploading = 0
        self._store: BlobStore | None = None
        self._directory: Directory | None = None
        self._unsaved = False

    # ── users ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def offer(self, owner: str, data: bytes) -> Offer:
        """What is missing of the bundle with that manifest; if nothing is, keep it for its owner.

        Raises:
            SpecError: no manifest, or the directory is larger than is shipped.
            OverloadedError: there is no room.
        """
        size_bytes, files, segments = await beside(self._runtime, data, partial(_checked, data))
        if refusal := self.limits.refusal(size_bytes, files):
            raise refusal
        store = await self._opened()
        async with self._changing:
            name = name_of(data)
            sent = set(self._uploaded.get(owner, ()))
            recent = [row.id for (of, _), row in self._rows.items() if of == owner][-RECENT_BUNDLES:]
            missing = await self._blocking(partial(_missing, store, segments, sent, recent))
            if not missing:
                row = BundleRow(owner, name, size_bytes, files, self._runtime.now_ms())
                await self._keep(store, row, data, segments)
        return Offer(id=name, missing=missing, size_bytes=size_bytes, files=files)

    async def upload(self, owner: str, segments: Sequence[Data]) -> int:
        """Store segments of a bundle that is to be offered again; returns how many.

        Raises:
            SpecError: one is empty or too long.
            OverloadedError: there is no room, or too many do this at once.
        """
        if any(not 0 < len(segment) <= SEGMENT_BYTES for segment in segments):
            raise SpecError(f"a segment has 1 to {SEGMENT_BYTES} bytes")
        if self._uploading >= MAX_WAITING:
            raise OverloadedError(f"{MAX_WAITING} uploads of files are under way", hint="try again")
        self._uploading += 1
        try:
            store = await self._opened()
            known = self._uploaded.get(owner)
            if known is None:
                while len(self._uploaded) >= MAX_UPLOADERS:
                    del self._uploaded[next(iter(self._uploaded))]
                known = self._uploaded[owner] = {}
            for some in _in_calls(segments):  # others take turns on the lane
                for name in await self._blocking(partial(_put, store, some)):
                    known[name.removeprefix(BUNDLE_PREFIX)] = None
            while len(known) > MAX_UPLOADED:
                del known[next(iter(known))]
        finally:
            self._uploading -= 1
        return len(segments)

    async def use(self, owner: str, name: str) -> BundleRow | None:
        """The bundle, which a job of its owner is about to name; None: they have no such bundle."""
        await self._opened()
        row = self._rows.pop((owner, name), None)
        if row is None:
            return None
        row = self._rows[owner, name] = replace(row, used_ms=self._runtime.now_ms())
        self._unsaved = True
        return row

    async def of(self, owner: str) -> list[BundleRow]:
        """The bundles of a user, last used first."""
        await self._opened()
        return [row for (of, _), row in reversed(self._rows.items()) if of == owner]

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def read(self, owner: str, name: str) -> tuple[bytes, frozenset[str]]:
        """The manifest of a bundle, and the digests of its segments.

        Raises:
            NotFoundError: it is not kept any more.
        """
        if await self.use(owner, name) is None:
            raise NotFoundError(f"the bundle {name} is not kept any more", hint="submit the job again")
        (data,) = await self.read_blobs([name])
        return data, await self._blocking(partial(_digests, data))

    async def read_blobs(self, names: Sequence[str]) -> list[bytes]:
        """Manifests or segments, a few. The caller knows that whoever asks may have them."""
        store = await self._opened()
        return await self._blocking(lambda: [store.read(name) for name in names])

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def expire(self) -> None:
        """Let go of what was not needed for long, and remember what was used."""
        if not self._runtime.paths.files.exists():
            return
        store = await self._opened()
        async with self._changing:
            before_ms = self._runtime.now_ms() - int(self._section.bundles_kept)
            old = [row for row in self._rows.values() if row.used_ms < before_ms]
            if old:
                needed = await self._needed()
                await self._drop(store, [row for row in old if row.id not in needed])
            if self._unsaved:
                await self._save()

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _blocking(self, call: Callable[[], T]) -> T:
        return await self._runtime.run_blocking(call, Lane.FILES)

    async def _opened(self) -> BlobStore:
        if self._store is None:
            async with self._changing:
                if self._store is None:
                    self._directory, store, rows = await self._blocking(self._open)
                    self._rows = {(row.owner, row.id): row for row in rows}
                    self._store = store
                    return store
        return self._store

    def _open(self) -> tuple[Directory, BlobStore, list[BundleRow]]:
        """Open the blob store, and make its pins agree with the index."""
        directory = self._runtime.open_directory(self._runtime.paths.files)
        # Segments that several bundles share are there once; of what is being uploaded some is beside them.
        most = self._bounds[0] + 2 * self.limits.size_bytes
        store = open_blobs(
            directory.child("blobs"), self._runtime.new_id(), max_bytes=max(most, 64 << 20), max_files=MAX_BLOB_FILES
        )
        try:
            rows = msgspec.json.decode(directory.read(INDEX, MAX_INDEX_BYTES), type=list[BundleRow])
        except (FileNotFoundError, msgspec.DecodeError):
            rows = []
        pinned: dict[str, set[str]] = {}
        for pin in store.pins():
            pinned.setdefault(pin.holder, set()).add(pin.blob)
        kept = []
        for row in rows[-MAX_BUNDLES:]:
            try:
                digests = _digests(store.read(row.id))
            except NotFoundError:
                continue
            wanted = {row.id, *(BUNDLE_PREFIX + digest for digest in digests)}
            if wanted <= pinned.get(_holder(row), set()):
                del pinned[_holder(row)]
                kept.append(row)
        for holder, blobs in pinned.items():
            for blob in blobs:
                store.unpin(blob, holder)
        return directory, store, kept

    async def _keep(self, store: BlobStore, row: BundleRow, data: bytes, segments: Sequence[Segment]) -> None:
        owner, name = row.owner, row.id
        if (owner, name) not in self._rows:
            try:
                await self._make_room(store, owner, row.size_bytes)
                await self._blocking(partial(_pin, store, row, data, segments))
            except BaseException:
                await self._blocking(partial(_unpin, store, row, [one.digest for one in segments]))
                raise
        self._rows.pop((owner, name), None)
        self._rows[owner, name] = row
        sent = self._uploaded.get(owner, {})
        for segment in segments:
            sent.pop(segment.digest, None)
        if not sent:
            self._uploaded.pop(owner, None)
        await self._save()

    async def _make_room(self, store: BlobStore, owner: str, size_bytes: int) -> None:
        """
        Raises:
            OverloadedError: what live jobs need leaves none.
        """
        all_bytes, user_bytes = self._bounds
        lately_ms = self._runtime.now_ms() - USED_LATELY_MS
        for mine, most in ((True, user_bytes), (False, all_bytes)):
            over, crowded, _ = self._excess(owner if mine else None, size_bytes, most)
            if over <= 0 and crowded <= 0:
                continue
            needed = await self._needed()
            over, crowded, rows = self._excess(owner if mine else None, size_bytes, most)
            going = []
            for row in rows:
                if over <= 0 and crowded <= 0:
                    break
                if row.used_ms < lately_ms and row.id not in needed:
                    going.append(row)
                    over, crowded = over - row.size_bytes, crowded - 1
            if over > 0 or crowded > 0:
                setting = "user_bundles" if mine else "bundles"
                whose = f"of user '{owner}'" if mine else "of all users"
                raise OverloadedError(
                    f"there is no room for another bundle of {size_bytes:,} bytes: jobs that wait or run, or were "
                    f"submitted lately, need those {whose} (files.{setting} of hal.toml)",
                    hint="submit again when some of them have ended",
                )
            await self._drop(store, going)

    def _excess(self, owner: str | None, size_bytes: int, most: int) -> tuple[int, int, list[BundleRow]]:
        """Bytes, and bundles, that are too many with so many bytes more, and of which some may go; None: of all."""
        rows = [row for row in self._rows.values() if owner is None or row.owner == owner]
        over = sum(row.size_bytes for row in rows) + size_bytes - most
        return over, len(rows) + 1 - MAX_BUNDLES if owner is None else 0, rows

    async def _drop(self, store: BlobStore, rows: Sequence[BundleRow]) -> None:
        for row in rows:
            self._rows.pop((row.owner, row.id), None)
        if rows:
            await self._save()
        for row in rows:
            await self._blocking(partial(_let_go, store, row))

    async def _save(self) -> None:
        self._unsaved = False
        await self._blocking(partial(self._write, list(self._rows.values())))

    def _write(self, rows: list[BundleRow]) -> None:
        assert self._directory is not None
        staged = f"{INDEX}.new"
        self._directory.remove(staged)
        self._directory.create(staged, msgspec.json.encode(rows))
        self._directory.move(staged, self._directory, INDEX)


def _in_calls(segments: Sequence[Data]) -> Iterator[Sequence[Data]]:
    """As many as one call on the lane stores."""
    some: list[Data] = []
    size = 0
    for segment in segments:
        if some and size + len(segment) > PUT_BYTES:
            yield some
            some, size = [], 0
        some.append(segment)
        size += len(segment)
    if some:
        yield some


def _put(store: BlobStore, segments: Sequence[Data]) -> list[str]:
    return [store.put(segment) for segment in segments]


def _holder(row: BundleRow) -> str:
    return "b" + hashlib.sha256(f"{row.owner}\0{row.id}".encode()).hexdigest()[:HOLDER_DIGITS]


def _digests(manifest: bytes) -> frozenset[str]:
    return frozenset(one.digest for one in msgspec.json.decode(manifest, type=_Segments).segments)


def _checked(data: bytes) -> tuple[int, int, tuple[Segment, ...]]:
    """Bytes, entries and segments of a manifest; the entries, of which there may be many, are freed with this call."""
    manifest = parse_manifest(data)
    return manifest.size_bytes, manifest.files, manifest.segments


def _missing(store: BlobStore, segments: Sequence[Segment], sent: set[str], recent: Sequence[str]) -> tuple[int, ...]:
    """Positions of the segments that the user has not sent, or that are gone; each once."""
    for name in recent:
        try:
            data = store.read(name)
        except NotFoundError:
            continue
        if len(data) <= MAX_COMPARED_BYTES:
            sent |= _digests(data)
    found, seen = [], set[str]()
    for position, segment in enumerate(segments):
        if segment.digest in seen:
            continue
        seen.add(segment.digest)
        info = store.find(BUNDLE_PREFIX + segment.digest) if segment.digest in sent else None
        if info is None:
            found.append(position)
        elif info.size_bytes != segment.size:
            raise SpecError(f"segment {segment.digest} has {info.size_bytes} bytes, not {segment.size}")
    return tuple(found)


def _pin(store: BlobStore, row: BundleRow, data: bytes, segments: Sequence[Segment]) -> None:
    holder = _holder(row)
    names = [BUNDLE_PREFIX + segment.digest for segment in segments]
    for at in range(0, len(names), PINNED_AT_ONCE):
        store.pin_all(names[at : at + PINNED_AT_ONCE], holder)
    store.put(data)
    store.pin(row.id, holder)


def _unpin(store: BlobStore, row: BundleRow, digests: Iterable[str]) -> None:
    holder = _holder(row)
    store.unpin(row.id, holder)
    for digest in digests:
        store.unpin(BUNDLE_PREFIX + digest, holder)


def _let_go(store: BlobStore, row: BundleRow) -> None:
    try:
        digests = _digests(store.read(row.id))
    except NotFoundError:
        store.unpin_all(_holder(row))
        return
    _unpin(store, row, digests)
