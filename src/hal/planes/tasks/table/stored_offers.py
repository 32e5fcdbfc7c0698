"""How offers are kept in the store: one small fact each, so that a restart knows what could be rented.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from hal.core.model.offer import Offer

PREFIX: Final = "offer/"
"""How the names of these facts begin."""
_OFFER: Final = msgspec.json.Decoder(Offer)


def stored_offers(meta: Mapping[str, str]) -> dict[str, Offer]:
    """The offers among the facts of the store, by name."""
    found = (_OFFER.decode(text) for name, text in meta.items() if name.startswith(PREFIX))
    return {offer.name: offer for offer in found}


def fact(name: str, offer: Offer | None) -> dict[str, str | None]:
    """An offer as a fact; None: it is deleted."""
    return {PREFIX + name: None if offer is None else msgspec.json.encode(offer).decode()}
