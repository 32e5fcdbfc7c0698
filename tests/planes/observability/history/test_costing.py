"""Energy and prices: the arithmetic of the models, and whose rates hold."""

from __future__ import annotations

import msgspec
import pytest

from hal.core.model import SpecError
from hal.core.model.config_sections import read_own
from hal.core.model.history_config import EnergyRates, EnergySection, PriceRates, PricesSection
from hal.core.model.observability_config import OBSERVABILITY
from hal.planes.observability.history.costing import Costing, Given, KnownNode
from hal.planes.observability.history.facts import MOST, GpuSample, Sampled, measure
from tests.planes.observability.history.streams import BEGIN_MS, GIB, row

HOUR_MS = 3_600_000
FOUR_CORES = Given(cpu=4_000, memory_bytes=8 * GIB, gpu=0, ran_ms=HOUR_MS, cpu_ms=2 * HOUR_MS)
"""For an hour, of which half was CPU time."""
ENERGY = EnergySection(core_idle_watts=2, core_busy_watts=10, gib_watts=0.5, gpu_idle_watts=50, gpu_busy_watts=300)
NODE = KnownNode(labels={"zone": "cloud", "gpu-model": "h100"}, capacity={"cpu": 16_000, "memory": 16 * GIB})


def kwh(given: Given, energy: EnergySection = ENERGY, node: KnownNode = NODE) -> float:
    return Costing(energy, PricesSection()).energy_mj(given, node) / 3.6e9


def price(prices: PricesSection, node: KnownNode = NODE, given: Given = FOUR_CORES) -> float | None:
    found = Costing(ENERGY, prices).price_micro(given, node)
    return None if found is None else found / 1_000_000


def test_energy_is_that_of_idle_and_busy_cores_and_memory() -> None:
    """4 cores idle at 2 W, 2 of them busy at 8 W more, 8 GiB at 0.5 W: 8 + 16 + 4 = 28 W for an hour."""
    assert kwh(FOUR_CORES) == pytest.approx(0.028)


def test_overhead_multiplies_it() -> None:
    assert kwh(FOUR_CORES, msgspec.structs.replace(ENERGY, overhead=1.5)) == pytest.approx(0.042)


def test_gpus_whose_use_is_not_measured_count_as_busy() -> None:
    """Two GPUs at 300 W, else a quarter of the time: 2 x 50 + 0.5 x 250 = 225 W; the cores take 8 + 4 W."""
    given = Given(cpu=4_000, memory_bytes=8 * GIB, gpu=2_000, ran_ms=HOUR_MS, cpu_ms=0)
    assert kwh(given) == pytest.approx(0.612)
    assert kwh(msgspec.structs.replace(given, gpu_used_ms=HOUR_MS // 2)) == pytest.approx(0.237)


def test_gpus_whose_energy_was_measured_cost_that_and_the_rest_is_the_model() -> None:
    """0.3 kWh instead of the model; the cores idle at 8 W, memory at 4 W. All of it times the overhead of the room."""
    given = Given(cpu=4_000, memory_bytes=8 * GIB, gpu=2_000, ran_ms=HOUR_MS, cpu_ms=0, gpu_energy_mj=1_080_000_000)
    assert kwh(given) == pytest.approx(0.312)
    assert kwh(given, msgspec.structs.replace(ENERGY, overhead=1.5)) == pytest.approx(0.468)


def test_what_was_measured_of_gpus_stands_for_all_the_time_that_an_attempt_ran() -> None:
    """Rank 0: 45 of 60 s were looked at, in 9 of which its two GPUs worked; 90 J are 120 J of a minute. Rank 1 was
    looked at for a second, which stands for nothing."""
    sampled = Sampled(
        gpus={
            0: GpuSample(measured_ms=45_000, used_ms=9_000, energy_mj=90_000),
            1: GpuSample(measured_ms=1_000, used_ms=1_000, energy_mj=90_000),
        }
    )
    attempt = row(1, end_ms=BEGIN_MS, ran_ms=60_000, gpu=2_000, nodes=("n1", "n2"))
    costing = Costing(EnergySection(overhead=1.0), PricesSection())
    found = measure(attempt, costing, lambda _: None, sampled=sampled)
    assert (found.gpu_ms, found.gpu_counted_ms, found.gpu_used_ms) == (240_000, 120_000, 24_000)
    assert found.measured_energy_mj == 120_000


def test_cpu_time_beyond_the_cores_of_the_node_is_a_mistake() -> None:
    """100 hours of CPU time in an hour on 16 cores count as 16: 8 + 128 + 4 W."""
    assert kwh(msgspec.structs.replace(FOUR_CORES, cpu_ms=100 * HOUR_MS)) == pytest.approx(0.140)


def test_rates_of_a_label_replace_those_of_all_nodes() -> None:
    """With the value of the label, or any; what an entry does not say is as for the others."""
    for label in ("zone=cloud", "zone"):
        energy = msgspec.structs.replace(ENERGY, nodes={label: EnergyRates(core_idle_watts=4)})
        assert kwh(FOUR_CORES, energy) == pytest.approx(0.032)  # 16 + 12 + 4 W
    energy = msgspec.structs.replace(ENERGY, nodes={"zone=here": EnergyRates(core_idle_watts=4)})
    assert kwh(FOUR_CORES, energy) == pytest.approx(0.028)


def test_a_price_is_hours_times_rates() -> None:
    """4 core hours at 0.02, 8 GiB hours at 0.01, and half of the node (by memory) at 1.00."""
    assert price(PricesSection(core_hour=0.02, gib_hour=0.01, node_hour=1.0)) == pytest.approx(0.66)


def test_without_prices_nothing_is_known_and_free_nodes_cost_nothing() -> None:
    assert price(PricesSection()) is None
    assert price(PricesSection(core_hour=0.02, nodes={"zone": PriceRates(core_hour=0)})) == 0


def test_advice_is_the_price_of_a_node_where_no_other_is_set() -> None:
    """Half of a node (by memory) for an hour, at 3.00 an hour."""
    advised = msgspec.structs.replace(NODE, price=3.0)
    assert price(PricesSection(use_advice=True), advised) == pytest.approx(1.5)
    assert price(PricesSection(), advised) is None
    assert price(PricesSection(use_advice=True, core_hour=1.0), advised) == pytest.approx(4.0)


def test_what_a_lying_node_reports_cannot_make_a_sum_overflow() -> None:
    usage = {"user_ms": 1 << 62, "system_ms": 1 << 62, "max_rss_bytes": 1 << 62, "read_bytes": 1 << 62}
    measured = measure(row(1, end_ms=BEGIN_MS, usage=usage), Costing(ENERGY, PricesSection()), lambda _: None)
    values = msgspec.structs.asdict(measured).values()
    assert all(value is None or 0 <= value <= MOST for value in values)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[observability.energy]\noverhead = 0.5", "observability.energy.overhead"),
        ("[observability.energy]\ngib_watts = -2.0", "observability.energy.gib_watts"),
        ('[observability.prices.nodes."zone=a"]\ncore_hour = -3.0', "zone=a"),
        ("[observability.history]\nminutes_days = 0", "observability.history.minutes_days"),
        ('[observability.prices]\ncurrency = "a\\u001b[31m"', "observability.prices.currency"),
        ('[observability.prices]\ncore_hour = "much"', "core_hour"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(text: str, named: str) -> None:
    with pytest.raises(SpecError, match=named):
        read_own(text, OBSERVABILITY)
