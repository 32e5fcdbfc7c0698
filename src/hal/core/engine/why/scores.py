"""How good nodes are for a job, by the placement that decides: asked of the same kernels.

Pure, O(nodes) a question; nothing is decided by it.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from hal.core.engine.errors import EngineError
from hal.core.engine.plugins.answers import scores_of
from hal.core.engine.policies import AUTO, PLACEMENT_KERNELS
from hal.core.engine.state import State
from hal.core.engine.typical_work import note_typical_work
from hal.core.engine.views import node_view, request_of
from hal.core.engine.why.foresight import first_entries
from hal.core.engine.why.scored_domains import ScoredDomain, score_of_domains
from hal.core.kernels.passes.node_scores import SCORE_ONE, WEIGHED, weigh
from hal.core.kernels.structures import layout as L

TERMS: Final = ("best-fit", "least-loaded", "dot-product", "gpu-packing")
"""Rows 1 to WEIGHED - 1 of what `weigh` fills."""
assert len(TERMS) == WEIGHED - 1


class ScoredNode(msgspec.Struct, frozen=True):
    """A node that could take a task now, with its scores from 0 to 1: of the placement in force, and of each built-in
    term for comparison."""

    node: str
    score: float
    terms: dict[str, float]


class ScoredNodes(msgspec.Struct, frozen=True):
    """The best nodes for a job.

    placement: by what they are scored; where it is first-fit they are in its order, and `score` is 0. fits: how many
    nodes have room for a task now.
    domains: the best ones, where a plugin scores them and the job is one of several nodes.
    """

    placement: str
    fits: int
    nodes: tuple[ScoredNode, ...]
    domains: tuple[ScoredDomain, ...] = ()


def score_of_nodes(state: State, job: int, limit: int) -> ScoredNodes:
    """The best nodes for a waiting task of a job that have room for it now, the best first; reservations and bookings
    are not looked at.

    Raises:
        EngineError: none of its tasks waits.
    """
    slots = first_entries(state, job)
    if not slots.shape[0]:
        raise EngineError(f"job {job} has no waiting task in the engine: nothing of it is to be placed")
    bucket = int(state.work.entries[int(slots[0]), L.E_BUCKET])
    class_id = int(state.work.buckets[bucket, L.B_CLASS])
    shape = int(state.catalogue.classes[class_id, L.C_SHAPE])
    spec = state.catalogue.class_specs[class_id]
    assert spec is not None
    rows = len(state.nodes.names)
    weighed = np.zeros((WEIGHED, max(rows, 1)), np.int64)
    if state.meta[L.M_PLACEMENT] == L.PLACE_FGD:
        note_typical_work(state)
    fits = int(weigh(state.at, shape, weighed))
    there = np.flatnonzero(weighed[0, :rows] >= 0)
    score = state.plugins.score
    if score is not None:
        weighed[0, :rows] = scores_of(score, request_of(state, spec), node_view(state, reads=score.info.reads_advice))
    best = there[np.lexsort((there, -weighed[0, there]))][:limit]
    return ScoredNodes(
        placement=_in_force(state),
        fits=fits,
        nodes=tuple(
            ScoredNode(
                state.nodes.names[row],
                int(weighed[0, row]) / SCORE_ONE,
                {name: int(weighed[at, row]) / SCORE_ONE for at, name in enumerate(TERMS, start=1)},
            )
            for row in best.tolist()
        ),
        domains=score_of_domains(state, bucket, limit),
    )


def _in_force(state: State) -> str:
    """The placement by name; what `auto` means now."""
    if state.config.placement != AUTO:
        return state.config.placement
    in_force = int(state.meta[L.M_PLACEMENT])
    return next(name for name, number in PLACEMENT_KERNELS.items() if name != AUTO and number == in_force)
