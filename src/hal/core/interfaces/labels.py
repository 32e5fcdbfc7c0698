"""Labels of nodes as columns, for a Score or a Filter.

Pure. O(rows) per call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Labels:
    """The labels of the nodes of a view."""

    def __init__(self, rows: Sequence[dict[str, str]]) -> None:
        self._rows = rows

    def has(self, key: str, *values: str) -> NDArray[np.bool_]:
        """Return shape (rows,): True where the node has the label, with one of `values` if any are given."""
        return np.array([key in row and (not values or row[key] in values) for row in self._rows], np.bool_)

    def number(self, key: str, default: float = 0.0) -> NDArray[np.float32]:
        """Return shape (rows,): the label's value as a number (a price, watts), `default` where it is not one."""
        return np.array([_number(row.get(key), default) for row in self._rows], np.float32)

    def at(self, rows: Sequence[int]) -> Labels:
        """Return the labels of these rows, in this order."""
        return Labels([self._rows[row] for row in rows])


def _number(text: str | None, default: float) -> float:
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        return default
    return number if math.isfinite(number) else default
