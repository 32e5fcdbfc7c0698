"""Counts of where shapes fit, kept per row change, agree with counting anew in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine.rules.configuration import new_state
from hal.core.kernels.nodes.rows import compete, give_node, recount, take_node
from hal.core.kernels.passes.node_scores import tightness
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.jit import kernel
from hal.core.kernels.structures.memory import address_block, tables
from tests.examples import examples

ROWS, SHAPES = 4, 5

amounts = st.integers(0, 4)
changes = st.lists(st.tuples(st.booleans(), st.integers(0, ROWS - 1), st.integers(0, SHAPES - 1)), max_size=30)


@kernel
def _take(at: Any, row: int, shape: int) -> None:
    take_node(tables(at), row, shape)


@kernel
def _give(at: Any, row: int, shape: int) -> None:
    give_node(tables(at), row, shape)


@kernel
def _compete(at: Any, one: int, other: int) -> bool:
    return compete(tables(at), one, other)


@kernel
def _tightness(at: Any, row: int, shape: int, resources: int) -> int:
    return tightness(tables(at), row, shape, resources)


@pytest.mark.parametrize("resources", [1, 2, 3])
@pytest.mark.parametrize("csets", [1, 2])
@given(data=st.data(), changes=changes)
@settings(max_examples=examples(60), deadline=None)
def test_kept_counts_equal_counting_anew(
    resources: int, csets: int, data: st.DataObject, changes: list[tuple[bool, int, int]]
) -> None:
    """After any takes and gives, also below zero: S_FIT is the NumPy count and no fitting row lies before S_FROM."""
    meta = np.zeros(L.META_SIZE, np.int64)
    meta[[L.M_RESOURCES, L.M_NODES, L.M_SHAPES, L.M_CSETS]] = resources, ROWS, SHAPES, csets
    table = st.lists(amounts, min_size=ROWS * resources, max_size=ROWS * resources)
    capacity = np.array(data.draw(table), np.int64).reshape(ROWS, resources)
    free = capacity.copy()
    asked = data.draw(st.lists(amounts, min_size=SHAPES * resources, max_size=SHAPES * resources))
    request = np.array(asked, np.int64).reshape(resources, SHAPES)
    bits = data.draw(st.lists(st.integers(0, 1), min_size=csets * ROWS, max_size=csets * ROWS))
    allowed = np.array(bits, np.int8).reshape(csets, ROWS)
    shapes = np.zeros((SHAPES, L.SHAPE_SIZE), np.int64)
    shapes[:, L.S_CSET] = np.arange(SHAPES) % csets
    all_tables = (
        new_state()
        .tables()
        .replaced(
            meta=meta,
            shapes=shapes,
            request=request,
            allowed=allowed,
            open_now=allowed,
            free=free,
            capacity=capacity,
            counted=np.zeros_like(free),
        )
    )
    at = address_block(all_tables)
    recount(at, 0, SHAPES)
    for takes, row, shape in changes:
        (_take if takes else _give)(at, row, shape)
        for s in range(SHAPES):
            admitted = allowed[shapes[s, L.S_CSET]] != 0
            fit = np.flatnonzero((free >= request[:, s]).all(axis=1) & admitted)
            ever = (capacity >= request[:, s]).all(axis=1) & admitted
            assert shapes[s, L.S_FIT] == len(fit)
            assert shapes[s, L.S_EVER] == ever.sum()
            assert len(fit) == 0 or shapes[s, L.S_FROM] <= fit[0]
            for other in range(SHAPES):
                both = ever & (capacity >= request[:, other]).all(axis=1) & (allowed[shapes[other, L.S_CSET]] != 0)
                competes = _compete(at, s, other)
                assert competes == (s == other or bool(both.any()))


@given(
    spare=st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 50)), min_size=1, max_size=3)
)
@settings(max_examples=examples(100), deadline=None)
def test_best_fit_scores_the_tightest_wanted_resource(spare: list[tuple[int, int, int]]) -> None:
    """One minus the least share that would be left, in millionths, rounded half up; unwanted resources do not count."""
    request = np.array([[asked] for _left, _used, asked in spare], np.int64)
    free = np.array([[left + asked for left, _used, asked in spare]], np.int64)
    capacity = np.array([[left + asked + used for left, used, asked in spare]], np.int64)
    shares = [left / (left + asked + used) for left, used, asked in spare if asked]
    expected = int(np.floor((1.0 - min([1.0, *shares])) * 1_000_000 + 0.5))
    all_tables = new_state().tables().replaced(free=free, capacity=capacity, request=request)
    assert _tightness(address_block(all_tables), 0, 0, len(spare)) == expected
