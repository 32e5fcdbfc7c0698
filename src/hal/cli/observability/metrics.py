"""`hal metrics`: the controller's metrics, as Prometheus scrapes them."""

from __future__ import annotations

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen


@command(
    "metrics",
    examples="""
    hal metrics
    hal metrics | grep hal_queue_wait_seconds_count
    """,
)
@pass_screen
def metrics(screen: Screen) -> None:
    """They are printed in the text format of Prometheus. Its server scrapes GET /v1/metrics: see docs/monitoring.md."""
    for line in screen.client.metrics().splitlines():
        screen.line(line)
