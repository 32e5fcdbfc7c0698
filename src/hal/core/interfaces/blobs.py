"""A store of blobs: byte strings that are named by their content. Interface version blobs/1.

Pure: Protocols and values. `hal.blobs` implements it on a disk; `hal.conformance.blobs` checks an implementation. Calls
block: a daemon makes them on a lane of its runtime. Any number of threads and processes may use one store at a time.

A blob of at most `CHUNK_BYTES` is one chunk, named `sha256:HEX` by the SHA-256 of its bytes. A longer one is a list of
chunks, all of `CHUNK_BYTES` but the last, named `chunks:HEX` by the SHA-256 of that list (`manifest`). Chunks that
several blobs share are stored once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

from hal.core.interfaces.directory import Data

INTERFACE: Final = "blobs/1"
CHUNK_BYTES: Final = 4 << 20
"""Length of a chunk: one chunk fits into a frame of the wire."""
MAX_READ_BYTES: Final = 64 << 20
"""Bytes that one `read` returns."""
MAX_PINS: Final = 100_000
"""Pins of one store."""


class BlobInfo(NamedTuple):
    """A blob that the store has."""

    id: str
    size_bytes: int
    chunks: int


class Pin(NamedTuple):
    """A blob that is not evicted as long as the pin exists."""

    holder: str
    """Who pinned it: a name that the caller chose."""
    blob: str


class BlobUsage(NamedTuple):
    """What a store holds, and its bounds."""

    size_bytes: int
    files: int
    """Chunks and manifests."""
    pins: int
    max_bytes: int
    max_files: int


class Evicted(NamedTuple):
    """What an eviction removed."""

    files: int
    size_bytes: int


class Scrubbed(NamedTuple):
    """What a slice of a scrub read."""

    after: str
    """Where the next slice continues; '' after the last."""
    files: int
    size_bytes: int
    damaged: tuple[str, ...]
    """SHA-256 of the chunks and manifests whose content did not match; they were removed."""


class BlobWriter(Protocol):
    """A blob that is being written. Its chunks are not evicted meanwhile. Used by one thread."""

    def write(self, data: Data) -> None:
        """Add bytes.

        Raises:
            OverloadedError: there is no room, in the store or on the disk; nothing of this blob is kept.
            SpecError: the blob is longer than a manifest can name.
        """

    def commit(self) -> str:
        """Finish and return the blob's name. Raises as `write`."""

    def abort(self) -> None:
        """Give it up; harmless after `commit`."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Abort unless it was committed."""


class BlobStore(Protocol):
    """A store of blobs.

    Every method with a blob's name raises SpecError if it is not one, and NotFoundError if the store does not have the
    whole blob. What is read is verified: bytes that do not match the name are removed and never returned; the error is
    a NotFoundError that says so. Methods that write raise OverloadedError if there is no room; then nothing changed.
    """

    def put(self, data: Data) -> str:
        """Store bytes and return their name; those that are there already are stored once."""

    def writer(self) -> BlobWriter:
        """Store a blob of any length, piece by piece."""

    def find(self, blob: str) -> BlobInfo | None:
        """Return a blob whose chunks are all there, unverified; None: one is missing."""

    def read(self, blob: str, offset: int = 0, size: int | None = None) -> bytes:
        """Return a part of a blob, or all of it from `offset`; shorter where the blob ends.

        Raises:
            SpecError: a negative offset or size, or more than `MAX_READ_BYTES`: use `chunks`.
        """

    def chunks(self, blob: str) -> Iterator[bytes]:
        """Return a blob's chunks in order; none of them is evicted until the iterator is closed."""

    def verify(self, blob: str) -> BlobInfo:
        """Read all of a blob."""

    def manifest(self, blob: str) -> bytes:
        """Return the list of a blob's chunks, with which another store assembles it.

        Raises:
            SpecError: the blob is one chunk and has none.
        """

    def assemble(self, manifest: bytes) -> str:
        """Store a blob whose chunks are there already (`put` them, and pin them until then).

        Raises:
            SpecError: it is not a manifest.
            NotFoundError: a chunk is missing.
        """

    def pin(self, blob: str, holder: str) -> None:
        """Keep a blob from being evicted; repeated, it changes nothing. Pins outlive the process that set them.

        Raises:
            SpecError: `holder` is not a name.
            OverloadedError: there are `MAX_PINS` already.
        """

    def pin_all(self, blobs: Sequence[str], holder: str) -> None:
        """Pin several blobs in one step, all of them or none; as `pin` otherwise."""

    def unpin(self, blob: str, holder: str) -> bool:
        """Remove a pin; False: there was none. The blob need not be there."""

    def unpin_all(self, holder: str) -> int:
        """Remove all pins of a holder; returns how many there were."""

    def pins(self) -> list[Pin]:
        """Return all pins, by holder and blob."""

    def evict(self, to_bytes: int) -> Evicted:
        """Remove what is not pinned, least recently used first, until at most so many bytes are left, if possible."""

    def scrub(self, after: str = "", limit_bytes: int = MAX_READ_BYTES) -> Scrubbed:
        """Verify stored files, one slice of about `limit_bytes` a call, and remove damaged ones, pinned or not."""

    def usage(self) -> BlobUsage:
        """Return what the store holds."""
