"""Offers of machines that could be rented: made, made again, withdrawn, expired.

Pure, O(offers) a change. Whoever rents says for how long an offer holds, and makes it again in time; so a program that
is gone offers nothing. Offers are stored: a controller that starts again would else refuse what it accepted before.
"""

from __future__ import annotations

from hal.core.engine.events import INF
from hal.core.model import EventKind, NotFoundError, OverloadedError, shown
from hal.core.model.offer import MAX_OFFERS, Offer, check_offer
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table.stored_offers import fact
from hal.planes.tasks.table.table import JobTable
from hal.store.operations import PutMeta

EXPIRY = "expiry"
"""Cause of what follows from time."""


def put_offer(table: JobTable, offer: Offer, by: Submitter, now_ms: int) -> Offer:
    """Offer these machines, in place of what this name offered before.

    Raises:
        SpecError: something in it is out of bounds.
        OverloadedError: there are too many offers.
    """
    check_offer(offer, now_ms)
    before = table.offers.get(offer.name)
    if before is None and len(table.offers) >= MAX_OFFERS:
        raise OverloadedError(f"{len(table.offers)} offers are made already", hint="withdraw some: hal offer list")
    table.put_offers({**table.offers, offer.name: offer})
    table.draft.other.append(PutMeta(fact(offer.name, offer)))
    if before is None:
        table.draft.note(EventKind.OFFER_MADE, by.cause, by.trace_id, about=offer.name, offer=offer.name)
    return offer


def withdraw_offer(table: JobTable, name: str, by: Submitter) -> Offer:
    """Nobody could rent these machines any more. Work that waits for one waits on, and says so.

    Raises:
        NotFoundError: there is none of that name.
    """
    before = table.offers.get(name)
    if before is None:
        raise NotFoundError(f"there is no offer '{shown(name)}'", hint="`hal offer list` lists them")
    _drop(table, [name], by.cause, by.trace_id)
    return before


def next_expiry_ms(table: JobTable) -> int:
    """When the next offer expires; the engine's infinity for never."""
    return min((offer.expires_ms for offer in table.offers.values()), default=INF)


def expire_offers(table: JobTable, now_ms: int) -> None:
    """Drop the offers that hold no more."""
    _drop(table, [name for name, offer in sorted(table.offers.items()) if offer.expires_ms <= now_ms], EXPIRY, "")


def _drop(table: JobTable, names: list[str], cause: str, trace_id: str) -> None:
    table.put_offers({name: offer for name, offer in table.offers.items() if name not in names})
    for name in names:
        table.draft.other.append(PutMeta(fact(name, None)))
        table.draft.note(EventKind.OFFER_ENDED, cause, trace_id, about=name, offer=name)
