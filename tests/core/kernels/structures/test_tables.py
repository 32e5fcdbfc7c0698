"""Hash indexes agree with a dict, also when ids collide and gaps are closed; slots are used again."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.kernels.structures.slots import drop_hashed, find_one, find_two, give_slot, put_hashed, rehash, take_slot
from tests.examples import examples

ROOM = 16


@given(edits=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 1)), max_size=80))
@settings(max_examples=examples(150), deadline=None)
def test_an_index_is_a_dict(edits: list[tuple[int, int]]) -> None:
    """An edit of an id enters it or drops it; every id is found where it is and nowhere else; rehash keeps all."""
    table = np.zeros((2 * ROOM, 2), np.int64)
    index = np.zeros(2 * ROOM, np.int64)
    there: dict[tuple[int, int], int] = {}
    free = list(range(2 * ROOM))
    for edit in edits:
        if edit in there:
            slot = there.pop(edit)
            drop_hashed(index, table, 0, True, slot)
            free.append(slot)
        elif len(there) < ROOM:
            slot = free.pop(0)
            table[slot] = edit
            put_hashed(index, slot, *edit)
            there[edit] = slot
        for a in range(12):
            for b in range(2):
                assert find_two(index, table, 0, a, b) == there.get((a, b), -1)
    fresh = np.zeros(4 * ROOM, np.int64)
    rehash(fresh, table, np.array(list(there.values()), np.int64), 0, True)
    assert all(find_two(fresh, table, 0, *edit) == slot for edit, slot in there.items())


def test_one_column_makes_an_id_too() -> None:
    """Jobs are found by their id alone."""
    table = np.array([[7], [9]], np.int64)
    index = np.zeros(8, np.int64)
    put_hashed(index, 0, 7, 0)
    put_hashed(index, 1, 9, 0)
    drop_hashed(index, table, 0, False, 0)
    assert (find_one(index, table, 0, 7), find_one(index, table, 0, 9)) == (-1, 1)


def test_slots_that_were_given_back_are_taken_first() -> None:
    """0 and 1 are taken, 0 is given back: the next slot is 0, then 2."""
    meta = np.array([-1, 0], np.int64)
    table = np.zeros((4, 1), np.int64)
    assert [take_slot(meta, table, 0, 1), take_slot(meta, table, 0, 1)] == [0, 1]
    give_slot(meta, table, 0, 0)
    assert [take_slot(meta, table, 0, 1), take_slot(meta, table, 0, 1)] == [0, 2]
