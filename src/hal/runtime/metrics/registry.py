"""The metrics of one process: series by label, each kind with its own way to change them.

Not for threads: everything happens on the event loop. An update costs a dictionary look-up and an addition; what is
counted often keeps its series (`of`). Gauges that follow from other state are set by views, before each scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from hal.core.model import InternalError
from hal.core.model.printable import printable
from hal.runtime.metrics.declaration import MAX_LABEL_CHARS, MAX_SERIES, OTHER, Kind, Metric
from hal.runtime.metrics.histogram import HistogramValue

Values = tuple[str, ...]
"""Of a metric's labels, in their order."""


class NumberValue:
    """A counter's or gauge's series."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, amount: float = 1) -> None:
        """Add an amount; a counter's is never negative."""
        self.value += amount

    def set(self, value: float) -> None:
        """Set a gauge, or a counter that is counted elsewhere."""
        self.value = value


V = TypeVar("V", bound=NumberValue | HistogramValue)


class Family(Generic[V]):
    """All series of one metric."""

    def __init__(self, metric: Metric, make: Callable[[], V]) -> None:
        self.metric = metric
        self._make = make
        self.series: dict[Values, V] = {}
        self._seen: tuple[set[str], ...] = tuple(set() for _ in metric.labels)
        self._beyond: Values = (OTHER,) * len(metric.labels)
        if not metric.labels and metric.kind is not Kind.GAUGE:
            self.series[()] = make()

    def of(self, *values: str) -> V:
        """The series with these values; where it would be one too many, the one that collects the rest."""
        found = self.series.get(values)
        return found if found is not None else self._admit(values)

    @property
    def lines(self) -> int:
        """About how many lines of text it has."""
        first, last = self.metric.classic
        return len(self.series) * (last - first + 4 if self.metric.kind is Kind.HISTOGRAM else 1) + 2

    def clear(self) -> None:
        """Forget all series: a view sets those that there are."""
        self.series.clear()
        for seen in self._seen:
            seen.clear()

    def _admit(self, values: Values) -> V:
        if len(values) != len(self.metric.labels):
            raise InternalError(f"{self.metric.name} has {len(self.metric.labels)} labels, not {len(values)}")
        kept: list[str] = []
        for value, label, seen in zip(values, self.metric.labels, self._seen, strict=True):
            text = printable(value)[:MAX_LABEL_CHARS]
            if text not in seen and len(seen) >= label.most:
                text = OTHER
            kept.append(text)
        key = tuple(kept)
        if key not in self.series and len(self.series) >= MAX_SERIES - 1:
            key = self._beyond
        for text, seen in zip(key, self._seen, strict=True):
            if text != OTHER:
                seen.add(text)
        found = self.series.get(key)
        if found is None:
            found = self.series[key] = self._make()
        return found


Numbers = Family[NumberValue]
Histograms = Family[HistogramValue]
AnyFamily = Family[NumberValue] | Family[HistogramValue]
View = Callable[[], None]


class Registry:
    """The metrics of a process."""

    def __init__(self, declared: Sequence[Metric]) -> None:
        """With all of these, and no others. Counters and histograms without labels are shown also before anything
        happened to them, gauges once they are set."""
        self._families: dict[str, AnyFamily] = {}
        self._views: dict[str, View] = {}
        self._faults: dict[str, str] = {}
        """Views that failed at the last scrape, and why."""
        for metric in declared:
            if metric.name in self._families:
                raise InternalError(f"{metric.name} is declared twice")
            if metric.kind is Kind.HISTOGRAM:
                self._families[metric.name] = Family(metric, HistogramValue)
            else:
                self._families[metric.name] = Family(metric, NumberValue)

    def numbers(self, metric: Metric) -> Numbers:
        """A counter or gauge that was declared."""
        family = self._families[metric.name]
        if family.metric.kind is Kind.HISTOGRAM:
            raise InternalError(f"{metric.name} is a histogram")
        return family  # type: ignore[return-value]

    def histograms(self, metric: Metric) -> Histograms:
        """A histogram that was declared."""
        family = self._families[metric.name]
        if family.metric.kind is not Kind.HISTOGRAM:
            raise InternalError(f"{metric.name} is a {family.metric.kind}")
        return family  # type: ignore[return-value]

    def before_scrape(self, name: str, view: View) -> None:
        """Call `view`, which sets gauges, before each scrape, instead of the one that had this name before."""
        self._views[name] = view

    def drop_view(self, name: str) -> None:
        """Call it no more."""
        self._views.pop(name, None)

    @property
    def views(self) -> list[str]:
        """Their names."""
        return list(self._views)

    def look(self, name: str) -> str:
        """Let a view set its gauges; returns why it failed, '' if it did not. One that fails takes nothing but its own
        numbers with it, and says so once until it works again."""
        view = self._views.get(name)
        if view is None:
            return ""
        try:
            view()
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
            news = fault if self._faults.get(name) != fault else ""
            self._faults[name] = fault
            return news
        self._faults.pop(name, None)
        return ""

    def families(self, *, operator: bool = True) -> list[AnyFamily]:
        """All families by name, as their views left them.

        Args:
            operator: False: without what only operators see.
        """
        found = sorted(self._families.items())
        return [family for _, family in found if operator or not family.metric.for_operators]


LabelledValue = tuple[Values, float]


def replace_all(family: Numbers, values: Iterable[LabelledValue]) -> None:
    """Set a gauge's series to these, and forget all others; what is beyond a bound is added up."""
    family.clear()
    for labels, value in values:
        family.of(*labels).add(value)
