"""What samples say of the GPUs of attempts that have ended: the last values of counters that their agents kept.

An attempt that has just ended is still in memory; one that ended while the collector was away is looked up in what the
part keeps by the minute or finer. What is looked up for one page of attempts is bounded; beyond that it is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from hal.core.model import StoreError
from hal.planes.observability.history.facts import GpuSample, Sampled
from hal.planes.observability.history.feed_rows import NOTHING_ASKED, FeedRow
from hal.planes.observability.samples.blocks import Block, key_of
from hal.planes.observability.samples.columns import Key
from hal.planes.observability.samples.part import Samples
from hal.planes.observability.samples.store import MINUTE_MS
from hal.runtime.interface import Runtime
from hal.wire.frames.telemetry import Series

MEASURED: Final = "hal_attempt_gpu_measured_seconds_total"
USED: Final = "hal_attempt_gpu_used_seconds_total"
ENERGY: Final = "hal_attempt_gpu_energy_joules_total"
LOOKED_AT_ONCE_MS: Final = 600_000
"""Attempts of a node that ended within the same so many are looked up together."""
BEFORE_MS: Final = 600_000
"""So long before an end its last sample may have been."""
AFTER_MS: Final = 60_000
MAX_LOOKED_UP: Final = 400
"""Times of nodes that are read for one page: some milliseconds each."""
MILLI: Final = 1000
Last = Mapping[Key, float]
"""Last values by series."""


class AttemptGpus:
    """Asks the part for samples."""

    def __init__(self, runtime: Runtime, samples: Samples) -> None:
        self._runtime, self._samples = runtime, samples

    async def of(self, rows: Sequence[FeedRow]) -> Mapping[int, Sampled]:
        """By sequence number; attempts that asked for no GPU cost nothing."""
        found: dict[int, Sampled] = {}
        looked_up: dict[tuple[str, int], Last] = {}
        for row in rows:
            if row.start_ms is None or not _asked_gpus(row):
                continue
            gpus: dict[int, GpuSample] = {}
            for rank, node in enumerate(row.nodes):
                attempt = f"{row.job}.{row.task}.{row.attempt}.{rank}"
                sample = self._in_memory(node, attempt)
                if sample is None:
                    sample = _sample(await self._kept(looked_up, node, row.end_ms), attempt)
                if sample is not None:
                    gpus[rank] = sample
            if gpus:
                found[row.sequence] = Sampled(gpus=gpus)
        return found

    def _in_memory(self, node: str, attempt: str) -> GpuSample | None:
        source = self._samples.source(node)
        if source is None:
            return None
        values = {key: source.newest_of(key) for key in _keys(attempt)}
        return _sample({key: value for key, value in values.items() if value is not None}, attempt)

    async def _kept(self, looked_up: dict[tuple[str, int], Last], node: str, end_ms: int) -> Last:
        at = end_ms // LOOKED_AT_ONCE_MS
        if (known := looked_up.get((node, at))) is not None:
            return known
        if len(looked_up) >= MAX_LOOKED_UP:
            return {}
        since_ms = at * LOOKED_AT_ONCE_MS - BEFORE_MS
        until_ms = (at + 1) * LOOKED_AT_ONCE_MS + AFTER_MS
        try:
            last = _last(await self._samples.history(node, max(since_ms, 0), until_ms, MINUTE_MS, _is_of_gpus))
        except StoreError as error:
            self._runtime.log.warning("samples of ended attempts cannot be read", reason=error.message)
            last = {}
        looked_up[node, at] = last
        return last


def _asked_gpus(row: FeedRow) -> bool:
    return any(kind.amounts.get("gpu") for kind in (row.asked or NOTHING_ASKED).nodes)


def _is_of_gpus(series: Series) -> bool:
    return series.name in (MEASURED, USED, ENERGY)


def _keys(attempt: str) -> Iterable[Key]:
    return ((name, (("attempt", attempt),)) for name in (MEASURED, USED, ENERGY))


def _last(block: Block) -> Last:
    """Of series of GPUs of attempts."""
    found: dict[Key, float] = {}
    for row, series in enumerate(block.series):
        if _is_of_gpus(series):
            there = np.flatnonzero(~np.isnan(block.values[row]))
            if len(there):
                found[key_of(series)] = float(block.values[row, there[-1]])
    return found


def _sample(last: Last, attempt: str) -> GpuSample | None:
    measured, used, energy = (last.get(key) for key in _keys(attempt))
    if measured is None or used is None or not measured > 0:
        return None
    return GpuSample(
        measured_ms=_whole(measured * MILLI),
        used_ms=_whole(used * MILLI),
        energy_mj=None if energy is None else _whole(energy * MILLI),
    )


def _whole(value: float) -> int:
    """What a node sends may be anything."""
    return round(min(max(value, 0.0), float(1 << 50)))
