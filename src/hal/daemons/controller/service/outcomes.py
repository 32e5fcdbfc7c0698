"""What became of each of several things that one request named.

Pure.
"""

from __future__ import annotations

from msgspec import Struct

from hal.core.model import HALError


class OutcomeView(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The outcome for one id in a request that named several."""

    id: str
    ok: bool
    state: str = ""
    code: str = ""
    detail: str = ""
    hint: str = ""


def outcome_view(name: str, error: HALError) -> OutcomeView:
    """What became of one that was refused."""
    return OutcomeView(id=name, ok=False, code=error.code, detail=error.message, hint=error.hint)


class Outcomes(Struct, frozen=True, kw_only=True):
    """The outcome for each named job or task."""

    results: list[OutcomeView]
