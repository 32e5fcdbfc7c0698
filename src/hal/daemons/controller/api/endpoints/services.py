"""The endpoint that looks services up by name."""

from __future__ import annotations

from typing import Final

from hal.daemons.controller.api.endpoints.endpoint import TEXT, Endpoint, Param
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.ownership import check_user
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.daemons.controller.service.services import ServiceView
from hal.rest.rights import OWNERS

_NAME: Final = Param(name="name", where="path", text="name of the jobs", schema=TEXT, example="web")


async def get_service(api: ControllerApi, call: Call) -> object:
    """Return where the ready tasks of a service are reached."""
    user = call.params.text("user")
    if call.visit.own_only:
        check_user(call.visit, user, "user")
    return await api.services.find(call.path("name"), user or call.visit.identity.user)


SERVICES: Final = (
    Endpoint(
        method="GET",
        path="/v1/services/{name}",
        handler=get_service,
        right=OWNERS,
        name="getService",
        tag="jobs",
        summary="Show where the ready tasks of a service are reached",
        text="A service is known by its user and the name of its jobs. What is answered changes with every report of a "
        "node: ask again before each connection, or when one fails.",
        params=(_NAME, Param(name="user", text="whose service it is; yours, if it is left out", schema=TEXT)),
        result=ServiceView,
        problems=("400", "403", "404"),
        for_job_tokens=True,
    ),
)
