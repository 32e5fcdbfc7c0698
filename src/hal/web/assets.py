"""The files of the page, read once when the process starts: the same for everybody, so they hold nobody's data."""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from msgspec import Struct

PREFIX: Final = "/static/"
SHELL: Final = "index.html"
MEDIA: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "woff2": "font/woff2",
}
SMALL_BYTES: Final = 1_024
"""Not worth packing."""


class Asset(Struct, frozen=True):
    """One file."""

    body: bytes
    packed: bytes
    """By gzip; empty: as it is."""
    media: str
    etag: str


def load_assets() -> dict[str, Asset]:
    """All files of the package's `static` directory, by path below it."""
    found: dict[str, Asset] = {}

    def walk(directory: Traversable, prefix: str) -> None:
        for entry in sorted(directory.iterdir(), key=lambda one: one.name):
            if entry.is_dir():
                walk(entry, f"{prefix}{entry.name}/")
            elif (media := MEDIA.get(entry.name.rpartition(".")[2])) is not None:
                found[prefix + entry.name] = _asset(entry.read_bytes(), media)

    walk(files("hal.web") / "static", "")
    return found


def _asset(body: bytes, media: str) -> Asset:
    packed = gzip.compress(body, 6, mtime=0) if len(body) > SMALL_BYTES and media != MEDIA["woff2"] else b""
    return Asset(body, packed, media, f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"')
