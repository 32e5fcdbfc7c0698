"""Pushed metrics for Prometheus: the newest values of nodes and other sources, in its text format. Pure.

Series of single attempts are left out: they are in HAL's own history, and would be new labels for each job. Brokers of
sessions are shown as their sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from hal.planes.observability.samples.broker_sums import Sum
from hal.planes.observability.samples.columns import SourceColumns
from hal.planes.observability.samples.declared import PART, REFUSED, TEXTS
from hal.runtime.metrics.text import labels_text, number
from hal.wire.frames.telemetry import SeriesKind

HISTOGRAM: Final = "histogram"
ATTEMPT: Final = "attempt"
"""The label of series of one attempt."""
RESERVED: Final = frozenset({"node", "source", "__name__"})
"""Labels that are not a sender's to give: a line with one of them twice makes Prometheus refuse all others, too."""
ATTRIBUTION: Final = "attribution"
"""The part that refuses what is not a node's own."""
OLDEST_MS: Final = 60_000
"""Older values are not shown: Prometheus takes what is shown for the present."""


def exposition(
    sources: Iterable[SourceColumns],
    health: Mapping[str, Mapping[str, float | int | str]],
    now_ms: int,
    brokers: Iterable[Sum] = (),
) -> str:
    """Return the text of all metrics.

    Args:
        health: of the collector's parts, by name; numbers are shown.
        brokers: sums over the brokers of sessions.
    """
    lines: dict[str, list[str]] = {}
    kinds: dict[str, str] = {}
    for source in sources:
        if source.is_broker:
            continue
        who = ("node" if source.is_node else "source", source.name)
        for row, series in enumerate(source.series):
            value = float(source.newest[row])
            old = now_ms - int(source.newest_ms[row]) > OLDEST_MS
            if (
                ATTEMPT in series.labels
                or not RESERVED.isdisjoint(series.labels)
                or math.isnan(value)
                or old
                or kinds.get(series.name, series.kind) != series.kind
            ):
                continue
            kinds[series.name] = series.kind
            labels = labels_text((who, *sorted(series.labels.items())))
            lines.setdefault(series.name, []).append(f"{series.name}{labels} {number(value)}")
    for one in brokers:
        family = _family(one.name)
        kinds[family] = one.kind if family == one.name else HISTOGRAM
        lines.setdefault(family, []).append(f"{one.name}{labels_text(one.labels)} {number(one.value)}")
    parts = [
        f"{PART.name}{labels_text((('part', part), ('value', name)))} {number(float(value))}"
        for part, values in health.items()
        for name, value in values.items()
        if isinstance(value, int | float)
    ]
    if parts:
        lines[PART.name], kinds[PART.name] = parts, SeriesKind.GAUGE
    if refused := health.get(ATTRIBUTION):
        counts = ((kind, refused[f"{kind}_refused"]) for kind in ("lines", "spans"))
        lines[REFUSED.name] = [
            f"{REFUSED.name}{labels_text((('kind', kind),))} {number(float(count))}" for kind, count in counts
        ]
        kinds[REFUSED.name] = SeriesKind.COUNTER
    found = []
    for name in sorted(lines):
        found += [f"# HELP {name} {_help(name)}", f"# TYPE {name} {kinds[name]}", *lines[name]]
    return "".join(f"{line}\n" for line in found)


def _family(name: str) -> str:
    """The metric that a series belongs to: a histogram has three kinds of them."""
    for end in ("_bucket", "_sum", "_count"):
        if name.endswith(end) and name.removesuffix(end) in TEXTS:
            return name.removesuffix(end)
    return name


def _help(name: str) -> str:
    return TEXTS.get(name, "As its process has sent it.")
