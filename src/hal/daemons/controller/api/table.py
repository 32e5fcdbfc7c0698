"""The table of endpoints: all of REST /v1, in the order in which it is described.

A new endpoint is one row, in the module of what it is about, and the function that it names.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec
from litestar import Response

from hal.daemons.controller.access.roles import EVERYBODY, Right
from hal.daemons.controller.api.endpoints.access import ACCESS
from hal.daemons.controller.api.endpoints.endpoint import Endpoint
from hal.daemons.controller.api.endpoints.events import EVENTS
from hal.daemons.controller.api.endpoints.jobs import JOBS
from hal.daemons.controller.api.endpoints.joining import JOINING
from hal.daemons.controller.api.endpoints.nodes import NODES
from hal.daemons.controller.api.endpoints.outputs import OUTPUTS
from hal.daemons.controller.api.endpoints.policy import POLICY, QUEUES
from hal.daemons.controller.api.endpoints.status import STATUS
from hal.daemons.controller.api.openapi import describe
from hal.daemons.controller.api.reference import reference
from hal.daemons.controller.api.requests.call import Call


async def get_description(api: object, call: Call) -> object:
    """The OpenAPI document of this table."""
    return Response(content=_encoded(), media_type="application/json")


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *JOBS,
    *OUTPUTS,
    *NODES,
    *QUEUES,
    *EVENTS,
    *STATUS,
    Endpoint(
        method="GET",
        path="/v1/openapi.json",
        handler=get_description,
        right=EVERYBODY,
        name="openapi",
        tag="service",
        summary="Show this OpenAPI document",
        media={"application/json": {"type": "object"}},
    ),
    *POLICY,
    *ACCESS,
    *JOINING,
)

RIGHTS: Final[dict[str, Right]] = {endpoint.operation: endpoint.right for endpoint in ENDPOINTS}
"""The right to each operation, `METHOD /path/{template}`. What is not here is refused to everybody."""

FOR_STRANGERS: Final = frozenset((row.method, row.path) for row in ENDPOINTS if row.for_strangers)
"""Method and path of what is answered without a token."""


def page() -> str:
    """The reference page, `spec/rest.md`."""
    return reference(ENDPOINTS)


def document() -> dict[str, Any]:
    """The OpenAPI document: what `/v1/openapi.json` answers and what `spec/openapi/hal-v1.json` holds."""
    return describe(ENDPOINTS)


@cache
def _encoded() -> bytes:
    return msgspec.json.encode(document())
