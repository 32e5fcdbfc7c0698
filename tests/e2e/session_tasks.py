"""Tasks of sessions; workers import them, so this module imports little."""

from __future__ import annotations

import time


def napping(number: int) -> int:
    """Return the number after a while."""
    time.sleep(0.05)
    return number
