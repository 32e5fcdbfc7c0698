"""`pack`: for how long a job waits for one domain of a level before its nodes may be anywhere.

Pure values. Written as LEVEL:TIME, like `rack:30m`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hal.core.model.errors import SpecError, shown
from hal.core.model.topology.tree import check_level_name
from hal.core.model.units import Duration, format_duration, parse_duration

MAX_WAIT_MS: Final = 366 * 86_400_000
_HINT: Final = "write LEVEL:TIME, such as rack:30m; `within` waits as long as it takes"


class Packing(NamedTuple):
    """The wish for one domain of a level, and for how long it counts from when the job may start."""

    level: str
    wait_ms: int

    @property
    def text(self) -> str:
        """As people write it."""
        return f"{self.level}:{format_duration(self.wait_ms)}"


def packing_of(text: str) -> Packing:
    """Read LEVEL:TIME.

    Raises:
        SpecError: it is something else, or the time is 0 or longer than a year.
    """
    level, colon, wait = text.partition(":")
    if not colon or not wait.strip():
        raise SpecError(f"pack: '{shown(text)}' says no time", hint=_HINT)
    check_level_name(level.strip(), "pack")
    wait_ms = int(parse_duration(wait.strip(), field="pack"))
    if not 0 < wait_ms <= MAX_WAIT_MS:
        most = format_duration(Duration(MAX_WAIT_MS))
        raise SpecError(f"pack: '{shown(wait.strip())}' is not a time from 1ms to {most}", hint=_HINT)
    return Packing(level.strip(), wait_ms)


def packed_level(text: str) -> str:
    """The level of a `pack` that was checked; '' of none."""
    return text.partition(":")[0]
