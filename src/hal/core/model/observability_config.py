"""`[observability]` of hal.toml: what the collector keeps, and for how long. Pure."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from hal.core.model.alert_config import AlertsSection, check_alerts
from hal.core.model.config_sections import HIDDEN, Section
from hal.core.model.errors import SpecError
from hal.core.model.history_config import EnergySection, HistorySection, PricesSection, check_history
from hal.core.model.log_config import LogsSection, TracesSection, check_logs, check_traces
from hal.core.model.plane_addresses import check_listen_address, check_wire_addresses
from hal.core.model.samples_config import SamplesSection, check_samples


class ObservabilitySection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[observability]`"""

    wire: Annotated[
        str,
        Meta(
            description="`HOST:PORT` at which nodes of other machines send to the collector, over TLS; empty: nowhere"
        ),
    ] = ""
    listen: Annotated[
        str,
        Meta(
            description="`HOST:PORT` at which the collector's REST is also served, over TLS, with the controller's "
            "tokens; empty: nowhere"
        ),
    ] = ""
    tls_cert: Annotated[
        str, Meta(description="the site's certificate for it with its chain, a PEM file; empty: HAL's own alone")
    ] = ""
    tls_key: Annotated[str, Meta(description="its key, a PEM file")] = ""
    address: Annotated[
        str, Meta(description="name under which other machines reach this one; empty: its host name")
    ] = ""

    samples: SamplesSection = SamplesSection()
    alerts: AlertsSection = AlertsSection()
    logs: LogsSection = LogsSection()
    traces: TracesSection = TracesSection()
    history: HistorySection = HistorySection()
    energy: EnergySection = EnergySection()
    prices: PricesSection = PricesSection()


def check_observability(section: ObservabilitySection) -> None:
    """
    Raises:
        SpecError: a value is out of range; names it.
    """
    check_history(section.history, section.energy, section.prices)
    if section.wire:
        check_wire_addresses((section.wire,))
    if section.listen:
        check_listen_address(section.listen, "observability.listen")
    if bool(section.tls_cert) != bool(section.tls_key):
        raise SpecError("observability.tls_cert, observability.tls_key: one without the other", hint="name both files")
    check_samples(section.samples)
    check_alerts(section.alerts)
    check_logs(section.logs)
    check_traces(section.traces)


def _hidden(headers: dict[str, str]) -> dict[str, str]:
    """Headers without what may be a credential."""
    return dict.fromkeys(headers, HIDDEN)


OBSERVABILITY: Final = Section(
    name="observability",
    kind=ObservabilitySection,
    reader="observability",
    about="The collector (`hal up --with observability`).",
    check=check_observability,
    secrets={"logs.otlp.headers": _hidden, "traces.otlp.headers": _hidden},
)
