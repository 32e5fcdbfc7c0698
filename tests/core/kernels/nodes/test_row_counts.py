"""Where shapes fit, after one resource of one row changed: the counts follow, and the first row that may fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hal.core.engine import new_state
from hal.core.kernels.nodes.rows import recount, shift_node
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.jit import kernel
from hal.core.kernels.structures.memory import address_block, tables

FREE = ((2, 9), (4, 9), (0, 9), (4, 0))
"""Of two resources on rows 0 to 3."""
ASKED = ((3, 0), (1, 1), (5, 0))
"""By shapes 0 to 2: 0 fits on rows 1 and 3, 1 on rows 0 and 1, 2 nowhere."""
EPOCH = 17


@kernel
def _shift(at: Any, row: int, resource: int, amount: int) -> None:
    shift_node(tables(at), row, resource, amount)


class Rows:
    """Four rows and three shapes, counted."""

    def __init__(self, closed: int = -1) -> None:
        meta = np.zeros(L.META_SIZE, np.int64)
        meta[[L.M_RESOURCES, L.M_NODES, L.M_SHAPES, L.M_CSETS, L.M_EPOCH]] = 2, len(FREE), len(ASKED), 1, EPOCH
        self.free = np.array(FREE, np.int64)
        self.shapes = np.zeros((len(ASKED), L.SHAPE_SIZE), np.int64)
        self.open_now = np.ones((1, len(FREE)), np.int8)
        if closed >= 0:
            self.open_now[0, closed] = 0
        self.kept = (
            new_state()
            .tables()
            .replaced(
                meta=meta,
                shapes=self.shapes,
                request=np.array(ASKED, np.int64).T.copy(),
                allowed=np.ones((1, len(FREE)), np.int8),
                open_now=self.open_now,
                free=self.free,
                capacity=np.full_like(self.free, 5),
                counted=np.zeros_like(self.free),
            )
        )
        self.at = address_block(self.kept)
        recount(self.at, 0, len(ASKED))

    def shift(self, row: int, resource: int, amount: int) -> None:
        _shift(self.at, row, resource, amount)

    def column(self, column: int) -> NDArray[np.int64]:
        return self.shapes[:, column]


def test_counting_anew_finds_how_many_rows_fit_and_the_first() -> None:
    """4 rows is the first of a shape that fits nowhere; empty rows would hold every shape."""
    rows = Rows()
    assert rows.column(L.S_FIT).tolist() == [2, 2, 0]
    assert rows.column(L.S_FROM).tolist() == [1, 0, 4]
    assert rows.column(L.S_EVER).tolist() == [4, 4, 4]


def test_a_closed_row_fits_nothing_now_and_everything_ever() -> None:
    """Row 1 is closed."""
    rows = Rows(closed=1)
    assert (rows.column(L.S_FIT).tolist(), rows.column(L.S_EVER).tolist()) == ([1, 1, 0], [4, 4, 4])


@pytest.mark.parametrize(
    ("row", "resource", "amount", "fit", "first"),
    [
        (0, 0, 1, [3, 2, 0], [0, 0, 4]),
        (0, 0, 3, [3, 2, 1], [0, 0, 0]),
        (1, 0, 1, [2, 2, 1], [1, 0, 1]),
        (2, 0, 3, [3, 3, 0], [1, 0, 4]),
        (1, 0, -1, [2, 2, 0], [1, 0, 4]),
        (1, 0, -2, [1, 2, 0], [1, 0, 4]),
        (3, 1, 1, [2, 3, 0], [1, 0, 4]),
        (0, 1, -9, [2, 1, 0], [1, 0, 4]),
    ],
)
def test_what_one_row_gains_or_loses_is_counted(
    row: int, resource: int, amount: int, fit: list[int], first: list[int]
) -> None:
    """A shape that fits exactly fits; the first row never lies behind one that fits."""
    rows = Rows()
    rows.shift(row, resource, amount)
    assert (rows.column(L.S_FIT).tolist(), rows.column(L.S_FROM).tolist()) == (fit, first)


def test_the_amount_stays_shifted() -> None:
    """On that row, of that resource."""
    rows = Rows()
    rows.shift(2, 1, -4)
    assert rows.free.tolist() == [[2, 9], [4, 9], [0, 5], [4, 0]]


def test_who_waits_for_a_shape_is_woken_where_it_fits_again() -> None:
    """Shape 2 fits on row 1 now; the others did before."""
    rows = Rows()
    rows.shift(1, 0, 1)
    assert rows.column(L.S_WAKE).tolist() == [0, 0, EPOCH]


def test_a_closed_row_is_counted_for_nothing() -> None:
    """Row 1 is closed: what it gains fits nothing."""
    rows = Rows(closed=1)
    rows.shift(1, 0, 1)
    assert rows.column(L.S_FIT).tolist() == [1, 1, 0]
