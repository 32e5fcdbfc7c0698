"""Machines that could be rented, as a program that rents offers them: put, list, withdraw."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from hal.core.model import NotFoundError, Resources, parse_duration, shown
from hal.core.model.offer import Offer
from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import Submitter

DEFAULT_LIFE_MS = 3_600_000


class OfferBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Machines that could be rented."""

    resources: Resources
    """Of one machine, as a job asks for them: `{"cpu": 64, "memory": "256GiB", "gpu": 8}`."""
    labels: dict[str, str] = {}
    """That each of them would have as a node."""
    count: int = 1
    """How many could be rented now."""
    price_microusd_per_hour: int | None = None
    """Of one machine, in millionths of a dollar; informs people only."""
    expires_in: Any = None
    """How long the offer holds unless it is made again, as a duration; an hour by default, a week at most."""


class OffersList(Struct, frozen=True, kw_only=True):
    """Offers by name."""

    offers: list[Offer]


class Offers:
    """Put, list and withdraw them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def put(self, name: str, body: OfferBody, by: Submitter) -> Offer:
        """Make an offer, or make it again.

        Raises:
            SpecError: something in it is out of bounds.
            OverloadedError: there are too many.
        """
        life_ms = (
            DEFAULT_LIFE_MS if body.expires_in is None else int(parse_duration(body.expires_in, field="expires_in"))
        )

        def work(now_ms: int) -> Offer:
            offer = Offer(
                name=name,
                resources=dict(body.resources),
                labels=body.labels,
                count=body.count,
                price_microusd_per_hour=body.price_microusd_per_hour,
                expires_ms=now_ms + life_ms,
            )
            return self._parts.plane.put_offer(offer, by, now_ms)

        return await self._parts.loop.inbox.call(work)

    def all(self) -> OffersList:
        """All that hold."""
        return OffersList(offers=list(self._parts.plane.offers))

    def get(self, name: str) -> Offer:
        """One of them.

        Raises:
            NotFoundError: there is none of that name.
        """
        for offer in self._parts.plane.offers:
            if offer.name == name:
                return offer
        raise NotFoundError(f"there is no offer '{shown(name)}'", hint="`hal offer list` lists them")

    async def withdraw(self, name: str, by: Submitter) -> Offer:
        """Withdraw an offer; what it was.

        Raises:
            NotFoundError: there is none of that name.
        """
        return await self._parts.loop.inbox.call(lambda now_ms: self._parts.plane.withdraw_offer(name, by))
