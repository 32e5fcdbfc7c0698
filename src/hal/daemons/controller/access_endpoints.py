"""The endpoints of REST /v1 about access, as rows of the table of `endpoints`. Pure data."""

from __future__ import annotations

from hal.daemons.controller.endpoints import CURSOR, LIMIT, Endpoint, Param, ref


def access_endpoints() -> list[Endpoint]:
    """All of them."""
    token = Param(name="token", where="path", text="its id", schema={"type": "string"}, example="0123456789ab")
    robot = {"user": "robot", "role": "user", "expires_in": "90d", "queues": ["nightly"], "note": "nightly tests"}
    return [
        Endpoint(
            method="get",
            path="/v1/whoami",
            name="whoAmI",
            tag="access",
            summary="Who the caller is to this HAL: user, role, token",
            gives="WhoView",
        ),
        Endpoint(
            method="get",
            path="/v1/api-tokens",
            name="listTokens",
            tag="access",
            summary="All tokens, without their secrets, newest first",
            gives="TokensList",
        ),
        Endpoint(
            method="post",
            path="/v1/api-tokens",
            name="createToken",
            tag="access",
            summary="Make a token; its secret is in this answer and nowhere else",
            text="It acts for `user` with `role`, and is narrowed by `accounts`, `queues` and `read_only`.",
            body=ref("TokenBody"),
            body_examples={"for a robot": robot},
            gives="TokenMade",
            status=201,
            problems=("400", "413", "503"),
        ),
        Endpoint(
            method="post",
            path="/v1/api-tokens/{token}/revoke",
            name="revokeToken",
            tag="access",
            summary="Revoke a token: it opens nothing from now on",
            params=(token,),
            gives="TokenView",
            problems=("404", "503"),
        ),
        Endpoint(
            method="get",
            path="/v1/audit",
            name="readAudit",
            tag="access",
            summary="Who changed what, and what was refused; newest first",
            text="With `after` oldest first behind that sequence number, and `wait_s` waits for the first of them.",
            params=(
                Param(name="user", text="only this user's", schema={"type": "string"}),
                Param(name="since_ms", text="only from then on", schema={"type": "integer", "minimum": 0}),
                Param(name="after", text="behind this sequence number", schema={"type": "integer", "minimum": 0}),
                Param(
                    name="wait_s",
                    text="goes with `after`: at most so long",
                    schema={"type": "number", "minimum": 0, "maximum": 60, "default": 0},
                ),
                LIMIT,
                CURSOR,
            ),
            gives="AuditPage",
            problems=("400",),
        ),
    ]
