"""How much there is in a large body of a request, counted before any of it is made a value.

Pure. One pass over the text, in Python: a thread that counts lets the loop have its turns, as no decoder in C does.
"""

from __future__ import annotations

import re
from typing import Final

from hal.core.model import SpecError

LARGE_BYTES: Final = 64 << 10
"""Bodies above it are decoded and checked beside the loop, and their entries are counted before."""
MAX_ENTRIES: Final = 100_000
"""Entries (of lists and tables) of one value: an object of the list that a body holds, or a body that holds none; and
objects of one list."""
MAX_DEPTH: Final = 64
AT_ONCE_BYTES: Final = 2 << 20
"""In bodies up to it signs are counted by one call in C first, which takes a few milliseconds at most."""

_TOKEN: Final = re.compile(rb'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{},]')
"""A string, also one that the body breaks off in, or a sign that begins, ends or parts entries."""


def check_entries(body: bytes, most: int = MAX_ENTRIES) -> bool:
    """Count them; whether all of it may be decoded as one value, which a list of many objects may not.

    Raises:
        SpecError: too many in one value, or nested too deeply. What is no JSON at all is found later.
    """
    if len(body) <= AT_ONCE_BYTES and (commas := body.count(b",")) < most:
        # Signs inside of strings count as well: what is few by this count is few.
        opened = body.count(b"[") + body.count(b"{")
        if opened <= MAX_DEPTH and commas + 2 * opened <= most:
            return True
    depth = whole = outer = inner = 0
    for found in _TOKEN.finditer(body):
        sign = body[found.start()]
        if sign == 0x22:  # a string
            continue
        whole += 1
        if sign == 0x2C:  # a comma
            if depth > 2:
                inner += 1
            else:
                outer += 1
        elif sign in b"[{":
            depth += 1
            if depth <= 3:
                inner = 0
            else:
                inner += 1
        else:
            depth -= 1
        if depth > MAX_DEPTH:
            raise SpecError(f"nested deeper than {MAX_DEPTH} levels")
        if outer >= most or inner >= most:
            raise too_many_entries(most)
    return whole <= most


def too_many_entries(most: int = MAX_ENTRIES) -> SpecError:
    """What is said of a body with more than `most` in one value."""
    return SpecError(
        f"more than {most} entries in one list or table of a request",
        hint="send it in parts, jobs that are alike as one array; put what is long in a file",
    )
