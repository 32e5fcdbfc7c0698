"""What advice adds to the scores of nodes, by the weights that queues give it.

Pure. O(nodes) for each kind and queue that weighs it, when advice or nodes have changed. A node of which nothing is
advised gets nothing.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from hal.core.engine.classes import Preference
from hal.core.engine.state import State
from hal.core.engine.views import advice_on_nodes
from hal.core.kernels.passes.node_scores import SCORE_ONE
from hal.core.kernels.structures.arrays import Ints

MOST_FAVOUR: Final = 1 << 35
"""What advice adds to a score at most, in millionths; `preferred.FAR` leaves room for more."""


def weigh_advice(state: State) -> None:
    """Before a slice: work out again, where it has changed, what advice adds to the scores of nodes by the weights of
    queues."""
    catalogue = state.catalogue
    known = state.advice.changes, state.nodes.changes, catalogue.weighing
    if known == catalogue.weighed:
        return
    catalogue.weighed = known
    for preference, row in catalogue.preference_ids.items():
        if preference.weights:
            parts = advised_parts(state, preference)
            favour = np.sum(list(parts.values()), axis=0)
            catalogue.favours[row, : favour.shape[0]] = np.clip(favour, -MOST_FAVOUR, MOST_FAVOUR)


def advised_parts(state: State, preference: Preference) -> dict[str, Ints]:
    """By kind of advice, what it adds to the score of each node, in millionths."""
    columns = advice_on_nodes(state, tuple(kind for kind, _weight in preference.weights))
    parts = {}
    for kind, weight in preference.weights:
        added = np.nan_to_num(columns[kind] * weight * SCORE_ONE, posinf=MOST_FAVOUR, neginf=-MOST_FAVOUR)
        parts[kind] = np.rint(np.clip(added, -MOST_FAVOUR, MOST_FAVOUR)).astype(np.int64)
    return parts
