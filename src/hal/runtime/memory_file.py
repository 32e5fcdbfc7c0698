"""Texts that libraries want to read from a file, and no disk may see."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def in_memory(text: str) -> Iterator[Path]:
    """A file with this text, as long as the block; no disk sees it."""
    fd = os.memfd_create("hal-session", os.MFD_CLOEXEC)
    try:
        os.write(fd, text.encode())
        yield Path(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
