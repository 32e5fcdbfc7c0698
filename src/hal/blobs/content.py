"""Names of blobs, and manifests: which chunks a blob longer than one chunk consists of.

Pure. A manifest is `MAGIC`, the blob's size as 8 bytes little-endian, and the SHA-256 of each of its chunks, two or
more; it is never longer than a chunk. The kind is a part of the name, so no other bytes are taken for a manifest.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

from hal.core.interfaces.blobs import CHUNK_BYTES
from hal.core.interfaces.directory import Data
from hal.core.model.errors import SpecError, shown

DIGEST_BYTES: Final = 32
MAGIC: Final = b"hal chunks 1\n"
SIZE_BYTES: Final = 8
HEAD_BYTES: Final = len(MAGIC) + SIZE_BYTES
MAX_CHUNKS: Final = (CHUNK_BYTES - HEAD_BYTES) // DIGEST_BYTES
"""Chunks of one blob: about 512 GiB."""
MAX_BLOB_BYTES: Final = MAX_CHUNKS * CHUNK_BYTES
ONE_CHUNK: Final = "sha256"
MANY_CHUNKS: Final = "chunks"
_NAME: Final = re.compile(rf"({ONE_CHUNK}|{MANY_CHUNKS}):([0-9a-f]{{64}})")


class BlobName(NamedTuple):
    """A blob's name, taken apart."""

    kind: str
    """`ONE_CHUNK` or `MANY_CHUNKS`."""
    digest: str
    """Hex digits of the SHA-256 of its only chunk, or of its manifest."""

    @property
    def text(self) -> str:
        return f"{self.kind}:{self.digest}"


class Manifest(NamedTuple):
    """The contents of a manifest."""

    size_bytes: int
    chunks: tuple[str, ...]
    """SHA-256 of each chunk in order, in hex digits."""

    def encode(self) -> bytes:
        """Return it as it is stored."""
        return MAGIC + self.size_bytes.to_bytes(SIZE_BYTES, "little") + bytes.fromhex("".join(self.chunks))

    def chunk_bytes(self, index: int) -> int:
        """The length of one chunk."""
        return min(CHUNK_BYTES, self.size_bytes - index * CHUNK_BYTES)


def digest_of(data: Data) -> str:
    """The SHA-256 of bytes, in hex digits."""
    return hashlib.sha256(data).hexdigest()


def chunk_name(data: Data) -> str:
    """The name of a blob of one chunk."""
    return f"{ONE_CHUNK}:{digest_of(data)}"


def parse_name(blob: str) -> BlobName:
    """Take a name apart.

    Raises:
        SpecError: it is not a name.
    """
    found = _NAME.fullmatch(blob)
    if found is None:
        raise SpecError(f"'{shown(blob)}' is not the name of a blob", hint="sha256: or chunks:, and 64 hex digits")
    return BlobName(found[1], found[2])


def parse_manifest(data: bytes) -> Manifest:
    """Decode a manifest.

    Raises:
        SpecError: it is not one.
    """
    size_bytes = int.from_bytes(data[len(MAGIC) : HEAD_BYTES], "little")
    count = -(-size_bytes // CHUNK_BYTES)
    long_enough = len(data) == HEAD_BYTES + count * DIGEST_BYTES
    if not data.startswith(MAGIC) or not long_enough or not 2 <= count <= MAX_CHUNKS:
        raise SpecError(f"{len(data)} bytes are not the manifest of a blob")
    digests = data[HEAD_BYTES:].hex()
    return Manifest(size_bytes, tuple(digests[at : at + 64] for at in range(0, len(digests), 64)))
