"""Preferences: what classes and queues would rather have, interned beside classes and kept as rows that kernels read.

Pure. A preference never refuses a node and is part of no shape, so feasibility, windows and parking know nothing of it.
"""

from __future__ import annotations

import numpy as np

from hal.core.engine.classes import NODE, Preference
from hal.core.engine.policies import PLACEMENT_KERNELS
from hal.core.engine.state import State
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.declared import PREFERENCES
from hal.core.model.policy import COMPACTNESS, Policy, Queue


def preference_id(state: State, preference: Preference | None) -> int:
    """The row of a preference, a new one where it is new; 0 of none."""
    if preference is None:
        return 0
    catalogue = state.catalogue
    there = catalogue.preference_ids.get(preference)
    if there is not None:
        return there
    if not catalogue.preference_free and len(catalogue.preference_specs) >= catalogue.preferences.shape[0]:
        _forget(state)
    if catalogue.preference_free:
        row = catalogue.preference_free.pop()
        catalogue.preference_specs[row] = preference
    else:
        row = len(catalogue.preference_specs)
        catalogue.preference_specs.append(preference)
        if row >= catalogue.preferences.shape[0]:
            state.make_room({PREFERENCES: 2 * row})
    catalogue.preference_ids[preference] = row
    catalogue.changes += 1
    catalogue.favours[row] = 0
    catalogue.preferences[row] = 0
    catalogue.preferences[row, L.LIKE_SPREAD] = _spread_over(state, preference.spread)
    catalogue.preferences[row, L.LIKE_SCATTERED] = int(preference.scattered)
    if preference.placement:
        catalogue.preferences[row, L.LIKE_PLACEMENT] = 1 + PLACEMENT_KERNELS[preference.placement]
    catalogue.weighing += int(bool(preference.weights))
    state.meta[L.M_PREFERS] = 1
    return row


def preference_of_queue(queue: Queue) -> Preference | None:
    """What the policy prefers for the jobs of a queue; None: nothing."""
    weights = tuple(sorted((kind, float(weight)) for kind, weight in queue.preferences.items() if kind != COMPACTNESS))
    scattered = queue.preferences.get(COMPACTNESS) == 0
    if not (queue.placement or weights or scattered):
        return None
    return Preference(placement=queue.placement, weights=weights, scattered=scattered)


def weighed_kinds(policy: Policy | None) -> frozenset[str]:
    """The kinds of advice that queues weigh."""
    queues = policy.queues.values() if policy is not None else ()
    return frozenset(kind for queue in queues for kind in queue.preferences) - {COMPACTNESS}


def name_levels(state: State) -> None:
    """The topology has other levels (part of `apply`)."""
    for preference, row in state.catalogue.preference_ids.items():
        state.catalogue.preferences[row, L.LIKE_SPREAD] = _spread_over(state, preference.spread)


def _spread_over(state: State, level: str) -> int:
    """LIKE_SPREAD of a level; of one that is not declared nothing is preferred."""
    if level == NODE:
        return L.SPREAD_NODES
    at = state.domains.level_of(level) if level else -1
    return L.SPREAD_LEVELS + at if at >= 0 else 0


def _forget(state: State) -> None:
    """Forget preferences that no class and no queue has any more."""
    catalogue = state.catalogue
    used = set(np.unique(catalogue.classes[: len(catalogue.class_specs), L.C_PREFERENCE]).tolist())
    used |= set(state.shares.queues[: int(state.meta[L.M_QUEUES]), L.Y_PREFERENCE].tolist())
    for preference, row in list(catalogue.preference_ids.items()):
        if row not in used:
            del catalogue.preference_ids[preference]
            catalogue.preference_specs[row] = None
            catalogue.preference_free.append(row)
            catalogue.changes += 1
