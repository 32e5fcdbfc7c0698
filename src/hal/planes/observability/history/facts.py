"""One ended attempt as the history keeps it: what it was given, used and cost, in whole base units. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from hal.planes.observability.history.costing import UNKNOWN_NODE, Costing, Given, KnownNode
from hal.planes.observability.history.feed_rows import NOTHING_ASKED, FeedRow
from hal.planes.observability.history.tables import STATES

MILLI: Final = 1000
MIB: Final = 1 << 20
KIB: Final = 1 << 10
MOST: Final = 1 << 50
"""Of any amount: more is a mistake or a lie, and must not make sums overflow."""
LEAST_MEASURED: Final = 10
"""Samples of less than one part in so many of the time that an attempt ran stand for nothing."""
ALL_PROCESSES: Final = 1
"""In `cgroup` of a usage: CPU time is that of all processes."""
_STATE_NUMBERS: Final = {state: number for number, state in enumerate(STATES)}
_UNKNOWN_STATE: Final = _STATE_NUMBERS["failed"]


class GpuSample(Struct, frozen=True, kw_only=True):
    """What samples of one node say of an attempt's GPUs there."""

    measured_ms: int
    """The time for which they were looked at: not quite all of an attempt."""
    used_ms: int
    """The part of it in which they worked, on average."""
    energy_mj: int | None = None
    """What they took in it; None: they do not say."""


class Sampled(Struct, frozen=True, kw_only=True):
    """What samples of nodes say of one attempt."""

    gpus: Mapping[int, GpuSample] = {}
    """By rank; none: not measured."""


NOT_SAMPLED: Final = Sampled()


class Measured(Struct, frozen=True, kw_only=True):
    """The measures of one attempt, by the names of their columns in `tables.ATTEMPT_COLUMNS`."""

    state: int
    wait_ms: int | None
    """Until its processes began, since it could have; None: it never began, or nobody knows since when."""
    ran_ms: int
    core_ms: int
    cpu_ms: int
    counted_core_ms: int
    """Of `core_ms`, what CPU time was counted of."""
    partly_counted: int
    """1: of its first process, and those that it waited for, alone."""
    memory_mib_s: int
    memory_used_mib_s: int
    """Its peak, for as long as it ran."""
    memory_counted_mib_s: int
    """Of `memory_mib_s`, what a peak is known of."""
    gpu_ms: int
    gpu_used_ms: int
    gpu_counted_ms: int
    walltime_ms: int
    """What it asked for, if it ran."""
    limited_ms: int
    """Of `ran_ms`, what had a walltime."""
    read_kib: int
    written_kib: int
    energy_mj: int
    measured_energy_mj: int
    """Of `energy_mj`, what was measured."""
    price_micro: int | None
    peak_bytes: int
    """Of the node where it used the most."""


