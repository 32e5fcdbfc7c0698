"""`[observability.history]`, `[observability.energy]` and `[observability.prices]` of hal.toml. Pure."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from hal.core.model.config_sections import check_range
from hal.core.model.errors import SpecError, shown

MAX_DAYS: Final = 36_500
MAX_ATTEMPTS: Final = 10_000_000_000
AS_ABOVE: Final = -1.0
"""Of nodes with a label: as for the others."""
MAX_WATTS: Final = 100_000.0
MAX_PRICE: Final = 1_000_000.0
MAX_OVERHEAD: Final = 10.0
MAX_LABELS: Final = 1_000
MAX_CURRENCY: Final = 8


class HistorySection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[observability.history]`"""

    attempts_days: Annotated[int, Meta(description="how long each ended attempt is kept")] = 400
    attempts_most: Annotated[int, Meta(description="at most so many: the oldest go first, whole days of them")] = (
        20_000_000
    )
    minutes_days: Annotated[int, Meta(description="how long sums by minute are kept")] = 8
    hours_days: Annotated[int, Meta(description="how long sums by hour are kept")] = 100
    days_days: Annotated[int, Meta(description="how long sums by day are kept")] = 3_660


class EnergyRates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[observability.energy.nodes.LABEL]`"""

    core_idle_watts: Annotated[float, Meta(description="as above; -1: as for the others")] = AS_ABOVE
    core_busy_watts: Annotated[float, Meta(description="as above; -1: as for the others")] = AS_ABOVE
    gib_watts: Annotated[float, Meta(description="as above; -1: as for the others")] = AS_ABOVE
    gpu_idle_watts: Annotated[float, Meta(description="as above; -1: as for the others")] = AS_ABOVE
    gpu_busy_watts: Annotated[float, Meta(description="as above; -1: as for the others")] = AS_ABOVE


class EnergySection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[observability.energy]`"""

    core_idle_watts: Annotated[float, Meta(description="watts of a core that was given and is idle")] = 1.5
    core_busy_watts: Annotated[float, Meta(description="watts of a core that works")] = 6.0
    gib_watts: Annotated[float, Meta(description="watts of a GiB of memory")] = 0.35
    gpu_idle_watts: Annotated[float, Meta(description="watts of a GPU that was given and is idle")] = 50.0
    gpu_busy_watts: Annotated[float, Meta(description="watts of a GPU that works")] = 350.0
    overhead: Annotated[
        float, Meta(description="cooling and losses: the energy of the room for each unit of its nodes (PUE)")
    ] = 1.0
    nodes: dict[str, EnergyRates] = {}


class PriceRates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[observability.prices.nodes.LABEL]`"""

    core_hour: Annotated[float, Meta(description="as above; -1: as for the others")] = AS_ABOVE
    gib_hour: Annotated[float, Meta(description="as above; -1: as for the others")] = AS_ABOVE
    gpu_hour: Annotated[float, Meta(description="as above; -1: as for the others")] = AS_ABOVE
    node_hour: Annotated[float, Meta(description="as above; -1: as for the others")] = AS_ABOVE


class PricesSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[observability.prices]`"""

    currency: Annotated[str, Meta(description="of all prices: shown beside them")] = ""
    core_hour: Annotated[float, Meta(description="price of a core for an hour")] = 0.0
    gib_hour: Annotated[float, Meta(description="price of a GiB of memory for an hour")] = 0.0
    gpu_hour: Annotated[float, Meta(description="price of a GPU for an hour")] = 0.0
    node_hour: Annotated[
        float, Meta(description="price of a node for an hour; an attempt has the part of it of which it had the most")
    ] = 0.0
    use_advice: Annotated[
        bool, Meta(description="advice of the kind `price` is the price of a node for an hour, where no other is set")
    ] = False
    nodes: dict[str, PriceRates] = {}


def check_history(history: HistorySection, energy: EnergySection, prices: PricesSection) -> None:
    """
    Raises:
        SpecError: a value is out of range; names it.
    """
    for name in HistorySection.__struct_fields__:
        most = MAX_ATTEMPTS if name == "attempts_most" else MAX_DAYS
        check_range(f"observability.history.{name}", getattr(history, name), 1, most)
    _check_rates("observability.energy", energy, EnergyRates.__struct_fields__, MAX_WATTS)
    if not 1.0 <= energy.overhead <= MAX_OVERHEAD:
        raise SpecError(
            f"observability.energy.overhead: {energy.overhead:g} is out of range", hint=f"from 1 to {MAX_OVERHEAD:g}"
        )
    _check_rates("observability.prices", prices, PriceRates.__struct_fields__, MAX_PRICE)
    if len(prices.currency) > MAX_CURRENCY or not prices.currency.isprintable():
        raise SpecError(
            f"observability.prices.currency: '{shown(prices.currency)}' is not the name of a currency",
            hint=f"a word like EUR, at most {MAX_CURRENCY} characters",
        )


def _check_rates(section: str, values: EnergySection | PricesSection, names: tuple[str, ...], most: float) -> None:
    if len(values.nodes) > MAX_LABELS:
        raise SpecError(f"{section}.nodes: {len(values.nodes)} labels", hint=f"at most {MAX_LABELS}")
    for name in names:
        _check_rate(f"{section}.{name}", getattr(values, name), most)
        for label, rates in values.nodes.items():
            if (value := getattr(rates, name)) != AS_ABOVE:
                _check_rate(f'{section}.nodes."{shown(label)}".{name}', value, most)


def _check_rate(field: str, value: float, most: float) -> None:
    if not 0 <= value <= most:
        raise SpecError(f"{field}: {value:g} is out of range", hint=f"from 0 to {most:g}")
