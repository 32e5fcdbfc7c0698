"""Offers: machines that are not there and could be rented, as whoever would rent them says.

Pure. An offer is no node: nothing is placed on it. It only says that work which no node could hold need not be refused.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from hal.core.model.errors import SpecError, shown
from hal.core.model.node_config import check_labels
from hal.core.model.resources import MAX_RESOURCES
from hal.core.model.units import format_duration, resource_name

MAX_OFFERS: Final = 200
"""Offers at one time."""
MAX_COUNT: Final = 100_000
"""Machines of one offer."""
MIN_LIFE_MS: Final = 1_000
MAX_LIFE_MS: Final = 7 * 86_400_000
"""Longest time for which an offer holds without being made again."""
MAX_AMOUNT: Final = 1 << 60
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)


class Offer(Struct, frozen=True, kw_only=True):
    """A shape of machines, and how many of them could be rented now."""

    name: str
    resources: dict[str, int]
    """Of one machine, in base units."""
    labels: dict[str, str] = {}
    """That each of them would have as a node."""
    count: int = 1
    """How many could be rented beside those that are nodes already."""
    price_microusd_per_hour: int | None = None
    """Of one machine, in millionths of a dollar; None: not said. Informs people only."""
    expires_ms: int
    """From then on it does not hold any more."""


def check_offer(offer: Offer, now_ms: int) -> Offer:
    """Return it as it is.

    Raises:
        SpecError: something in it is out of bounds.
    """
    if not _NAME.fullmatch(offer.name):
        raise SpecError(f"'{shown(offer.name)}' is not an offer's name", hint="at most 63 of letters, digits, . _ -")
    if not 0 < len(offer.resources) <= MAX_RESOURCES:
        raise SpecError(f"resources: {len(offer.resources)} are named", hint=f"between 1 and {MAX_RESOURCES}")
    for name, amount in offer.resources.items():
        if resource_name(name) != name or not 0 <= amount < MAX_AMOUNT:
            raise SpecError(f"resources: {amount} of '{shown(name)}' cannot be offered")
    check_labels(offer.labels, "labels", automatic=True)
    if not 0 < offer.count <= MAX_COUNT:
        raise SpecError(f"count: {offer.count} is out of range", hint=f"between 1 and {MAX_COUNT}")
    if offer.price_microusd_per_hour is not None and not 0 <= offer.price_microusd_per_hour < MAX_AMOUNT:
        raise SpecError(f"price_microusd_per_hour: {offer.price_microusd_per_hour} is out of range")
    if not MIN_LIFE_MS <= offer.expires_ms - now_ms <= MAX_LIFE_MS:
        raise SpecError(
            "expires_in: out of range",
            hint=f"between {format_duration(MIN_LIFE_MS)} and {format_duration(MAX_LIFE_MS)}",
        )
    return offer
