"""Bookings as the engine keeps them: concrete times, the rows of each, and which rows are closed to whom right now.

Pure. Recurring bookings are expanded by the caller. Rows of a floating count are chosen here, deterministically: those
that come free soonest by walltimes, then by row; once chosen they stay while they are up. A booking that was known
keeps the instant at which it was made: attempts that were there then may stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from hal.core.engine.classes import ClassSpec, Requirement
from hal.core.engine.errors import EngineError
from hal.core.engine.licences import renew_licences
from hal.core.kernels import layout as L

if TYPE_CHECKING:
    from hal.core.engine.state import State

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


class Bookings:
    """All that have not ended, by start, then name."""

    def __init__(self) -> None:
        self.all: list[Booked] = []
        self.ids: dict[str, int] = {}

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


def check_bookings(specs: tuple[BookingSpec, ...]) -> None:
    """Raise EngineError, naming the booking, unless each says one lawful thing."""
    seen: set[str] = set()
    for spec in specs:
        problem = ""
        if not spec.name or spec.name in seen:
            problem = "a name is needed" if not spec.name else "is there twice"
        elif not 0 <= spec.start_ms < spec.end_ms < L.INF:
            problem = f"start {spec.start_ms} must lie before end {spec.end_ms}"
        elif (spec.nodes and spec.count) or spec.count < 0 or not (spec.nodes or spec.count or spec.licences):
            problem = "either nodes or a count above 0 is needed, or licences"
        elif len(set(spec.nodes)) != len(spec.nodes):
            problem = "names a node twice"
        if problem:
            raise EngineError(f"BookingsChanged: booking {spec.name!r}: {problem}; the event was not applied")
        seen.add(spec.name)


def set_bookings(state: State, specs: tuple[BookingSpec, ...]) -> None:
    """Replace all bookings (part of `apply`)."""
    before = {known.spec.name: known for known in state.bookings.all}
    touched = _rows_of_all(state)
    state.bookings.all = []
    now = state.clock_ms
    for spec in sorted(specs, key=lambda spec: (spec.count > 0, spec.start_ms, spec.name)):
        if spec.end_ms > now:
            old = before.get(spec.name)
            same = old is not None and (old.spec.start_ms, old.spec.end_ms) == (spec.start_ms, spec.end_ms)
            rows = _named_rows(state, spec) if not spec.count else _chosen_rows(state, spec, old.rows if old else ())
            made = old.made_ms if old is not None and same and set(rows) <= set(old.rows) else now
            state.bookings.all.append(Booked(spec, rows, made))
    state.bookings.all.sort(key=lambda known: (known.spec.start_ms, known.spec.name))
    _write(state, touched)


def settle_bookings(state: State) -> None:
    """Bookings have begun or ended, or nodes changed: rows open and close, floating ones replace what was lost."""
    set_bookings(state, tuple(known.spec for known in state.bookings.all))


def _rows_of_all(state: State) -> set[int]:
    return {row for known in state.bookings.all for row in known.rows}


def _named_rows(state: State, spec: BookingSpec) -> tuple[int, ...]:
    return tuple(sorted(state.row_by_name[name] for name in spec.nodes if name in state.row_by_name))


def _chosen_rows(state: State, spec: BookingSpec, before: tuple[int, ...]) -> tuple[int, ...]:
    """As many rows as it counts, or all there are: first those that it had, then those that come free soonest.

    One that is heard of again after a restart had the rows on which its work runs.
    """
    taken = {
        row
        for known in state.bookings.all
        if known.spec.start_ms < spec.end_ms and spec.start_ms < known.spec.end_ms and not _may_share(spec, known.spec)
        for row in known.rows
    }

    def is_usable(row: int) -> bool:
        up = row not in taken and state.rows[row, L.W_STATE] == L.ROW_UP
        return bool(up) and all(part.holds(state.row_labels[row]) for part in spec.constraints)

    if len(before) == spec.count and all(map(is_usable, before)):
        return before
    usable = [row for row in state.row_by_name.values() if is_usable(row)]
    free_at = {row: _free_at(state, row) for row in usable}
    kept = set(before) or {row for row in usable if _has_work_of(state, row, spec.serves)}
    usable.sort(key=lambda row: (row not in kept, free_at[row], row))
    return tuple(sorted(usable[: spec.count]))


def _may_share(one: BookingSpec, other: BookingSpec) -> bool:
    return one.maintenance or other.maintenance or (one.overlap and other.overlap)


def _has_work_of(state: State, row: int, booking: str) -> bool:
    from hal.core.engine.views import runs_of_row

    return bool(booking) and any(spec_of_run(state, run).booking == booking for run in runs_of_row(state, row))


def _free_at(state: State, row: int) -> int:
    from hal.core.engine.views import runs_of_row

    ends = [int(state.runs[run, L.R_START] + state.runs[run, L.R_WALL]) for run in runs_of_row(state, row)]
    return min(max(ends, default=0), L.INF)


def _write(state: State, touched: set[int]) -> None:
    """The tables that kernels read, and everything that follows from them."""
    known = state.bookings.all
    chains: dict[int, list[int]] = {}
    for number, booked in enumerate(known):
        for row in booked.rows:
            chains.setdefault(row, []).append(number)
    now = state.clock_ms
    meta = state.meta
    state.booking_table = np.zeros((len(known) + 1, L.BOOKING_SIZE), np.int64)
    for number, booked in enumerate(known):
        spec = booked.spec
        name = state.bookings.id_of(spec.serves) if spec.serves else -1
        state.booking_table[number] = (spec.start_ms, spec.end_ms, name, int(spec.early))
    state.booked = np.zeros((sum(map(len, chains.values())) + 1, L.BOOKED_SIZE), np.int64)
    state.booked_rows = np.array([*sorted(chains), 0], np.int64)
    state.rows[:, L.W_BOOKED] = 0
    state.rows[:, L.W_AHEAD] = L.INF
    place = 0
    for row, numbers in sorted(chains.items()):
        state.rows[row, L.W_BOOKED] = place + 1
        ahead = [known[number].spec.start_ms for number in numbers if known[number].spec.start_ms > now]
        state.rows[row, L.W_AHEAD] = min(ahead, default=L.INF)
        for number in numbers:
            state.booked[place] = (number, place + 2)
            place += 1
        state.booked[place - 1, L.BOOKED_NEXT] = 0
    meta[L.M_BOOKINGS] = len(known)
    meta[L.M_BOOKED_ROWS] = len(chains)
    edges = [edge for booked in known for edge in (booked.spec.start_ms, booked.spec.end_ms) if edge > now]
    meta[L.M_BOOKING_EDGE] = min(edges, default=L.INF)
    state.ticks[L.TICK_MIRROR] = 0  # booked rows are hidden in it
    state.admit_bookings()
    renew_licences(state)
    state.rewire()
    state.recount(0, int(meta[L.M_SHAPES]))
    state.touch(sorted(touched | set(chains)))
    state.wake_all()
    meta[L.M_VERSION] += 1


def met_by(state: State, job: int, wall_ms: int) -> BookingSpec | None:
    """The first booking that running tasks of a job would meet with another walltime. O(running attempts)."""
    runs = state.runs[: int(state.meta[L.M_RUN_TOP])]
    live = np.flatnonzero((runs[:, L.R_NODES] > 0) & (runs[:, L.R_JOB] == job)) if state.bookings.all else ()
    found = (runs_into(state, int(run), wall_ms) for run in live)
    return min((spec for spec in found if spec is not None), key=lambda spec: spec.start_ms, default=None)


def runs_into(state: State, run: int, wall_ms: int) -> BookingSpec | None:
    """The first booking that a running attempt would meet with a walltime of `wall_ms`, and does not with its own."""
    from hal.core.engine.views import rows_of_run

    start = int(state.runs[run, L.R_START])
    spec = spec_of_run(state, run)
    rows = set(rows_of_run(state, run))
    for booked in state.bookings.all:
        foreign = not spec.booking or booked.spec.serves != spec.booking
        ahead = start + int(state.runs[run, L.R_WALL]) <= booked.spec.start_ms < start + wall_ms
        if foreign and ahead and not rows.isdisjoint(booked.rows):
            return booked.spec
    return None


def spec_of_run(state: State, run: int) -> ClassSpec:
    """The class of a running attempt."""
    spec = state.class_specs[int(state.buckets[state.runs[run, L.R_BUCKET], L.B_CLASS])]
    assert spec is not None
    return spec


def trespassers(state: State) -> list[tuple[int, int, str]]:
    """Attempts (job, task) on rows of a booking (name) that holds now, without a right to be there.

    Those that were there when it was made have one.
    """
    from hal.core.engine.views import runs_of_row

    found = []
    now = state.clock_ms
    for booked in state.bookings.all:
        if not booked.spec.start_ms <= now < booked.spec.end_ms:
            continue
        for row in booked.rows:
            for run in runs_of_row(state, row):
                if state.runs[run, L.R_STATE] != L.RUN_ON:
                    continue  # it is leaving, or stands still
                wants = spec_of_run(state, run).booking
                start, wall = int(state.runs[run, L.R_START]), int(state.runs[run, L.R_WALL])
                # Its time was over, or its own booking is: it is being ended.
                late = start + wall <= booked.spec.start_ms or bool(wants and not state.bookings.holds(wants, now))
                if (not wants or wants != booked.spec.serves) and start > booked.made_ms and not late:
                    found.append((int(state.runs[run, L.R_JOB]), int(state.runs[run, L.R_TASK]), booked.spec.name))
    return found


def open_table(state: State, allowed: NDArray[np.int8]) -> NDArray[np.int8]:
    """Which rows each constraint set may use right now: `allowed` itself where no booking closes any."""
    known = state.bookings.all
    now = state.clock_ms
    if not known or (
        not any(booked.spec.start_ms <= now for booked in known)
        and not any(spec is not None and spec.booking for spec in state.csets)
    ):
        return allowed
    table = allowed.copy()
    closed: dict[str, list[int]] = {}
    for cset, spec in enumerate(state.csets):
        booking = spec.booking if spec is not None else ""
        if booking not in closed:
            closed[booking] = state.bookings.closed_rows(booking, now, len(state.row_names))
        table[cset, closed[booking]] = 0
    return table
