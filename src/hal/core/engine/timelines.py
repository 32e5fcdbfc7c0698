"""Room for the rows' timelines: scratch that outlives cycles and is forgotten as a whole when it is replaced.

Pure. What the tables mean is written in core/kernels/timelines; a state whose policy plans without timelines has one
point. Lines are bounded by memory; NumPy hands out zeroed pages, so lines that nobody uses cost nothing.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from hal.core.kernels import layout as L

MAX_LINES: Final = 512
LINE_BYTES: Final = 3 << 26
"""All lines of all rows together take at most so much memory."""
MIN_LINES: Final = 4


class Timelines:
    """The tables for `rows` rows of `resources` amounts, with `points` points: fresh, so the next cycle builds all."""

    def __init__(self, rows: int, resources: int, points: int) -> None:
        lines = min(MAX_LINES, max(MIN_LINES, LINE_BYTES // (24 * rows))) if rows > 1 else 1
        self.profile = np.zeros((points, L.POINT_SIZE + resources), np.int64)
        self.events = np.zeros((2, points), np.int64)
        self.stale = np.zeros(rows, np.int64)
        self.late = np.zeros(rows, np.int64)
        self.row_log = np.zeros(1 << (2 * rows).bit_length(), np.int64)
        self.lines = np.zeros((lines, L.LINE_SIZE), np.int64)
        self.line_begin = np.zeros((lines, rows), np.int64)
        self.line_end = np.zeros((lines, 2 * rows), np.int64)
