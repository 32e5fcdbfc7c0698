"""The endpoints about planes that announce where they are reached."""

from __future__ import annotations

from typing import Any, Final

from hal.core.model.plane_addresses import MAX_PLANE_NAME
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.service.announced_planes import PlaneBody, PlanesList, PlaneView
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.rest.endpoint import Endpoint, Param, body_of
from hal.rest.rights import EVERYBODY, OPERATORS


async def list_planes(api: ControllerApi, call: Call) -> object:
    """All that are there."""
    return api.planes.all()


async def announce_plane(api: ControllerApi, call: Call) -> object:
    """Note where a plane is reached."""
    asked: PlaneBody = call.body
    call.visit.targets.append(call.path("name"))
    return api.planes.announce(call.path("name"), asked, call.submitter.user)


async def withdraw_plane(api: ControllerApi, call: Call) -> object:
    """Forget where a plane was reached."""
    call.visit.targets.append(call.path("name"))
    return api.planes.withdraw(call.path("name"))


_NAME: Final = Param(
    name="name",
    where="path",
    text="its name",
    schema={"type": "string", "pattern": "^[a-z][a-z0-9]*(-[a-z0-9]+)*$", "maxLength": MAX_PLANE_NAME},
    example="observability",
)
_BODY: Final[dict[str, Any]] = {
    "rest": ["unix:/run/user/1000/hal-1/observability.sock", "https://head.example.org:7430"],
    "wire": ["unix:/run/user/1000/hal-1/observability-wire.sock", "head.example.org:7431"],
    "version": "1.0",
    "expires_in": "1m",
}

PLANES: Final = (
    Endpoint(
        method="GET",
        path="/v1/planes",
        handler=list_planes,
        right=EVERYBODY,
        name="listPlanes",
        tag="service",
        summary="List the planes that have announced where they are reached",
        result=PlanesList,
    ),
    Endpoint(
        method="PUT",
        path="/v1/planes/{name}",
        handler=announce_plane,
        right=OPERATORS,
        name="announcePlane",
        tag="service",
        summary="Announce where a plane is reached, or announce it again",
        text=(
            "Kept in memory until it expires: a plane announces itself again before, and after the controller has "
            "started again. Agents are told the addresses in `wire`. Whoever announces a name last is reached by it."
        ),
        params=(_NAME,),
        body=body_of(PlaneBody, {"collector": _BODY}),
        result=PlaneView,
        problems=("400", "413", "503"),
        repeated=True,
    ),
    Endpoint(
        method="DELETE",
        path="/v1/planes/{name}",
        handler=withdraw_plane,
        right=OPERATORS,
        name="withdrawPlane",
        tag="service",
        summary="Withdraw a plane; responds with what was known of it",
        params=(_NAME,),
        result=PlaneView,
        problems=("404",),
    ),
)
