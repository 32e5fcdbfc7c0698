"""The table of rights: complete, refusing by default, and enforced for every route and role."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from litestar import Litestar
from litestar.routes import HTTPRoute

from hal.daemons.controller.api.rest_server import ROUTES
from hal.daemons.controller.api.table import RIGHTS, document
from hal.rest.rights import Reach, Role
from tests.daemons.controller.access.people import person
from tests.daemons.controller.running import Running, on_controller

TRUE = {"command": ["exit", "0"]}


def routes_of(app: Litestar) -> set[str]:
    """Every operation that is served, as the table names it."""
    found = set()
    for route in app.routes:
        assert isinstance(route, HTTPRoute)
        found |= {f"{method} {route.path_format}" for method in route.route_handler_map if method != "OPTIONS"}
    return found


def test_every_route_is_in_the_table_and_nothing_else_is() -> None:
    """A route without a row would be refused to all; a row without a route would be a mistake that nobody sees."""
    assert set(RIGHTS) == routes_of(ROUTES.litestar)


def test_every_described_operation_is_in_the_table() -> None:
    """The OpenAPI document and the table of rights name the same operations."""
    described = {f"{method.upper()} {path}" for path, item in document()["paths"].items() for method in item}
    assert described == set(RIGHTS)


@given(st.sampled_from(sorted(RIGHTS)))
def test_safety_no_role_reaches_less_than_a_lower_one(operation: str) -> None:
    """A user has no right that an operator lacks, an operator none that an admin lacks."""
    right = RIGHTS[operation]
    assert right.user <= right.operator <= right.admin


def test_safety_every_role_is_refused_what_the_table_does_not_give(hal_home: Path) -> None:
    """Each operation asked for in each role: 403 exactly where the table says that the role reaches nothing."""

    async def body(hal: Running) -> None:
        await hal.submit(TRUE)
        async with AsyncExitStack() as stack:
            for role in Role:
                http = await stack.enter_async_context(person(hal, "eve", role=role))
                for operation, right in RIGHTS.items():
                    method, _, path = operation.partition(" ")
                    place = path.format(
                        job="1", task="0", name="n1", version="1", token="none", kind="price", account="none"
                    )
                    params = {"timeout_s": "0"} if path.endswith("/wait") else None
                    body = {} if method in ("POST", "PUT", "PATCH") else None
                    answer = await http.request(method, place, json=body, params=params)
                    refused = answer.status_code == 403
                    # By the handler: the whole feed, which users have for a job of theirs; what coordinators do.
                    of_others = path in ("/v1/events", "/v1/accounts/{account}/secrets/{name}") and body is None
                    expected = right.reach(role) is Reach.NONE or (of_others and right.reach(role) is Reach.OWN)
                    assert refused is expected, (role, operation, answer.text)
                    if right.reach(role) is Reach.OWN and "{job}" in path:
                        assert answer.status_code == 404, (operation, answer.text)

    on_controller(hal_home, body)


def test_methods_that_nobody_declared_are_refused(hal_home: Path) -> None:
    """OPTIONS, which the framework answers by itself, is in no table: refused, also to the owner."""

    async def body(hal: Running) -> None:
        assert (await hal.http.options("/v1/jobs")).status_code == 403
        assert (await hal.http.request("TRACE", "/v1/jobs")).status_code == 405

    on_controller(hal_home, body)
