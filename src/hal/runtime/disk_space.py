"""How much of a disk is free."""

from __future__ import annotations

import os
from pathlib import Path


def free_part(path: Path) -> float | None:
    """The part of the disk of a directory that unprivileged users may still write; None: it does not say. Blocking."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail / found.f_blocks if found.f_blocks else None
