"""The calls of REST /v1 about advice; apart from `calls`, as few programs need them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hal.client.rest.calls import Call, get, list_reader, paged, reader
from hal.client.rest.views import View
from hal.client.transport.exchange import Request
from hal.core.model import to_json
from hal.core.model.advice import KeySpace, check_kind

KEYS_A_PAGE = 10_000


class AdviceInfo(View, frozen=True, kw_only=True):
    """One kind of advice as it was when it was read."""

    kind: str
    space: KeySpace
    version: int
    count: int
    """Keys that have a value."""
    known: int | None = None
    """Those that name something the scheduler knows now; None: not counted."""
    user: str = ""
    """Who put it last."""
    updated_ms: int
    age_ms: int
    expires_ms: int
    read_by: tuple[str, ...] = ()
    """Policies in use that read it."""


class AdvicePut(View, frozen=True, kw_only=True):
    """The outcome of an update. applied: False if this version was held already."""

    applied: bool
    advice: AdviceInfo


class AdvicePage(View, frozen=True, kw_only=True):
    """A kind of advice with a page of its keys and values."""

    advice: AdviceInfo
    keys: tuple[str | int, ...]
    values: tuple[float, ...]
    cursor: str = ""


def kinds() -> Call[tuple[AdviceInfo, ...]]:
    """GET /v1/advice"""
    return Call(get("/v1/advice"), list_reader("advice", AdviceInfo))


def page(kind: str, *, cursor: str = "", limit: int = KEYS_A_PAGE) -> Call[AdvicePage]:
    """GET /v1/advice/{kind}"""
    return Call(paged(f"/v1/advice/{check_kind(kind)}", {}, limit, cursor), reader(AdvicePage))


def put(
    kind: str,
    values: Mapping[Any, float | None],
    *,
    space: str,
    delta: bool = False,
    version: int | None = None,
    base: int | None = None,
    expires_in: str | float | None = None,
) -> Call[AdvicePut]:
    """PUT /v1/advice/{kind}"""
    optional = {"version": version, "base": base, "expires_in": expires_in}
    body = {
        "space": space,
        "keys": list(values),
        "values": list(values.values()),
        "delta": delta,
        **{name: value for name, value in optional.items() if value is not None},
    }
    # Sent twice without a version of its own, a delta would find what it has made instead of its base.
    repeatable = version is not None or base is None
    return Call(
        Request("PUT", f"/v1/advice/{check_kind(kind)}", body=to_json(body), repeatable=repeatable), reader(AdvicePut)
    )


def withdraw(kind: str) -> Call[AdviceInfo]:
    """DELETE /v1/advice/{kind}"""
    return Call(Request("DELETE", f"/v1/advice/{check_kind(kind)}", repeatable=False), reader(AdviceInfo))
