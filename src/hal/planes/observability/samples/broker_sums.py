"""Sums over all brokers of sessions, by series: for Prometheus, to which a session is nothing that lasts.

A counter of the sum only grows: what a broker has counted stays when it is gone. Of a broker that was there before this
process nobody knows how much of its count was in the sum already: it counts from the first value that arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from hal.planes.observability.telemetry import ReceivedValues
from hal.wire.frames.telemetry import Series, SeriesKind

UPTIME: Final = "hal_broker_uptime_seconds"
"""By which it is known how old a broker is; not shown."""
MAX_SUMS: Final = 8_192
MAX_BROKERS: Final = 10_000
OLDEST_MS: Final = 60_000
"""Older values of gauges are not counted."""
GONE_MS: Final = 900_000
Key = tuple[str, tuple[tuple[str, str], ...]]


class Sum(NamedTuple):
    """One series of all brokers."""

    name: str
    kind: SeriesKind
    labels: tuple[tuple[str, str], ...]
    value: float


class _Broker:
    """What one has sent last."""

    __slots__ = ("heard_ms", "values", "young")

    def __init__(self) -> None:
        self.heard_ms = 0
        self.young = False
        """It began after this process."""
        self.values: dict[Key, tuple[SeriesKind, float]] = {}


class BrokerSums:
    """Of all brokers that send values here.

    Args:
        now_ms: of the monotonic clock.
    """

    def __init__(self, now_ms: int) -> None:
        self._began_ms = now_ms
        self._brokers: dict[tuple[str, str], _Broker] = {}
        self._counters: dict[Key, float] = {}
        self.dropped = 0
        """Values of more brokers, or more series, than are summed."""

    def take(self, got: ReceivedValues, now_ms: int) -> None:
        """Take the values of one broker at one instant."""
        name = (got.sender.name, got.sender.process)
        broker = self._brokers.get(name)
        pairs = list(zip(_series(got), map(float, got.values), strict=True))
        if broker is None:
            if len(self._brokers) >= MAX_BROKERS:
                self.dropped += len(pairs)
                return
            broker = self._brokers[name] = _Broker()
            uptime_s = next((value for series, value in pairs if series.name == UPTIME), None)
            broker.young = uptime_s is not None and uptime_s * 1_000 <= now_ms - self._began_ms
        broker.heard_ms = now_ms
        for series, value in pairs:
            key = (series.name, tuple(sorted(series.labels.items())))
            if series.name == UPTIME:
                continue
            before = broker.values.get(key)
            if before is None and len(broker.values) >= MAX_SUMS:
                self.dropped += 1
                continue
            broker.values[key] = (series.kind, value)
            if series.kind is SeriesKind.COUNTER:
                self._add(key, value, before[1] if before is not None else None if broker.young else value)

    def _add(self, key: Key, value: float, before: float | None) -> None:
        if key not in self._counters and len(self._counters) >= MAX_SUMS:
            self.dropped += 1
            return
        more = value if before is None or value < before else value - before
        self._counters[key] = self._counters.get(key, 0.0) + more

    def sums(self, now_ms: int) -> Iterator[Sum]:
        """All series, by name."""
        gauges: dict[Key, float] = {}
        for name, broker in list(self._brokers.items()):
            if now_ms - broker.heard_ms > GONE_MS:
                del self._brokers[name]
            elif now_ms - broker.heard_ms <= OLDEST_MS:
                for key, (kind, value) in broker.values.items():
                    if kind is SeriesKind.GAUGE:
                        gauges[key] = gauges.get(key, 0.0) + value
        found = [Sum(*_parts(key, SeriesKind.COUNTER), value) for key, value in self._counters.items()]
        found += [Sum(*_parts(key, SeriesKind.GAUGE), value) for key, value in gauges.items()]
        yield from sorted(found, key=lambda one: (one.name, one.labels))


def _parts(key: Key, kind: SeriesKind) -> tuple[str, SeriesKind, tuple[tuple[str, str], ...]]:
    return key[0], kind, key[1]


def _series(got: ReceivedValues) -> Iterable[Series]:
    return (got.table.series[number] for number in map(int, got.numbers))
