"""The endpoints about the policy: reading and changing it, its versions, and what it makes of queues, licences, shares,
limits and priorities."""

from __future__ import annotations

from typing import Final

from litestar import Response
from msgspec import Struct

from hal.core.model import SpecError
from hal.core.model.policy_change import Operation
from hal.core.model.policy_text import policy_from_plain
from hal.daemons.controller.api.endpoints.endpoint import CURSOR, FLAG, ID, LIMIT, Body, Endpoint, Param, body_of, ref
from hal.daemons.controller.api.requests.bodies import plain_json
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.parameters import integer
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.daemons.controller.service.policy.policies import Asked, by_operations, whole
from hal.daemons.controller.service.policy.share_views import LedgersList, PriorityView, SharesList
from hal.daemons.controller.service.policy.views import (
    LicencesList,
    PolicyChanged,
    PolicyVersions,
    PolicyView,
    QueueView,
)
from hal.rest.answers import json_answer, page_cursor
from hal.rest.rights import ADMINS, EVERYBODY, OPERATORS, OWNERS

MAX_VERSION: Final = (1 << 60) - 1


class PolicyOperations(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Operations on one entry each; all are done in order, or none."""

    operations: list[Operation]


class QueuesList(Struct, frozen=True, kw_only=True):
    """All queues by name."""

    queues: list[QueueView]


# ── the policy ────────────────────────────────────────────────────────────────────────────────────────────────────


async def get_policy(api: ControllerApi, call: Call) -> object:
    """Return the policy in force."""
    found = await api.policy.get()
    return json_answer(found, headers=_etag(found.version))


async def replace_policy(api: ControllerApi, call: Call) -> object:
    """Replace the policy by another one."""
    version = _if_match(call)
    if version is None:
        raise SpecError("If-Match: is missing", hint="name the version that you have read (its ETag)")
    wanted = policy_from_plain(plain_json(call.raw))
    return await _changed(api, call, Asked(change=whole(wanted), version=version, note=call.params.text("note")))


async def change_policy(api: ControllerApi, call: Call) -> object:
    """Change the policy entry by entry."""
    asked: PolicyOperations = call.body
    change = by_operations(asked.operations)
    return await _changed(api, call, Asked(change=change, version=_if_match(call), note=call.params.text("note")))


async def _changed(api: ControllerApi, call: Call, asked: Asked) -> Response[bytes]:
    if call.params.flag("dry_run"):
        changed = await api.policy.preview(asked)
    else:
        changed = await api.policy.change(asked, call.submitter)
    return json_answer(changed, headers=_etag(changed.version))


async def list_versions(api: ControllerApi, call: Call) -> object:
    """Return a page of versions."""
    limit = call.params.limit()
    found = await api.policy.versions(call.params.cursor(), limit)
    return PolicyVersions(versions=found, cursor=page_cursor([one.version for one in found], limit))


async def get_version(api: ControllerApi, call: Call) -> object:
    """The policy as it was."""
    return await api.policy.get(integer(call.path("version"), "version", low=0, high=MAX_VERSION))


def _if_match(call: Call) -> int | None:
    text = call.header("if-match")
    if text is None:
        return None
    return integer(text.strip().strip('"'), "If-Match", low=0, high=MAX_VERSION)


def _etag(version: int) -> dict[str, str]:
    return {"ETag": f'"{version}"'}


# ── what it makes of work ─────────────────────────────────────────────────────────────────────────────────────────


async def list_queues(api: ControllerApi, call: Call) -> object:
    """Return the queues, with tasks by state."""
    return QueuesList(queues=api.policy.queues())


async def list_licences(api: ControllerApi, call: Call) -> object:
    """Return the licences, with how many are used."""
    return LicencesList(licences=api.policy.licences())


async def list_shares(api: ControllerApi, call: Call) -> object:
    """Return the tree of shares."""
    return api.policy.shares()


async def list_ledgers(api: ControllerApi, call: Call) -> object:
    """Return what is in use of each limit."""
    return api.policy.ledgers()


async def get_priority(api: ControllerApi, call: Call) -> object:
    """Return the priority of a waiting job."""
    return api.policy.priority(integer(call.path("job"), "job", low=1, high=MAX_VERSION))


# ── the rows ──────────────────────────────────────────────────────────────────────────────────────────────────────

_IF_MATCH: Final = Param(
    name="If-Match",
    where="header",
    text="the version that the change is meant for; 409 if it is not the current one",
    schema={"type": "string", "pattern": '^"?[0-9]{1,18}"?$'},
    example="3",
)
_DRY_RUN: Final = Param(
    name="dry_run", text="change nothing; return what would change, and the effect on live jobs", schema=FLAG
)
_NOTE: Final = Param(name="note", text="why, for the history", schema={"type": "string", "maxLength": 1000})
_ETAG: Final = {"ETag": "the version, for If-Match"}
_CHANGES: Final = ("400", "404", "409", "413", "503")
_QUEUE: Final = {"op": "put", "kind": "queue", "name": "short", "entry": {"max_walltime": "15m", "priority": 10}}
_LIMIT: Final = {"op": "set", "kind": "limit", "name": "students", "entry": {"pending": 1000, "running": None}}

QUEUES: Final = (
    Endpoint(
        method="GET",
        path="/v1/queues",
        handler=list_queues,
        right=EVERYBODY,
        name="listQueues",
        tag="queues",
        summary="List all queues",
        result=QueuesList,
    ),
)

POLICY: Final = (
    Endpoint(
        method="GET",
        path="/v1/policy",
        handler=get_policy,
        right=EVERYBODY,
        name="getPolicy",
        tag="policy",
        summary="Show the current policy: queues, accounts, QOS, limits, bookings, licences, weights, fair-share",
        result=PolicyView,
        headers=_ETAG,
    ),
    Endpoint(
        method="PUT",
        path="/v1/policy",
        handler=replace_policy,
        right=ADMINS,
        name="replacePolicy",
        tag="policy",
        summary="Replace the whole policy",
        text="Requires If-Match. Everything that the body leaves out gets its default.",
        params=(_IF_MATCH, _DRY_RUN, _NOTE),
        body=Body(
            schema=ref("Policy"),
            examples={"two queues": {"queues": {"short": {"max_walltime": "15m"}, "long": {"priority": -10}}}},
        ),
        result=PolicyChanged,
        headers=_ETAG,
        problems=_CHANGES,
    ),
    Endpoint(
        method="PATCH",
        path="/v1/policy",
        handler=change_policy,
        right=ADMINS,
        name="changePolicy",
        tag="policy",
        summary="Add, put, set or delete entries",
        text=(
            "All operations are done in one commit, or none. `add` requires a new entry, `put` adds or "
            "replaces one, `set` changes the given fields (null: the default), `delete` removes the entry. An entry "
            "that another one names cannot be deleted."
        ),
        params=(_IF_MATCH, _DRY_RUN, _NOTE),
        body=body_of(PolicyOperations, {"a queue and a limit": {"operations": [_QUEUE, _LIMIT]}}),
        result=PolicyChanged,
        headers=_ETAG,
        problems=_CHANGES,
    ),
    Endpoint(
        method="GET",
        path="/v1/policy/versions",
        handler=list_versions,
        right=OPERATORS,
        name="listPolicyVersions",
        tag="policy",
        summary="List the stored versions, newest first: when, by whom, why",
        params=(LIMIT, CURSOR),
        result=PolicyVersions,
        problems=("400",),
    ),
    Endpoint(
        method="GET",
        path="/v1/policy/versions/{version}",
        handler=get_version,
        right=OPERATORS,
        name="getPolicyVersion",
        tag="policy",
        summary="Show one version of the policy",
        params=(Param(name="version", where="path", text="its number", schema=ID, example="1"),),
        result=PolicyView,
        problems=("400", "404"),
    ),
    Endpoint(
        method="GET",
        path="/v1/licences",
        handler=list_licences,
        right=EVERYBODY,
        name="listLicences",
        tag="policy",
        summary="List licences: total, used, booked, free",
        result=LicencesList,
    ),
    Endpoint(
        method="GET",
        path="/v1/shares",
        handler=list_shares,
        right=EVERYBODY,
        name="listShares",
        tag="policy",
        summary="Show the tree of shares: targets, use, and the factor of jobs",
        result=SharesList,
    ),
    Endpoint(
        method="GET",
        path="/v1/ledgers",
        handler=list_ledgers,
        right=EVERYBODY,
        name="listLedgers",
        tag="policy",
        summary="Show the use of each limit",
        result=LedgersList,
    ),
    Endpoint(
        method="GET",
        path="/v1/jobs/{job}/priority",
        handler=get_priority,
        right=OWNERS,
        name="getPriority",
        tag="policy",
        summary="Show a waiting job's priority, factor by factor",
        params=(Param(name="job", where="path", text="its id", schema=ID, example="1"),),
        result=PriorityView,
        problems=("400", "404", "409"),
        for_job_tokens=True,
    ),
)
