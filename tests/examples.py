"""How many examples a property test tries: a fifth of them in `make test`, all of them in `make test-all`."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

SHARE: Final = 5
"""Of the examples, one of so many is tried in `make test`."""
FEWEST: Final = 10
"""Fewer are not divided."""
GATE: Final = "gate"
"""The Hypothesis profile of `make test`, and of whoever names none (HYPOTHESIS_PROFILE)."""


def examples(all_of_them: int) -> int:
    """For `max_examples`: as many as the profile of this run tries of so many."""
    if settings.get_current_profile_name() != GATE:
        return all_of_them
    return max(min(FEWEST, all_of_them), all_of_them // SHARE)
