"""The numbers of the last hours that rules look at, as they were scraped. Pure.

A scrape is kept whole for `FINE_MS`; of older ones one a minute. O(series) a scrape; bounded by what rules look at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

Labels = tuple[tuple[str, str], ...]
"""Sorted by name."""
Values = Mapping[str, Mapping[Labels, float]]
"""By metric."""

FINE_MS: Final = 10 * 60_000
COARSE_MS: Final = 60_000
KEPT_MS: Final = 6 * 3_600_000 + 5 * 60_000
"""The longest window of a rule, and what extrapolation looks at."""
MAX_SERIES: Final = 20_000
"""Of one scrape."""
MAX_LINES: Final = 200_000
_LINE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")


class Scrape(NamedTuple):
    """What was read at one instant."""

    at_ms: int
    values: Values


class Selected(NamedTuple):
    """Some series of a metric."""

    metric: str
    where: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Labels that must have one of these values."""

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Whether a series of the metric is one of them."""
        return all(labels.get(name, "") in values for name, values in self.where)


class Parser:
    """Reads the series that rules look at, of Prometheus' text format 0.0.4; what is malformed is left out.

    Labels of one text are one object in all scrapes: most series come again each time.
    """

    def __init__(self, wanted: Iterable[Selected]) -> None:
        self._wanted: dict[str, list[Selected]] = {}
        for one in wanted:
            self._wanted.setdefault(one.metric, []).append(one)
        self._known: dict[tuple[str, str], Labels | None] = {}
        """By metric and the text of the labels; None: nobody looks at it."""

    def parse(self, text: str) -> dict[str, dict[Labels, float]]:
        """The series of one scrape."""
        found: dict[str, dict[Labels, float]] = {}
        count = 0
        for line in text.split("\n", MAX_LINES)[:MAX_LINES]:
            if not line or line[0] == "#" or line.partition("{")[0].partition(" ")[0] not in self._wanted:
                continue
            parts = _LINE.fullmatch(line.strip())
            if parts is None or count >= MAX_SERIES:
                continue
            labels = self._labels(parts[1], parts[2] or "")
            if labels is None:
                continue
            try:
                found.setdefault(parts[1], {})[labels] = float(parts[3])
            except ValueError:
                continue
            count += 1
        return found

    def _labels(self, metric: str, text: str) -> Labels | None:
        key = (metric, text)
        if key not in self._known:
            if len(self._known) >= 2 * MAX_SERIES:
                self._known.clear()
            read = {name: _ESCAPE.sub(_unescaped, value) for name, value in _LABEL.findall(text)}
            fits = any(one.fits(read) for one in self._wanted[metric])
            self._known[key] = tuple(sorted(read.items())) if fits else None
        return self._known[key]


class Recording:
    """Scrapes, oldest first."""

    def __init__(self) -> None:
        self.scrapes: list[Scrape] = []
        self._grown: dict[tuple[str, int], dict[Labels, float]] = {}
        """By metric and window, since the newest scrape."""

    def add(self, scrape: Scrape) -> bool:
        """Keep a scrape that is newer than all others; returns whether it is one of those that are kept for long."""
        if self.scrapes and scrape.at_ms <= self.scrapes[-1].at_ms:
            self.scrapes = [one for one in self.scrapes if one.at_ms < scrape.at_ms]  # the clock was set back
        self._grown.clear()
        minute = scrape.at_ms // COARSE_MS
        first = not any(one.at_ms // COARSE_MS == minute for one in self.scrapes[-COARSE_MS // 1_000 :])
        self.scrapes.append(scrape)
        fine_ms, since_ms = scrape.at_ms - FINE_MS, scrape.at_ms - KEPT_MS
        kept, last = [], -1
        for one in self.scrapes:
            if one.at_ms < since_ms:
                continue
            if one.at_ms < fine_ms:
                if one.at_ms // COARSE_MS == last:
                    continue
                last = one.at_ms // COARSE_MS
            kept.append(one)
        self.scrapes = kept
        return first

    @property
    def now_ms(self) -> int:
        """Of the newest scrape."""
        return self.scrapes[-1].at_ms if self.scrapes else 0

    def latest(self, metric: str) -> Mapping[Labels, float]:
        """The series of a metric in the newest scrape."""
        return self.scrapes[-1].values.get(metric, {}) if self.scrapes else {}

    def increases(self, metric: str, window_ms: int) -> dict[Labels, float]:
        """How much each series of a counter has grown within the window, extrapolated to its ends as Prometheus does
        (`extrapolatedRate` of promql/functions.go, 2.42); series of fewer than two points are left out. Not to be
        changed: whoever asks again until the next scrape is given the same."""
        if (metric, window_ms) not in self._grown:
            self._grown[metric, window_ms] = self._increases(metric, window_ms)
        return self._grown[metric, window_ms]

    def _increases(self, metric: str, window_ms: int) -> dict[Labels, float]:
        begin_ms = self.now_ms - window_ms
        points: dict[Labels, list[tuple[int, float]]] = {}
        for scrape in self.scrapes:
            if scrape.at_ms >= begin_ms:
                for labels, value in scrape.values.get(metric, {}).items():
                    points.setdefault(labels, []).append((scrape.at_ms, value))
        return {labels: extrapolated(some, begin_ms, self.now_ms) for labels, some in points.items() if len(some) > 1}


def extrapolated(points: list[tuple[int, float]], begin_ms: int, end_ms: int) -> float:
    """The growth of a counter over [begin, end], of two or more points within."""
    (first_ms, first), (last_ms, last) = points[0], points[-1]
    grown, before = last - first, first
    for _, value in points[1:]:
        if value < before:
            grown += before  # it began anew
        before = value
    covered = (last_ms - first_ms) / 1_000
    if not covered:
        return 0.0
    mean = covered / (len(points) - 1)
    to_begin, to_end = (first_ms - begin_ms) / 1_000, (end_ms - last_ms) / 1_000
    if grown > 0 and first >= 0:
        to_begin = min(to_begin, covered * (first / grown))  # it was never below 0
    whole = covered
    whole += to_begin if to_begin < 1.1 * mean else mean / 2
    whole += to_end if to_end < 1.1 * mean else mean / 2
    return grown * (whole / covered)


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
