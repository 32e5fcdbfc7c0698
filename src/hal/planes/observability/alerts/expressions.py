"""The few things that rules say of metrics: each says them to Prometheus, and works them out itself. Pure.

There is no parser and no language here: a rule is built of these values, so what Prometheus is asked and what HAL works
out are the same by construction; `promtool test rules` compares them on the same inputs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from hal.planes.observability.alerts.recording import Labels, Recording, Selected

Vector = dict[Labels, float]
"""A value for each set of labels."""

_OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt, "<": operator.lt, "==": operator.eq, ">=": operator.ge,
}  # fmt: skip


class Expression(Protocol):
    """Something that has values."""

    def promql(self) -> str:
        """As Prometheus is asked."""

    def value(self, recording: Recording) -> Vector:
        """Its values now."""

    def reads(self) -> set[Selected]:
        """The series that it looks at."""


class Selector(Struct, frozen=True):
    """Some series of a metric, added up by labels."""

    metric: str
    by: tuple[str, ...] = ()
    where: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Labels that must have one of these values."""

    def text(self, window: str = "", ends: str = "", more: tuple[str, ...] = ()) -> str:
        """`metric{state=~"a|b"}[5m]`"""
        parts = [*(f'{name}=~"{"|".join(values)}"' for name, values in self.where), *more]
        return f"{self.metric}{ends}{{{','.join(parts)}}}{window}" if parts else f"{self.metric}{ends}{window}"

    def summed(self, what: str, *, agg: str = "sum") -> str:
        """`sum by (queue) (…)`"""
        return f"{agg} by ({', '.join(self.by)}) ({what})" if self.by else f"{agg}({what})"

    def grouped(self, series: Mapping[Labels, float], join: Callable[[float, float], float] = operator.add) -> Vector:
        """The series that are meant, added up."""
        found: Vector = {}
        for labels, value in series.items():
            known = dict(labels)
            if all(known.get(name, "") in values for name, values in self.where):
                key = tuple((name, known.get(name, "")) for name in sorted(self.by))
                found[key] = join(found[key], value) if key in found else value
        return found


class Last(Struct, frozen=True):
    """Gauges as they are: the sum, or the largest or smallest."""

    of: Selector
    agg: str = "sum"

    def promql(self) -> str:
        return self.of.summed(self.of.text(), agg=self.agg)

    def value(self, recording: Recording) -> Vector:
        return self.of.grouped(recording.latest(self.of.metric), _JOINS[self.agg])

    def reads(self) -> set[Selected]:
        return {Selected(self.of.metric, self.of.where)}


_JOINS: Final[dict[str, Callable[[float, float], float]]] = {"sum": operator.add, "max": max, "min": min}


class Left(Struct, frozen=True):
    """Seconds until the instant that a gauge names."""

    of: Last

    def promql(self) -> str:
        return f"{self.of.promql()} - time()"

    def value(self, recording: Recording) -> Vector:
        return {labels: at_s - recording.now_ms / 1_000 for labels, at_s in self.of.value(recording).items()}

    def reads(self) -> set[Selected]:
        return self.of.reads()


class Grown(Struct, frozen=True):
    """How much counters have grown."""

    of: Selector
    window_s: int

    def promql(self) -> str:
        return self.of.summed(f"increase({self.of.text(_window(self.window_s))})")

    def value(self, recording: Recording) -> Vector:
        return self.of.grouped(recording.increases(self.of.metric, self.window_s * 1_000))

    def reads(self) -> set[Selected]:
        return {Selected(self.of.metric, self.of.where)}


class Quantile(Struct, frozen=True):
    """So long as this part of the observations of a window took at most."""

    of: Selector
    """Of the histogram, without `_bucket`."""
    share: float
    window_s: int

    def promql(self) -> str:
        buckets = f"increase({self.of.text(_window(self.window_s), '_bucket')})"
        by = ", ".join(("le", *self.of.by))
        return f"histogram_quantile({self.share}, sum by ({by}) ({buckets}))"

    def value(self, recording: Recording) -> Vector:
        buckets = Selector(f"{self.of.metric}_bucket", ("le", *self.of.by), self.of.where)
        found: dict[Labels, list[tuple[float, float]]] = {}
        for labels, grown in buckets.grouped(recording.increases(buckets.metric, self.window_s * 1_000)).items():
            known = dict(labels)
            key = tuple((name, text) for name, text in labels if name != "le")
            found.setdefault(key, []).append((float(known["le"] or "nan"), grown))
        return {key: quantile(some, self.share) for key, some in found.items()}

    def reads(self) -> set[Selected]:
        return {Selected(f"{self.of.metric}_bucket", self.of.where)}


def quantile(buckets: Iterable[tuple[float, float]], share: float) -> float:
    """As Prometheus' `histogram_quantile`: linear within a bucket, at most the last bound; NaN of nothing.

    Args:
        buckets: upper bound, and how many observations are up to it.
    """
    some = sorted(buckets)
    if len(some) < 2 or some[-1][0] != math.inf or not some[-1][1]:
        return math.nan
    wanted = share * some[-1][1]
    at = next((index for index, (_, count) in enumerate(some[:-1]) if count >= wanted), len(some) - 1)
    if at == len(some) - 1:
        return some[-2][0]
    bound, count = some[at]
    low, below = some[at - 1] if at else (0.0, 0.0)
    if not at and bound <= 0:
        return bound
    return low + (bound - low) * ((wanted - below) / (count - below)) if count > below else low


