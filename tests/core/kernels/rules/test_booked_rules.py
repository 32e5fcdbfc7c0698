"""Bookings, asked rule by rule: when their work and that of others may start, and when a booking keeps it waiting."""

from __future__ import annotations

from typing import Final

import pytest

from hal.core.engine import State, apply, new_state
from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import INF, BookingsChanged, ClockAdvanced, NodesChanged, NodeSpec
from hal.core.engine.rules.interning import intern_classes
from hal.core.engine.tables.bookings import BookingSpec
from hal.core.kernels.rules.booked import (
    booked_start,
    booked_window,
    inside_start,
    may_start,
    waits_for_booking,
    within_booking,
)
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.jit import plain
from hal.core.model.policy import Policy

BEGIN, END = 100, 200
COURSE: Final = BookingSpec("course", BEGIN, END, ("n0", "n1"))
EARLY: Final = BookingSpec("early", BEGIN, END, ("n0", "n1"), early=True)
SEATS: Final = BookingSpec("seats", BEGIN, END, licences={"a": 1})


def site(booking: BookingSpec, now: int) -> tuple[State, int, int]:
    """Three nodes, of which two are booked; the shapes of the booking's work and of work that is outside."""
    state = new_state(EngineConfig(policy=Policy(licences={"a": 2})))
    apply(state, NodesChanged(tuple(NodeSpec(f"n{number}", {"cpu": 4}) for number in range(3))))
    apply(state, BookingsChanged((booking,)))
    apply(state, ClockAdvanced(now))
    kinds = (ClassSpec({"cpu": 1}, booking=booking.serves), ClassSpec({"cpu": 1}))
    inside, outside = (int(state.catalogue.classes[one, L.C_SHAPE]) for one in intern_classes(state, kinds))
    return state, inside, outside


@pytest.mark.parametrize(
    ("booking", "node", "since", "wall", "at"),
    [
        (COURSE, 0, 0, 50, BEGIN),  # not before it holds
        (COURSE, 0, 150, 50, 150),  # ends with it
        (COURSE, 0, 151, 50, INF),  # would end after it
        (COURSE, 0, 150, 100, 150),  # asks for the whole of it, and is ended with it
        (COURSE, 0, 150, 99, INF),
        (COURSE, 2, 0, 50, INF),  # has no part of that node
        (EARLY, 0, 10, 50, 10),
        (EARLY, 0, 150, 50, 150),
    ],
)
def test_work_of_a_booking_starts_on_its_nodes_while_it_holds(
    booking: BookingSpec, node: int, since: int, wall: int, at: int
) -> None:
    """From 100 to 200."""
    state, inside, _outside = site(booking, 0)
    assert plain(booked_start)(state.tables(), node, inside, since, wall) == at


@pytest.mark.parametrize(
    ("node", "since", "wall", "at"),
    [(0, 0, 100, 0), (0, 0, 101, END), (0, 150, 1, END), (0, END, INF, END), (2, 0, INF, 0)],
)
def test_other_work_ends_before_a_booking_or_starts_after_it(node: int, since: int, wall: int, at: int) -> None:
    """100 ms are left before it, and the third node is not booked."""
    state, _inside, outside = site(COURSE, 0)
    assert plain(booked_start)(state.tables(), node, outside, since, wall) == at


@pytest.mark.parametrize(("now", "planned", "left"), [(150, 20, 20), (150, 50, 50), (150, 80, 50), (150, INF, 50)])
def test_a_booking_ends_what_runs_in_it(now: int, planned: int, left: int) -> None:
    """At 200, whatever was planned; what is outside has all of it."""
    state, inside, outside = site(COURSE, now)
    assert plain(within_booking)(state.tables(), inside, now, planned) == left
    assert plain(within_booking)(state.tables(), outside, now, planned) == planned


@pytest.mark.parametrize(
    ("nodes", "now", "wall", "waits"),
    [
        (2, 99, 50, True),  # it does not hold yet
        (2, BEGIN, 50, False),
        (3, BEGIN, 50, True),  # it has two nodes
        (1, 151, 50, True),  # too late
        (1, 151, 49, False),
    ],
)
def test_work_waits_for_its_booking_only_while_too_few_of_its_nodes_would_do(
    nodes: int, now: int, wall: int, waits: bool
) -> None:
    """What runs there now does not matter; what is outside waits for no booking."""
    state, inside, outside = site(COURSE, now)
    assert plain(waits_for_booking)(state.tables(), inside, nodes, now, wall) is waits
    assert not plain(waits_for_booking)(state.tables(), outside, nodes, now, wall)


def test_a_node_that_is_closed_is_none_of_its_booking() -> None:
    """Of two nodes one is cordoned, so work of two nodes waits, and work of one does not."""
    state, inside, _outside = site(COURSE, BEGIN)
    open_now = state.tables().open_now
    open_now[state.catalogue.shapes[inside, L.S_CSET], 1] = 0
    asked = [plain(waits_for_booking)(state.tables(), inside, nodes, BEGIN, 50) for nodes in (1, 2)]
    assert asked == [False, True]


