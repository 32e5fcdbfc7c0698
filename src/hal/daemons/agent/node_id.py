"""The identity of a node: a random word created at its first start, stored under HAL_HOME/nodes/NODE.

Its name does not distinguish it from a node of the same name in another HAL_HOME, whose work would be taken for lost
work. If the word was removed, the node is still recognised within the same boot by the directory of its HAL_HOME.
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


def read_node_id(file: Path, make: Callable[[], str]) -> str:
    """Read the word in the file, created if there is none; '' if the disk does not allow that. Blocking.

    Args:
        make: creates a random word.
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


def identify_home(home: Path) -> str:
    """Identify a directory of a machine, as 32 hex digits; '' if that is not possible. Blocking."""
    try:
        info = os.stat(home)
        machine = MACHINE_ID.read_text().strip() if MACHINE_ID.exists() else os.uname().nodename
    except (OSError, UnicodeDecodeError):
        return ""
    text = f"{machine} {info.st_dev} {info.st_ino} {os.path.realpath(home)}"
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
