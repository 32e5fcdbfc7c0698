"""How far a loop of a kernel may go: no input makes one endless, because each has a bound that follows from its tables.

A chain is never longer than its table, a treap never deeper than its path, a pass never looks at more than waits.
Tables in order never come near; where one does, something led round. The loop then ends at its bound and says so in
the word behind the path (`FAULT`), which stays: the engine decides nothing more with such tables (`EngineFault`). Other
loops count up to the size of a table, or halve what is left; what bounds them stands beside them.
"""

from __future__ import annotations

from typing import Final

from hal.core.kernels.structures.jit import inlined
from hal.core.kernels.structures.layout import (
    FAULT,
    M_ACTIVE,
    M_ENTRY_TOP,
)
from hal.core.kernels.structures.memory import Tables

CHAIN: Final = 1
SEARCH: Final = 2
PASS: Final = 3
POPS_AN_ENTRY: Final = 4
"""How often a pass may look at an entry: in two lanes, where one gets a reservation, and where a queue closes."""
POPS: Final = 1_024
"""And so often at most beside that: queues that close, reservations that are given up."""


@inlined
def leads_on(t: Tables, at: int, steps: int, bound: int) -> bool:
    """Whether a chain goes on at `at` (-1: its end) after `steps` records; `bound`: how many there are in all."""
    if at < 0:
        return False
    if steps < bound:
        return True
    t.path[FAULT] = CHAIN
    return False


@inlined
def goes_on(t: Tables, more: bool, steps: int, bound: int) -> bool:
    """The same for a loop that goes on while there is `more`."""
    if not more:
        return False
    if steps < bound:
        return True
    t.path[FAULT] = SEARCH
    return False


@inlined
def looks_on(t: Tables, more: bool, pops: int) -> bool:
    """The same for a pass over what waits."""
    if not more:
        return False
    if pops < POPS_AN_ENTRY * (t.meta[M_ENTRY_TOP] + t.meta[M_ACTIVE]) + POPS and t.path[FAULT] == 0:
        return True
    if t.path[FAULT] == 0:
        t.path[FAULT] = PASS
    return False
