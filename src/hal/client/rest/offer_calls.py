"""The calls of REST /v1 about machines that could be rented; apart from `calls`: few programs need them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from hal.client.rest.calls import Call, get, list_reader, reader
from hal.client.transport.exchange import Request
from hal.core.model import to_json
from hal.core.model.offer import Offer


def offers() -> Call[tuple[Offer, ...]]:
    """GET /v1/offers"""
    return Call(get("/v1/offers"), list_reader("offers", Offer))


def put_offer(name: str, fields: Mapping[str, Any]) -> Call[Offer]:
    """PUT /v1/offers/{name}"""
    return Call(Request("PUT", f"/v1/offers/{quote(name, safe='')}", body=to_json(dict(fields))), reader(Offer))


def withdraw_offer(name: str) -> Call[Offer]:
    """DELETE /v1/offers/{name}"""
    return Call(Request("DELETE", f"/v1/offers/{quote(name, safe='')}", repeatable=False), reader(Offer))
