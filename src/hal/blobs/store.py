"""The store: what planes call. See `hal.core.interfaces.blobs.BlobStore` for its contract.

Reading a small blob takes no lock. Everything that changes what is counted or protected holds the store's lock for some
microseconds, or, while it evicts, for as long as it takes to read the names of all files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hal.blobs.chunk_files import ChunkFiles
from hal.blobs.content import (
    HEAD_BYTES,
    MANY_CHUNKS,
    ONE_CHUNK,
    BlobName,
    Manifest,
    parse_manifest,
    parse_name,
)
from hal.blobs.layout import Layout, locked, translated
from hal.blobs.occupancy import Occupancy
from hal.blobs.protection import Instance, all_pins, forget_dead_instances, pin_file
from hal.blobs.scrubbing import scrub
from hal.blobs.writer import ChunkWriter
from hal.core.interfaces.blobs import (
    CHUNK_BYTES,
    MAX_PINS,
    MAX_READ_BYTES,
    BlobInfo,
    BlobUsage,
    Evicted,
    Pin,
    Scrubbed,
)
from hal.core.interfaces.directory import Data, Directory
from hal.core.model.errors import NotFoundError, OverloadedError, SpecError, shown

MIN_BYTES: Final = 2 * CHUNK_BYTES
MIN_FILES: Final = 16


class Blobs:
    """An opened store; made by `open_blobs`. Any number of threads may use it."""

    def __init__(self, layout: Layout, occupancy: Occupancy, instance: Instance, files: ChunkFiles) -> None:
        self._layout = layout
        self._root = layout.root
        self._occupancy = occupancy
        self._instance = instance
        self._files = files

    def close(self) -> None:
        """End this process's use of the store; harmless if repeated."""
        with translated(self._root):
            self._instance.close()

    # ── write ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, data: Data) -> str:
        """Store bytes and return their name."""
        if memoryview(data).nbytes > CHUNK_BYTES:
            with self.writer() as writer:
                writer.write(data)
                return writer.commit()
        with translated(self._root):
            return f"{ONE_CHUNK}:{self._files.store(self._layout.chunks, data)}"

    def writer(self) -> ChunkWriter:
        """Store a blob of any length, piece by piece."""
        return ChunkWriter(self._layout, self._files, self._instance)

    def assemble(self, manifest: bytes) -> str:
        """Store a blob whose chunks are there already."""
        found = parse_manifest(manifest)
        with translated(self._root):
            self._require_chunks(found)
            return f"{MANY_CHUNKS}:{self._files.store(self._layout.manifests, manifest)}"

    # ── read ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def find(self, blob: str) -> BlobInfo | None:
        """Return a blob whose chunks are all there."""
        name = parse_name(blob)
        with translated(self._root):
            try:
                return self._info(name, lock_held=False)
            except NotFoundError:
                return None

    def read(self, blob: str, offset: int = 0, size: int | None = None) -> bytes:
        """Return a part of a blob."""
        name = parse_name(blob)
        if offset < 0 or (size is not None and size < 0):
            raise SpecError(f"a blob cannot be read from {offset} on for {size} bytes")
        with translated(self._root):
            if name.kind == ONE_CHUNK:
                data = self._chunk(name, name.digest)
                return data[offset:] if size is None else data[offset : offset + size]
            manifest = self._manifest(name)
            wanted = max(0, manifest.size_bytes - offset if size is None else min(size, manifest.size_bytes - offset))
            if wanted > MAX_READ_BYTES:
                raise SpecError(
                    f"{wanted} bytes of {blob} are too many for one read",
                    hint=f"read at most {MAX_READ_BYTES} at a time, or chunk by chunk",
                )
            if not wanted:
                return b""
            first, last = offset // CHUNK_BYTES, (offset + wanted - 1) // CHUNK_BYTES
            data = b"".join(self._chunk(name, manifest.chunks[at]) for at in range(first, last + 1))
            begin = offset - first * CHUNK_BYTES
            return data[begin : begin + wanted]

    def chunks(self, blob: str) -> Iterator[bytes]:
        """Return a blob's chunks in order."""
        return self._chunks(parse_name(blob))

    def verify(self, blob: str) -> BlobInfo:
        """Read all of a blob."""
        count = size_bytes = 0
        for chunk in self.chunks(blob):
            count += 1
            size_bytes += len(chunk)
        return BlobInfo(blob, size_bytes, count)

    def manifest(self, blob: str) -> bytes:
        """Return the list of a blob's chunks."""
        name = parse_name(blob)
        if name.kind != MANY_CHUNKS:
            raise SpecError(f"{blob} is one chunk and has no manifest")
        with translated(self._root):
            return self._manifest(name).encode()

    # ── keep and remove ───────────────────────────────────────────────────────────────────────────────────────────

    def pin(self, blob: str, holder: str) -> None:
        """Keep a blob from being evicted."""
        self.pin_all((blob,), holder)

    def pin_all(self, blobs: Sequence[str], holder: str) -> None:
        """Keep blobs from being evicted, all of them or none."""
        names = [parse_name(blob) for blob in blobs]
        files = dict.fromkeys(pin_file(name, holder) for name in names)
        pins = self._layout.pins
        with translated(self._root), locked(self._root):
            for name in names:
                self._info(name, lock_held=True)
            new = [file for file in files if pins.find(file) is None]
            if not new:
                return
            if self._occupancy.counts().pins + len(new) > MAX_PINS:
                raise OverloadedError(
                    f"{self._root.label} has {MAX_PINS} pins", hint="remove some: unpin what is not needed any more"
                )
            self._occupancy.change(pins=len(new))
            try:
                for file in new:
                    pins.create(file, b"")
                    if self._files.flushes:
                        pins.flush(file)
            except OSError:
                for file in new:
                    pins.remove(file)
                self._occupancy.change(pins=-len(new))
                raise

    def unpin(self, blob: str, holder: str) -> bool:
        """Remove a pin."""
        file = pin_file(parse_name(blob), holder)
        with translated(self._root), locked(self._root):
            return self._unpin(file)

    def unpin_all(self, holder: str) -> int:
        """Remove all pins of a holder."""
        with translated(self._root), locked(self._root):
            mine = [pin for pin in all_pins(self._layout) if pin.holder == holder]
            return sum(self._unpin(pin_file(parse_name(pin.blob), holder)) for pin in mine)

    def pins(self) -> list[Pin]:
        """Return all pins."""
        with translated(self._root):
            return all_pins(self._layout)

    def evict(self, to_bytes: int) -> Evicted:
        """Remove what is not pinned, least recently used first."""
        if to_bytes < 0:
            raise SpecError(f"a store cannot be emptied to {to_bytes} bytes")
        with translated(self._root), locked(self._root):
            return self._occupancy.evict(to_bytes, self._occupancy.max_files)

    def scrub(self, after: str = "", limit_bytes: int = MAX_READ_BYTES) -> Scrubbed:
        """Verify stored files, one slice a call."""
        with translated(self._root):
            return scrub(self._layout, self._files, after, limit_bytes)

    def usage(self) -> BlobUsage:
        """Return what the store holds."""
        with translated(self._root), locked(self._root):
            counts = self._occupancy.counts()
        return BlobUsage(*counts, self._occupancy.max_bytes, self._occupancy.max_files)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _chunks(self, name: BlobName) -> Iterator[bytes]:
        if name.kind == ONE_CHUNK:
            with translated(self._root):
                data = self._chunk(name, name.digest)
            yield data
            return
        lease = self._instance.new_name()
        with translated(self._root), locked(self._root):
            manifest = self._manifest(name, lock_held=True)
            digests = bytes.fromhex(name.digest) + manifest.encode()[HEAD_BYTES:]
            self._layout.leases.create(lease, digests)
        try:
            for digest in manifest.chunks:
                with translated(self._root):
                    data = self._chunk(name, digest)
                yield data
        finally:
            with translated(self._root):
                self._layout.leases.remove(lease)

    def _info(self, name: BlobName, *, lock_held: bool) -> BlobInfo:
        """Raises NotFoundError."""
        if name.kind == ONE_CHUNK:
            entry = self._layout.chunks.find(name.digest)
            if entry is None:
                raise _missing(name)
            return BlobInfo(name.text, entry.size_bytes, 1)
        manifest = self._manifest(name, lock_held=lock_held)
        self._require_chunks(manifest)
        return BlobInfo(name.text, manifest.size_bytes, len(manifest.chunks))

    def _require_chunks(self, manifest: Manifest) -> None:
        for index, digest in enumerate(manifest.chunks):
            entry = self._layout.chunks.find(digest)
            if entry is None or entry.size_bytes != manifest.chunk_bytes(index):
                raise NotFoundError(
                    f"chunk {ONE_CHUNK}:{digest} is missing, number {index + 1} of {len(manifest.chunks)} of a blob",
                    hint="store the blob again",
                )

    def _manifest(self, name: BlobName, *, lock_held: bool = False) -> Manifest:
        try:
            return parse_manifest(self._files.read(self._layout.manifests, name.digest, lock_held=lock_held))
        except FileNotFoundError:
            raise _missing(name) from None

    def _chunk(self, name: BlobName, digest: str) -> bytes:
        try:
            return self._files.read(self._layout.chunks, digest)
        except FileNotFoundError:
            raise _missing(name) from None

    def _unpin(self, file: str) -> bool:
        removed = self._layout.pins.remove(file)
        if removed:
            self._occupancy.change(pins=-1)
        return removed