@pytest.mark.parametrize(
    ("since", "wall", "at"),
    [
        (0, 50, BEGIN),
        (120, 50, 120),
        (150, 50, 150),
        (151, 50, INF),
        (150, 100, 150),  # the whole of it
        (150, 99, INF),
        (END, 1, INF),
        (END - 1, 1, END - 1),
    ],
)
def test_a_booking_of_licences_lets_its_work_start_anywhere_while_it_holds(since: int, wall: int, at: int) -> None:
    """And keeps it waiting at all other times."""
    state, inside, outside = site(SEATS, 0)
    assert plain(inside_start)(state.tables(), inside, since, wall) == at
    assert plain(inside_start)(state.tables(), outside, since, wall) == since
    assert plain(waits_for_booking)(state.tables(), inside, 1, since, wall) is (at != since)


@pytest.mark.parametrize(
    ("inside", "since", "wall", "at"),
    [
        (False, 150, 50, END),  # ends as the next one begins
        (False, 150, 51, 400),
        (False, 0, 101, 400),
        (True, 0, 50, BEGIN),
        (True, 160, 50, 300),  # in its second hour
        (True, 360, 50, INF),
    ],
)
def test_between_bookings_of_one_node_there_is_room_for_what_is_short(
    inside: bool, since: int, wall: int, at: int
) -> None:
    """A course from 100 to 200 and again from 300 to 400, and another one from 250 to 300."""
    state, of_course, outside = site(COURSE, 0)
    again = BookingSpec("course again", 300, 400, ("n0",), booking="course")
    apply(state, BookingsChanged((COURSE, BookingSpec("other", 250, 300, ("n0",)), again)))
    asked = plain(booked_start)(state.tables(), 0, of_course if inside else outside, since, wall)
    assert asked == at


LATE: Final = BookingSpec("late", 250, 300, ("n1", "n4"))


@pytest.mark.parametrize(
    ("within", "nodes", "longest"),
    [
        ("", 3, INF),  # three nodes are not booked
        ("", 4, 250),
        ("", 5, 250),
        ("", 6, BEGIN),
        ("", 7, -1),
        ("rack", 1, INF),
        ("rack", 2, INF),  # n3 and n5
        ("rack", 3, 250),
        ("rack", 4, -1),
    ],
)
def test_the_longest_that_bookings_leave_is_known_for_so_many_nodes(within: str, nodes: int, longest: int) -> None:
    """Of r1, n0 is booked from 100 on and n1 from 250 on; of r2, n4 is from 250 on; all six nodes are idle."""
    state = new_state(EngineConfig(levels=("rack",)))
    racks = ("r1", "r1", "r1", "r2", "r2", "r2")
    specs = (NodeSpec(f"n{number}", {"cpu": 4}, domains=(rack,)) for number, rack in enumerate(racks))
    apply(state, NodesChanged(tuple(specs)))
    apply(state, BookingsChanged((BookingSpec("course", BEGIN, END, ("n0",)), LATE)))
    apply(state, ClockAdvanced(0))
    (asked,) = intern_classes(state, (ClassSpec({"cpu": 1}, nodes, within=within),))
    state.pass_record[L.PASS_NOW] = 0
    shape = int(state.catalogue.classes[asked, L.C_SHAPE])
    assert plain(booked_window)(state.tables(), shape, nodes) == longest


@pytest.mark.parametrize(
    ("inside", "node", "now", "wall", "may"),
    [
        (False, 0, 0, 100, True),
        (False, 0, 0, 101, False),
        (False, 0, 0, INF, False),
        (False, 2, 0, INF, True),
        (True, 0, BEGIN, 50, True),
        (True, 0, 151, 50, False),
        (True, 2, BEGIN, 50, False),
    ],
)
def test_a_job_may_start_on_a_node_where_it_ends_in_time(
    inside: bool, node: int, now: int, wall: int, may: bool
) -> None:
    """Before the course, or in it where it is the course's own."""
    state, of_course, outside = site(COURSE, now)
    state.pass_record[L.PASS_NOW], state.pass_record[L.PASS_WALL] = now, wall
    assert plain(may_start)(state.tables(), node, of_course if inside else outside) is may


def test_what_bookings_leave_is_kept_until_something_starts() -> None:
    """Then it is counted again: TICK_TAKEN says so."""
    state, _inside, outside = site(COURSE, 0)
    state.pass_record[L.PASS_NOW] = 0
    assert plain(booked_window)(state.tables(), outside, 2) == BEGIN
    state.tables().rows[0, L.N_AHEAD] = state.tables().rows[1, L.N_AHEAD] = 70
    assert plain(booked_window)(state.tables(), outside, 2) == BEGIN
    state.ticks[L.TICK_TAKEN] += 1
    assert plain(booked_window)(state.tables(), outside, 2) == 70
