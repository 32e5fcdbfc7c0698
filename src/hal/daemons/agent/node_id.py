"""By what a node is known again: a word made at random at its first start, kept under HAL_HOME/nodes/NODE.

Its name does not tell it from a node of the same name in another HAL_HOME, whose work would be taken for work that was
lost. Where the word was removed, the node is still known within the same boot by the directory that its HAL_HOME is.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hal.runtime.privacy import write_private
from hal.runtime.regular_files import read_regular

MAX_CHARS: Final = 64
MACHINE_ID: Final = Path("/etc/machine-id")


def node_id(file: Path, make: Callable[[], str]) -> str:
    """What the file says, made when there is none; '' where the disk does not let it. Blocking.

    Args:
        make: gives a random word.
    """
    try:
        try:
            known = read_regular(file, MAX_CHARS).decode(errors="replace").strip()
        except FileNotFoundError:
            known = ""
        if not known:
            known = make()
            write_private(file, known, durable=True)
    except OSError:
        return ""
    return known


def home_id(home: Path) -> str:
    """Which directory of which machine that is, as 32 hex digits; '' where it cannot be told. Blocking."""
    try:
        info = os.stat(home)
        machine = MACHINE_ID.read_text().strip() if MACHINE_ID.exists() else os.uname().nodename
    except (OSError, UnicodeDecodeError):
        return ""
    text = f"{machine} {info.st_dev} {info.st_ino} {os.path.realpath(home)}"
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
