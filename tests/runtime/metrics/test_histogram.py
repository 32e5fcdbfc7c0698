"""Native histograms: which bucket a value is in, classic buckets, spans."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from hal.runtime.metrics.histogram import A_DOUBLING, ZERO_THRESHOLD, HistogramValue
from hal.runtime.metrics.protobuf import spans
from tests.examples import examples

VALUES = st.lists(st.floats(2.0**-29, 2.0**39), max_size=50)


@given(VALUES)
@settings(max_examples=examples(300))
def test_safety_a_bucket_holds_what_is_within_its_bounds(values: list[float]) -> None:
    """A value is above the lower bound of its bucket and not above the upper one."""
    for value in values:
        series = HistogramValue()
        series.observe(value)
        ((bucket, count),) = series.buckets.items()
        assert count == 1
        assert 2.0 ** ((bucket - 1) / A_DOUBLING) < value * (1 + 1e-12)
        assert value <= 2.0 ** (bucket / A_DOUBLING) * (1 + 1e-12)


@given(VALUES)
@settings(max_examples=examples(300))
def test_safety_classic_buckets_count_exactly_what_is_not_above_their_bound(values: list[float]) -> None:
    """Powers of two are bounds of native buckets, so nothing is estimated."""
    series = HistogramValue()
    for value in values:
        series.observe(value)
    ordered = sorted(values)
    for bound, total in series.cumulated(-30, 40):
        assert total == bisect_right(ordered, bound)
    assert math.isclose(series.sum, math.fsum(values))


def test_powers_of_two_are_the_last_of_their_buckets() -> None:
    """2^e is in bucket 8e, as client_golang has it."""
    series = HistogramValue()
    for exponent in (-10, 0, 1, 20):
        series.observe(2.0**exponent)
    assert sorted(series.buckets) == [-80, 0, 8, 160]


def test_nothing_is_lost_at_the_ends() -> None:
    """What is negative or next to nothing is zero; what is huge is in the last bucket; the sum has it in full."""
    series = HistogramValue()
    for value in (-1.0, 0.0, ZERO_THRESHOLD, 2.0**60):
        series.observe(value)
    assert (series.zero, series.count, series.sum) == (3, 4, 2.0**60)
    assert list(series.buckets) == [40 * A_DOUBLING]


def test_many_at_once_are_as_one_after_the_other() -> None:
    one, other = HistogramValue(), HistogramValue()
    one.observe(0.3, 5)
    for _ in range(5):
        other.observe(0.3)
    assert (one.buckets, one.count) == (other.buckets, other.count)
    assert math.isclose(one.sum, other.sum)


def test_a_quantile_is_at_most_nine_per_cent_too_high() -> None:
    series = HistogramValue()
    for value in range(1, 1_001):
        series.observe(value / 1_000)
    assert 0.5 <= series.quantile(0.5) <= 0.5 * 2 ** (1 / A_DOUBLING)


@given(st.sets(st.integers(-240, 320), max_size=40))
@settings(max_examples=examples(300))
def test_safety_spans_cover_exactly_the_buckets(buckets: set[int]) -> None:
    """Read as Prometheus does: each offset counts from the end of the span before it."""
    found: list[int] = []
    made = spans(sorted(buckets))
    ends = list(accumulate(offset + length for offset, length in made))
    for (_, length), end in zip(made, ends, strict=True):
        found += range(end - length, end)
    assert found == sorted(buckets)
    assert all(offset > 0 for offset, _ in made[1:])
