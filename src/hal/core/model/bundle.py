"""A bundle: the files of a small directory that is shipped with jobs, named by its content.

Pure. A bundle is a manifest: its entries (files, directories, links) in order, and the segments into which the contents
of its files, one behind the other, are cut. Its name is `sha256:` and the SHA-256 of the manifest's bytes. Segments are
named by their SHA-256, too, so that of a directory that has changed a little only a little travels.

Whoever receives a manifest checks it here before anything is written by it: no path leaves the directory, none is
below a file or a link, and no entry is anything but a plain file, a directory or a link. Of a file's mode only whether
it is a program is kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct

from hal.core.model.errors import SpecError, shown

BUNDLE_PREFIX: Final = "sha256:"
SEGMENT_BYTES: Final = 1 << 20
"""Longest segment."""
MAX_MANIFEST_BYTES: Final = 4 << 20
MAX_ENTRIES: Final = 50_000
"""Files, directories and links of one bundle."""
MAX_SEGMENTS: Final = 20_000
MAX_DEPTH: Final = 64
"""Directories above an entry."""
MAX_PATH_BYTES: Final = 4_096
MAX_PART_BYTES: Final = 255
"""Longest name of a file or directory, as UTF-8."""
MAX_BUNDLE_BYTES: Final = 16 << 30
VERSION: Final = 1
HINT: Final = "leave out what jobs do not need in a file .halignore, or put the data where the nodes can read it"
"""What to do about a directory that is too large."""

_NAME: Final = re.compile(r"sha256:[0-9a-f]{64}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class EntryKind(StrEnum):
    """What an entry is."""

    FILE = "f"
    PROGRAM = "x"
    """A file that may be executed."""
    DIRECTORY = "d"
    LINK = "l"


_FILES: Final = frozenset((EntryKind.FILE, EntryKind.PROGRAM))


class Entry(Struct, frozen=True, array_like=True, gc=False):
    """One entry of a bundle."""

    path: str
    """From the directory, with `/`."""
    kind: EntryKind
    size: int = 0
    """Bytes of a file."""
    target: str = ""
    """Of a link: what it names, as it is."""


class Segment(Struct, frozen=True, array_like=True, gc=False):
    """A piece of the contents."""

    digest: str
    """SHA-256 in lower-case hex."""
    size: int


class Manifest(Struct, frozen=True, kw_only=True):
    """What a bundle is made of."""

    version: int = VERSION
    entries: tuple[Entry, ...]
    """Ascending by path."""
    segments: tuple[Segment, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(segment.size for segment in self.segments)

    @property
    def files(self) -> int:
        """Entries, directories and links included."""
        return len(self.entries)


class BundleLimits(Struct, frozen=True, kw_only=True):
    """How large a bundle may be."""

    size_bytes: int
    files: int
    """Entries, directories and links included."""

    def refusal(self, size_bytes: int, files: int) -> SpecError | None:
        """The error for a directory of that size; None: it may be shipped."""
        if files > self.files:
            what = f"{files:,} files and directories; at most {self.files:,} are shipped"
        elif size_bytes > self.size_bytes:
            what = f"{_mib(size_bytes)}; at most {_mib(self.size_bytes)} are shipped"
        else:
            return None
        return SpecError(
            f"ship: the directory has {what}",
            hint=HINT,
        )


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes after which it is named."""
    return msgspec.json.encode(manifest)


def name_of(manifest: bytes) -> str:
    """The name of the bundle with that manifest."""
    return BUNDLE_PREFIX + hashlib.sha256(manifest).hexdigest()


def is_bundle_name(text: str) -> bool:
    """Whether the text is the name of a bundle."""
    return _NAME.fullmatch(text) is not None


def is_digest(text: str) -> bool:
    """Whether the text is a SHA-256 in lower-case hex."""
    return _DIGEST.fullmatch(text) is not None


def parse_manifest(data: bytes) -> Manifest:
    """Read a manifest that somebody else has written.

    Raises:
        SpecError: it is none, or an entry of it may not be.
    """
    if len(data) > MAX_MANIFEST_BYTES:
        raise SpecError(f"a manifest of {len(data)} bytes; at most {MAX_MANIFEST_BYTES} are allowed")
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"this is no manifest of a bundle: {error}") from error
    if manifest.version != VERSION:
        raise SpecError(f"a manifest of version {manifest.version}; this HAL reads version {VERSION}")
    check_entries(manifest.entries)
    if len(manifest.segments) > MAX_SEGMENTS:
        raise SpecError(f"{len(manifest.segments)} segments; a bundle has at most {MAX_SEGMENTS}")
    sizes = 0
    for segment in manifest.segments:
        if not is_digest(segment.digest) or not 0 < segment.size <= SEGMENT_BYTES:
            raise SpecError(f"'{shown(segment.digest)}' of {segment.size} bytes is no segment of a bundle")
        sizes += segment.size
    if sizes != sum(entry.size for entry in manifest.entries) or sizes > MAX_BUNDLE_BYTES:
        raise SpecError("the segments of a bundle are not what its files have")
    return manifest


