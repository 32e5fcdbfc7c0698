"""The endpoints about rights that are delegated: why somebody has which, states of queues, limits of users."""

from __future__ import annotations

import os
from functools import partial
from typing import Final

from msgspec import Struct

from hal.core.model import SpecError
from hal.core.model.errors import shown
from hal.core.model.job import is_name
from hal.core.model.policy_delegation import QueueState, UserLimit
from hal.daemons.controller.api.endpoints.endpoint import TEXT, Endpoint, Param, body_of
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.ownership import check_user
from hal.daemons.controller.service.access.explanation import AccessView, explain
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.daemons.controller.service.policy.views import PolicyChanged
from hal.rest.rights import OWNERS, Reach, Right
from hal.rest.server.listeners import user_name
from hal.runtime.interface import Lane

DELEGATES: Final = Right(Reach.OWN, Reach.OWN, Reach.ALL)
"""Whoever it was delegated to, and admins, who may change the whole policy."""


class QueueStateBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a queue is to do."""

    queue: str
    state: QueueState


async def show_access(api: ControllerApi, call: Call) -> object:
    """Of the caller, or of somebody else for operators."""
    user = call.params.text("user") or call.visit.identity.user
    if not is_name(user):
        raise SpecError(f"user: '{shown(user)}' is not a user's name")
    if call.visit.own_only:
        check_user(call.visit, user, "user")
    found = partial(
        explain,
        user,
        groups=await api.logins.system_groups(user),
        owner=user_name(os.geteuid()),
        settings=api.access,
        tokens=api.tokens.book.all(),
        policy=api.policy.current,
        now_ms=api.runtime.now_ms(),
    )
    return await api.runtime.run_blocking(found, Lane.READER)


async def set_queue_state(api: ControllerApi, call: Call) -> object:
    """Open, drain or close a queue."""
    asked: QueueStateBody = call.body
    call.visit.targets.append(f"queue={asked.queue} {asked.state}")
    note = call.params.text("note")
    return await api.delegated.set_queue_state(call.visit, asked.queue, asked.state, note, call.submitter)


async def limit_user(api: ControllerApi, call: Call) -> object:
    """Limit a user of an account."""
    asked: UserLimit = call.body
    call.visit.targets.append(f"account={asked.account} user={asked.user}")
    return await api.delegated.limit_user(call.visit, asked, call.params.text("note"), call.submitter)


async def unlimit_user(api: ControllerApi, call: Call) -> object:
    """Remove such a limit."""
    account, user = call.params.text("account"), call.params.text("user")
    if not account or not user:
        raise SpecError("account, user: both must be named", hint="user `*`: the limit for each user of the account")
    call.visit.targets.append(f"account={account} user={user}")
    return await api.delegated.unlimit_user(call.visit, account, user, call.params.text("note"), call.submitter)


_NOTE: Final = Param(name="note", text="why, for the history", schema={"type": "string", "maxLength": 1000})
_REFUSED: Final = ("400", "404", "409", "413", "503")

DELEGATION: Final = (
    Endpoint(
        method="GET",
        path="/v1/access",
        handler=show_access,
        right=OWNERS,
        name="showAccess",
        tag="access",
        summary="Explain what a user may do: each right with the rule that gives it, and the limits that hold",
        text="Users ask about themselves, operators about anybody.",
        params=(Param(name="user", text="whose rights; the caller's by default", schema=TEXT, example="alice"),),
        result=AccessView,
        problems=("400",),
    ),
    Endpoint(
        method="POST",
        path="/v1/queues/state",
        handler=set_queue_state,
        right=DELEGATES,
        name="setQueueState",
        tag="queues",
        summary="Open, drain or close a queue; for its operators and admins",
        text="`drained`: nothing new is accepted; `closed`: nothing starts either. What runs continues.",
        params=(_NOTE,),
        body=body_of(QueueStateBody, {"drain": {"queue": "short", "state": "drained"}}),
        result=PolicyChanged,
        problems=_REFUSED,
    ),
    Endpoint(
        method="PUT",
        path="/v1/user-limits",
        handler=limit_user,
        right=DELEGATES,
        name="limitUser",
        tag="policy",
        summary="Limit what a user of an account may use; for its coordinators and admins",
        text="It replaces the limit that a coordinator had set for them. All other limits hold, too.",
        params=(_NOTE,),
        body=body_of(UserLimit, {"two at once": {"account": "physics", "user": "alice", "running": 2}}),
        result=PolicyChanged,
        problems=_REFUSED,
    ),
    Endpoint(
        method="DELETE",
        path="/v1/user-limits",
        handler=unlimit_user,
        right=DELEGATES,
        name="unlimitUser",
        tag="policy",
        summary="Remove the limit that a coordinator has set for a user of an account",
        params=(
            Param(name="account", text="whose user", schema=TEXT, example="physics"),
            Param(name="user", text="the user; `*`: the limit for each", schema=TEXT, example="alice"),
            _NOTE,
        ),
        result=PolicyChanged,
        problems=("400", "404", "409", "503"),
    ),
)
