"""Why a job with several groups of nodes waits: which group lacks what, or what keeps them from starting together.

Pure, O(nodes x groups + domains x 2**groups) a question, in whole columns.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from hal.core.engine.classes import ClassSpec
from hal.core.engine.state import State
from hal.core.engine.why.beside import kept_from
from hal.core.engine.why.feasible import enough_for_all, never_fits, offers_needed
from hal.core.engine.why.foresight import RESERVED
from hal.core.kernels.structures import layout as L
from hal.core.model.units import format_amount, plural
from hal.core.model.verdict import Reason, Verdict


def groups_kept(state: State, job: int, class_id: int, spec: ClassSpec) -> Verdict | None:
    """What keeps it whatever is free: nodes that are down, that there are not, or that affinity keeps it from."""
    could_hold = _could_hold_all(state, class_id, spec)
    if not could_hold:  # else enough nodes are known: what follows looks at machines one by one
        never = never_fits(state, spec)
        if never is not None:
            return never.verdict(job)
        offers = offers_needed(state, spec)
        if offers:
            names = ", ".join(offers[:5])
            return Verdict(
                job=job, reason=Reason.OFFER, asked=spec.nodes,
                message=f"waits for machines that could be rented: {names}",
            )  # fmt: skip
    if spec.is_social and state.meta[L.M_AFFINE]:
        away = _parted(state, job, class_id, spec, could_hold=could_hold)
        if away is not None:
            return away
    if could_hold:
        return None
    down = [
        f"group {part.group} needs {plural(part.nodes, 'node')}; of those that could hold it {up or 'none'} "
        f"{'is' if up < 2 else 'are'} up"
        for part, up in _counts(state, class_id, spec, L.S_EVER)
        if up < part.nodes
    ]
    if not down:
        down = [f"too few of the nodes that could hold its groups are up to hold all of them at once{_in(spec)}"]
    return Verdict(job=job, reason=Reason.NODES_DOWN, asked=0, message="; ".join(down))


def _parted(state: State, job: int, class_id: int, spec: ClassSpec, *, could_hold: bool) -> Verdict | None:
    """What affinity keeps from it: nodes of one group, or so many of all that what is left does not do for them at
    once."""
    for part, shape in _shapes(state, class_id, spec):
        away = kept_from(state, job, part, shape)
        if away is not None:
            return replace(away, message=f"group {part.group}: {away.message}")
    if could_hold or not _could_hold_all(state, class_id, spec, parted=False):
        return None
    return Verdict(
        job=job, reason=Reason.AFFINITY, asked=sum(part.nodes for part in (spec, *spec.groups)),
        message="what runs keeps it from so many nodes that the others do not do for all its groups at once"
        + _in(spec),
    )  # fmt: skip


def _could_hold_all(state: State, class_id: int, spec: ClassSpec, *, parted: bool = True) -> bool:
    """Whether the nodes that are up could hold all groups at once when they are empty. parted: only those from which
    affinity does not keep it."""
    rows = len(state.nodes.names)
    does_for = np.zeros(rows, np.int64)
    for place, (_part, shape) in enumerate(_shapes(state, class_id, spec)):
        cset = int(state.catalogue.shapes[shape, L.S_CSET])
        allowed = state.nodes.allowed[cset] if parted else state.nodes.unparted.get(cset, state.nodes.allowed[cset])
        fits = (state.nodes.capacity[:rows] >= state.catalogue.request[:, shape]).all(axis=1)
        does_for |= (fits & (allowed[:rows] != 0)).astype(np.int64) << place
    return enough_for_all(state, spec, does_for)


def _in(spec: ClassSpec) -> str:
    return f" in one {spec.within}" if spec.within else ""


def groups_short(state: State, job: int, slot: int, class_id: int, spec: ClassSpec, now_ms: int, ahead: int) -> Verdict:
    """Which groups lack nodes now. Where none does, the same nodes do for several groups, or others reserved them."""
    fits = _counts(state, class_id, spec, L.S_FIT)
    short = [(part, fit) for part, fit in fits if fit < part.nodes]
    reservation = int(state.work.entries[slot, L.E_RESERVED])
    starts_at_ms, basis = None, ""
    if reservation >= 0 and state.work.reservations[reservation, L.V_KIND] == L.KIND_RESERVED:
        starts_at_ms, basis = int(state.work.reservations[reservation, L.V_START]), RESERVED
    if not short and reservation < 0 and not state.meta[L.M_RESERVATIONS]:
        return Verdict(
            job=job, reason=Reason.NOT_CONSIDERED, message="each group fits now; the next pass considers it",
            position=ahead,
        )  # fmt: skip
    if not short and reservation < 0:
        return Verdict(
            job=job, reason=Reason.PRIORITY, position=ahead,
            message="each group fits now, but what they need together is reserved for jobs ahead of it",
        )  # fmt: skip
    asked = sum(part.nodes for part, _ in fits)
    if short:
        lacks = "; ".join(
            f"group {part.group} lacks {part.nodes - fit} of {plural(part.nodes, 'node')} with {_amounts(part)}"
            for part, fit in short
        )
        others = [part.group for part, fit in fits if fit >= part.nodes]
        ready = f"; {', '.join(others)} could start now" if others else ""
        message = f"starts when all its groups fit at once: {lacks}{ready}"
    else:
        how = "beside what is reserved, or on the same nodes" if state.keeps_timelines else "on the same nodes"
        how = f"not all in one {spec.within}, {how}" if spec.within else how
        message = f"needs {asked} nodes for its groups together; each group alone fits now, but {how}"
    return Verdict(
        job=job, reason=Reason.RESOURCES, resource="nodes", asked=asked,
        available=sum(min(fit, part.nodes) for part, fit in fits), message=message, starts_at_ms=starts_at_ms,
        basis=basis, forecast_at_ms=state.clock_ms if basis else None, position=ahead,
    )  # fmt: skip


def _counts(state: State, class_id: int, spec: ClassSpec, column: int) -> list[tuple[ClassSpec, int]]:
    """Each group, and how many nodes its shape is counted to have."""
    return [(part, int(state.catalogue.shapes[shape, column])) for part, shape in _shapes(state, class_id, spec)]


def _shapes(state: State, class_id: int, spec: ClassSpec) -> list[tuple[ClassSpec, int]]:
    """Each group, and its shape."""
    found = []
    for part in (spec, *spec.groups):
        row = state.catalogue.classes[class_id]
        found.append((part, int(row[L.C_SHAPE])))
        class_id = int(row[L.C_NEXT]) - 1
    return found


def _amounts(part: ClassSpec) -> str:
    return ", ".join(f"{format_amount(name, amount)} {name}" for name, amount in part.request.items() if amount)
