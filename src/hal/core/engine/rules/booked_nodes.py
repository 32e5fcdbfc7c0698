"""Which nodes each booking holds, as the tables that kernels read, and who is on them without a right to be there.

Pure. Nodes of a floating count are chosen here, deterministically: those that come free soonest by walltimes, then by
index; once chosen they stay while they are up.
"""

from __future__ import annotations

import numpy as np

from hal.core.engine.classes import ClassSpec
from hal.core.engine.rules.admission import admit_bookings
from hal.core.engine.rules.licensing import renew_licences
from hal.core.engine.state import State
from hal.core.engine.tables.bookings import Booked, BookingSpec
from hal.core.engine.views import rows_of_run, runs_of_row
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.declared import BOOKED, BOOKED_NODES, BOOKINGS


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
    return tuple(sorted(state.nodes.by_name[name] for name in spec.nodes if name in state.nodes.by_name))


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
        up = row not in taken and state.nodes.rows[row, L.N_STATE] == L.NODE_UP
        labelled = all(part.holds(state.nodes.labels[row]) for part in spec.constraints)
        return bool(up) and labelled and row not in state.nodes.taints

    if len(before) == spec.count and all(map(is_usable, before)):
        return before
    usable = [row for row in state.nodes.by_name.values() if is_usable(row)]
    free_at = {row: _free_at(state, row) for row in usable}
    kept = set(before) or {row for row in usable if _has_work_of(state, row, spec.serves)}
    usable.sort(key=lambda row: (row not in kept, free_at[row], row))
    return tuple(sorted(usable[: spec.count]))


def _may_share(one: BookingSpec, other: BookingSpec) -> bool:
    return one.maintenance or other.maintenance or (one.overlap and other.overlap)


def _has_work_of(state: State, row: int, booking: str) -> bool:
    return bool(booking) and any(spec_of_run(state, run).booking == booking for run in runs_of_row(state, row))


def _free_at(state: State, row: int) -> int:
    ends = [int(state.work.runs[run, L.R_START] + state.work.runs[run, L.R_WALL]) for run in runs_of_row(state, row)]
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
    rooms = {BOOKINGS: len(known) + 1, BOOKED: sum(map(len, chains.values())) + 1, BOOKED_NODES: len(chains) + 1}
    state.allocation.resize(rooms, emptied=True)
    for number, booked in enumerate(known):
        spec = booked.spec
        name = state.bookings.id_of(spec.serves) if spec.serves else -1
        state.bookings.booking_times[number] = (spec.start_ms, spec.end_ms, name, int(spec.early))
    state.bookings.booked_rows[: len(chains)] = sorted(chains)
    state.nodes.rows[:, L.N_BOOKED] = 0
    state.nodes.rows[:, L.N_AHEAD] = L.INF
    place = 0
    for row, numbers in sorted(chains.items()):
        state.nodes.rows[row, L.N_BOOKED] = place + 1
        ahead = [known[number].spec.start_ms for number in numbers if known[number].spec.start_ms > now]
        state.nodes.rows[row, L.N_AHEAD] = min(ahead, default=L.INF)
        for number in numbers:
            state.bookings.booked[place] = (number, place + 2)
            place += 1
        state.bookings.booked[place - 1, L.BOOKED_NEXT] = 0
    meta[L.M_BOOKINGS] = len(known)
    meta[L.M_BOOKED_NODES] = len(chains)
    edges = [edge for booked in known for edge in (booked.spec.start_ms, booked.spec.end_ms) if edge > now]
    meta[L.M_BOOKING_EDGE] = min(edges, default=L.INF)
    state.ticks[L.TICK_MIRROR] = 0  # booked rows are hidden in it
    admit_bookings(state)
    renew_licences(state)
    state.rewire()
    state.recount(0, int(meta[L.M_SHAPES]))
    state.touch(sorted(touched | set(chains)))
    state.wake_all()
    meta[L.M_VERSION] += 1


def met_by(state: State, job: int, wall_ms: int) -> BookingSpec | None:
    """The first booking that running tasks of a job would meet with another walltime. O(running attempts)."""
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    live = np.flatnonzero((runs[:, L.R_NODES] > 0) & (runs[:, L.R_JOB] == job)) if state.bookings.all else ()
    found = (runs_into(state, int(run), wall_ms) for run in live)
    return min((spec for spec in found if spec is not None), key=lambda spec: spec.start_ms, default=None)


def runs_into(state: State, run: int, wall_ms: int) -> BookingSpec | None:
    """The first booking that a running attempt would meet with a walltime of `wall_ms`, and does not with its own."""
    start = int(state.work.runs[run, L.R_START])
    spec = spec_of_run(state, run)
    rows = set(rows_of_run(state, run))
    for booked in state.bookings.all:
        foreign = not spec.booking or booked.spec.serves != spec.booking
        ahead = start + int(state.work.runs[run, L.R_WALL]) <= booked.spec.start_ms < start + wall_ms
        if foreign and ahead and not rows.isdisjoint(booked.rows):
            return booked.spec
    return None


def spec_of_run(state: State, run: int) -> ClassSpec:
    """The class of a running attempt."""
    spec = state.catalogue.class_specs[int(state.work.buckets[state.work.runs[run, L.R_BUCKET], L.B_CLASS])]
    assert spec is not None
    return spec


def trespassers(state: State) -> list[tuple[int, int, str]]:
    """Attempts (job, task) on rows of a booking (name) that holds now, without a right to be there.

    Those that were there when it was made have one.
    """
    found = []
    now = state.clock_ms
    for booked in state.bookings.all:
        if not booked.spec.start_ms <= now < booked.spec.end_ms:
            continue
        for row in booked.rows:
            for run in runs_of_row(state, row):
                if state.work.runs[run, L.R_STATE] != L.RUN_ON:
                    continue  # it is leaving, or stands still
                wants = spec_of_run(state, run).booking
                start, wall = int(state.work.runs[run, L.R_START]), int(state.work.runs[run, L.R_WALL])
                # Its time was over, or its own booking is: it is being ended.
                late = start + wall <= booked.spec.start_ms or bool(wants and not state.bookings.holds(wants, now))
                if (not wants or wants != booked.spec.serves) and start > booked.made_ms and not late:
                    found.append(
                        (int(state.work.runs[run, L.R_JOB]), int(state.work.runs[run, L.R_TASK]), booked.spec.name)
                    )
    return found
