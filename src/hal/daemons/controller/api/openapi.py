"""The OpenAPI description of REST /v1: what `hal.rest.openapi` makes of the table, with the schemas of jobs and policy.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hal.core.model import spec_schema
from hal.core.model.policy_text import policy_schema
from hal.daemons.controller.api.version import API_VERSION
from hal.rest import openapi
from hal.rest.endpoint import Endpoint
from hal.rest.openapi import REF, About

ABOUT: Final = About(
    title="HAL",
    versions=(API_VERSION,),
    summary="Submit, watch and control jobs.",
    description=(
        "Times are milliseconds since 1970 in fields that end in `_ms`; ids are text. Every error is a problem "
        "document with a stable `code` and a `hint`. Every response carries `HAL-API-Version`; a request may "
        "name the version it expects in the same header. POST takes `Idempotency-Key`: a request "
        "repeated with the same key is done once."
    ),
    server="the Unix socket `api.sock`, or TCP with a bearer token",
    tags=("jobs", "tasks", "nodes", "queues", "policy", "events", "access", "service"),
    problems_of_change=("502",),
)


def describe(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The whole document; equal for equal code."""
    return openapi.describe(ABOUT, endpoints, _more)


def _more(schemas: dict[str, Any]) -> dict[str, Any]:
    """What is described by hand, because people may write it in several forms."""
    found = {
        name: schema
        for described in (spec_schema(), policy_schema())
        for name, schema in _relocated(described)["$defs"].items()
    }
    schemas["PolicyView"]["properties"]["policy"] = {"$ref": REF.format(name="Policy")}
    schemas["JobView"]["properties"]["spec"] = {"$ref": REF.format(name="JobSpec"), "description": "not in listings"}
    ended = schemas["EndedAttempt"]["properties"]
    ended["nodes"] = {"type": "array", "items": {"type": "string"}, "description": "in rank order"}
    ended["usage"] = {"type": "object", "additionalProperties": {"type": "integer"}}
    found["JobSpecs"] = {
        "title": "JobSpecs",
        "type": "object",
        "description": "Several jobs; all are accepted, or none.",
        "properties": {"jobs": {"type": "array", "minItems": 1, "items": {"$ref": REF.format(name="JobSpec")}}},
        "required": ["jobs"],
        "additionalProperties": False,
    }
    return found


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
