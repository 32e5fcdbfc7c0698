"""What became of each of several things that one request named.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from hal.core.model import HALError

MAX_REFUSED: Final = 5
"""Things that the audit log names as refused."""


class OutcomeView(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The outcome for one id in a request that named several."""

    id: str
    ok: bool
    state: str = ""
    tasks: int = 0
    """How many tasks it changed; in a dry run, how many it would."""
    code: str = ""
    detail: str = ""
    hint: str = ""


def outcome_view(name: str, error: HALError) -> OutcomeView:
    """What became of one that was refused."""
    return OutcomeView(id=name, ok=False, code=error.code, detail=error.message, hint=error.hint)


class Outcomes(Struct, frozen=True, kw_only=True):
    """The outcome for each named job or task."""

    results: list[OutcomeView]


def refusals_of(results: Iterable[OutcomeView]) -> list[str]:
    """What of a request that was carried out was refused, for the audit log: the whole of it succeeded."""
    refused = [one for one in results if not one.ok]
    named = [f"refused {one.id}: {one.code}" for one in refused[:MAX_REFUSED]]
    return named + [f"refused {len(refused) - MAX_REFUSED} more"] * (len(refused) > MAX_REFUSED)
