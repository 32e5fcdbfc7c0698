"""Write a blob of any length: chunks are stored as they fill up, the manifest last."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from hal.blobs.chunk_files import ChunkFiles
from hal.blobs.content import MANY_CHUNKS, MAX_BLOB_BYTES, ONE_CHUNK, Manifest
from hal.blobs.layout import Layout, locked, translated
from hal.blobs.protection import Instance
from hal.core.interfaces.blobs import CHUNK_BYTES
from hal.core.interfaces.directory import Data
from hal.core.model.errors import ConflictError, SpecError


class ChunkWriter:
    """One blob that is being written; see `hal.core.interfaces.blobs.BlobWriter`."""

    def __init__(self, layout: Layout, files: ChunkFiles, instance: Instance) -> None:
        self._layout = layout
        self._files = files
        self._lease = instance.new_name()
        self._leased = False
        self._buffer = bytearray()
        """What does not fill a chunk yet."""
        self._chunks: list[str] = []
        """Digests of the chunks that are stored."""
        self._size_bytes = 0
        self._ended = False

    def write(self, data: Data) -> None:
        """Add bytes; see `BlobWriter`."""
        self._check_open()
        view = memoryview(data).cast("B")
        if self._size_bytes + len(view) > MAX_BLOB_BYTES:
            self.abort()
            raise SpecError(f"a blob of more than {MAX_BLOB_BYTES} bytes cannot be stored", hint="split it")
        self._size_bytes += len(view)
        while len(view):
            if len(self._buffer) == CHUNK_BYTES:
                self._store_chunk()
            part = view[: CHUNK_BYTES - len(self._buffer)]
            self._buffer += part
            view = view[len(part) :]

    def commit(self) -> str:
        """Finish, and return the blob's name; see `BlobWriter`."""
        self._check_open()
        try:
            with translated(self._layout.root):
                if not self._chunks:
                    return f"{ONE_CHUNK}:{self._files.store(self._layout.chunks, self._buffer)}"
                self._store_chunk()
                manifest = Manifest(self._size_bytes, tuple(self._chunks)).encode()
                return f"{MANY_CHUNKS}:{self._files.store(self._layout.manifests, manifest)}"
        finally:
            self.abort()

    def abort(self) -> None:
        """Give it up; see `BlobWriter`. Chunks that were stored stay until they are evicted."""
        self._ended = True
        self._buffer.clear()
        if self._leased:
            self._leased = False
            with translated(self._layout.root):
                self._layout.leases.remove(self._lease)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def _check_open(self) -> None:
        if self._ended:
            raise ConflictError("this blob was committed or given up", hint="write another one")

    def _store_chunk(self) -> None:
        """Store what is buffered as one chunk; if that fails, the blob is given up."""
        try:
            with translated(self._layout.root):
                if not self._leased:
                    with locked(self._layout.root):
                        self._layout.leases.create(self._lease, b"")
                    self._leased = True
                self._chunks.append(self._files.store(self._layout.chunks, self._buffer, self._lease))
        except Exception:
            self.abort()
            raise
        self._buffer.clear()
