"""The collector with all its parts, as `[observability]` of hal.toml asks for them."""

from __future__ import annotations

from hal.core.model.observability_config import ObservabilitySection
from hal.daemons.collector.collector import Collector
from hal.planes.observability.logs.part import LogsPart
from hal.planes.observability.telemetry import LINES
from hal.runtime.interface import Runtime


def assemble(runtime: Runtime, section: ObservabilitySection) -> Collector:
    """Build it; nothing runs yet."""
    collector = Collector(runtime, section)
    home = runtime.paths
    collector.logs = LogsPart(
        runtime, collector.directory / "logs", section.logs, home_logs=home.log_file(runtime.name).parent
    )
    reception, logs = collector.reception, collector.logs
    reception.received(LINES, lambda got: logs.take(got.sender.name, got.lines))
    collector.parts = (reception, logs)
    return collector
