"""Why a booking keeps a waiting job from starting, with its name and its times; None where none does.

Pure. O(nodes + booked nodes) a question.
"""

from __future__ import annotations

import numpy as np

from hal.core.engine.classes import ClassSpec
from hal.core.engine.state import State
from hal.core.engine.tables.bookings import Booked, BookingSpec
from hal.core.engine.why.foresight import admitted, together
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints
from hal.core.model.policy_check import instant_text
from hal.core.model.units import format_duration, format_wait, plural
from hal.core.model.verdict import Reason, Verdict

MAX_NAMED = 3
"""Most nodes that a message names."""


def kept_off(state: State, job: int, slot: int, spec: ClassSpec, now_ms: int) -> Verdict | None:
    """The verdict when nodes fit the job now and bookings are what forbids a start, or its own has not begun."""
    wall_ms = int(state.work.entries[slot, L.E_WALL])
    if spec.booking:
        return _outside(state, job, spec, now_ms, wall_ms)
    if not state.bookings.all:
        return None
    rows = _rows_that_fit(state, slot)
    # Until when each is free of bookings: the start of the next one, or now where one holds it.
    until = state.nodes.rows[rows, L.N_AHEAD]
    until[np.isin(rows, state.bookings.closed_rows("", now_ms, len(state.nodes.names)))] = now_ms
    met = until < min(now_ms + wall_ms, L.INF)
    if together(state, spec, rows) < spec.nodes or together(state, spec, rows[~met]) >= spec.nodes:
        return None
    there = set(rows[met].tolist())
    first = next(booked for booked in state.bookings.all if booked.spec.end_ms > now_ms and there & set(booked.rows))
    message = f"waits for booking '{first.spec.name}': {_kept(state, first)}"
    if first.spec.start_ms > now_ms:
        why = "it names no walltime" if wall_ms >= L.INF else f"it may run for {format_duration(wall_ms)}"
        message += f", in {format_wait(first.spec.start_ms - now_ms)}; {why}"
    reservation = int(state.work.entries[slot, L.E_RESERVED])
    reserved = reservation >= 0 and state.work.reservations[reservation, L.V_KIND] == L.KIND_RESERVED
    return Verdict(
        job=job, reason=Reason.BOOKING, message=message,
        starts_at_ms=int(state.work.reservations[reservation, L.V_START]) if reserved else None,
        basis="reservation" if reserved else "",
    )  # fmt: skip


def _kept(state: State, booked: Booked) -> str:
    """Which nodes, from when to when (UTC)."""
    names = [state.node_name(row) for row in sorted(booked.rows)]
    shown = ", ".join(names) if len(names) <= MAX_NAMED else f"{names[0]}, {names[1]} and {len(names) - 2} more"
    verb = "node {} is" if len(names) == 1 else "nodes {} are"
    begin, end = instant_text(booked.spec.start_ms).removesuffix(" UTC"), instant_text(booked.spec.end_ms)
    return f"{verb.format(shown)} kept {begin} to {end[11:] if end[:10] == begin[:10] else end}"


def _outside(state: State, job: int, spec: ClassSpec, now_ms: int, wall_ms: int) -> Verdict | None:
    """Why its own booking does not take it now; None when only resources do not."""
    mine = [booked.spec for booked in state.bookings.all if booked.spec.serves == spec.booking]
    if not mine:
        nothing = f"runs in booking '{spec.booking}', which has no nodes or licences, now or later"
        return Verdict(job=job, reason=Reason.BOOKING, message=nothing)
    open_now = [known for known in mine if known.early or known.start_ms <= now_ms]
    if not open_now:
        return _until(job, min(mine, key=lambda known: known.start_ms), "", now_ms)
    rows = len(state.bookings.rows_of(spec.booking))
    if rows < spec.nodes and not state.bookings.anywhere(spec.booking):
        short = f"runs in booking '{spec.booking}', which has {plural(rows, 'node')} of the {spec.nodes} it needs"
        return Verdict(job=job, reason=Reason.BOOKING, message=short)
    if any(now_ms + wall_ms <= known.end_ms or wall_ms >= known.end_ms - known.start_ms for known in open_now):
        return None
    left_ms = max(known.end_ms for known in open_now) - now_ms
    why = f"which ends in {format_duration(left_ms)}, and may run for {format_duration(wall_ms)}"
    later = [known for known in mine if known not in open_now]
    if later:
        return _until(job, min(later, key=lambda known: known.start_ms), why, now_ms)
    return Verdict(job=job, reason=Reason.BOOKING, message=f"runs in booking '{spec.booking}', {why}")


def _until(job: int, booking: BookingSpec, why: str, now_ms: int) -> Verdict:
    begins = f"begins in {format_wait(booking.start_ms - now_ms)}"
    message = f"runs in booking '{booking.serves}', {f'{why}; it {begins} again' if why else f'which {begins}'}"
    return Verdict(job=job, reason=Reason.BOOKING, message=message, starts_at_ms=booking.start_ms, basis="booking")


def _rows_that_fit(state: State, slot: int) -> Ints:
    """Nodes that are up, meet its constraints and have enough free now, whoever booked them."""
    shape = int(state.catalogue.classes[state.work.buckets[state.work.entries[slot, L.E_BUCKET], L.B_CLASS], L.C_SHAPE])
    rows = admitted(state, shape)
    return rows[(state.nodes.free[rows] >= state.catalogue.request[:, shape]).all(axis=1)]
