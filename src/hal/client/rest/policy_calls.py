"""The calls of REST /v1 about the policy; apart from `calls`: few programs need them, and their types cost time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hal.client.rest.calls import PAGE_ITEMS, Call, Page, get, list_reader, page_reader, paged, reader
from hal.client.rest.policy_views import LicenceInfo, PolicyChange, PolicyInfo, PolicyVersion
from hal.client.transport.exchange import Request
from hal.core.model import to_json
from hal.core.model.policy_change import Operation


def policy(version: int | None = None) -> Call[PolicyInfo]:
    """GET /v1/policy, or GET /v1/policy/versions/{n}"""
    return Call(get("/v1/policy" if version is None else f"/v1/policy/versions/{version}"), reader(PolicyInfo))


def policy_versions(*, limit: int = PAGE_ITEMS, cursor: str = "") -> Call[Page[PolicyVersion]]:
    """GET /v1/policy/versions"""
    return Call(paged("/v1/policy/versions", {}, limit, cursor), page_reader("versions", PolicyVersion))


def change_policy(
    operations: Sequence[Operation], *, version: int | None = None, dry_run: bool = False, note: str = ""
) -> Call[PolicyChange]:
    """PATCH /v1/policy"""
    return _change("PATCH", {"operations": operations}, version, dry_run=dry_run, note=note)


def put_policy(whole: Mapping[str, Any], *, version: int, dry_run: bool = False, note: str = "") -> Call[PolicyChange]:
    """PUT /v1/policy: plain data as in hal.toml, in place of that version."""
    return _change("PUT", whole, version, dry_run=dry_run, note=note)


def set_queue_state(queue: str, state: str, *, note: str = "") -> Call[PolicyChange]:
    """POST /v1/queues/state: `open`, `drained` or `closed`; twice is as once."""
    query = {"note": note} if note else {}
    body = to_json({"queue": queue, "state": str(state)})
    return Call(Request("POST", "/v1/queues/state", query=query, body=body), reader(PolicyChange))


def limit_user(account: str, user: str, fields: Mapping[str, Any], *, note: str = "") -> Call[PolicyChange]:
    """PUT /v1/user-limits: fields as of a limit in hal.toml; user `*`: each user of the account."""
    query = {"note": note} if note else {}
    body = to_json({"account": account, "user": user, **fields})
    return Call(Request("PUT", "/v1/user-limits", query=query, body=body), reader(PolicyChange))


def unlimit_user(account: str, user: str, *, note: str = "") -> Call[PolicyChange]:
    """DELETE /v1/user-limits"""
    query = {"account": account, "user": user} | ({"note": note} if note else {})
    # Sent twice, the second would find nothing to remove.
    return Call(Request("DELETE", "/v1/user-limits", query=query, repeatable=False), reader(PolicyChange))


def licences() -> Call[tuple[LicenceInfo, ...]]:
    """GET /v1/licences"""
    return Call(get("/v1/licences"), list_reader("licences", LicenceInfo))


def _change(method: str, body: Any, version: int | None, *, dry_run: bool, note: str) -> Call[PolicyChange]:
    query = ({"dry_run": "1"} if dry_run else {}) | ({"note": note} if note else {})
    headers = {} if version is None else {"If-Match": f'"{version}"'}
    # Sent twice, an `add` would find what it has added, and the version that holds would be another one.
    request = Request(method, "/v1/policy", query=query, body=to_json(body), headers=headers, repeatable=dry_run)
    return Call(request, reader(PolicyChange))
