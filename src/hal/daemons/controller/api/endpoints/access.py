"""The endpoints about access: API tokens, the audit log. (Who the caller is: `hal.rest.who`.)"""

from __future__ import annotations

from functools import partial
from typing import Final

from hal.core.model import SpecError
from hal.daemons.controller.api.endpoints.endpoint import CURSOR, INT, LIMIT, TEXT, Endpoint, Param, body_of
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.parameters import MAX_SEQUENCE
from hal.daemons.controller.service.access.audit_heads import AuditHeadView
from hal.daemons.controller.service.access.views import (
    AuditPage,
    TokenBody,
    TokenMade,
    TokensList,
    TokenView,
)
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.rest.answers import json_answer, page_cursor
from hal.rest.rights import ADMINS, OPERATORS
from hal.runtime.interface import Lane

MAX_WAIT_S: Final = 60.0
"""Longest that a reader of the audit log waits for the next entry."""


async def list_tokens(api: ControllerApi, call: Call) -> object:
    """All that are kept."""
    return TokensList(tokens=api.tokens.all())


async def create_token(api: ControllerApi, call: Call) -> object:
    """Its secret is in this answer only."""
    asked: TokenBody = call.body
    made = await api.tokens.create(asked, call.submitter, call.visit.identity.expires_ms)
    call.visit.targets.append(f"token {made.token.id} of {made.token.user}")
    return json_answer(made, 201, {"Cache-Control": "no-store"})


async def revoke_token(api: ControllerApi, call: Call) -> object:
    """Revoke a token."""
    return await api.tokens.revoke(call.path("token"))


async def read_audit(api: ControllerApi, call: Call) -> object:
    """A page of the audit log; waits for the first entry where that is asked for."""
    params = call.params
    limit, wait_s = params.limit(), params.seconds("wait_s", 0.0)
    after = params.integer("after", -1, low=0, high=MAX_SEQUENCE) if params.text("after") else None
    if wait_s > MAX_WAIT_S or (wait_s and after is None):
        raise SpecError(f"wait_s: goes with `after`, and up to {MAX_WAIT_S:.0f}")
    page = partial(
        call.audit.page,
        limit=limit,
        user=params.text("user"),
        since_ms=params.integer("since_ms", 0, low=0, high=MAX_SEQUENCE),
        before=params.cursor(),
        after=after,
    )
    call.audit.settle(api.runtime.now_ms())
    if after is not None and wait_s:
        await call.audit.wait(after, wait_s)
    found = await api.runtime.run_blocking(page, Lane.READER)
    return AuditPage(entries=found, cursor=page_cursor([entry.sequence for entry in found], limit))


async def audit_head(api: ControllerApi, call: Call) -> object:
    """The head as of now, which the store has, too, when this is answered."""
    head = await call.audit.anchor(api.runtime)
    await api.audit_heads.keep(head)
    return await api.audit_heads.view(head)


ACCESS: Final = (
    Endpoint(
        method="GET",
        path="/v1/api-tokens",
        handler=list_tokens,
        right=ADMINS,
        name="listTokens",
        tag="access",
        summary="List API tokens, without their secrets, newest first",
        result=TokensList,
    ),
    Endpoint(
        method="POST",
        path="/v1/api-tokens",
        handler=create_token,
        right=ADMINS,
        name="createToken",
        tag="access",
        summary="Create an API token; its secret is in this response only",
        text="It acts for `user` with `role`; `accounts`, `queues` and `read_only` narrow it.",
        body=body_of(
            TokenBody,
            {
                "for a robot": {
                    "user": "robot",
                    "role": "user",
                    "expires_in": "90d",
                    "queues": ["nightly"],
                    "note": "nightly tests",
                }
            },
        ),
        result=TokenMade,
        status=201,
        problems=("400", "413", "503"),
    ),
    Endpoint(
        method="POST",
        path="/v1/api-tokens/{token}/revoke",
        handler=revoke_token,
        right=ADMINS,
        name="revokeToken",
        tag="access",
        summary="Revoke an API token",
        params=(Param(name="token", where="path", text="its id", schema=TEXT, example="0123456789ab"),),
        result=TokenView,
        problems=("404", "503"),
    ),
    Endpoint(
        method="GET",
        path="/v1/audit",
        handler=read_audit,
        right=OPERATORS,
        name="readAudit",
        tag="access",
        summary="Read the audit log: changes and refusals, newest first",
        text="With `after`, entries after that sequence number, oldest first; `wait_s` waits for the first of them.",
        params=(
            Param(name="user", text="only entries of this user", schema=TEXT),
            Param(name="since_ms", text="only entries from this time on", schema=INT),
            Param(name="after", text="only entries after this sequence number", schema=INT),
            Param(
                name="wait_s",
                text="with `after`: maximum wait",
                schema={"type": "number", "minimum": 0, "maximum": round(MAX_WAIT_S), "default": 0},
            ),
            LIMIT,
            CURSOR,
        ),
        result=AuditPage,
        problems=("400",),
    ),
    Endpoint(
        method="GET",
        path="/v1/audit/head",
        handler=audit_head,
        right=OPERATORS,
        name="auditHead",
        tag="access",
        summary="Show the head of the audit log's hash chain, which stands for all entries until now",
        text="Keep it where HAL cannot write; `hal audit verify --head` compares. `kept` are those in the store.",
        result=AuditHeadView,
        problems=("503",),
    ),
)
