"""A native histogram: buckets that grow by 9 %, only those that are used; classic buckets are sums of them.

Pure. O(1), a third of a microsecond an observation. A value v > 0 is in bucket i where 2^((i-1)/8) < v <= 2^(i/8).
Source: Prometheus' exponential histograms of schema 3 (client_golang's `histogram.go`, `findBucket`).
"""

from __future__ import annotations

from bisect import bisect_left
from math import frexp
from typing import Final

SCHEMA: Final = 3
"""2^3 buckets for each doubling."""
A_DOUBLING: Final = 1 << SCHEMA
ZERO_THRESHOLD: Final = 2.0**-30
"""Up to a nanosecond is zero."""
HIGHEST: Final = 2.0**40
"""What is larger counts as this much in its bucket; the sum has it in full. So there are 70 doublings, 560 buckets."""
_BOUNDS: Final = tuple(2.0 ** (-1 + step / A_DOUBLING) for step in range(A_DOUBLING))


class HistogramValue:
    """What was observed in one series."""

    __slots__ = ("buckets", "count", "sum", "zero")

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        """Observations by bucket; only buckets that have some."""
        self.zero = 0
        """Observations up to `ZERO_THRESHOLD`; also negative ones, which clocks that were set may cause."""
        self.count = 0
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value."""
        self.count += times
        if value > ZERO_THRESHOLD:
            self.sum += value * times
            fraction, exponent = frexp(value if value < HIGHEST else HIGHEST)
            bucket = bisect_left(_BOUNDS, fraction) + (exponent - 1) * A_DOUBLING
            buckets = self.buckets
            buckets[bucket] = buckets.get(bucket, 0) + times
        else:
            self.zero += times

    def cumulated(self, first: int, last: int) -> list[tuple[float, int]]:
        """Classic buckets: observations up to 2^first, ... 2^last."""
        found: list[tuple[float, int]] = []
        total, left = self.zero, sorted(self.buckets.items())
        at = 0
        for exponent in range(first, last + 1):
            while at < len(left) and left[at][0] <= exponent * A_DOUBLING:
                total += left[at][1]
                at += 1
            found.append((2.0**exponent, total))
        return found

    def quantile(self, share: float) -> float:
        """An upper bound of that share of the observations, at most 9 % too high; 0 without any."""
        wanted, total = share * self.count, self.zero
        if total >= wanted:
            return 0.0
        for bucket, count in sorted(self.buckets.items()):
            total += count
            if total >= wanted:
                return float(2.0 ** (bucket / A_DOUBLING))
        return 0.0
