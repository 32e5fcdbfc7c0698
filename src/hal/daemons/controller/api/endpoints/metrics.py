"""The endpoint that Prometheus scrapes."""

from __future__ import annotations

from typing import Final, Protocol

from litestar import Response

from hal.daemons.controller.api.endpoints.endpoint import Endpoint
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.metrics.book import MetricsBook
from hal.daemons.controller.metrics.slow_facts import SlowFacts
from hal.rest.rights import OWNERS
from hal.runtime.interface import Runtime

TEXT: Final = "text/plain"
PROTOBUF: Final = "application/vnd.google.protobuf"


class Scraped(Protocol):
    """What is asked of a controller, leading or following."""

    runtime: Runtime
    metrics: MetricsBook
    slow_facts: SlowFacts


async def get_metrics(api: Scraped, call: Call) -> Response[bytes]:
    """Return the metrics of this process."""
    operator = not call.visit.own_only
    body, media = await api.metrics.scrape(api.runtime, accept=call.header("accept") or "", operator=operator)
    api.slow_facts.look_if_old()
    return Response(content=body, media_type=media)


METRICS: Final = (
    Endpoint(
        method="GET",
        path="/v1/metrics",
        handler=get_metrics,
        right=OWNERS,
        name="metrics",
        tag="service",
        summary="Show the metrics of this controller, for Prometheus",
        text=(
            "In Prometheus' text format; where `Accept` prefers them, as delimited protobuf messages with native "
            "histograms. Counts are of the whole HAL and name no job and no user. Names of readers and kinds of advice "
            "are shown to operators only. A controller that follows answers for itself. spec/metrics.md describes them."
        ),
        media={TEXT: {"type": "string"}, PROTOBUF: {"type": "string", "format": "binary"}},
    ),
)
