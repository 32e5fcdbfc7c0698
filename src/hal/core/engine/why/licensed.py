"""Why licences keep a waiting job from starting: how many are free, needed, and come free when; None where none does.

Pure, O(running attempts) a question.
"""

from __future__ import annotations

import numpy as np

from hal.core.engine.classes import ClassSpec
from hal.core.engine.rules.licensing import row_of_licence
from hal.core.engine.state import State
from hal.core.kernels.structures import layout as L
from hal.core.model.policy_check import instant_text
from hal.core.model.units import format_wait
from hal.core.model.verdict import Reason, Verdict


def unlicensed(
    state: State, job: int, slot: int, spec: ClassSpec, now_ms: int, *, brief: bool = False
) -> Verdict | None:
    """The first licence of which too little is free, or of which a job ahead has reserved what is.

    Args:
        brief: without the time at which some come free.
    """
    start_ms = _reserved(state, slot)
    for name, asked in spec.licences.items():
        licence = row_of_licence(state, spec, name)
        total, used = (
            int(state.licences.licence_counts[licence, place]) for place in (L.LICENCE_TOTAL, L.LICENCE_USED)
        )
        whole = int(state.licences.licence_counts[licence, L.LICENCE_WHOLE])
        free = max(total - used, 0)
        mine = state.licences.names[licence].booking
        where = f" in booking '{mine}'" if mine else ""
        message = f"licence {name}: {free} of {total} free{where}, {asked} needed"
        if not mine and total < whole:
            message = f"licence {name}: {free} of {whole} free, {asked} needed; bookings keep {whole - total} of them"
        at_ms: int | None = None
        if free < asked:
            at_ms, given = (None, 0) if brief else _comes_free(state, licence, asked - (total - used), now_ms)
            if at_ms is not None:
                message += f"; {given} come free in {format_wait(at_ms - now_ms)}"
        else:
            until = _kept_from(state, slot, licence, now_ms)
            ahead = _booked_from(state, slot, licence, asked, now_ms)
            if ahead is not None and (until is None or ahead[1] <= until):
                name_of_booking, until = ahead
                message += f"; booking '{name_of_booking}' keeps some from {instant_text(until)}"
                message += f", in {format_wait(until - now_ms)}"
            elif until is not None:
                message += f", but they are reserved for a job ahead in {format_wait(until - now_ms)}"
            else:
                continue
        starts_at_ms = start_ms if start_ms is not None else at_ms
        basis = "reservation" if start_ms is not None else "walltimes of running jobs" if at_ms is not None else ""
        return Verdict(
            job=job, reason=Reason.LICENCE, message=message, short=f"licence {name}", resource=name, asked=asked,
            available=free, starts_at_ms=starts_at_ms, basis=basis,
        )  # fmt: skip
    return None


def _reserved(state: State, slot: int) -> int | None:
    reservation = int(state.work.entries[slot, L.E_RESERVED])
    if reservation < 0 or state.work.reservations[reservation, L.V_KIND] != L.KIND_RESERVED:
        return None
    return int(state.work.reservations[reservation, L.V_START])


def _wants(state: State, class_id: int, licence: int) -> int:
    return int(state.licences.wants[state.catalogue.classes[class_id, L.C_SHAPE], licence])


def _comes_free(state: State, licence: int, lacking: int, now_ms: int) -> tuple[int | None, int]:
    """When running attempts will have given back as much as lacks, and how much that is then."""
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    slots = np.flatnonzero((runs[:, L.R_NODES] > 0) & (runs[:, L.R_END] < L.INF))
    given = 0
    for run in slots[np.argsort(runs[slots, L.R_END], kind="stable")].tolist():
        given += _wants(state, int(state.work.buckets[runs[run, L.R_BUCKET], L.B_CLASS]), licence)
        if given >= lacking:
            return max(int(runs[run, L.R_END]), now_ms + 1), given
    return None, given


def _kept_from(state: State, slot: int, licence: int, now_ms: int) -> int | None:
    """When the first reservation of others of the same licence begins, if that is before it would end."""
    planned = int(state.work.entries[slot, L.E_PLANNED])
    starts = [
        int(reservation[L.V_START])
        for reservation in state.work.reservations[: int(state.meta[L.M_RESERVATIONS])]
        if reservation[L.V_ENTRY] not in (slot, -1)
        and reservation[L.V_KIND] == L.KIND_RESERVED
        and now_ms < reservation[L.V_START] < now_ms + planned
        and _wants(state, int(reservation[L.V_CLASS]), licence)
    ]
    return min(starts, default=None)


def _booked_from(state: State, slot: int, licence: int, asked: int, now_ms: int) -> tuple[str, int] | None:
    """The first booking before its walltime ends that leaves less than it asks for, by the walltimes of what runs."""
    name = state.licences.names[licence]
    wall_ms = int(state.work.entries[slot, L.E_WALL])
    if name.booking:
        return None
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    live = np.flatnonzero(runs[:, L.R_NODES] > 0)
    for known in state.bookings.all:
        begin = known.spec.start_ms
        if name.name in known.spec.licences and now_ms < begin < now_ms + wall_ms:
            set_aside = sum(
                other.spec.licences.get(name.name, 0)
                for other in state.bookings.all
                if other.spec.start_ms <= begin < other.spec.end_ms
            )
            held = sum(
                _wants(state, int(state.work.buckets[runs[run, L.R_BUCKET], L.B_CLASS]), licence)
                for run in live.tolist()
                if runs[run, L.R_START] + runs[run, L.R_WALL] > begin
            )
            if int(state.licences.licence_counts[licence, L.LICENCE_WHOLE]) - set_aside - held < asked:
                return known.spec.name, begin
    return None
