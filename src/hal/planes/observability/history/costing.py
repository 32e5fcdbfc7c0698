"""What an attempt cost: energy by a plain model of watts, and a price by tables that the site wrote. Pure.

Energy (joules): on each node, for the time that the attempt ran,

    cores · idle_w + busy cores · (busy_w - idle_w) + GiB · memory_w + GPUs · idle_w + busy GPUs · (busy_w - idle_w)

times the overhead of the room (cooling, conversion; what the field calls PUE). `cores`, `GiB` and `GPUs` are what it
was given, busy cores its CPU time over the time that it ran, at most the cores of the node where that is known. GPUs
whose use was not measured count as busy; where the energy that they took was measured, that counts instead of the
model. The linear model is that of Fan, Weber and Barroso, ISCA 2007.

A price is hours of what it was given times the rates of its nodes; or, by advice, the price of a node for an hour times
the part of the node that the attempt had, by the resource of which it had the most (dominant share).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from hal.core.model.history_config import AS_ABOVE, EnergyRates, EnergySection, PriceRates, PricesSection

GIB: Final = 1 << 30
MILLI: Final = 1000
HOUR_MS: Final = 3_600_000
MICRO: Final = 1_000_000


class KnownNode(Struct, frozen=True, kw_only=True):
    """A node as the controller last showed it."""

    labels: Mapping[str, str] = {}
    capacity: Mapping[str, int] = {}
    price: float | None = None
    """Of the whole node for an hour, by advice; None: there is none."""


UNKNOWN_NODE: Final = KnownNode()


class Given(Struct, frozen=True, kw_only=True):
    """What an attempt had on one node, and used of it."""

    cpu: int
    """Millicores."""
    memory_bytes: int
    gpu: int
    """Thousandths."""
    ran_ms: int
    cpu_ms: int
    gpu_used_ms: int | None = None
    """GPUs times the time that they worked; None: not measured."""
    gpu_energy_mj: int | None = None
    """What they took; None: not measured."""


class Costing:
    """The models of one configuration."""

    def __init__(self, energy: EnergySection, prices: PricesSection) -> None:
        self._energy, self._prices = energy, prices

    def energy_mj(self, given: Given, node: KnownNode) -> int:
        """Millijoules: by the model, and of GPUs as measured."""
        rates = energy_rates(self._energy, node.labels)
        seconds = given.ran_ms / MILLI
        cores = given.cpu / MILLI
        busy = given.cpu_ms / MILLI  # core seconds
        if most := node.capacity.get("cpu", 0):
            busy = min(busy, most / MILLI * seconds)
        gpus = given.gpu / MILLI
        gpu_busy = gpus * seconds if given.gpu_used_ms is None else given.gpu_used_ms / MILLI
        joules = (
            cores * seconds * rates.core_idle_watts
            + busy * max(rates.core_busy_watts - rates.core_idle_watts, 0.0)
            + given.memory_bytes / GIB * seconds * rates.gib_watts
        )
        if given.gpu_energy_mj is None:
            joules += gpus * seconds * rates.gpu_idle_watts
            joules += gpu_busy * max(rates.gpu_busy_watts - rates.gpu_idle_watts, 0.0)
        return round(joules * self._energy.overhead * MILLI) + self.measured_mj(given)

    def measured_mj(self, given: Given) -> int:
        """Of these, the measured ones."""
        return round((given.gpu_energy_mj or 0) * self._energy.overhead)

    def price_micro(self, given: Given, node: KnownNode) -> int | None:
        """Millionths of the currency; None: the site has no prices for it."""
        hours = given.ran_ms / HOUR_MS
        rates = price_rates(self._prices, node.labels)
        if rates is None:
            if node.price is None or not self._prices.use_advice:
                return None
            return round(node.price * _share(given, node) * hours * MICRO)
        amount = (
            given.cpu / MILLI * rates.core_hour
            + given.memory_bytes / GIB * rates.gib_hour
            + given.gpu / MILLI * rates.gpu_hour
            + _share(given, node) * rates.node_hour
        )
        return round(amount * hours * MICRO)


def energy_rates(section: EnergySection, labels: Mapping[str, str]) -> EnergyRates:
    """Those of a node: each by the last entry that its labels match and that has it, else that of all nodes."""
    names = EnergyRates.__struct_fields__
    return EnergyRates(**_rates({name: getattr(section, name) for name in names}, section.nodes, labels))


def price_rates(section: PricesSection, labels: Mapping[str, str]) -> PriceRates | None:
    """Those of a node, found like those of energy; None: nothing that is said of prices is about it."""
    of_all = {name: getattr(section, name) for name in PriceRates.__struct_fields__}
    if not any(of_all.values()) and not any(matches(label, labels) for label in section.nodes):
        return None
    return PriceRates(**_rates(of_all, section.nodes, labels))


def _rates(found: dict[str, float], nodes: Mapping[str, Struct], labels: Mapping[str, str]) -> dict[str, float]:
    for label, rates in nodes.items():
        if matches(label, labels):
            found |= {name: value for name in found if (value := getattr(rates, name)) != AS_ABOVE}
    return found


def matches(key: str, labels: Mapping[str, str]) -> bool:
    """Whether a node has the label: `name=value`, or `name` for any value."""
    name, equals, value = key.partition("=")
    return name in labels and (not equals or labels[name] == value)


def _share(given: Given, node: KnownNode) -> float:
    """The part of a node that an attempt had; all of it where the node is not known."""
    parts = [
        amount / node.capacity[name]
        for name, amount in (("cpu", given.cpu), ("memory", given.memory_bytes), ("gpu", given.gpu))
        if amount and node.capacity.get(name)
    ]
    return min(max(parts, default=1.0), 1.0)
