"""Evictions: how running work is made to leave because a person or a program says so, and the bounds on that.

Pure. An eviction is not the fault of the work: its tasks lose no retry. What an eviction does to an attempt is what a
preemption of the same mode does; there is only nobody for whom.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from hal.core.model.errors import SpecError
from hal.core.model.units import format_duration

MAX_REASON: Final = 500
"""Characters of the reason that a person gives."""
DEFAULT_GRACE_MS: Final = 30_000
"""How long evicted work has to save itself and end, where nothing else is asked for; as that of a QOS."""
MAX_GRACE_MS: Final = 86_400_000
"""A day."""
MAX_WITHIN_MS: Final = 30 * 86_400_000
"""Longest time that a node that is drained waits for its work to end by itself."""


class EvictMode(StrEnum):
    """What happens to running tasks that are evicted."""

    REQUEUE = "requeue"
    CHECKPOINT = "checkpoint"
    CANCEL = "cancel"


class Evict(Struct, frozen=True, kw_only=True):
    """How work is evicted, and why."""

    mode: EvictMode = EvictMode.REQUEUE
    reason: str = ""
    """One line for people."""
    grace_ms: int = DEFAULT_GRACE_MS
    """From the request to leave until what is still there is killed."""


def check_evict(evict: Evict, *, field: str) -> Evict:
    """Return it as it is.

    Args:
        field: what the caller called its grace.
    Raises:
        SpecError: its reason or grace is out of bounds.
    """
    check_reason(evict.reason)
    if not 0 <= evict.grace_ms <= MAX_GRACE_MS:
        raise SpecError(
            f"{field}: {format_duration(evict.grace_ms)} is out of range",
            hint=f"at most {format_duration(MAX_GRACE_MS)}",
        )
    return evict


def check_reason(reason: str) -> None:
    """Check a reason that a person gives.

    Raises:
        SpecError: it is too long, or not one line.
    """
    if len(reason) > MAX_REASON or any(ord(sign) < 32 for sign in reason):
        raise SpecError(f"reason: one line of at most {MAX_REASON} characters")