def _missing(name: BlobName) -> NotFoundError:
    return NotFoundError(
        f"the blob {name.text} is not in this store, or not whole", hint="it may have been evicted: store it again"
    )


def open_blobs(root: Directory, name: str, *, max_bytes: int, max_files: int, flush: bool = False) -> Blobs:
    """Open a store; it is created if the directory is empty. Counts its files: about 0.3 s for 100,000.

    Args:
        name: of this use of the store: letters and digits, never used by another (`Runtime.new_id`).
        max_bytes: of chunks and manifests; files that are being written, one for each writer, come on top.
        max_files: chunks and manifests.
        flush: every stored blob and pin survives a power failure. Without it they survive the death of any process; a
            power failure may take what was stored in the last half minute, which a read then reports as missing.
    Raises:
        SpecError: a bound is too small.
        ConflictError: it is a store of another version.
        DeniedError: other users may use the directory, or it cannot be used.
        BlobDiskFullError: the disk is full.
    """
    if not name.isalnum() or not name.isascii():
        raise SpecError(f"'{shown(name)}' cannot name a use of a blob store", hint="letters and digits")
    if max_bytes < MIN_BYTES or max_files < MIN_FILES:
        raise SpecError(
            f"a blob store of {max_bytes} bytes and {max_files} files is too small",
            hint=f"at least {MIN_BYTES} bytes and {MIN_FILES} files",
        )
    layout = Layout(root)
    occupancy = Occupancy(layout, max_bytes, max_files)
    with translated(root), locked(root):
        instance = Instance(layout, name)
        forget_dead_instances(layout)
        occupancy.recount()
    return Blobs(layout, occupancy, instance, ChunkFiles(layout, occupancy, instance, flush=flush))
