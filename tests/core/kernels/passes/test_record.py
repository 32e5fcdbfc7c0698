"""The record of a slice: it begins behind what the last one gave, and only where the tables of outputs have room."""

from __future__ import annotations

import pytest

from hal.core.engine import State, new_state
from hal.core.kernels.passes.record import begin_slice, room_for_start
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.jit import plain

ROOMS = {
    "starts": (L.PASS_FIRST_START, L.PASS_LAST_START),
    "nodes": (L.PASS_FIRST_NODE, L.PASS_LAST_NODE),
    "verdicts": (L.PASS_FIRST_VERDICT, L.PASS_LAST_VERDICT),
    "reservations": (L.PASS_FIRST_RESERVATION, L.PASS_LAST_RESERVATION),
    "reserved nodes": (L.PASS_FIRST_RESERVED, L.PASS_LAST_RESERVED),
}
GANG = 3


def begin(state: State, *, resumed: bool = False) -> bool:
    return bool(plain(begin_slice)(state.tables(), 5, 7, 9, resumed, False))


def new_record() -> State:
    """An engine whose slices have given nothing yet."""
    state = new_state()
    for first, _last in ROOMS.values():
        state.pass_record[first] = 0
    for place in (L.PASS_STARTS, L.PASS_NODES, L.PASS_VERDICTS, L.PASS_REPLANS):
        state.pass_record[place] = 0
    return state


@pytest.mark.parametrize("short", [None, *ROOMS])
def test_a_slice_begins_unless_a_table_of_outputs_is_short(short: str | None) -> None:
    """All tables are as full as they may be; one of them is fuller by one."""
    state = new_record()
    for name, (first, last) in ROOMS.items():
        state.pass_record[first] = state.pass_record[last] + (name == short)
    assert begin(state) == (short is None)


@pytest.mark.parametrize(("replanned", "expected"), [(0, [12, 25, 33, 40, 50]), (1, [12, 25, 33, 44, 56])])
def test_a_slice_begins_behind_what_the_one_before_gave(replanned: int, expected: list[int]) -> None:
    """It gave 2 starts on 5 nodes and 3 verdicts; and 4 reservations of 6 nodes, which count where it planned anew."""
    state = new_record()
    record = state.pass_record
    for k, (first, _last) in enumerate(ROOMS.values()):
        record[first] = 10 * (k + 1)
    record[L.PASS_STARTS], record[L.PASS_NODES], record[L.PASS_VERDICTS] = 2, 5, 3
    record[L.PASS_REPLANS], record[L.PASS_RESERVATIONS], record[L.PASS_RESERVED] = replanned, 4, 6
    begin(state)
    assert [int(record[first]) for first, _last in ROOMS.values()] == expected
    assert not any(record[[L.PASS_STARTS, L.PASS_NODES, L.PASS_VERDICTS, L.PASS_REPLANS, L.PASS_WORK]])
    assert record[[L.PASS_NOW, L.PASS_BUDGET, L.PASS_MOST_STARTS]].tolist() == [5, 7, 9]


@pytest.mark.parametrize("resumed", [False, True])
def test_only_a_new_pass_begins_at_the_top_of_the_order(resumed: bool) -> None:
    """The cursor, and what the pass saw when it began."""
    state = new_record()
    places = [L.PASS_LANE, L.PASS_KEY, L.PASS_JOB, L.PASS_TASK, L.PASS_EPOCH, L.PASS_INSERTS]
    state.pass_record[places] = [1, 2, 3, 4, 5, 6]
    state.meta[[L.M_EPOCH, L.M_INSERTS]] = [50, 60]
    begin(state, resumed=resumed)
    assert state.pass_record[places].tolist() == ([1, 2, 3, 4, 5, 6] if resumed else [0, L.LOWEST, -1, -1, 50, 60])


@pytest.mark.parametrize(
    ("starts", "nodes", "most", "expected"),
    [(1, GANG, 1, True), (0, GANG, 1, False), (1, GANG - 1, 1, False), (1, GANG, 0, False)],
)
def test_a_start_needs_a_place_for_itself_and_for_each_of_its_nodes(
    starts: int, nodes: int, most: int, expected: bool
) -> None:
    """What is left of the tables for a gang of three, and how many more starts the slice may give."""
    state = new_record()
    t = state.tables()
    state.pass_record[L.PASS_FIRST_START] = t.starts.shape[0] - starts - 1
    state.pass_record[L.PASS_FIRST_NODE] = t.start_nodes.shape[0] - nodes - 2
    state.pass_record[[L.PASS_STARTS, L.PASS_NODES, L.PASS_MOST_STARTS]] = [1, 2, 1 + most]
    assert plain(room_for_start)(t, GANG) == expected
