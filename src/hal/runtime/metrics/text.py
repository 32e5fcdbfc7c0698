"""Metrics in Prometheus' text format. Pure.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final

from hal.runtime.metrics.declaration import Metric
from hal.runtime.metrics.histogram import HistogramValue
from hal.runtime.metrics.registry import AnyFamily, NumberValue

TEXT: Final = "text/plain; version=0.0.4"
"""The answer's head says UTF-8 behind it."""
Pair = tuple[str, str]


def text_of(families: Iterable[AnyFamily]) -> str:
    """All of them; metrics without any series are left out."""
    return "".join(f"{line}\n" for family in families for line in family_lines(family))


def family_lines(family: AnyFamily) -> list[str]:
    """The lines of one metric."""
    if not family.series:
        return []
    metric, lines = family.metric, head_lines(family.metric)
    names = [label.name for label in metric.labels]
    every: Iterable[tuple[tuple[str, ...], NumberValue | HistogramValue]] = family.series.items()
    for values, series in sorted(every, key=itemgetter(0)):
        pairs = tuple(zip(names, values, strict=True))
        if isinstance(series, HistogramValue):
            lines += _histogram_lines(metric, pairs, series)
        else:
            lines.append(f"{metric.name}{labels_text(pairs)} {number(series.value)}")
    return lines


def head_lines(metric: Metric) -> list[str]:
    """What the metric is."""
    text = metric.text.replace("\\", r"\\").replace("\n", r"\n")
    return [f"# HELP {metric.name} {text}", f"# TYPE {metric.name} {metric.kind}"]


def labels_text(pairs: Sequence[Pair]) -> str:
    """Labels in braces; empty for none."""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs) + "}" if pairs else ""


def number(value: float) -> str:
    """A number as Prometheus reads it."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _histogram_lines(metric: Metric, pairs: Sequence[Pair], series: HistogramValue) -> list[str]:
    bounds = [(number(bound), total) for bound, total in series.cumulated(*metric.classic)]
    lines = [
        f"{metric.name}_bucket{labels_text((*pairs, ('le', bound)))} {total}"
        for bound, total in (*bounds, ("+Inf", series.count))
    ]
    labels = labels_text(pairs)
    return [*lines, f"{metric.name}_sum{labels} {number(series.sum)}", f"{metric.name}_count{labels} {series.count}"]


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
