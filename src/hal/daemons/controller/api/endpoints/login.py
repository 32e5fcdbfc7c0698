"""The endpoints of logins by an OpenID Connect provider; see docs/access.md."""

from __future__ import annotations

from typing import Final

from hal.daemons.controller.api.endpoints.endpoint import Endpoint, body_of
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.service.access.logins import LoginBody, LoginOffer
from hal.daemons.controller.service.access.views import TokenMade, TokenView
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.rest.answers import json_answer
from hal.rest.rights import EVERYBODY


async def get_login(api: ControllerApi, call: Call) -> object:
    """How people log in here."""
    return api.logins.offer()


async def log_in(api: ControllerApi, call: Call) -> object:
    """The token's secret is in this answer only."""
    asked: LoginBody = call.body
    made = await api.logins.exchange(asked.token)
    call.visit.targets.append(f"token {made.token.id} of {made.token.user}")
    return json_answer(made, 201, {"Cache-Control": "no-store"})


async def log_out(api: ControllerApi, call: Call) -> object:
    """Revoke the token that is shown."""
    return await api.logins.end(call.visit.identity)


LOGIN: Final = (
    Endpoint(
        method="GET",
        path="/v1/login",
        handler=get_login,
        right=EVERYBODY,
        name="getLogin",
        tag="access",
        summary="Show how people log in: the OpenID Connect provider of this HAL",
        result=LoginOffer,
        problems=("404",),
        for_strangers=True,
    ),
    Endpoint(
        method="POST",
        path="/v1/login",
        handler=log_in,
        right=EVERYBODY,
        name="logIn",
        tag="access",
        summary="Exchange a token of the OpenID Connect provider for one of HAL, which is in this response only",
        text="Its user and role follow from the claims, as `[access.oidc]` and `[access.groups]` in hal.toml say.",
        body=body_of(LoginBody, {"an ID token": {"token": "eyJhbGciOiJFUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJ0In0.c2ln"}}),
        result=TokenMade,
        status=201,
        problems=("400", "404", "413", "503"),
        for_strangers=True,
    ),
    Endpoint(
        method="POST",
        path="/v1/logout",
        handler=log_out,
        right=EVERYBODY,
        name="logOut",
        tag="access",
        summary="Revoke the token of a login that is shown",
        result=TokenView,
        problems=("409", "503"),
    ),
)
