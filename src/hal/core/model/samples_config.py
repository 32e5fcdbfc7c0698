"""`[observability.samples]` of hal.toml: how long the collector keeps what nodes and attempts used. Pure."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from hal.core.model.config_sections import check_range
from hal.core.model.errors import SpecError
from hal.core.model.units import Duration, parse_amount

LEAST_BYTES: Final = 16 << 20
LONGEST_MS: Final = 10 * 366 * 86_400_000
LEAST_MS: Final = 60_000


class SamplesSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[observability.samples]`"""

    fine: Annotated[Duration, Meta(description="how long samples are kept as they came")] = Duration(6 * 3_600_000)
    minutes: Annotated[Duration, Meta(description="how long their averages over a minute are kept")] = Duration(
        14 * 86_400_000
    )
    hours: Annotated[Duration, Meta(description="how long their averages over an hour are kept")] = Duration(
        400 * 86_400_000
    )
    size: Annotated[str, Meta(description="room for all of it; beyond it the oldest samples go")] = "8GiB"
    series: Annotated[
        int, Meta(description="series of which values are kept in memory; new ones beyond it are dropped and counted")
    ] = 1_000_000

    @property
    def size_bytes(self) -> int:
        return parse_amount("memory", self.size, field="observability.samples.size")


def check_samples(section: SamplesSection) -> None:
    """
    Raises:
        SpecError: a value is out of range; names it.
    """
    for name in ("fine", "minutes", "hours"):
        check_range(f"observability.samples.{name}", getattr(section, name), LEAST_MS, LONGEST_MS)
    if section.size_bytes < LEAST_BYTES:
        raise SpecError(f"observability.samples.size: {section.size} is too small", hint="at least 16MiB")
    check_range("observability.samples.series", section.series, 1_000, 100_000_000)
