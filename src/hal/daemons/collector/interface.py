"""All that the collector answers, from which routes, rights and `spec/openapi/observability-v1.json` follow."""

from __future__ import annotations

from typing import Final

from hal.daemons.collector.rows import alerts, health, history, logs, samples, traces
from hal.rest.daemon import Interface, interface_of
from hal.rest.openapi import About

ABOUT: Final = About(
    title="HAL observability",
    versions=(1,),
    summary="What a HAL does and did.",
    description="The REST interface of the collector. Users see what is theirs, operators everything; tokens are the "
    "controller's.",
    server="the Unix socket `observability.sock`, beside the controller's `api.sock`",
    tags=("samples", "alerts", "history", "logs", "traces", "access", "service"),
)  # fmt: skip
INTERFACE: Final[Interface] = interface_of(
    ABOUT, (*samples.ROWS, *alerts.ROWS, *history.ROWS, *logs.ROWS, *traces.ROWS, *health.ROWS)
)
"""What the collector answers over REST: one module of rows for each part, and the health of all."""
