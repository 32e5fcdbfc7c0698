"""What clients and planes read of answers is what the OpenAPI documents promise (decision 0093).

Answers are declared where they are made and again where they are read, because a client also reads servers that are
older or newer than itself: a field may have a default here that it must not have there. Everything else is the same.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from msgspec import Struct

import hal.client.rest
from hal.client.rest.views import View
from hal.core.model import schema_hook
from hal.planes.observability.history.feed_rows import AskedRow, FeedPage, FeedRow, NodesAsked

SPEC: Final = Path(__file__).resolve().parents[2] / "spec" / "openapi"
DOCUMENTS: Final = ("hal-v1.json", "observability-v1.json")

OTHERWISE: Final[Mapping[str, str]] = {
    "AdvicePage": "AdviceColumns",
    "AlertRouteInfo": "RouteView",
    "AuditEntry": "Entry",
    "BundlesInfo": "BundlesList",
    "ClosureInfo": "Closure",
    "ControllersInfo": "ControllersList",
    "AskedRow": "Asked",
    "EndedAttemptInfo": "EndedAttempt",
    "EventInfo": "Event",
    "FeedPage": "AttemptsPage",
    "FeedRow": "EndedAttempt",
    "HealthInfo": "Health",
    "KeptAttemptInfo": "KeptAttempt",
    "KeptPage": "HistoryPage",
    "NewJoinTokenInfo": "NewJoinToken",
    "PolicyChange": "PolicyChanged",
    "PolicyDifference": "Difference",
    "PolicyEffects": "Effects",
    "SpanInfo": "Span",
    "SpanLinkInfo": "SpanLink",
    "TestOutcomeInfo": "TestOutcome",
    "UsageAnswer": "UsageView",
    "UsageInfo": "UsageRow",
}
"""What is read, and the schema of what is sent, where that is not `…View` for `…Info`, or of the same name."""

NOT_JSON: Final = frozenset({"LogPart", "TaskOutput"})
"""Read from headers and frames, not from a JSON document."""

NOT_READ: Final[Mapping[str, frozenset[str]]] = {
    "WhoInfo": frozenset({"instance"}),
    "NewJoinTokenInfo": frozenset({"labels", "uses"}),
    "SpanInfo": frozenset({"events"}),
    "HealthInfo": frozenset({"epoch", "pid"}),
    "FeedRow": frozenset({"truncated"}),
}
"""What who reads has no use for."""

BY_PLANES: Final = (FeedPage, FeedRow, AskedRow, NodesAsked)
"""Read by planes, which import no client."""


def views() -> list[type[Struct]]:
    """All of them, by name."""
    for module in pkgutil.iter_modules(hal.client.rest.__path__):
        importlib.import_module(f"hal.client.rest.{module.name}")
    found, waiting = list[type[Struct]](BY_PLANES), View.__subclasses__()
    while waiting:
        one = waiting.pop()
        waiting += one.__subclasses__()
        if one.__module__.startswith(hal.client.rest.__name__):
            found.append(one)
    return sorted(found, key=lambda one: (one.__name__, one.__module__))


def read_views() -> list[tuple[type[Struct], dict[str, Any], dict[str, Any]]]:
    """Each view with its schema, and the document's other schemas."""
    documents = [json.loads((SPEC / name).read_text())["components"]["schemas"] for name in DOCUMENTS]
    found = []
    for view in views():
        name = view.__name__
        if name not in NOT_JSON:
            sent = (OTHERWISE[name],) if name in OTHERWISE else (f"{name.removesuffix('Info')}View", name)
            schema, schemas = next((one[schema], one) for schema in sent for one in documents if schema in one)
            found.append((view, schema, schemas))
    return found


READ: Final = read_views()


def kinds(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> set[str]:
    """The kinds of JSON values that a schema admits; `any` is one of them where all are."""
    if "$ref" in schema:
        return kinds(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return set().union(*(kinds(one, schemas) for one in schema[several]))
    if "enum" in schema or "const" in schema:
        return {"string" if isinstance(one, str) else "null" for one in schema.get("enum", [schema.get("const")])}
    given = schema.get("type", "any")
    return {given} if isinstance(given, str) else set(given)


@pytest.mark.parametrize(("view", "schema", "schemas"), READ, ids=[view.__qualname__ for view, _, _ in READ])
def test_a_view_reads_what_is_promised(
    view: type[Struct], schema: Mapping[str, Any], schemas: Mapping[str, Any]
) -> None:
    """The same fields, of kinds that are sent; only what is always sent may be needed."""
    sent, fields = schema["properties"], msgspec.structs.fields(view)
    assert {field.encode_name for field in fields} == sent.keys() - NOT_READ.get(view.__name__, frozenset())
    assert {field.encode_name for field in fields if field.required} <= set(schema.get("required", ()))
    for field in fields:
        (own,), parts = msgspec.json.schema_components([field.type], schema_hook=schema_hook, ref_template="/{name}")
        read, there = kinds(own, parts), kinds(sent[field.encode_name], schemas)
        if "number" in read:
            read.add("integer")
        assert "any" in read | there or there <= read, field.name


def test_what_is_named_here_is_there() -> None:
    """No exception stands here for a view that is no more."""
    assert OTHERWISE.keys() | NOT_JSON | NOT_READ.keys() <= {view.__name__ for view in views()}
