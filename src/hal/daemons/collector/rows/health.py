"""`GET /v1/health`: how the collector's parts are."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from hal.daemons.collector.collector import Collector, PartHealth
from hal.daemons.collector.warnings import Warned
from hal.rest.call import Call
from hal.rest.endpoint import Endpoint
from hal.rest.rights import EVERYBODY, Role


class CollectorHealth(Struct, frozen=True, kw_only=True):
    """How the collector is."""

    status: Annotated[str, Meta(description="`ok`, or `degraded` while a part does not work")]
    summary: Annotated[str, Meta(description="one line, which `hal status` shows")]
    warnings: Annotated[list[Warned], Meta(description="what was dropped within an hour, or is behind, and what helps")]
    parts: Annotated[dict[str, PartHealth], Meta(description="by name; words are shown to operators")]


async def get_health(collector: Collector, call: Call) -> CollectorHealth:
    """It answers with status 200 while any part of it works: a part that fails is no reason to restart the others."""
    parts = collector.health()
    operator = call.visit.identity.role is not Role.USER
    if not operator:
        parts = {name: replace(part, failure="", values=_numbers(part)) for name, part in parts.items()}
    works = all(part.works for part in parts.values())
    return CollectorHealth(
        status="ok" if works else "degraded",
        summary=collector.summary(),
        warnings=collector.warnings(for_operators=operator),
        parts=parts,
    )


def _numbers(part: PartHealth) -> dict[str, float | int | str]:
    """Without words: these may name hosts of the site, and why they do not answer."""
    return {name: value for name, value in part.values.items() if not isinstance(value, str)}


ROWS: Final = (
    Endpoint(
        method="GET",
        path="/v1/health",
        handler=get_health,
        right=EVERYBODY,
        name="health",
        tag="service",
        summary="Show the collector's health",
        result=CollectorHealth,
        for_job_tokens=True,
    ),
)  # fmt: skip
