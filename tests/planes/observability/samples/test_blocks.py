"""Blocks of samples: packing loses nothing, and reducing does what its definition says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.planes.observability.samples.blocks import Block, join, pack, rates, reduce, unpack
from hal.wire.frames.telemetry import Series, SeriesKind

GAUGE = Series("hal_node_load", SeriesKind.GAUGE, {"window": "1m"})
COUNTER = Series("hal_node_cpu_seconds_total", SeriesKind.COUNTER, {"mode": "user"})
NAN = math.nan


def block(at_ms: list[int], *rows: list[float], series: tuple[Series, ...] = (GAUGE, COUNTER)) -> Block:
    return Block(series[: len(rows)], np.array(at_ms, np.int64), np.array(rows, float).reshape(len(rows), len(at_ms)))


NUMBERS = st.floats(width=64, allow_nan=True, allow_infinity=True)


@given(st.integers(0, 4), st.integers(0, 9), st.data())
def test_a_packed_block_is_the_same_bit_for_bit(rows: int, count: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(NUMBERS, min_size=rows * count, max_size=rows * count))
    at_ms = np.cumsum(data.draw(st.lists(st.integers(1, 1 << 40), min_size=count, max_size=count)), dtype=np.int64)
    series = tuple(Series(f"s{row}", SeriesKind.GAUGE, {}) for row in range(rows))
    whole = Block(series, at_ms, np.array(values, float).reshape(rows, count))
    back = unpack(pack(whole))
    assert back.series == series
    assert back.at_ms.tolist() == at_ms.tolist()
    assert back.values.view(np.uint64).tolist() == whole.values.view(np.uint64).tolist()


@pytest.mark.parametrize("damage", [b"", b"nonsense", pack(block([1], [2.0]))[:-3]])
def test_a_damaged_block_is_an_error(damage: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        unpack(damage)


def test_a_step_has_the_mean_of_a_gauge_and_the_last_of_a_counter() -> None:
    """Of 1, 3 and nothing in the first minute: 2; of 10, 20 and nothing: 20."""
    whole = block([1, 10_000, 60_000, 60_001, 130_000], [1, 3, NAN, 7, NAN], [10, 20, NAN, NAN, 50])
    found = reduce(whole, 60_000)
    again = reduce(found, 60_000)
    assert np.array_equal(again.values, found.values, equal_nan=True)
    assert again.at_ms.tolist() == found.at_ms.tolist()
    assert found.at_ms.tolist() == [60_000, 120_000, 180_000]
    assert np.array_equal(found.values, [[2, 7, NAN], [20, NAN, 50]], equal_nan=True)


def test_joined_blocks_have_all_series_and_each_instant_once() -> None:
    first = block([1, 2], [1, 2])
    second = block([2, 3], [9, 3], series=(COUNTER,))
    found = join([first, second])
    assert found.series == (GAUGE, COUNTER)
    assert found.at_ms.tolist() == [1, 2, 3]
    assert np.array_equal(found.values, [[1, 2, NAN], [NAN, NAN, 3]], equal_nan=True)
    assert join([]).series == ()


def test_a_rate_is_growth_a_second_and_nothing_where_a_counter_began_again() -> None:
    """From 10 to 30 in 10 s: 2 a second; over a missing value: (50-30) in 20 s; a fall is a new beginning."""
    whole = block([0, 10_000, 20_000, 30_000, 40_000], [1, 2, 3, 4, 5], [10, 30, NAN, 50, 5])
    found = rates(whole)
    assert np.array_equal(found.values, [[1, 2, 3, 4, 5], [NAN, 2, NAN, 1, NAN]], equal_nan=True)
