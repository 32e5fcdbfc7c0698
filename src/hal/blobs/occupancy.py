"""How full a store is, and eviction: least recently used files first, down to a low-water mark.

All calls are made under the store's lock. The three counts are written before a file is added and after one is removed,
so a process that dies in between leaves them too high, never too low; every eviction, and every process that opens the
store, counts the files again.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from hal.blobs.content import DIGEST_BYTES
from hal.blobs.errors import BlobStoreFullError
from hal.blobs.layout import USAGE_FILE, Layout
from hal.blobs.protection import forget_dead_instances, pin_files, protected_files
from hal.core.interfaces.blobs import Evicted
from hal.core.interfaces.directory import Directory, DirectoryEntry

LOW_WATER: Final = (7, 8)
"""An eviction that must make room continues to this part of the bounds, because it reads the names of all files."""
_COUNTS: Final = struct.Struct("<3Q")
_HEX_DIGITS: Final = frozenset("0123456789abcdef")


class Counts(NamedTuple):
    """What the store holds."""

    size_bytes: int = 0
    files: int = 0
    pins: int = 0

    def with_change(self, *, size_bytes: int = 0, files: int = 0, pins: int = 0) -> Counts:
        """These counts and a change; never below 0."""
        return Counts(max(0, self.size_bytes + size_bytes), max(0, self.files + files), max(0, self.pins + pins))


class Occupancy:
    """The counts and bounds of one store."""

    def __init__(self, layout: Layout, max_bytes: int, max_files: int) -> None:
        self._layout = layout
        self.max_bytes = max_bytes
        self.max_files = max_files

    def counts(self) -> Counts:
        """What the store holds."""
        try:
            data = self._layout.root.read(USAGE_FILE, _COUNTS.size + 1)
        except FileNotFoundError:
            data = b""
        return Counts(*_COUNTS.unpack(data)) if len(data) == _COUNTS.size else self.recount()

    def change(self, *, size_bytes: int = 0, files: int = 0, pins: int = 0) -> None:
        """Record that something was removed, or is about to be added."""
        self._write(self.counts().with_change(size_bytes=size_bytes, files=files, pins=pins))

    def recount(self) -> Counts:
        """Count again what is there."""
        entries = [entry for _, entry in self._files()]
        pins = sum(1 for _ in pin_files(self._layout))
        counts = Counts(sum(entry.size_bytes for entry in entries), len(entries), pins)
        self._write(counts)
        return counts

    def make_room(self, size_bytes: int, files: int) -> None:
        """Count a file that is about to be added, after evicting others if there is no room for it.

        Raises:
            BlobStoreFullError: pinned and used files leave no room; nothing was evicted.
        """
        counts = self.counts().with_change(size_bytes=size_bytes, files=files)
        if counts.size_bytes > self.max_bytes or counts.files > self.max_files:
            self._evict_for(size_bytes, files)
            counts = self.counts().with_change(size_bytes=size_bytes, files=files)
        self._write(counts)

    def evict(self, to_bytes: int, to_files: int) -> Evicted:
        """Evict, least recently used first, until at most so much is left or nothing more can be evicted."""
        forget_dead_instances(self._layout)
        counts = self.recount()
        return self._remove_oldest(self._evictable(protected_files(self._layout)), counts, to_bytes, to_files)

    def _evict_for(self, size_bytes: int, files: int) -> None:
        forget_dead_instances(self._layout)
        counts = self.recount()
        over_bytes = counts.size_bytes + size_bytes - self.max_bytes
        over_files = counts.files + files - self.max_files
        if over_bytes <= 0 and over_files <= 0:
            return  # the counts were too high
        evictable = self._evictable(protected_files(self._layout))
        spare_bytes = sum(entry.size_bytes for _, entry in evictable)
        if over_bytes > spare_bytes or over_files > len(evictable):
            raise BlobStoreFullError(
                f"{size_bytes} bytes do not fit into the blob store {self._layout.root.label}: it holds "
                f"{counts.size_bytes} of at most {self.max_bytes} bytes in {counts.files} of at most {self.max_files} "
                f"files, and {spare_bytes} bytes of that are neither pinned nor in use",
                hint="unpin blobs, or give the store more room",
            )
        part, whole = LOW_WATER
        to_bytes = min(self.max_bytes - size_bytes, self.max_bytes * part // whole)
        to_files = min(self.max_files - files, self.max_files * part // whole)
        self._remove_oldest(evictable, counts, to_bytes, to_files)

    def _remove_oldest(
        self, evictable: list[tuple[Directory, DirectoryEntry]], counts: Counts, to_bytes: int, to_files: int
    ) -> Evicted:
        before = counts
        evictable.sort(key=lambda found: (found[1].used_ns, found[1].name))
        for directory, entry in evictable:
            if counts.size_bytes <= to_bytes and counts.files <= to_files:
                break
            directory.remove(entry.name)
            counts = counts.with_change(size_bytes=-entry.size_bytes, files=-1)
        self._write(counts)
        return Evicted(before.files - counts.files, before.size_bytes - counts.size_bytes)

    def _evictable(self, protected: set[str]) -> list[tuple[Directory, DirectoryEntry]]:
        return [found for found in self._files() if found[1].name not in protected]

    def _files(self) -> list[tuple[Directory, DirectoryEntry]]:
        """Chunks and manifests; a file with another kind of name is not the store's, and stays."""
        directories = (self._layout.chunks, self._layout.manifests)
        return [(one, entry) for one in directories for entry in one.entries() if is_digest(entry.name)]

    def _write(self, counts: Counts) -> None:
        self._layout.root.overwrite(USAGE_FILE, _COUNTS.pack(*counts))


def is_digest(name: str) -> bool:
    """Whether it is the name of a chunk or a manifest."""
    return len(name) == 2 * DIGEST_BYTES and _HEX_DIGITS.issuperset(name)
