"""The problem document: how every error of REST looks (RFC 9457).

Pure.
"""

from __future__ import annotations

from msgspec import Struct


class Problem(Struct, frozen=True, kw_only=True):
    """An error."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    """Stable; what scripts match on."""
    hint: str = ""
    """What to do next."""
