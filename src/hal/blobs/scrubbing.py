"""Read what is stored, a slice at a time, and remove what does not match its name."""

from __future__ import annotations

from hal.blobs.chunk_files import READ_LIMIT, ChunkFiles
from hal.blobs.content import digest_of
from hal.blobs.layout import Layout
from hal.blobs.occupancy import is_digest
from hal.core.interfaces.blobs import Scrubbed


def scrub(layout: Layout, files: ChunkFiles, after: str, limit_bytes: int) -> Scrubbed:
    """Verify the files whose digests follow `after`, at least one, until about `limit_bytes` were read.

    Verifying is not using: the order of eviction stays as it was.
    """
    waiting = sorted(
        (entry.name, number)
        for number, directory in enumerate((layout.chunks, layout.manifests))
        for entry in directory.entries()
        if is_digest(entry.name) and entry.name > after
    )
    count = size_bytes = 0
    damaged: list[str] = []
    for digest, number in waiting:
        if count and size_bytes >= limit_bytes and digest != after:  # a chunk and a manifest may have one digest
            return Scrubbed(after, count, size_bytes, tuple(damaged))
        directory = (layout.chunks, layout.manifests)[number]
        after = digest
        try:
            data = directory.read(digest, READ_LIMIT)
        except FileNotFoundError:
            continue  # evicted meanwhile
        count += 1
        size_bytes += len(data)
        if digest_of(data) != digest and files.discard_damaged(directory, digest):
            damaged.append(digest)
    return Scrubbed("", count, size_bytes, tuple(damaged))
