"""Chunks and manifests as files: stored once, verified when read, removed when damaged.

A file is written under `staging` first and moved into its place under the store's lock, so nobody ever sees a part of
it, whenever the writer dies.
"""

from __future__ import annotations

from typing import Final

from hal.blobs.content import digest_of
from hal.blobs.errors import BlobDamagedError
from hal.blobs.layout import Layout, locked
from hal.blobs.occupancy import Occupancy
from hal.blobs.protection import Instance
from hal.core.interfaces.blobs import CHUNK_BYTES
from hal.core.interfaces.directory import Data, Directory

READ_LIMIT: Final = CHUNK_BYTES + 1
"""One byte more than any file has, so that a file that grew is noticed."""


class ChunkFiles:
    """The files of one store.

    Args:
        flush: whether every stored file is flushed to the disk before its name is returned.
    """

    def __init__(self, layout: Layout, occupancy: Occupancy, instance: Instance, *, flush: bool) -> None:
        self._layout = layout
        self._occupancy = occupancy
        self._instance = instance
        self.flushes = flush

    def store(self, directory: Directory, data: Data, lease: str = "") -> str:
        """Store a chunk or a manifest, if it is not there; returns its digest.

        Args:
            directory: `chunks` or `manifests`.
            lease: of the writer: from now on the file is not evicted until the lease ends.
        Raises:
            BlobStoreFullError, OSError: nothing was stored.
        """
        digest = digest_of(data)
        if self._reuse(directory, digest, data, lease):
            return digest
        staged = self._instance.new_name()
        moved = False
        try:
            self._layout.staging.create(staged, data, flush=self.flushes)
            with locked(self._layout.root):
                self._move_in(directory, digest, staged, len(data), lease)
                moved = True
        finally:
            if not moved:
                self._layout.staging.remove(staged)
        return digest

    def read(self, directory: Directory, digest: str, *, lock_held: bool = False) -> bytes:
        """Read a file and verify it.

        Args:
            lock_held: the caller holds the store's lock.
        Raises:
            FileNotFoundError: there is none.
            BlobDamagedError: it was damaged; it was removed.
        """
        data = directory.read(digest, READ_LIMIT)
        if digest_of(data) != digest:
            if lock_held:
                self._discard_damaged(directory, digest)
            else:
                self.discard_damaged(directory, digest)
            raise BlobDamagedError(
                f"stored bytes were damaged: the SHA-256 of {directory.label}/{digest} was another; it was removed",
                hint="store the blob again",
            )
        directory.touch(digest)
        return data

    def discard_damaged(self, directory: Directory, digest: str) -> bool:
        """Remove a file unless it is good, because it was replaced meanwhile; returns whether it was damaged."""
        with locked(self._layout.root):
            return self._discard_damaged(directory, digest)

    def _discard_damaged(self, directory: Directory, digest: str) -> bool:
        try:
            data = directory.read(digest, READ_LIMIT)
        except FileNotFoundError:
            return False
        if digest_of(data) == digest:
            return False
        # The size of the file, which may be longer than what was read.
        entry = directory.find(digest)
        if entry is not None and directory.remove(digest):
            self._occupancy.change(size_bytes=-entry.size_bytes, files=-1)
        return True

    def _reuse(self, directory: Directory, digest: str, data: Data, lease: str) -> bool:
        """Use the file that is there already, if it is good; a damaged one is replaced."""
        entry = directory.find(digest)
        if entry is None or entry.size_bytes != len(data):
            return False
        try:
            if directory.read(digest, READ_LIMIT) != data:
                return False
            if lease:
                with locked(self._layout.root):
                    if directory.find(digest) is None:
                        return False
                    self._layout.leases.append(lease, bytes.fromhex(digest))
            directory.touch(digest)
            if self.flushes:
                directory.flush(digest)
        except FileNotFoundError:
            return False
        return True

    def _move_in(self, directory: Directory, digest: str, staged: str, size_bytes: int, lease: str) -> None:
        former = directory.find(digest)
        former_bytes = former.size_bytes if former is not None else 0
        if lease:
            self._layout.leases.append(lease, bytes.fromhex(digest))
        self._occupancy.make_room(size_bytes - former_bytes, 0 if former is not None else 1)
        try:
            self._layout.staging.move(staged, directory, digest, flush=self.flushes)
        except OSError:
            self._occupancy.change(size_bytes=former_bytes - size_bytes, files=0 if former is not None else -1)
            raise