def measure(
    row: FeedRow,
    costing: Costing,
    nodes: Callable[[str], KnownNode | None],
    *,
    ended_before_ms: int | None = None,
    sampled: Sampled = NOT_SAMPLED,
) -> Measured:
    """Measure one attempt.

    Args:
        nodes: by name; None: not known.
        ended_before_ms: when the attempt of the same task before it ended; None: there was none, or it is not known.
    """
    asked = row.asked or NOTHING_ASKED
    ran_ms = 0 if row.start_ms is None else max(row.end_ms - row.start_ms, 0)
    usage = row.usage
    cpu_ms = _amount(usage, "user_ms") + _amount(usage, "system_ms")
    peak_bytes = _amount(usage, "max_rss_bytes")
    counted = "user_ms" in usage and row.start_ms is not None
    given = _given(row, ran_ms, cpu_ms, sampled)
    cpu, memory = sum(one.cpu for one in given), sum(one.memory_bytes for one in given)
    core_ms, gpu_ms = cpu * ran_ms // MILLI, sum(one.gpu for one in given) * ran_ms // MILLI
    memory_mib_s = _rounded(memory * ran_ms, MIB * MILLI)
    known = [nodes(name) or UNKNOWN_NODE for name in row.nodes]
    energy_mj = sum(costing.energy_mj(one, node) for one, node in zip(given, known, strict=True))
    measured_energy_mj = sum(costing.measured_mj(one) for one in given)
    counted_gpus = [one for one in given if one.gpu_used_ms is not None]
    prices = [costing.price_micro(one, node) for one, node in zip(given, known, strict=True)]
    remembers = bool(memory and peak_bytes)
    limited = asked.walltime_ms is not None and row.start_ms is not None
    return _all_bounded(
        state=_STATE_NUMBERS.get(row.state, _UNKNOWN_STATE),
        wait_ms=_wait_ms(row, ended_before_ms),
        ran_ms=ran_ms,
        core_ms=core_ms,
        cpu_ms=cpu_ms,
        counted_core_ms=core_ms if counted else 0,
        partly_counted=int(counted and not usage.get("cgroup", 0) & ALL_PROCESSES),
        memory_mib_s=memory_mib_s,
        memory_used_mib_s=_rounded(peak_bytes * len(given) * ran_ms, MIB * MILLI) if remembers else 0,
        memory_counted_mib_s=memory_mib_s if remembers else 0,
        gpu_ms=gpu_ms,
        gpu_used_ms=min(sum(one.gpu_used_ms or 0 for one in counted_gpus), gpu_ms),
        gpu_counted_ms=min(sum(one.gpu for one in counted_gpus) * ran_ms // MILLI, gpu_ms),
        walltime_ms=(asked.walltime_ms or 0) if limited else 0,
        limited_ms=ran_ms if limited else 0,
        read_kib=_amount(usage, "read_bytes") // KIB,
        written_kib=_amount(usage, "written_bytes") // KIB,
        energy_mj=energy_mj,
        measured_energy_mj=measured_energy_mj,
        price_micro=sum(price or 0 for price in prices) if any(price is not None for price in prices) else None,
        peak_bytes=peak_bytes,
    )


def _all_bounded(**measures: int | None) -> Measured:
    return Measured(**{name: None if value is None else min(value, MOST) for name, value in measures.items()})  # type: ignore[arg-type]


def _given(row: FeedRow, ran_ms: int, cpu_ms: int, sampled: Sampled) -> list[Given]:
    """What it had on each of its nodes. What it used is known of all together: each has its part of the cores' use."""
    amounts = _amounts(row)
    cores = sum(one.get("cpu", 0) for one in amounts)
    given = []
    for rank, one in enumerate(amounts):
        cpu, gpu = one.get("cpu", 0), one.get("gpu", 0)
        used_ms, energy_mj = _gpu_use(sampled.gpus.get(rank), gpu, ran_ms)
        given.append(
            Given(
                cpu=cpu,
                memory_bytes=one.get("memory", 0),
                gpu=gpu,
                ran_ms=ran_ms,
                cpu_ms=cpu_ms * cpu // cores if cores else cpu_ms // len(amounts),
                gpu_used_ms=used_ms,
                gpu_energy_mj=energy_mj,
            )
        )
    return given


def _gpu_use(sample: GpuSample | None, gpu: int, ran_ms: int) -> tuple[int | None, int | None]:
    """GPUs times the time that they worked, and the energy that they took: what was measured stands for all of it."""
    if sample is None or not gpu or sample.measured_ms * LEAST_MEASURED < ran_ms or sample.measured_ms <= 0:
        return None, None
    used_ms = gpu * ran_ms * min(sample.used_ms, sample.measured_ms) // (sample.measured_ms * MILLI)
    if sample.energy_mj is None:
        return used_ms, None
    return used_ms, _bounded(sample.energy_mj * ran_ms // sample.measured_ms)


def _amounts(row: FeedRow) -> Sequence[Mapping[str, int]]:
    """By node, in rank order."""
    kinds = (row.asked or NOTHING_ASKED).nodes
    if len(kinds) == 1:
        return [kinds[0].amounts] * len(row.nodes)
    found = [kind.amounts for kind in kinds for _ in range(min(kind.nodes, len(row.nodes)))]
    found += [{}] * (len(row.nodes) - len(found))
    return found[: len(row.nodes)]


def _wait_ms(row: FeedRow, ended_before_ms: int | None) -> int | None:
    if row.start_ms is None:
        return None
    if ended_before_ms is not None:
        return max(row.start_ms - ended_before_ms, 0)
    if row.attempt > 1 or row.asked is None:
        return None
    return max(row.start_ms - max(row.asked.submit_ms, row.asked.eligible_ms), 0)


def _amount(usage: Mapping[str, int], name: str) -> int:
    return _bounded(usage.get(name, 0))


def _bounded(amount: int) -> int:
    return min(max(amount, 0), MOST)


def _rounded(amount: int, unit: int) -> int:
    return (2 * amount + unit) // (2 * unit)
