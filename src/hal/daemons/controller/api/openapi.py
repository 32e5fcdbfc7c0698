"""The OpenAPI 3.1 description of REST /v1, made from the table of endpoints and from the values themselves.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from hal.core.model import schema_hook, spec_schema
from hal.core.model.policy_text import policy_schema
from hal.daemons.controller.api.endpoints.endpoint import Endpoint, Param
from hal.daemons.controller.api.problem import Problem
from hal.daemons.controller.api.version import API_VERSION

_REF = "#/components/schemas/{name}"

PROBLEMS = {
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


def describe(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The whole document; equal for equal code."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    described = {
        "openapi": "3.1.0",
        "info": {
            "title": "HAL",
            "version": f"v{API_VERSION}",
            "summary": "Submit, watch and control jobs.",
            "description": (
                "Times are milliseconds since 1970 in fields that end in `_ms`; ids are text. Every error is a problem "
                "document with a stable `code` and a `hint`. Every response carries `HAL-API-Version`; a request may "
                "name the version it expects in the same header. POST takes `Idempotency-Key`: a request "
                "repeated with the same key is done once."
            ),
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/", "description": "the Unix socket `api.sock`, or TCP with a bearer token"}],
        "tags": [
            {"name": name} for name in ("jobs", "tasks", "nodes", "queues", "policy", "events", "access", "service")
        ],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": _schemas(endpoints),
            "responses": {status: _problem(text) for status, text in PROBLEMS.items()},
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


def _schemas(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Schemas of everything that is taken or given, by name."""
    results = [endpoint.result for endpoint in endpoints if endpoint.result is not None]
    bodies = [row.body.kind for row in endpoints if row.body is not None and row.body.kind is not None]
    kinds = dict.fromkeys((*results, *bodies, Problem))
    _, found = msgspec.json.schema_components(kinds, schema_hook=schema_hook, ref_template=_REF)
    schemas: dict[str, Any] = dict(found)
    for described in (spec_schema(), policy_schema()):
        for name, schema in _relocated(described)["$defs"].items():
            schemas[name] = schema
    schemas["PolicyView"]["properties"]["policy"] = {"$ref": _REF.format(name="Policy")}
    schemas["JobView"]["properties"]["spec"] = {"$ref": _REF.format(name="JobSpec"), "description": "not in listings"}
    schemas["JobSpecs"] = {
        "title": "JobSpecs",
        "type": "object",
        "description": "Several jobs; all are accepted, or none.",
        "properties": {"jobs": {"type": "array", "minItems": 1, "items": {"$ref": _REF.format(name="JobSpec")}}},
        "required": ["jobs"],
        "additionalProperties": False,
    }
    return dict(sorted(schemas.items()))


def _relocated(schema: Any) -> Any:
    """The same schema with its references pointing into the document's components."""
    if isinstance(schema, dict):
        return {
            key: value.replace("#/$defs/", "#/components/schemas/")
            if key == "$ref" and isinstance(value, str)
            else _relocated(value)
            for key, value in schema.items()
        }
    if isinstance(schema, list):
        return [_relocated(item) for item in schema]
    return schema


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    good: dict[str, Any] = {"description": endpoint.summary, "content": {}}
    if endpoint.result is not None:
        good["content"]["application/json"] = {"schema": {"$ref": _REF.format(name=endpoint.result.__name__)}}
    for media, schema in endpoint.media.items():
        good["content"][media] = {"schema": schema}
    good["headers"] = {
        "HAL-API-Version": {"schema": {"type": "string"}, "description": "API version of the response"},
        **{name: {"schema": {"type": "string"}, "description": text} for name, text in endpoint.headers.items()},
    }
    responses = {str(endpoint.status): good}
    for status, when in endpoint.or_status.items():
        responses[str(status)] = {**good, "description": when}
    lost = () if endpoint.method == "GET" else ("502",)
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
        examples = {name: {"value": value} for name, value in endpoint.body.examples.items()}
        out["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": endpoint.body.schema, "examples": examples}},
        }
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
        "content": {"application/problem+json": {"schema": {"$ref": _REF.format(name="Problem")}}},
    }
