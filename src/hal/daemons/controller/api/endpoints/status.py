"""The endpoints about the controller itself: health, version, authority, the other controllers."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from hal.daemons.controller.api.endpoints.endpoint import Endpoint
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.version import API_VERSION
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.daemons.controller.service.controllers import ControllersList
from hal.daemons.controller.service.notices.notices import NotificationsView
from hal.daemons.controller.service.status import VERSION, AuthorityView, Health
from hal.rest.rights import EVERYBODY, OWNERS
from hal.wire.agree import SPOKEN


class VersionInfo(Struct, frozen=True, kw_only=True):
    """The version of HAL."""

    version: str
    api_version: int
    wire_versions: list[int]


async def get_health(api: ControllerApi, call: Call) -> object:
    """Return the health of this controller."""
    return api.status.health()


async def get_authority(api: ControllerApi, call: Call) -> object:
    """Return the authority of this HAL."""
    return api.status.authority()


async def get_notifications(api: ControllerApi, call: Call) -> object:
    """Return what this HAL sends of jobs that notify somebody."""
    return api.notices.view(errors=not call.visit.own_only)


async def list_controllers(api: ControllerApi, call: Call) -> object:
    """Return the controllers that share the database."""
    return await api.status.controllers()


async def get_version(api: object, call: Call) -> object:
    """Return the versions of HAL, of REST and of the wire."""
    return VersionInfo(version=VERSION, api_version=API_VERSION, wire_versions=list(SPOKEN))


STATUS: Final = (
    Endpoint(
        method="GET",
        path="/v1/health",
        handler=get_health,
        right=EVERYBODY,
        name="health",
        tag="service",
        summary="Show the controller's health",
        result=Health,
    ),
    Endpoint(
        method="GET",
        path="/v1/authority",
        handler=get_authority,
        right=EVERYBODY,
        name="authority",
        tag="service",
        summary="Show the certificate of this HAL's own authority",
        text="Needs no token. Trust the certificate only after you have compared its fingerprint.",
        result=AuthorityView,
        problems=("404",),
        for_strangers=True,
    ),
    Endpoint(
        method="GET",
        path="/v1/controllers",
        handler=list_controllers,
        right=EVERYBODY,
        name="listControllers",
        tag="service",
        summary="List the controllers that share the database, with warnings",
        result=ControllersList,
        problems=("503",),
    ),
    Endpoint(
        method="GET",
        path="/v1/notifications",
        handler=get_notifications,
        right=OWNERS,
        name="notifications",
        tag="service",
        summary="Show whether this HAL sends mail and posts to webhooks, and how many notifications were sent",
        result=NotificationsView,
    ),
    Endpoint(
        method="GET",
        path="/v1/version",
        handler=get_version,
        right=EVERYBODY,
        name="version",
        tag="service",
        summary="Show the version of HAL",
        result=VersionInfo,
    ),
)
