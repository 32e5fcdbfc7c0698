"""How good nodes are for a job, by the placement that decides: asked of the same kernels.

Pure, O(nodes) a question; nothing is decided by it.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from hal.core.engine.advice_weights import advised_parts
from hal.core.engine.classes import NODE
from hal.core.engine.errors import EngineError
from hal.core.engine.plugins.answers import scores_of
from hal.core.engine.policies import AUTO, PLACEMENT_KERNELS
from hal.core.engine.state import State
from hal.core.engine.typical_work import note_typical_work
from hal.core.engine.views import node_view, preferring_request, rows_of_run
from hal.core.engine.why.foresight import first_entries
from hal.core.engine.why.scored_domains import ScoredDomain, score_of_domains
from hal.core.kernels.passes.node_scores import SCORE_ONE, WEIGHED, weigh
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints

TERMS: Final = ("best-fit", "least-loaded", "dot-product", "gpu-packing")
"""Rows 1 to WEIGHED - 1 of what `weigh` fills."""
assert len(TERMS) == WEIGHED - 1
PLACEMENT: Final = "placement"
"""The part of a score that no preference adds."""
OUTSIDE: Final = 1 << 40
"""In place of a count: the node is in no domain, and comes after all that are in some."""


class ScoredNode(msgspec.Struct, frozen=True):
    """A node that could take a task now, with its score: from 0 to 1 by the placement in force, and what the job's
    preferences add to it. terms: of each built-in placement, for comparison. parts: what the score is the sum of, {}
    where that is the placement alone. held: how many nodes the job has in this one's domain, over which it is spread;
    None where it is not, or the node is in no such domain."""

    node: str
    score: float
    terms: dict[str, float]
    parts: dict[str, float] = {}
    held: int | None = None


class ScoredNodes(msgspec.Struct, frozen=True):
    """The best nodes for a job.

    placement: by what they are scored; where it is first-fit they are in its order, and it adds 0. fits: how many nodes
    have room for a task now. spread: the level over whose domains the job is spread; those where it has fewest nodes
    come before better ones. domains: the best ones, where a
    plugin scores them and the job is one of several nodes. group: of a job with several groups of nodes, which one all
    this is about: the first.
    """

    placement: str
    fits: int
    nodes: tuple[ScoredNode, ...]
    domains: tuple[ScoredDomain, ...] = ()
    spread: str = ""
    group: str = ""


def score_of_nodes(state: State, job: int, limit: int) -> ScoredNodes:
    """The best nodes for a waiting task of a job that have room for it now, the best first; reservations and bookings
    are not looked at.

    Raises:
        EngineError: none of its tasks waits.
    """
    slots = first_entries(state, job)
    if not slots.shape[0]:
        raise EngineError(f"job {job} has no waiting task in the engine: nothing of it is to be placed")
    slot = int(slots[0])
    if state.meta[L.M_GROUPS]:
        slot = int(slots[np.argmin(state.work.entries[slots, L.E_FIRST])])
    bucket = int(state.work.entries[slot, L.E_BUCKET])
    class_id = int(state.work.buckets[bucket, L.B_CLASS])
    shape = int(state.catalogue.classes[class_id, L.C_SHAPE])
    spec = state.catalogue.class_specs[class_id]
    assert spec is not None
    rows = len(state.nodes.names)
    weighed = np.zeros((WEIGHED, max(rows, 1)), np.int64)
    if state.meta[L.M_PLACEMENT] == L.PLACE_FGD:
        note_typical_work(state)
    queue = state.shares.owners[state.work.buckets[bucket, L.B_OWNER], L.O_QUEUE]
    others = state.catalogue.preference_specs[int(state.shares.queues[queue, L.Y_PREFERENCE])]
    placement = PLACEMENT_KERNELS[others.placement] if others is not None and others.placement else -1
    fits = int(weigh(state.at, shape, placement if placement >= 0 else int(state.meta[L.M_PLACEMENT]), weighed))
    there = np.flatnonzero(weighed[0, :rows] >= 0)
    score = state.plugins.score
    if score is not None and placement < 0:
        weighed[0, :rows] = scores_of(
            score, preferring_request(state, spec), node_view(state, reads=score.info.reads_advice)
        )
    parts = {PLACEMENT: weighed[0, :rows].copy()}
    if spec.preference is not None and spec.preference.near:
        parts["affinity"] = state.catalogue.favours[state.catalogue.classes[class_id, L.C_PREFERENCE], :rows]
    if others is not None and others.weights:
        parts |= advised_parts(state, others)
    if len(parts) > 1:
        weighed[0, :rows] = sum(parts.values())
    order, held = there, np.zeros(rows, np.int64)
    spread = spec.preference.spread if spec.preference is not None else ""
    if spec.preference is not None or others is not None:
        order = state.nodes.rows[there, L.N_PLACE]  # of equals the first in topological order, not the first of all
        held = _held(state, job, spread)
    best = there[np.lexsort((order, -weighed[0, there], held[there]))][:limit]
    return ScoredNodes(
        placement=others.placement if others is not None and others.placement else _in_force(state),
        fits=fits,
        nodes=tuple(
            ScoredNode(
                state.nodes.names[row],
                int(weighed[0, row]) / SCORE_ONE,
                {name: int(weighed[at, row]) / SCORE_ONE for at, name in enumerate(TERMS, start=1)},
                {name: int(part[row]) / SCORE_ONE for name, part in parts.items()} if len(parts) > 1 else {},
                held=int(held[row]) if spread and held[row] < OUTSIDE else None,
            )
            for row in best.tolist()
        ),
        domains=score_of_domains(state, bucket, limit),
        spread=spread,
        group=spec.group,
    )


def _held(state: State, job: int, spread: str) -> Ints:
    """By node, how many nodes a job holds in its domain of a level; OUTSIDE where it is in none, 0 where nothing is
    spread."""
    rows = len(state.nodes.names)
    at = state.domains.level_of(spread) if spread else -1
    if spread == NODE:
        domains = np.arange(1, rows + 1)
    elif at >= 0:
        domains = state.domains.domain_of[at, :rows]
    else:
        return np.zeros(rows, np.int64)
    runs = np.flatnonzero(state.work.runs[: int(state.meta[L.M_RUN_TOP]), L.R_JOB] == job)
    runs = runs[state.work.runs[runs, L.R_NODES] > 0]
    mine = [row for run in runs.tolist() for row in rows_of_run(state, run)]
    counts = np.bincount(domains[np.array(mine, np.int64)], minlength=int(domains.max(initial=0)) + 1)
    return np.where(domains > 0, counts[domains], OUTSIDE)


def _in_force(state: State) -> str:
    """The placement by name; what `auto` means now."""
    if state.config.placement != AUTO:
        return state.config.placement
    in_force = int(state.meta[L.M_PLACEMENT])
    return next(name for name, number in PLACEMENT_KERNELS.items() if name != AUTO and number == in_force)
