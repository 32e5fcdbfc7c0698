"""Slots that are used again, and hash indexes from ids to slots, in plain int64 arrays.

Pure. A hash index holds slot + 1 (0 = empty) with linear probing and backward-shift deletion; the ids are read from
the table that the slots belong to. Load stays under one half: the state grows the index with its table. Ids that follow
one another are neighbours in it: what is submitted, started or ended together lies in the same lines of a cache.
"""

from __future__ import annotations

from hal.core.kernels.structures.arrays import Index, Ints, Table
from hal.core.kernels.structures.jit import inner, kernel
from hal.core.kernels.structures.layout import (
    B_CLASS,
    B_OWNER,
    R_JOB,
    R_TASK,
)
from hal.core.kernels.structures.treap import mix

NEIGHBOURS = 3
"""So many low bits of an id say where in its neighbourhood it is: 8 words are one line of a cache."""


@inner
def home_of(a: int, b: int) -> int:
    """Where the search for (a, b) begins, before it is cut to the size of the index.

    Neighbours are the tasks of one job, and the first tasks of jobs that follow one another: never both, or many
    small arrays would all want the same places.
    """
    low = (1 << NEIGHBOURS) - 1
    if b == 0:
        return (mix(a >> NEIGHBOURS, 0) << NEIGHBOURS) + (a & low)
    return (mix(a, b >> NEIGHBOURS) << NEIGHBOURS) + (b & low)


@inner
def take_slot(meta: Ints, table: Table, free: int, top: int) -> int:
    """A free slot of a table (the caller made sure that there is one); `free` and `top` are its places in meta."""
    slot = meta[free]
    if slot >= 0:
        meta[free] = table[slot, 0]
        return int(slot)
    slot = meta[top]
    meta[top] = slot + 1
    return int(slot)


@inner
def give_slot(meta: Ints, table: Table, free: int, slot: int) -> None:
    """Put a slot back."""
    table[slot, 0] = meta[free]
    meta[free] = slot


@inner
def copy_record(into: Table, to: int, table: Table, at: int) -> None:
    """Copy one record between tables of the same width (a slice assignment would allocate)."""
    for column in range(into.shape[1]):
        into[to, column] = table[at, column]


@inner
def find_one(index: Index, table: Table, column: int, a: int) -> int:
    """The slot whose `column` is a, -1 when there is none."""
    mask = index.shape[0] - 1
    at = home_of(a, 0) & mask
    for _ in range(index.shape[0]):  # at most once round
        if index[at] == 0:
            break
        slot = index[at] - 1
        if table[slot, column] == a:
            return int(slot)
        at = (at + 1) & mask
    return -1


@inner
def find_two(index: Index, table: Table, column: int, a: int, b: int) -> int:
    """The slot whose `column` is a and the next column b, -1 when there is none."""
    mask = index.shape[0] - 1
    at = home_of(a, b) & mask
    for _ in range(index.shape[0]):
        if index[at] == 0:
            break
        slot = index[at] - 1
        if table[slot, column] == a and table[slot, column + 1] == b:
            return int(slot)
        at = (at + 1) & mask
    return -1


@inner
def put_hashed(index: Index, slot: int, a: int, b: int) -> None:
    """Enter a slot under (a, b)."""
    mask = index.shape[0] - 1
    at = home_of(a, b) & mask
    for _ in range(index.shape[0]):
        if index[at] == 0:
            break
        at = (at + 1) & mask
    index[at] = slot + 1


@inner
def drop_hashed(index: Index, table: Table, column: int, pair: bool, slot: int) -> None:
    """Take a slot out and close the gap; `pair` says whether two columns make the id."""
    mask = index.shape[0] - 1
    at = home_of(table[slot, column], table[slot, column + 1] if pair else 0) & mask
    for _ in range(index.shape[0]):
        if index[at] == slot + 1:
            break
        at = (at + 1) & mask
    if index[at] != slot + 1:
        return
    hole = at
    for _ in range(index.shape[0]):
        at = (at + 1) & mask
        if index[at] == 0:
            break
        other = index[at] - 1
        home = home_of(table[other, column], table[other, column + 1] if pair else 0) & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            index[hole] = index[at]
            hole = at
    index[hole] = 0


@inner
def move_hashed(index: Index, a: int, b: int, old: int, new: int) -> None:
    """Let the id of slot `old` lead to slot `new`."""
    mask = index.shape[0] - 1
    at = home_of(a, b) & mask
    for _ in range(index.shape[0]):
        if index[at] == old + 1:
            break
        at = (at + 1) & mask
    index[at] = new + 1


@kernel
def look_up(index: Index, table: Table, column: int, a: int) -> int:
    """`find_one` for Python."""
    return find_one(index, table, column, a)


@kernel
def rehash(index: Index, table: Table, slots: Ints, column: int, pair: bool) -> None:
    """Fill an empty index with these slots."""
    for k in range(slots.shape[0]):
        slot = slots[k]
        put_hashed(index, slot, table[slot, column], table[slot, column + 1] if pair else 0)


assert R_TASK == R_JOB + 1 and B_OWNER == B_CLASS + 1  # noqa: PT018 - find_two reads neighbouring columns
