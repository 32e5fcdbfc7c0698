"""The OpenAPI 3.1 description of REST /v1, made from the table of endpoints and from the values themselves.

Pure. `document()` is what `/v1/openapi.json` answers and what `spec/openapi/hal-v1.json` holds.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hal.core.model import schema_hook, spec_schema
from hal.core.model.policy_text import policy_schema
from hal.daemons.controller.access.views import ACCESS_ANSWERS, TokenBody
from hal.daemons.controller.access_endpoints import access_endpoints
from hal.daemons.controller.changing_nodes import NodesBody
from hal.daemons.controller.control_body import ControlBody
from hal.daemons.controller.endpoints import ANSWERS, Endpoint, Param, endpoints
from hal.daemons.controller.joining_endpoints import JOINING_ANSWERS, joining_endpoints
from hal.daemons.controller.membership import JoinTokenBody
from hal.daemons.controller.policy_body import PolicyOperations
from hal.daemons.controller.policy_endpoints import POLICY_ANSWERS, policy_endpoints
from hal.daemons.controller.problem import Problem
from hal.planes.tasks import JobPatch

API_VERSION = 1
_REF = "#/components/schemas/{name}"

PROBLEMS = {
    "400": "The request is malformed, or asks for what can never be met; nothing was done.",
    "401": "Over TCP without a token that is valid.",
    "403": "The caller's role, or token, has no right to this; the hint says whose has.",
    "404": "What is named does not exist.",
    "408": "The request did not come in the time that it may take; nothing was done.",
    "409": "What is named is in no state for this, or the idempotency key was used for another request.",
    "413": "The body is longer than allowed.",
    "429": "More requests than one user may make; `Retry-After` says when to come again. Nothing was done.",
    "431": "More headers than allowed.",
    "502": "From a follower: the leader was lost before it answered. It may have been done; repeat it with its key.",
    "503": "Too much is waiting, or nothing can be made durable (the disk is full): nothing was done, try again.",
    "504": "A node did not answer in time.",
}


def document() -> dict[str, Any]:
    """The whole document; equal for equal code."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in (*endpoints(), *policy_endpoints(), *access_endpoints(), *joining_endpoints()):
        paths.setdefault(endpoint.path, {})[endpoint.method] = _operation(endpoint)
    told = {
        "openapi": "3.1.0",
        "info": {
            "title": "HAL",
            "version": f"v{API_VERSION}",
            "summary": "Submit, watch and steer jobs.",
            "description": (
                "Times are milliseconds since 1970 in fields that end in `_ms`; ids are text. Every error is a problem "
                "document with a stable `code` and a `hint`. Every answer carries `HAL-API-Version`; a request may "
                "name the version it expects in the same header. POST takes `Idempotency-Key`: the same key with the "
                "same request is done once."
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
            "schemas": _schemas(),
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
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(told))
    return plain


def _schemas() -> dict[str, Any]:
    """Schemas of everything that is taken or given, by name."""
    kinds = (
        *ANSWERS,
        *POLICY_ANSWERS,
        *ACCESS_ANSWERS,
        *JOINING_ANSWERS,
        TokenBody,
        JobPatch,
        ControlBody,
        NodesBody,
        PolicyOperations,
        JoinTokenBody,
        Problem,
    )
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
        "description": "Many jobs; accepted all together, or none.",
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
    if endpoint.gives:
        good["content"]["application/json"] = {"schema": {"$ref": _REF.format(name=endpoint.gives)}}
    for media, schema in endpoint.media.items():
        good["content"][media] = {"schema": schema}
    good["headers"] = {
        "HAL-API-Version": {"schema": {"type": "string"}, "description": "the version that answers"},
        **{name: {"schema": {"type": "string"}, "description": text} for name, text in endpoint.headers.items()},
    }
    responses = {str(endpoint.status): good}
    if endpoint.name == "submit":
        responses["200"] = {**good, "description": "A dry run: it would be accepted"}
    lost = () if endpoint.method == "get" else ("502",)
    for status in sorted({*endpoint.problems, *lost, "400", "401", "403", "408", "429", "431"}):
        responses[status] = {"$ref": f"#/components/responses/{status}"}
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
        examples = {name: {"value": value} for name, value in endpoint.body_examples.items()}
        out["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": endpoint.body, "examples": examples}},
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
