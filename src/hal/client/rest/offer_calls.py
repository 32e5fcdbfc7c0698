"""The calls of REST /v1 about machines that could be rented; apart from `calls`: few programs need them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from hal.client.rest.calls import Call, get, list_reader, reader
from hal.client.rest.views import View
from hal.client.transport.exchange import Request
from hal.core.model import to_json


class OfferInfo(View, frozen=True, kw_only=True):
    """Machines that could be rented; amounts in base units."""

    name: str
    resources: dict[str, int]
    """Of one machine."""
    labels: dict[str, str]
    count: int = 1
    """How many could be rented."""
    price_microusd_per_hour: int | None = None
    """Of one machine, in millionths of a dollar."""
    expires_ms: int = 0


def offers() -> Call[tuple[OfferInfo, ...]]:
    """GET /v1/offers"""
    return Call(get("/v1/offers"), list_reader("offers", OfferInfo))


def put_offer(name: str, fields: Mapping[str, Any]) -> Call[OfferInfo]:
    """PUT /v1/offers/{name}"""
    return Call(Request("PUT", f"/v1/offers/{quote(name, safe='')}", body=to_json(dict(fields))), reader(OfferInfo))


def withdraw_offer(name: str) -> Call[OfferInfo]:
    """DELETE /v1/offers/{name}"""
    return Call(Request("DELETE", f"/v1/offers/{quote(name, safe='')}", repeatable=False), reader(OfferInfo))
