"""The OpenAPI 3.1 description of a daemon's interface, made from its table of endpoints and from the values themselves.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec
from litestar import Response
from msgspec import Struct

from hal.core.model import schema_hook
from hal.rest.call import Call
from hal.rest.endpoint import JSON, Endpoint, Param
from hal.rest.problem import Problem
from hal.rest.rights import EVERYBODY

REF: Final = "#/components/schemas/{name}"

PROBLEMS: Final = {
    "400": "The request is malformed, or can never be met; nothing was done.",
    "401": "Over TCP, without a valid token.",
    "403": "The caller's role, or token, has no right to this; the hint names the role that has.",
    "404": "The named thing does not exist.",
    "408": "The request did not arrive in the allowed time; nothing was done.",
    "409": "This is not possible in the present state, or the idempotency key was used for another request.",
    "413": "The body is longer than allowed.",
    "429": "The user exceeded a request limit; nothing was done. `Retry-After` is when to try again.",
    "431": "More headers than allowed.",
    "502": "From a follower: the leader did not answer. The request may have been done; repeat it with its key.",
    "503": "HAL is overloaded, or nothing can be made durable (the disk is full): nothing was done, try again.",
    "504": "A node did not answer in time.",
}


class About(Struct, frozen=True, kw_only=True):
    """What the document says of the interface as a whole."""

    title: str
    versions: tuple[int, ...]
    """Versions of the interface that the daemon speaks, ascending; the last one is described."""
    summary: str
    description: str
    server: str
    """Where it is reached, in words."""
    tags: tuple[str, ...]
    problems_of_change: tuple[str, ...] = ()
    """Statuses with which any request that changes something can be refused, beside those of every request."""


def describe(
    about: About, endpoints: Sequence[Endpoint], more: Callable[[dict[str, Any]], Mapping[str, Any]] = lambda _: {}
) -> dict[str, Any]:
    """The whole document; equal for equal code.

    Args:
        more: is given the schemas of all results and bodies, which it may change; returns further ones.
    """
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, about)
    used = {status for path in paths.values() for operation in path.values() for status in operation["responses"]}
    schemas = _schemas(endpoints)
    schemas.update(more(schemas))
    described = {
        "openapi": "3.1.0",
        "info": {
            "title": about.title,
            "version": f"v{about.versions[-1]}",
            "summary": about.summary,
            "description": about.description,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/", "description": about.server}],
        "tags": [{"name": name} for name in about.tags],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "responses": {status: _problem(text) for status, text in PROBLEMS.items() if status in used},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "an API token, or HAL_HOME/token; over TCP only",
                }
            },
        },
    }
    # Plain JSON values only: what a reader of the document gets is equal to this.
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(described))
    return plain


def description_row(document: Callable[[], dict[str, Any]], tag: str = "service") -> Endpoint:
    """The row that answers with the document of its own table.

    Args:
        document: made once, when it is first asked for.
    """

    @cache
    def encoded() -> bytes:
        return msgspec.json.encode(document())

    async def get_description(api: object, call: Call) -> object:
        return Response(content=encoded(), media_type=JSON)

    return Endpoint(
        method="GET",
        path="/v1/openapi.json",
        handler=get_description,
        right=EVERYBODY,
        name="openapi",
        tag=tag,
        summary="Show this OpenAPI document",
        media={JSON: {"type": "object"}},
        for_job_tokens=True,
    )


def _schemas(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Schemas of everything that is taken or given, by name."""
    results = [endpoint.result for endpoint in endpoints if endpoint.result is not None]
    bodies = [row.body.kind for row in endpoints if row.body is not None and row.body.kind is not None]
    kinds = dict.fromkeys((*results, *bodies, Problem))
    _, found = msgspec.json.schema_components(kinds, schema_hook=schema_hook, ref_template=REF)
    return dict(found)


def _operation(endpoint: Endpoint, about: About) -> dict[str, Any]:
    good: dict[str, Any] = {"description": endpoint.summary, "content": {}}
    if endpoint.result is not None:
        good["content"][JSON] = {"schema": {"$ref": REF.format(name=endpoint.result.__name__)}}
    for media, schema in endpoint.media.items():
        good["content"][media] = {"schema": schema}
    good["headers"] = {
        "HAL-API-Version": {"schema": {"type": "string"}, "description": "API version of the response"},
        **{name: {"schema": {"type": "string"}, "description": text} for name, text in endpoint.headers.items()},
    }
    responses = {str(endpoint.status): good}
    for status, when in endpoint.or_status.items():
        responses[str(status)] = {**good, "description": when}
    lost = () if endpoint.method == "GET" else about.problems_of_change
    for refused in sorted({*endpoint.problems, *lost, "400", "401", "403", "408", "429", "431"}):
        responses[refused] = {"$ref": f"#/components/responses/{refused}"}
    out: dict[str, Any] = {
        "operationId": endpoint.name,
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "parameters": [_parameter(param) for param in endpoint.params],
        "responses": responses,
    }
    if endpoint.text:
        out["description"] = endpoint.text
    if endpoint.body is not None:
        content: dict[str, Any] = {"schema": endpoint.body.schema}
        if endpoint.body.examples:
            content["examples"] = {name: {"value": value} for name, value in endpoint.body.examples.items()}
        out["requestBody"] = {"required": endpoint.body.required, "content": {endpoint.body.media: content}}
    return out


def _parameter(param: Param) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": param.name,
        "in": param.where,
        "required": param.where == "path",
        "description": param.text,
        "schema": param.schema,
    }
    if param.example is not None:
        out["example"] = param.example
    return out


def _problem(text: str) -> dict[str, Any]:
    return {
        "description": text,
        "content": {"application/problem+json": {"schema": {"$ref": REF.format(name="Problem")}}},
    }
