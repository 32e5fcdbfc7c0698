"""Bookings by value: concrete times, the nodes of each, and which nodes are closed to whom at an instant.

Pure. Recurring bookings are expanded by the caller. A booking that was known keeps the instant at which it was made:
attempts that were there then may stay. `booked_nodes` chooses nodes and fills the tables.
"""

from __future__ import annotations

from typing import Final

import msgspec

from hal.core.engine.classes import ClassSpec, Requirement
from hal.core.engine.errors import EngineError
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Allowed
from hal.core.kernels.structures.declared import BookingTables

NO_BOOKING: Final = 0


class BookingSpec(msgspec.Struct, frozen=True):
    """One time at which nodes are set aside.

    name: of this occurrence, unique. booking: what a ClassSpec names to run in it ("" = the same as the name).
    start_ms, end_ms: it holds for [start_ms, end_ms). nodes: by name (nodes that are not here yet count when they
    join), or `count` nodes that meet `constraints`, chosen by the engine. licences: set aside; its jobs run on any node
    where it has none. maintenance: nobody's. early: its jobs may use its nodes before it starts. overlap: it may share
    nodes with others that say so; floating ones avoid the rest.
    """

    name: str
    start_ms: int
    end_ms: int
    nodes: tuple[str, ...] = ()
    count: int = 0
    constraints: tuple[Requirement, ...] = ()
    booking: str = ""
    maintenance: bool = False
    early: bool = False
    overlap: bool = False
    licences: dict[str, int] = {}

    @property
    def serves(self) -> str:
        """The name by which a class asks for it; "" for maintenance."""
        return "" if self.maintenance else self.booking or self.name


class Booked(msgspec.Struct):
    """A booking with its rows; `made_ms`: when it was first heard of."""

    spec: BookingSpec
    rows: tuple[int, ...]
    made_ms: int


class Bookings(BookingTables):
    """The part of a `State` that holds bookings that have not ended."""

    def __init__(self) -> None:
        self.all: list[Booked] = []
        """By start, then name: booking k is row k of `booking_times`."""
        self.ids: dict[str, int] = {}
        """The number of each name that a class or booking has ever named, from 1 on."""

    def id_of(self, booking: str) -> int:
        """The number of a booking's name in the tables; 0 for ""."""
        return self.ids.setdefault(booking, len(self.ids) + 1) if booking else NO_BOOKING

    def rows_of(self, booking: str) -> set[int]:
        """Rows on which jobs of a booking may ever run."""
        return {row for known in self.all if known.spec.serves == booking for row in known.rows}

    def anywhere(self, booking: str) -> bool:
        """Whether it sets aside licences only: its jobs run on any nodes."""
        mine = [known.spec for known in self.all if known.spec.serves == booking]
        return bool(mine) and not any(spec.nodes or spec.count for spec in mine)

    def books(self, booking: str, licence: str) -> bool:
        """Whether a booking sets some of a licence aside, now or later."""
        return any(known.spec.serves == booking and licence in known.spec.licences for known in self.all)

    def holds(self, booking: str, now_ms: int) -> bool:
        """Whether one that a class names holds at `now_ms`."""
        mine = (known.spec for known in self.all if known.spec.serves == booking)
        return any(spec.start_ms <= now_ms < spec.end_ms for spec in mine)

    def closed_rows(self, booking: str, now_ms: int, rows: int) -> list[int]:
        """Of the first `rows` rows those that are closed to a class of this booking ("" = of none) at `now_ms`."""
        if booking and self.anywhere(booking):
            times = [known.spec for known in self.all if known.spec.serves == booking]
            if not any(spec.early or spec.start_ms <= now_ms for spec in times):
                return list(range(rows))
            booking = ""
        there = [known for known in self.all if known.spec.start_ms <= now_ms < known.spec.end_ms]
        closed = {row for known in there if not booking or known.spec.serves != booking for row in known.rows}
        if booking:
            mine = [k for k in self.all if k.spec.serves == booking and (k.spec.early or k in there)]
            closed |= self.rows_of(booking) - {row for known in mine for row in known.rows}
        return sorted(closed)

    def open_nodes(self, sets: list[ClassSpec | None], allowed: Allowed, now_ms: int, nodes: int) -> Allowed:
        """Which of the first `nodes` nodes each constraint set may use right now, of those that it is allowed.

        `allowed` itself where no booking closes any.
        """
        if not self.all or (
            not any(booked.spec.start_ms <= now_ms for booked in self.all)
            and not any(spec is not None and spec.booking for spec in sets)
        ):
            return allowed
        table = allowed.copy()
        closed: dict[str, list[int]] = {}
        for number, spec in enumerate(sets):
            booking = spec.booking if spec is not None else ""
            if booking not in closed:
                closed[booking] = self.closed_rows(booking, now_ms, nodes)
            table[number, closed[booking]] = 0
        return table


def check_bookings(specs: tuple[BookingSpec, ...]) -> None:
    """Raise EngineError, naming the booking, unless each says one lawful thing."""
    seen: set[str] = set()
    for spec in specs:
        problem = ""
        if not spec.name or spec.name in seen:
            problem = "a name is needed" if not spec.name else "is given twice"
        elif not 0 <= spec.start_ms < spec.end_ms < L.INF:
            problem = f"start {spec.start_ms} must be before end {spec.end_ms}"
        elif (spec.nodes and spec.count) or spec.count < 0 or not (spec.nodes or spec.count or spec.licences):
            problem = "either nodes or a count above 0 is needed, or licences"
        elif len(set(spec.nodes)) != len(spec.nodes):
            problem = "names a node twice"
        if problem:
            raise EngineError(f"BookingsChanged: booking {spec.name!r}: {problem}; the event was not applied")
        seen.add(spec.name)