def check_entries(entries: Sequence[Entry]) -> None:
    """Check that these entries, and nothing else, come to be in one directory.

    Raises:
        SpecError: names the entry.
    """
    if len(entries) > MAX_ENTRIES:
        raise SpecError(f"{len(entries)} entries; a bundle has at most {MAX_ENTRIES}")
    before = ""
    leaves: set[str] = set()
    directories: set[str] = {""}
    """Those above an entry; each was checked once."""
    for entry in entries:
        path = entry.path
        above, _, name = path.rpartition("/")
        if above not in directories or not _is_simple(path, name):
            check_relative(path)
            while above not in directories:
                directories.add(above)
                above = above.rpartition("/")[0]
        if path <= before:
            raise SpecError(f"'{shown(path)}': entries must ascend")
        before = path
        if entry.kind is EntryKind.LINK:
            _check_target(entry)
        elif entry.target:
            raise SpecError(f"'{shown(path)}' is no link and names something")
        if entry.size < 0 or (entry.size and entry.kind not in _FILES):
            raise SpecError(f"'{shown(path)}' cannot have {entry.size} bytes")
        if entry.kind is not EntryKind.DIRECTORY:
            leaves.add(path)
    if wrong := leaves & directories:
        below = next(entry.path for entry in entries if _is_below(entry.path, wrong))
        raise SpecError(f"'{shown(below)}' is below something that is no directory")


def _is_below(path: str, places: set[str]) -> bool:
    return any(path[:at] in places for at, letter in enumerate(path) if letter == "/")


def _is_simple(path: str, name: str) -> bool:
    """Whether a path is surely one that `check_relative` allows, if that of its directory is."""
    return (
        path.isascii()
        and 0 < len(name) <= MAX_PART_BYTES
        and path[0] != "/"
        and len(path) < MAX_PATH_BYTES
        and name not in (".", "..")
        and "\0" not in name
    )


def check_relative(path: str) -> None:
    """Check a path below a directory.

    Raises:
        SpecError: it leads out of it, or no file can have it.
    """
    parts = path.split("/")
    if len(parts) > MAX_DEPTH or any(part in ("", ".", "..") for part in parts):
        raise SpecError(f"'{shown(path)}' is not a path below a directory")
    size = longest = 0
    for part in parts:
        try:
            length = len(part.encode())
        except UnicodeEncodeError:
            raise SpecError(f"'{shown(path)}' is not valid Unicode", hint="rename it") from None
        size, longest = size + length + 1, max(longest, length)
    if "\0" in path or size > MAX_PATH_BYTES or longest > MAX_PART_BYTES:
        raise SpecError(f"'{shown(path)}' cannot be the path of a file")


def _check_target(entry: Entry) -> None:
    try:
        size = len(entry.target.encode())
    except UnicodeEncodeError:
        size = 0
    if not 0 < size < MAX_PATH_BYTES or "\0" in entry.target:
        raise SpecError(f"the link '{shown(entry.path)}' names nothing that a link can")


# ── what jobs say ─────────────────────────────────────────────────────────────────────────────────────────────────────

FILES_GATE: Final = "hal.files"
"""The gate at which a step waits for its files, and leaves what is collected."""
MAX_PATTERNS: Final = 16
"""Patterns of one job."""
MAX_PATTERN_BYTES: Final = 200
STAGE_MS: Final = 1_800_000
"""How long a node may take to get a step's files, and to deliver what is collected."""


class CollectWhen(StrEnum):
    """After which ends of an attempt its files are collected."""

    SUCCEEDED = "succeeded"
    ENDED = "ended"
    """Also after one that failed."""


class FilesOrder(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a step needs of its node's file service: the argument of its gate."""

    ship: str = ""
    """Name of the bundle; empty: its directory begins empty."""
    collect: tuple[str, ...] = ()
    when: CollectWhen = CollectWhen.SUCCEEDED


def check_patterns(patterns: Iterable[str]) -> None:
    """Check the patterns of files that a job wants collected.

    Raises:
        SpecError: names the pattern.
    """
    seen: set[str] = set()
    for pattern in patterns:
        parts = pattern.rstrip("/").split("/")
        if pattern.startswith("/") or ".." in parts or "" in parts:
            raise SpecError(
                f"collect: '{shown(pattern)}' is not a pattern below the job's directory",
                hint="write paths from that directory: results/*.csv, or **/*.png",
            )
        if not pattern.isprintable() or len(pattern.encode(errors="replace")) > MAX_PATTERN_BYTES:
            raise SpecError(f"collect: '{shown(pattern)}' is not printable, or longer than {MAX_PATTERN_BYTES} bytes")
        if pattern in seen:
            raise SpecError(f"collect: '{shown(pattern)}' is named twice")
        seen.add(pattern)
    if len(seen) > MAX_PATTERNS:
        raise SpecError(f"collect: {len(seen)} patterns; at most {MAX_PATTERNS} are allowed", hint="use * and **")


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.1f} MiB" if size_bytes % (1 << 20) else f"{size_bytes >> 20:,} MiB"
