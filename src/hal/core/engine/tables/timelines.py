"""Room for the rows' timelines: scratch that outlives cycles and is forgotten as a whole when it is replaced.

Pure. What the tables mean is written in core/kernels/timelines/chains; a state whose policy plans without timelines has
one point. Lines are bounded by memory; NumPy hands out zeroed pages, so lines that nobody uses cost nothing.
"""

from __future__ import annotations

from typing import Final

from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.declaration import Room
from hal.core.kernels.structures.declared import (
    REACH_SHAPES,
    REACH_WORDS,
    TIMELINE_LINES,
    TIMELINE_NODES,
    TIMELINE_POINTS,
    TOUCH_LOG,
)

MAX_LINES: Final = 512
LINE_BYTES: Final = 3 << 26
"""All lines of all rows together take at most so much memory."""
MIN_LINES: Final = 4


ONE_NODE: Final[dict[Room, int]] = {TIMELINE_NODES: 1, TIMELINE_POINTS: 1, TIMELINE_LINES: 1, TOUCH_LOG: 4}
"""Rooms of a policy that plans without timelines."""


def timeline_rooms(nodes: int, points: int) -> dict[Room, int]:
    """Rooms for timelines of `nodes` nodes with `points` points."""
    lines = min(MAX_LINES, max(MIN_LINES, LINE_BYTES // (24 * nodes))) if nodes > 1 else 1
    return {
        TIMELINE_NODES: nodes,
        TIMELINE_POINTS: points,
        TIMELINE_LINES: lines,
        TOUCH_LOG: 1 << (2 * nodes).bit_length(),
    }


def reach_rooms(nodes: int, shapes: int) -> dict[Room, int]:
    """Rooms for which nodes each shape could ever use: bits in words, and the first and last word that is not zero."""
    return {REACH_SHAPES: shapes, REACH_WORDS: nodes // L.WORD + 3}
