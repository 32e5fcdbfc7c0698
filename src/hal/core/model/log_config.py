"""`[observability.logs]` and `[observability.traces]` of hal.toml: what the collector keeps of lines and spans, and
where it sends them. Pure."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from hal.core.model.config_sections import check_range
from hal.core.model.errors import SpecError, shown
from hal.core.model.units import parse_amount

LEAST_BYTES: Final = 16 << 20
MAX_DAYS: Final = 36_500
MAX_HEADERS: Final = 32


class OtlpSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[observability.logs.otlp]` and `[observability.traces.otlp]`"""

    endpoint: Annotated[
        str,
        Meta(
            description="URL of a receiver of OTLP over HTTP with its path, `http://otel:4318/v1/traces`; empty: none"
        ),
    ] = ""
    headers: Annotated[dict[str, str], Meta(description='headers of each request: `{ Authorization = "…" }`')] = {}
    authorities: Annotated[
        str, Meta(description="PEM file of the authorities that may vouch for it; empty: those of the machine")
    ] = ""


class LogsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[observability.logs]`"""

    days: Annotated[int, Meta(description="days that lines are kept; 0: as long as there is room")] = 30
    size: Annotated[str, Meta(description="room for lines and their index; beyond it the oldest go")] = "8GiB"
    components: Annotated[bool, Meta(description="keep what HAL's own processes log")] = True
    jobs: Annotated[bool, Meta(description="keep what jobs print")] = True
    otlp: OtlpSection = OtlpSection()

    @property
    def size_bytes(self) -> int:
        return parse_amount("memory", self.size, field="observability.logs.size")


class TracesSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[observability.traces]`"""

    sample: Annotated[
        float,
        Meta(description="share of traces that are sent to the receiver, 0 to 1; failed attempts are sent anyway"),
    ] = 1.0
    days: Annotated[int, Meta(description="how long spans that processes send are kept; at least 1")] = 7
    spans: Annotated[int, Meta(description="and at most so many; the oldest go first")] = 1_000_000
    otlp: OtlpSection = OtlpSection()


def check_logs(section: LogsSection) -> None:
    """
    Raises:
        SpecError: a value is out of range; names it.
    """
    _check_kept("observability.logs", section.days, section.size_bytes)
    _check_otlp("observability.logs.otlp", section.otlp)


def check_traces(section: TracesSection) -> None:
    """
    Raises:
        SpecError: a value is out of range; names it.
    """
    if not 0 <= section.sample <= 1:
        raise SpecError(f"observability.traces.sample: {section.sample} is out of range", hint="between 0 and 1")
    check_range("observability.traces.days", section.days, 1, MAX_DAYS)
    check_range("observability.traces.spans", section.spans, 1_000, 1_000_000_000)
    _check_otlp("observability.traces.otlp", section.otlp)


def _check_kept(field: str, days: int, size_bytes: int) -> None:
    check_range(f"{field}.days", days, 0, MAX_DAYS, least_means="as long as there is room")
    if size_bytes < LEAST_BYTES:
        raise SpecError(f"{field}.size: less than {LEAST_BYTES >> 20}MiB")


def _check_otlp(field: str, section: OtlpSection) -> None:
    if len(section.headers) > MAX_HEADERS:
        raise SpecError(f"{field}.headers: more than {MAX_HEADERS}")
    for name, value in section.headers.items():
        if not (name.isascii() and name.replace("-", "").replace("_", "").isalnum() and value.isprintable()):
            raise SpecError(f"{field}.headers: '{shown(name)}' is no header")
    if not section.endpoint:
        return
    try:
        parts = urlsplit(section.endpoint)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fine = False
    if not fine or "@" in section.endpoint or not section.endpoint.isascii() or not section.endpoint.isprintable():
        raise SpecError(f"{field}.endpoint: not an http or https URL", hint="credentials go into headers")
