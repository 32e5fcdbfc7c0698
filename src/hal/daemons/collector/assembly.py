"""The collector with all its parts, as `[observability]` of hal.toml asks for them."""

from __future__ import annotations

from hal.core.model.observability_config import ObservabilitySection
from hal.daemons.collector.account_tree import AccountTree
from hal.daemons.collector.alerts_source import alerts_part
from hal.daemons.collector.attempt_nodes import AttemptNodes
from hal.daemons.collector.collector import Collector
from hal.daemons.collector.delegated_accounts import DelegatedAccounts
from hal.daemons.collector.reception import NetworkReception, Reception
from hal.planes.observability.attribution import Attribution
from hal.planes.observability.history.part import History
from hal.planes.observability.logs.part import LogsPart
from hal.planes.observability.part import Part
from hal.planes.observability.samples.attempt_gpus import AttemptGpus
from hal.planes.observability.samples.part import Samples
from hal.planes.observability.sender_budget import LINES, SPANS, VALUES
from hal.planes.observability.traces.part import TracesPart
from hal.rest.controller_client import ControllerClient
from hal.rest.dialling import UNIX
from hal.runtime.authority import authority_file
from hal.runtime.interface import Runtime


def assemble(runtime: Runtime, section: ObservabilitySection) -> Collector:
    """Build it; nothing runs yet."""
    home = runtime.paths
    controller = ControllerClient([f"{UNIX}{home.api_socket()}"], authority_file(home.authority))
    reception = Reception(runtime, controller)
    collector = Collector(runtime, section, reception)
    collector.delegated = DelegatedAccounts(runtime, controller)
    collector.accounts = AccountTree(runtime, controller)
    collector.samples = Samples(runtime, collector.directory, section.samples)
    reception.received(VALUES, collector.samples.take)
    collector.history = History(
        runtime,
        collector.directory,
        controller,
        history=section.history,
        energy=section.energy,
        prices=section.prices,
        samples=AttemptGpus(runtime, collector.samples).of,
    )
    collector.controller = controller
    collector.traces = TracesPart(runtime, collector.directory, collector.history, section.traces, controller)
    collector.logs = LogsPart(
        runtime, collector.directory / "logs", section.logs, home_logs=home.log_file(runtime.name).parent
    )
    logs = collector.logs
    attempts = AttemptNodes(collector.history, controller)
    attribution = Attribution(
        runtime, attempts.look_up, lambda got: logs.take(got.sender.name, got.lines), collector.traces.take
    )
    reception.received(LINES, attribution.take)
    reception.received(SPANS, attribution.take)
    collector.alerts = alerts_part(runtime, collector.directory / "alerts.sqlite", section.alerts, collector.samples)
    parts: list[Part] = [
        collector.history,
        reception,
        attribution,
        collector.samples,
        logs,
        collector.traces,
        collector.alerts,
    ]
    if section.wire:
        parts.append(NetworkReception(runtime, controller, reception, section.wire, section.address))
    collector.parts = tuple(parts)
    return collector
