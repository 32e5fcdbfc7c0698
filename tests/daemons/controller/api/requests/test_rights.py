"""Rights before a handler runs: what the row of the table gives, what a token narrows, whose job it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar import Request

from hal.core.model import DeniedError, NotFoundError
from hal.daemons.controller.api.requests.ownership import PathOwnership
from hal.daemons.controller.service.jobs.owners import Owned
from hal.rest.enforcement import Rights
from hal.rest.identity import Identity, Scope, Visit
from hal.rest.rights import ADMINS, EVERYBODY, OPERATORS, OWNERS, Reach, Role

RIGHTS = {
    "GET /open": EVERYBODY,
    "GET /v1/jobs/{job}": OWNERS,
    "POST /v1/jobs/{job}": OWNERS,
    "POST /nodes": OPERATORS,
    "POST /tokens": ADMINS,
}
ABOUT_JOBS = frozenset({"GET /v1/jobs/{job}", "POST /v1/jobs/{job}"})


class AdasJobs:
    """Job 1 is Ada's, for the account `physics`, in the queue `short`; there is no other."""

    async def owners(self, jobs: Iterable[int]) -> dict[int, Owned]:
        return {1: Owned("ada", "physics", "short")} if 1 in jobs else {}


def enforced(operation: str, identity: Identity, **path: str) -> Visit:
    """The visit after the rights were looked at."""
    method, _, template = operation.partition(" ")
    visit = Visit(identity, "")
    scope: Any = {
        "type": "http",
        "method": method,
        "path": template,
        "path_template": template,
        "path_params": path,
        "query_string": b"",
        "root_path": "",
        "headers": [],
        "state": {"visit": visit},
    }
    rights = Rights(RIGHTS, for_narrowed=ABOUT_JOBS)
    asyncio.run(rights.enforce(Request(scope), PathOwnership(AdasJobs()).check))
    return visit


def who(role: Role = Role.USER, user: str = "ada", **scope: Any) -> Identity:
    return Identity(user=user, role=role, peer="test", token="t1", scope=Scope(**scope))


@given(st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]), st.text(max_size=30))
def test_safety_what_no_row_names_is_refused_to_every_role(method: str, path: str) -> None:
    """Also to an admin, and also what the framework would answer by itself."""
    if f"{method} {path}" in RIGHTS:
        return
    for role in Role:
        with pytest.raises(DeniedError) as caught:
            enforced(f"{method} {path}", who(role))
        assert caught.value.hint == "nobody may"


@pytest.mark.parametrize(
    ("operation", "role", "reach"),
    [
        ("GET /open", Role.USER, Reach.ALL),
        ("POST /nodes", Role.OPERATOR, Reach.ALL),
        ("POST /tokens", Role.ADMIN, Reach.ALL),
        ("GET /v1/jobs/{job}", Role.USER, Reach.OWN),
        ("GET /v1/jobs/{job}", Role.OPERATOR, Reach.ALL),
    ],
)
def test_the_visit_reaches_as_far_as_the_row_gives_its_role(operation: str, role: Role, reach: Reach) -> None:
    """What handlers go by later."""
    assert enforced(operation, who(role)).reach is reach


@pytest.mark.parametrize(
    ("operation", "role", "hint"),
    [
        ("POST /nodes", Role.USER, "this needs the role operator or admin; ask an admin"),
        ("POST /tokens", Role.OPERATOR, "this needs the role admin; ask an admin"),
    ],
)
def test_a_refusal_names_the_roles_that_may(operation: str, role: Role, hint: str) -> None:
    """Whoever lacks a right learns whom to ask."""
    with pytest.raises(DeniedError, match=f"ada is {role} here") as caught:
        enforced(operation, who(role))
    assert caught.value.hint == hint


def test_a_token_narrowed_to_an_account_has_a_users_rights_elsewhere_than_about_jobs() -> None:
    """An admin's token for one account controls that account's jobs; it makes no tokens."""
    assert enforced("POST /v1/jobs/{job}", who(Role.ADMIN, accounts=("physics",)), job="1").reach is Reach.ALL
    with pytest.raises(DeniedError, match="t1 is narrowed to accounts or queues"):
        enforced("POST /tokens", who(Role.ADMIN, accounts=("physics",)))


def test_a_token_that_only_reads_changes_nothing() -> None:
    """It reads what its role may read."""
    assert enforced("GET /open", who(Role.ADMIN, read_only=True)).reach is Reach.ALL
    with pytest.raises(DeniedError, match="t1 is read-only"):
        enforced("POST /nodes", who(Role.ADMIN, read_only=True))


def test_safety_a_job_of_somebody_else_is_as_if_it_were_not_there() -> None:
    """The same refusal as for a job that does not exist; and the audit log is to know which it was."""
    told = []
    for job in ("1", "2"):
        with pytest.raises(NotFoundError) as caught:
            enforced("GET /v1/jobs/{job}", who(user="eve"), job=job)
        told.append(str(caught.value).replace(job, "N"))
    assert told[0] == told[1]


def test_a_token_for_other_accounts_reads_a_job_of_its_user_and_does_not_change_it() -> None:
    """Accounts and queues narrow what a token changes."""
    chemists = who(accounts=("chemistry",))
    enforced("GET /v1/jobs/{job}", chemists, job="1")
    with pytest.raises(DeniedError, match="job 1: "):
        enforced("POST /v1/jobs/{job}", chemists, job="1")