class Later(Struct, frozen=True):
    """The part of the observations of a window that was above a bound, which is one of the histogram's buckets."""

    of: Selector
    bound_s: int
    window_s: int

    def promql(self) -> str:
        window, bound = _window(self.window_s), (f'le="{self.bound_s}"',)
        within = self.of.summed(f"increase({self.of.text(window, '_bucket', bound)})")
        count = self.of.summed(f"increase({self.of.text(window, '_count')})")
        return f"1 - {within} / {count}"

    def value(self, recording: Recording) -> Vector:
        window_ms = self.window_s * 1_000
        where = (*self.of.where, ("le", (str(self.bound_s),)))
        bucket = Selector(f"{self.of.metric}_bucket", self.of.by, where)
        within = bucket.grouped(recording.increases(bucket.metric, window_ms))
        count = self.of.grouped(recording.increases(f"{self.of.metric}_count", window_ms))
        return {labels: 1 - part for labels, part in _divided(within, count).items()}

    def reads(self) -> set[Selected]:
        bucket = (*self.of.where, ("le", (str(self.bound_s),)))
        return {Selected(f"{self.of.metric}_bucket", bucket), Selected(f"{self.of.metric}_count", self.of.where)}


class Part(Struct, frozen=True):
    """One thing as a part of another."""

    of: Grown | Last
    whole: Grown | Last

    def promql(self) -> str:
        return f"{self.of.promql()} / {self.whole.promql()}"

    def value(self, recording: Recording) -> Vector:
        return _divided(self.of.value(recording), self.whole.value(recording))

    def reads(self) -> set[Selected]:
        return self.of.reads() | self.whole.reads()


class Is(Struct, frozen=True):
    """Those whose value is so."""

    of: Last | Left | Grown | Quantile | Later | Part
    how: str
    bound: float

    def promql(self) -> str:
        text = self.of.promql()
        if isinstance(self.of, Left | Later | Part):
            text = f"({text})"
        return f"{text} {self.how} {number(self.bound)}"

    def value(self, recording: Recording) -> Vector:
        holds, bound = _OPERATORS[self.how], float(number(self.bound))  # as Prometheus is told it
        return {labels: value for labels, value in self.of.value(recording).items() if holds(value, bound)}

    def reads(self) -> set[Selected]:
        return self.of.reads()


class Least(Struct, frozen=True):
    """Of those that are so, some with the least values: so a fault of all nodes is no alert of each."""

    of: Is
    most: int

    def promql(self) -> str:
        return f"bottomk({self.most}, {self.of.promql()})"

    def value(self, recording: Recording) -> Vector:
        found = sorted(self.of.value(recording).items(), key=lambda one: (one[1], one[0]))
        return dict(found[: self.most])

    def reads(self) -> set[Selected]:
        return self.of.reads()


class Both(Struct, frozen=True):
    """Those of which all of these are so; the value is the first's."""

    parts: tuple[Is, ...]

    def promql(self) -> str:
        return " and ".join(f"({part.promql()})" for part in self.parts)

    def value(self, recording: Recording) -> Vector:
        first, *others = (part.value(recording) for part in self.parts)
        return {labels: value for labels, value in first.items() if all(labels in other for other in others)}

    def reads(self) -> set[Selected]:
        return set().union(*(part.reads() for part in self.parts))


class Without(Struct, frozen=True):
    """Those that are so, and of which the other is not."""

    of: Is
    other: Is

    def promql(self) -> str:
        return f"({self.of.promql()}) unless ({self.other.promql()})"

    def value(self, recording: Recording) -> Vector:
        others = self.other.value(recording)
        return {labels: value for labels, value in self.of.value(recording).items() if labels not in others}

    def reads(self) -> set[Selected]:
        return self.of.reads() | self.other.reads()


class Either(Struct, frozen=True):
    """Those of which one of these is so; the value is that of the first that is."""

    parts: tuple[Is | Both, ...]

    def promql(self) -> str:
        return " or ".join(f"({part.promql()})" for part in self.parts)

    def value(self, recording: Recording) -> Vector:
        found: Vector = {}
        for part in reversed(self.parts):
            found |= part.value(recording)
        return found

    def reads(self) -> set[Selected]:
        return set().union(*(part.reads() for part in self.parts))


class Silent(Struct, frozen=True):
    """The controller does not answer a scrape. To Prometheus, of the job by that name."""

    job: str = "hal"

    def promql(self) -> str:
        return f'max(up{{job="{self.job}"}}) == 0'

    def value(self, recording: Recording) -> Vector:
        return {} if any(recording.latest("up").values()) else {(): 0.0}

    def reads(self) -> set[Selected]:
        return {Selected("up")}


Condition = Is | Least | Both | Without | Either | Silent


def number(value: float) -> str:
    """As PromQL has it."""
    return str(int(value)) if value == int(value) else repr(float(f"{value:.12g}"))


def span_text(seconds: float) -> str:
    """`90s`, `5m`, `6h`, as PromQL has it."""
    whole = round(seconds)
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if whole and whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def _window(seconds: int) -> str:
    return f"[{span_text(seconds)}]"


def _divided(of: Vector, whole: Vector) -> Vector:
    """NaN, which is above nothing, where the whole is nothing."""
    return {
        labels: value / whole[labels] if whole[labels] else math.nan for labels, value in of.items() if labels in whole
    }
