"""By what a node is known again: a word made at random at its first start, kept under HAL_HOME/nodes/NODE.

Its name does not tell it from a node of the same name in another HAL_HOME, whose work would be taken for work that was
lost.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from hal.runtime.privacy import write_private

MAX_CHARS: Final = 64


def node_id(file: Path, make: Callable[[], str]) -> str:
    """What the file says, made when there is none; '' where the disk does not let it. Blocking.

    Args:
        make: gives a random word.
    """
    try:
        known = file.read_bytes()[:MAX_CHARS].decode(errors="replace").strip() if file.exists() else ""
        if not known:
            known = make()
            write_private(file, known, durable=True)
    except OSError:
        return ""
    return known
