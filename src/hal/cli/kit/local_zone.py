"""The time zone of this machine, by name: days, weeks and months of what a command shows begin by its clocks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

LOCALTIME: Final = Path("/etc/localtime")
UTC: Final = "UTC"


def local_zone() -> str:
    """`Europe/Rome`; `UTC` where nothing names it."""
    for name in (os.environ.get("TZ", "").removeprefix(":"), _linked()):
        if name and _known(name):
            return name
    return UTC


def _linked() -> str:
    try:
        return str(LOCALTIME.resolve()).partition("/zoneinfo/")[2]
    except OSError:
        return ""


def _known(name: str) -> bool:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
