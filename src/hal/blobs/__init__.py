"""Blobs on this machine's disk: a content-addressed store of chunks, without a network.

Planes that keep bytes (data, binaries, sessions) use it; it knows none of them. Calls block; the disk is reached
through `Directory` only. Import names from here.
"""

from hal.blobs.content import Manifest, chunk_name, parse_manifest
from hal.blobs.errors import BlobDamagedError, BlobDiskFullError, BlobStoreFullError
from hal.blobs.store import Blobs, open_blobs

__all__ = [
    "BlobDamagedError",
    "BlobDiskFullError",
    "BlobStoreFullError",
    "Blobs",
    "Manifest",
    "chunk_name",
    "open_blobs",
    "parse_manifest",
]
