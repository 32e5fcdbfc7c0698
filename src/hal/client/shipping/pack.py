"""A directory as a bundle: which segments its files make, and their digests, of which as many as possible are known
from the last time.

Files are cut into segments by their names and sizes alone, so that a change of one file changes one segment. What was
read is remembered beside names, sizes, times and inodes of the files, in the user's cache directory: a directory in
which nothing has changed is recognised without reading a file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from hal.client.shipping.directory import Listed, Listing
from hal.core.model.bundle import (
    MAX_MANIFEST_BYTES,
    SEGMENT_BYTES,
    Entry,
    Manifest,
    Segment,
    check_entries,
    encode_manifest,
    name_of,
)
from hal.core.model.errors import ConflictError, SpecError, shown
from hal.runtime.privacy import make_private
from hal.runtime.regular_files import open_regular, read_regular

CUT_EVERY: Final = 32
"""About so many small files make a segment."""
RACY_NS: Final = 50_000_000
"""A file that was changed so shortly before it was read may be changed again without a trace in its times."""
MAX_MEMORY_BYTES: Final = 16 << 20
"""Largest file of what is remembered of a directory."""
MAX_MEMORIES: Final = 64
"""Directories of which something is remembered."""
MAX_HELD_BYTES: Final = 32 << 20
"""Of what was read, so much stays in memory until it was sent; the rest is read again."""
DIGITS: Final = 32


class Part(Struct, frozen=True, array_like=True, gc=False):
    """A part of a file."""

    file: Listed
    offset: int
    size: int


class Memory(Struct, frozen=True):
    """What is remembered of a directory."""

    listing: str = ""
    """Digest of its listing."""
    bundle: str = ""
    """The bundle that it was."""
    segments: dict[str, str] = {}
    """Digest of each segment, by that of the parts of which it was made."""


class Pack(NamedTuple):
    """A directory that was read."""

    name: str
    manifest: bytes
    top: str
    segments: Sequence[tuple[Segment, Sequence[Part]]]
    held: Mapping[int, bytearray]
    """Segments that were read, by position: what has the digest that the manifest says."""

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment, _ in self.segments)

    def read(self, position: int) -> bytearray:
        """The bytes of a segment.

        Raises:
            ConflictError: they are not what they were.
        """
        if (held := self.held.get(position)) is not None:
            return held
        segment, parts = self.segments[position]
        data = _read(self.top, parts)
        if hashlib.sha256(data).hexdigest() != segment.digest:
            raise ConflictError(
                f"ship: files of {shown(self.top)} change while they are shipped",
                hint="submit again when nothing writes there any more, or leave these files out in .halignore",
            )
        return data


def remembered(listing: Listing) -> tuple[str, Memory]:
    """The bundle that a directory was when nothing in it has changed since, or ''; and what is remembered of it."""
    memory = _recall(listing.top)
    return (memory.bundle if memory.listing == _digest(listing.entries) else ""), memory


def pack(listing: Listing, memory: Memory) -> Pack:
    """Read what is not remembered, and remember it.

    Raises:
        SpecError: a file cannot be read, or cannot be in a bundle.
        ConflictError: a file changes while it is read.
    """
    entries = tuple(Entry(one.path, one.kind, one.size, one.target) for one in listing.entries)
    try:
        check_entries(entries)
    except SpecError as error:
        raise SpecError(f"ship: {error.message}", hint=error.hint) from error
    began_ns = time.time_ns()
    segments: list[tuple[Segment, Sequence[Part]]] = []
    known: dict[str, str] = {}
    held: dict[int, bytearray] = {}
    held_bytes = 0
    for position, parts in enumerate(_cut(listing.entries)):
        key = _digest(parts)
        digest = memory.segments.get(key)
        if digest is None:
            read = _read(listing.top, parts)
            digest = hashlib.sha256(read).hexdigest()
            if held_bytes + len(read) <= MAX_HELD_BYTES:
                held[position] = read
                held_bytes += len(read)
        known[key] = digest
        segments.append((Segment(digest, sum(part.size for part in parts)), parts))
    data = encode_manifest(Manifest(entries=entries, segments=tuple(segment for segment, _ in segments)))
    if len(data) > MAX_MANIFEST_BYTES:
        raise SpecError(
            f"ship: the names of all files in {shown(listing.top)} are too long together",
            hint="leave out what jobs do not need in a file .halignore",
        )
    name = name_of(data)
    if listing.newest_ns < began_ns - RACY_NS:
        _remember(listing.top, Memory(_digest(listing.entries), name, known))
    return Pack(name, data, listing.top, segments, held)


def _cut(entries: Sequence[Listed]) -> Iterator[Sequence[Part]]:
    """The parts of each segment, in order."""
    parts: list[Part] = []
    size = 0
    for file in entries:
        if not file.size:
            continue
        if parts and size + file.size > SEGMENT_BYTES:
            yield parts
            parts, size = [], 0
        if file.size > SEGMENT_BYTES:
            for at in range(0, file.size, SEGMENT_BYTES):
                yield [Part(file, at, min(SEGMENT_BYTES, file.size - at))]
            continue
        parts.append(Part(file, 0, file.size))
        size += file.size
        if not zlib.crc32(file.path.encode()) % CUT_EVERY:
            yield parts
            parts, size = [], 0
    if parts:
        yield parts


def _read(top: str, parts: Sequence[Part]) -> bytearray:
    data = bytearray(sum(part.size for part in parts))
    view, at = memoryview(data), 0
    for part in parts:
        file, size = part.file, part.size
        try:
            fd = open_regular(f"{top}/{file.path}", listed=True)
        except OSError as error:
            raise SpecError(
                f"ship: {shown(file.path)} cannot be read: {error.strerror}",
                hint="leave it out: name it in a file .halignore in that directory",
            ) from error
        try:
            count = os.preadv(fd, (view[at : at + size],), part.offset)
        finally:
            os.close(fd)
        if count != size:
            raise ConflictError(
                f"ship: {shown(file.path)} changes while it is read",
                hint="submit again when nothing writes there any more, or leave it out in .halignore",
            )
        at += size
    return data


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(value)).hexdigest()


# ── memory ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _directory() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(cache) if cache.startswith("/") else Path(os.path.expanduser("~")) / ".cache"
    return base / "hal" / "ship"


def _file(top: str) -> Path:
    return _directory() / hashlib.sha256(os.fsencode(top)).hexdigest()[:DIGITS]


def _recall(top: str) -> Memory:
    try:
        return msgspec.msgpack.decode(read_regular(_file(top), MAX_MEMORY_BYTES), type=Memory)
    except (OSError, msgspec.DecodeError):
        return Memory()


def _remember(top: str, memory: Memory) -> None:
    """Where it cannot be kept, files are read again the next time."""
    with contextlib.suppress(OSError):
        directory = _directory()
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_private(directory)
        _write(_file(top), msgspec.msgpack.encode(memory))
        kept = sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in kept[:-MAX_MEMORIES]:
            path.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    staged = path.with_name(f"{path.name}.{os.getpid()}")
    fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
    staged.replace(path)
