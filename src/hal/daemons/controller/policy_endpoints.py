"""The endpoints of REST /v1 about the policy, as rows of the table of `endpoints`. Pure data."""

from __future__ import annotations

from msgspec import Struct

from hal.daemons.controller.endpoints import CURSOR, FLAG, LIMIT, Endpoint, Param, ref
from hal.daemons.controller.policy_views import LicencesList, PolicyChanged, PolicyVersions, PolicyView
from hal.daemons.controller.share_views import LedgersList, PriorityView, SharesList

POLICY_ANSWERS: tuple[type[Struct], ...] = (
    PolicyView,
    PolicyVersions,
    PolicyChanged,
    LicencesList,
    SharesList,
    LedgersList,
    PriorityView,
)

_IF_MATCH = Param(
    name="If-Match",
    where="header",
    text="the version that the change is meant for; another one holds: 409",
    schema={"type": "string", "pattern": '^"?[0-9]{1,18}"?$'},
    example="3",
)
_DRY_RUN = Param(
    name="dry_run", text="change nothing; tell what would change, and what it means for live jobs", schema=FLAG
)
_NOTE = Param(name="note", text="why, for the history", schema={"type": "string", "maxLength": 1000})
_ETAG = {"ETag": "the version, for If-Match"}
_CHANGES = ("400", "404", "409", "413", "503")


def policy_endpoints() -> list[Endpoint]:
    """All of them."""
    queue = {"op": "put", "kind": "queue", "name": "short", "entry": {"max_walltime": "15m", "priority": 10}}
    limit = {"op": "set", "kind": "limit", "name": "students", "entry": {"pending": 1000, "running": None}}
    return [
        Endpoint(
            method="get",
            path="/v1/policy",
            name="getPolicy",
            tag="policy",
            summary="The policy that holds: queues, accounts, QOS, limits, bookings, licences, weights, fair-share",
            gives="PolicyView",
            headers=_ETAG,
        ),
        Endpoint(
            method="put",
            path="/v1/policy",
            name="replacePolicy",
            tag="policy",
            summary="Another policy as a whole",
            text="Needs If-Match. What the body leaves out has its default.",
            params=(_IF_MATCH, _DRY_RUN, _NOTE),
            body=ref("Policy"),
            body_examples={"two queues": {"queues": {"short": {"max_walltime": "15m"}, "long": {"priority": -10}}}},
            gives="PolicyChanged",
            headers=_ETAG,
            problems=_CHANGES,
        ),
        Endpoint(
            method="patch",
            path="/v1/policy",
            name="changePolicy",
            tag="policy",
            summary="Add, put, set or delete entries",
            text=(
                "All operations are done, in one commit, or none. `add` needs the entry not to be there, `put` does "
                "not ask, `set` changes the fields given (null: the default), `delete` takes it out. An entry that "
                "another one names cannot be deleted."
            ),
            params=(_IF_MATCH, _DRY_RUN, _NOTE),
            body=ref("PolicyOperations"),
            body_examples={"a queue and a limit": {"operations": [queue, limit]}},
            gives="PolicyChanged",
            headers=_ETAG,
            problems=_CHANGES,
        ),
        Endpoint(
            method="get",
            path="/v1/policy/versions",
            name="listPolicyVersions",
            tag="policy",
            summary="Versions that are kept, newest first: when, by whom, why",
            params=(LIMIT, CURSOR),
            gives="PolicyVersions",
            problems=("400",),
        ),
        Endpoint(
            method="get",
            path="/v1/policy/versions/{version}",
            name="getPolicyVersion",
            tag="policy",
            summary="The policy as it was",
            params=(
                Param(
                    name="version",
                    where="path",
                    text="its number",
                    schema={"type": "string", "pattern": "^[0-9]{1,18}$"},
                    example="1",
                ),
            ),
            gives="PolicyView",
            problems=("400", "404"),
        ),
        Endpoint(
            method="get",
            path="/v1/licences",
            name="listLicences",
            tag="policy",
            summary="Licences: how many there are, are used, booked and free",
            gives="LicencesList",
        ),
        Endpoint(
            method="get",
            path="/v1/shares",
            name="listShares",
            tag="policy",
            summary="The tree of shares: what is meant for whom, what they have had, what their jobs get",
            gives="SharesList",
        ),
        Endpoint(
            method="get",
            path="/v1/ledgers",
            name="listLedgers",
            tag="policy",
            summary="How much of each limit is in use",
            gives="LedgersList",
        ),
        Endpoint(
            method="get",
            path="/v1/jobs/{job}/priority",
            name="getPriority",
            tag="policy",
            summary="A waiting job's priority, factor by factor",
            params=(
                Param(
                    name="job",
                    where="path",
                    text="its id",
                    schema={"type": "string", "pattern": "^[0-9]{1,18}$"},
                    example="1",
                ),
            ),
            gives="PriorityView",
            problems=("400", "404", "409"),
        ),
    ]
