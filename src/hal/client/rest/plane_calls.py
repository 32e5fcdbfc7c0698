"""The calls of REST /v1 about planes that announce where they are reached."""

from __future__ import annotations

from collections.abc import Sequence

from hal.client.rest.calls import Call, get, list_reader, reader
from hal.client.rest.views import View
from hal.client.transport.exchange import Request
from hal.core.model import to_json
from hal.core.model.plane_addresses import check_plane_name


class PlaneInfo(View, frozen=True, kw_only=True):
    """A plane that has announced itself."""

    name: str
    rest: tuple[str, ...] = ()
    """Where people and programs reach it: `unix:/PATH`, `https://HOST:PORT`."""
    wire: tuple[str, ...] = ()
    """Where HAL's processes dial it."""
    version: str = ""
    user: str = ""
    """Who announced it."""
    since_ms: int
    expires_ms: int


def planes() -> Call[tuple[PlaneInfo, ...]]:
    """GET /v1/planes"""
    return Call(get("/v1/planes"), list_reader("planes", PlaneInfo))


def announce(
    name: str,
    *,
    rest: Sequence[str] = (),
    wire: Sequence[str] = (),
    version: str = "",
    expires_in: str | float | None = None,
) -> Call[PlaneInfo]:
    """PUT /v1/planes/{name}"""
    body: dict[str, object] = {"rest": list(rest), "wire": list(wire), "version": version}
    if expires_in is not None:
        body["expires_in"] = expires_in
    return Call(Request("PUT", f"/v1/planes/{check_plane_name(name)}", body=to_json(body)), reader(PlaneInfo))


def withdraw(name: str) -> Call[PlaneInfo]:
    """DELETE /v1/planes/{name}"""
    return Call(Request("DELETE", f"/v1/planes/{check_plane_name(name)}", repeatable=False), reader(PlaneInfo))
