"""Why affinity keeps a job waiting: nodes that would do, but for what runs there or does not.

Pure. O(nodes) a question, in whole columns.
"""

from __future__ import annotations

import numpy as np

from hal.core.engine.classes import ClassSpec, Term
from hal.core.engine.state import State
from hal.core.engine.why.foresight import together
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Rows
from hal.core.model.units import plural
from hal.core.model.verdict import Reason, Verdict

MAX_NAMED = 5
"""Nodes that a message names."""


def kept_from(state: State, job: int, spec: ClassSpec, shape: int) -> Verdict | None:
    """The verdict of a job that would start, or could some day, on nodes that affinity keeps it from; None: on the
    others it fits, or not even with these."""
    rows = len(state.nodes.names)
    cset = int(state.catalogue.shapes[shape, L.S_CSET])
    unparted = state.nodes.unparted.get(cset)
    if unparted is None:
        return None
    asked = state.catalogue.request[:, shape]
    may = unparted[:rows] != 0
    allowed = state.nodes.allowed[cset, :rows] != 0
    for amounts in (state.nodes.free[:rows], state.nodes.capacity[:rows]):
        fits = (amounts >= asked).all(axis=1)
        if together(state, spec, np.flatnonzero(fits & allowed)) >= spec.nodes:
            return None
        away = np.flatnonzero(fits & may & ~allowed)
        if away.size and together(state, spec, np.flatnonzero(fits & may)) >= spec.nodes:
            return Verdict(job=job, reason=Reason.AFFINITY, message=_message(state, spec, away), asked=spec.nodes)
    return None


def _message(state: State, spec: ClassSpec, away: Rows) -> str:
    named = sorted(state.nodes.names[row] for row in away[:MAX_NAMED].tolist())
    more = f" and {away.size - MAX_NAMED} more" if away.size > MAX_NAMED else ""
    why = [f"it is to be apart from {_text(term)}" for term in spec.apart]
    others = {
        term for other in state.catalogue.sets if other is not None for term in other.apart if term.label in spec.labels
    }
    why += [f"others are to be apart from {_text(term)}" for term in sorted(others - set(spec.apart))]
    why += [f"it is to be together with {_text(term)}" for term in spec.together]
    return f"what runs keeps it from {plural(away.size, 'node')} ({', '.join(named)}{more}): {', '.join(why)}"


def _text(term: Term) -> str:
    return f"{term.label.partition(' ')[2]} by {term.level}"
