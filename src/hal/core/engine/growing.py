"""Tables whose records begin with lines of a cache, and the same tables with more room.

Pure. A record of 64 bytes that begins anywhere lies in two lines, and a walk through a tree of a million of them is
nothing but waiting for lines.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.int64]

WORDS_A_LINE: Final = 8


def lined(*shape: int) -> Table:
    """Zeros of this shape, of which the first begins a line. What nobody writes takes no memory."""
    words = int(np.prod(shape))
    whole = np.zeros(words + WORDS_A_LINE - 1, np.int64)
    first = -(whole.ctypes.data // whole.itemsize) % WORDS_A_LINE
    return whole[first : first + words].reshape(shape)


def grown(table: Table, rows: int) -> Table:
    """The table with room for so many records; new ones are zero."""
    larger = lined(rows, *table.shape[1:])
    larger[: table.shape[0]] = table
    return larger
