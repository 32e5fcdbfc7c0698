"""Try a command out: whether this machine can do something that only trying tells."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Final

NOBODY: Final = 65_534


def ends_well(command: Sequence[str], timeout_s: float) -> bool:
    """Run a command as an ordinary user, with no variables, in `/`, and return whether it exits with 0 in time.

    Root runs it as `nobody`, for what root may do says little about others. Blocks.
    """
    as_root = os.geteuid() == 0
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
            env={},
            cwd="/",
            user=NOBODY if as_root else None,
            group=NOBODY if as_root else None,
            extra_groups=() if as_root else None,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return ended.returncode == 0
