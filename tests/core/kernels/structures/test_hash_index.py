"""Hash indexes slot by slot: homes, ids of one column, moving, dropping what is not there, going round."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from hal.core.kernels.structures.slots import (
    copy_record,
    drop_hashed,
    find_one,
    find_two,
    give_slot,
    home_of,
    look_up,
    move_hashed,
    put_hashed,
    rehash,
    take_slot,
)

Ints = NDArray[np.int64]
ROOM = 64


def jobs(count: int) -> tuple[Ints, Ints]:
    """An index of so many jobs, 100 and up, and the table that they are in by their id alone."""
    table = np.array([[100 + 7 * slot, 0] for slot in range(count)], np.int64)
    index = np.zeros(ROOM, np.int64)
    for slot in range(count):
        put_hashed(index, slot, int(table[slot, 0]), 0)
    return index, table


def test_eight_jobs_that_follow_one_another_are_neighbours() -> None:
    """8 words are one line of a cache."""
    assert [home_of(800 + n, 0) - home_of(800, 0) for n in range(8)] == list(range(8))


def test_eight_tasks_that_follow_one_another_are_neighbours() -> None:
    """Of one job."""
    assert [home_of(5, 800 + n) - home_of(5, 800) for n in range(8)] == list(range(8))


@pytest.mark.parametrize(("one", "other"), [((800, 0), (808, 0)), ((5, 800), (5, 808)), ((5, 8), (6, 8))])
def test_the_next_eight_live_elsewhere(one: tuple[int, int], other: tuple[int, int]) -> None:
    """Or many small arrays would all want the same places."""
    assert abs(home_of(*one) - home_of(*other)) > 8


def test_each_of_thirty_jobs_is_found_at_its_slot() -> None:
    """Half full, so some are not at home."""
    index, table = jobs(30)
    assert [find_one(index, table, 0, int(job)) for job in table[:, 0]] == list(range(30))


def test_a_job_that_is_not_there_is_not_found() -> None:
    """Wherever its home is."""
    index, table = jobs(30)
    assert {find_one(index, table, 0, job) for job in range(1_000, 1_100)} == {-1}


def test_python_finds_what_kernels_find() -> None:
    """`look_up` is `find_one`."""
    index, table = jobs(30)
    assert [look_up(index, table, 0, 100 + 7 * slot) for slot in (0, 29)] == [0, 29]


@pytest.mark.parametrize("gone", range(30))
def test_dropping_one_leaves_all_others_where_they_are_found(gone: int) -> None:
    """The gap is closed, also across the end of the index."""
    index, table = jobs(30)
    drop_hashed(index, table, 0, False, gone)
    found = [find_one(index, table, 0, int(job)) for job in table[:, 0]]
    assert found == [-1 if slot == gone else slot for slot in range(30)]
    assert np.count_nonzero(index) == 29


def test_dropping_what_is_not_there_changes_nothing() -> None:
    """Slot 3 was dropped before."""
    index, table = jobs(8)
    drop_hashed(index, table, 0, False, 3)
    before = index.copy()
    drop_hashed(index, table, 0, False, 3)
    assert index.tolist() == before.tolist()


@pytest.mark.parametrize("old", range(8))
def test_an_id_that_moved_leads_to_its_new_slot(old: int) -> None:
    """The others stay."""
    index, table = jobs(8)
    table = np.vstack([table, table[old : old + 1]])
    move_hashed(index, int(table[old, 0]), 0, old, 8)
    found = [find_one(index, table, 0, int(job)) for job in table[:8, 0]]
    assert found == [8 if slot == old else slot for slot in range(8)]


def test_a_full_index_is_searched_once_round() -> None:
    """No empty place ends the search."""
    index, table = jobs(ROOM)
    assert (find_one(index, table, 0, 7), find_two(index, table, 0, 7, 7)) == (-1, -1)
    assert find_one(index, table, 0, 100 + 7 * 63) == 63


@pytest.mark.parametrize("pair", [False, True])
def test_an_index_that_is_filled_again_finds_every_slot(pair: bool) -> None:
    """By one column, or by two."""
    table = np.array([[4, 1], [4, 2], [5, 1]] if pair else [[4, 9], [6, 9], [5, 9]], np.int64)
    index = np.zeros(16, np.int64)
    rehash(index, table, np.array([0, 1, 2]), 0, pair)
    found = [find_two(index, table, 0, *row) if pair else find_one(index, table, 0, row[0]) for row in table.tolist()]
    assert found == [0, 1, 2]


def test_a_record_is_copied_whole() -> None:
    """Every column of one row; no other row."""
    into, table = np.zeros((2, 3), np.int64), np.array([[1, 2, 3], [4, 5, 6]], np.int64)
    copy_record(into, 0, table, 1)
    assert into.tolist() == [[4, 5, 6], [0, 0, 0]]


def test_slots_are_given_out_again_latest_first() -> None:
    """0, 1, 2 are taken; 0 and then 2 are given back."""
    meta, table = np.array([-1, 0], np.int64), np.zeros((5, 2), np.int64)
    assert [take_slot(meta, table, 0, 1) for _ in range(3)] == [0, 1, 2]
    give_slot(meta, table, 0, 0)
    give_slot(meta, table, 0, 2)
    assert [take_slot(meta, table, 0, 1) for _ in range(3)] == [2, 0, 3]
