"""Licences as the engine keeps them: how many there are, what bookings set aside of them, what each shape wants.

Pure. What a booking sets aside of a licence counts like a licence of its own: jobs of the booking take it, others do
not, and how much of either there is changes as bookings begin and end. Without a policy nobody says how many there are,
and any number is. O(attempts) where bookings or the policy change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from hal.core.engine.classes import ClassSpec
from hal.core.engine.errors import EngineError
from hal.core.kernels import layout as L

if TYPE_CHECKING:
    from hal.core.engine.state import State

Table = NDArray[np.int64]

STARTS_AT_ONCE: Final = 4_096
"""Starts of one slice whose ends are looked at beside those of running attempts."""


class LicenceName(NamedTuple):
    """A licence, or what a booking sets aside of it."""

    name: str
    booking: str = ""


class LicenceRow(Struct, frozen=True):
    """One licence: how many there are (INF without a policy), are held, and are set aside by bookings now."""

    name: str
    total: int
    used: int
    booked: int


def licence_rows(state: State) -> list[LicenceRow]:
    """All that a class or the policy has named, by name."""
    table = state.licences
    return sorted(
        (
            LicenceRow(one.name, whole, int(table[row, L.Z_HELD]), whole - int(table[row, L.Z_TOTAL]))
            for row, one in enumerate(state.licence_names)
            if not one.booking
            for whole in (int(table[row, L.Z_WHOLE]),)
        ),
        key=lambda row: row.name,
    )


def check_licences(spec: ClassSpec) -> None:
    """Raise EngineError unless every amount is one."""
    for name, amount in spec.licences.items():
        if not name or not 0 < amount < L.INF:
            raise EngineError(f"licence {name!r}: {amount} is no amount above 0; the event was not applied")


def want_licences(state: State, shape: int, spec: ClassSpec) -> None:
    """Note what a shape wants, and of what (the caller rewires)."""
    wanted = [row_of_licence(state, spec, name) for name in spec.licences]
    state.wants[shape] = 0
    for row, amount in zip(wanted, spec.licences.values(), strict=True):
        state.wants[shape, row] = amount
    state.shapes[shape, L.S_LICENCES] = len(wanted)


def row_of_licence(state: State, spec: ClassSpec, name: str) -> int:
    """What a class takes of a licence: what its booking has set aside, else the licence itself."""
    return _row(state, LicenceName(name, spec.booking if state.bookings.books(spec.booking, name) else ""))


def set_totals(state: State, totals: Mapping[str, int] | None) -> None:
    """How many there are from now on (part of `apply`); None: any number. What is held stays held."""
    state.licence_totals = None if totals is None else dict(totals)
    for name in totals or ():
        _row(state, LicenceName(name))
    if state.licence_names:
        renew_licences(state)


def renew_licences(state: State) -> None:
    """Bookings or totals changed: who takes of what, what is held, how much there is now and from when on another
    amount (part of `apply`; the caller rewires)."""
    now = state.clock_ms
    changes: list[tuple[int, int, int]] = []
    gains: dict[int, int] = {}
    for known in state.bookings.all:
        spec = known.spec
        for name, amount in spec.licences.items():
            sides = [(_row(state, LicenceName(name)), -amount)]
            if spec.serves:
                sides.append((_row(state, LicenceName(name, spec.serves)), amount))
            for row, gain in sides:
                if spec.start_ms <= now:
                    gains[row] = gains.get(row, 0) + gain
                else:
                    changes.append((row, spec.start_ms, gain))
                changes.append((row, spec.end_ms, -gain))
    for shape, wants in enumerate(state.shape_specs):
        if wants is not None and wants.licences:
            want_licences(state, shape, wants)
    totals = state.licence_totals
    for row, one in enumerate(state.licence_names):
        whole = L.INF if totals is None else totals.get(one.name, 0)
        state.licences[row] = 0
        state.licences[row, L.Z_PARENT] = _row(state, LicenceName(one.name))
        state.licences[row, L.Z_WHOLE] = 0 if one.booking else whole
        state.licences[row, L.Z_TOTAL] = (0 if one.booking else whole) + gains.get(row, 0)
    _count_held(state)
    state.changes = np.zeros((len(changes) + 1, L.CHANGE_SIZE), np.int64)
    if changes:
        state.changes[: len(changes)] = changes
    state.meta[L.M_CHANGES] = len(changes)


def _count_held(state: State) -> None:
    runs = state.runs[: int(state.meta[L.M_RUN_TOP])]
    buckets = runs[runs[:, L.R_NODES] > 0, L.R_BUCKET]
    shapes = state.classes[state.buckets[buckets, L.B_CLASS], L.C_SHAPE]
    count = len(state.licence_names)
    used = state.wants[shapes, :count].sum(axis=0)
    state.licences[:count, L.Z_USED] = used
    np.add.at(state.licences[:, L.Z_HELD], state.licences[:count, L.Z_PARENT], used)


def room_for_events(state: State) -> tuple[Table, Table]:
    """Scratch for the ends of a slice's starts, two events of each promise and changes; and for ends of attempts."""
    events, holding = state.licence_events, state.holding
    if state.licence_names:
        size = STARTS_AT_ONCE + 4 * state.reservations.shape[0] + state.changes.shape[0] + 64
        if events.shape[1] != size:
            events = np.zeros((2, size), np.int64)
        if holding.shape[1] != 2 * state.runs.shape[0]:
            holding = np.zeros((2, 2 * state.runs.shape[0]), np.int64)
            state.ticks[L.TICK_LISTED] = -1
    return events, holding


def _row(state: State, name: LicenceName) -> int:
    if name in state.licence_names:
        return state.licence_names.index(name)
    state.licence_names.append(name)
    count = len(state.licence_names)
    if count > state.licences.shape[0]:
        licences = np.zeros((2 * count, L.LICENCE_SIZE), np.int64)
        licences[: count - 1] = state.licences[: count - 1]
        wants = np.zeros((state.wants.shape[0], 2 * count), np.int64)
        wants[:, : state.wants.shape[1]] = state.wants
        state.licences, state.wants = licences, wants
    totals = state.licence_totals
    whole = 0 if name.booking else L.INF if totals is None else totals.get(name.name, 0)
    state.licences[count - 1] = 0
    state.licences[count - 1, [L.Z_TOTAL, L.Z_WHOLE]] = whole
    state.licences[count - 1, L.Z_PARENT] = _row(state, LicenceName(name.name)) if name.booking else count - 1
    state.meta[L.M_LICENCES] = len(state.licence_names)
    return count - 1
