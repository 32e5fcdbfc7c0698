"""How many licences there are and will be, what bookings set aside of them, what each shape wants.

Pure. O(attempts) where bookings or the policy change.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hal.core.engine.classes import ClassSpec
from hal.core.engine.state import State
from hal.core.engine.tables.licences import LicenceName
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.declared import LICENCE_CHANGES, LICENCES


def want_licences(state: State, shape: int, spec: ClassSpec) -> None:
    """Note what a shape wants, and of what (the caller rewires)."""
    wanted = [row_of_licence(state, spec, name) for name in spec.licences]
    state.licences.wants[shape] = 0
    for row, amount in zip(wanted, spec.licences.values(), strict=True):
        state.licences.wants[shape, row] = amount
    state.catalogue.shapes[shape, L.S_LICENCES] = len(wanted)


def row_of_licence(state: State, spec: ClassSpec, name: str) -> int:
    """What a class takes of a licence: what its booking has set aside, else the licence itself."""
    return _row(state, LicenceName(name, spec.booking if state.bookings.books(spec.booking, name) else ""))


def set_totals(state: State, totals: Mapping[str, int] | None) -> None:
    """How many there are from now on (part of `apply`); None: any number. What is held stays held."""
    state.licences.totals = None if totals is None else dict(totals)
    for name in totals or ():
        _row(state, LicenceName(name))
    if state.licences.names:
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
    for shape, wants in enumerate(state.catalogue.shape_specs):
        if wants is not None and wants.licences:
            want_licences(state, shape, wants)
    totals = state.licences.totals
    for row, one in enumerate(state.licences.names):
        whole = L.INF if totals is None else totals.get(one.name, 0)
        state.licences.licence_counts[row] = 0
        state.licences.licence_counts[row, L.LICENCE_PARENT] = _row(state, LicenceName(one.name))
        state.licences.licence_counts[row, L.LICENCE_WHOLE] = 0 if one.booking else whole
        state.licences.licence_counts[row, L.LICENCE_TOTAL] = (0 if one.booking else whole) + gains.get(row, 0)
    _count_held(state)
    state.allocation.resize({LICENCE_CHANGES: len(changes) + 1}, emptied=True)
    if changes:
        state.licences.changes[: len(changes)] = changes
    state.meta[L.M_CHANGES] = len(changes)


def _count_held(state: State) -> None:
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    buckets = runs[runs[:, L.R_NODES] > 0, L.R_BUCKET]
    shapes = state.catalogue.classes[state.work.buckets[buckets, L.B_CLASS], L.C_SHAPE]
    count = len(state.licences.names)
    used = state.licences.wants[shapes, :count].sum(axis=0)
    state.licences.licence_counts[:count, L.LICENCE_USED] = used
    np.add.at(
        state.licences.licence_counts[:, L.LICENCE_HELD], state.licences.licence_counts[:count, L.LICENCE_PARENT], used
    )


def _row(state: State, name: LicenceName) -> int:
    if name in state.licences.names:
        return state.licences.names.index(name)
    state.licences.names.append(name)
    count = len(state.licences.names)
    if count > state.licences.licence_counts.shape[0]:
        state.allocation.resize({LICENCES: 2 * count})
    totals = state.licences.totals
    whole = 0 if name.booking else L.INF if totals is None else totals.get(name.name, 0)
    state.licences.licence_counts[count - 1] = 0
    state.licences.licence_counts[count - 1, [L.LICENCE_TOTAL, L.LICENCE_WHOLE]] = whole
    state.licences.licence_counts[count - 1, L.LICENCE_PARENT] = (
        _row(state, LicenceName(name.name)) if name.booking else count - 1
    )
    state.meta[L.M_LICENCES] = len(state.licences.names)
    return count - 1
