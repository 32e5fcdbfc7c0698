"""On whose behalf something is changed.

Pure.
"""

from __future__ import annotations

from msgspec import Struct

ENGINE = "engine"
"""Cause of what the engine decided."""


class Submitter(Struct, frozen=True):
    """On whose behalf, and in the course of which request, something is changed."""

    user: str
    trace_id: str = ""
    lengthens: bool = True
    """May give what runs more time than it was started with; users may not, for others wait behind it."""

    @property
    def cause(self) -> str:
        """For events."""
        return f"user:{self.user}"
