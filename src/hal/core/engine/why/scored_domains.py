"""How good domains are for a job of several nodes, where a plugin scores them: as the next slice would ask it.

Pure; nothing is decided by it.
"""

from __future__ import annotations

import msgspec
import numpy as np

from hal.core.engine.domain_scoring import Candidates, is_placed_by_domain
from hal.core.engine.plugins.answers import domain_scores_of
from hal.core.engine.state import State
from hal.core.kernels.passes.node_scores import SCORE_ONE


class ScoredDomain(msgspec.Struct, frozen=True):
    """A domain that could take the job now. score: from 0 to 1. fits: nodes with room for a part of the job."""

    domain: str
    level: str
    score: float
    fits: int


def score_of_domains(state: State, bucket: int, limit: int) -> tuple[ScoredDomain, ...]:
    """The best domains for work of a bucket that have room for it now, the best first; () where none are scored.

    Reservations and bookings are not looked at.
    """
    policy = state.plugins.domain_score
    if policy is None or not is_placed_by_domain(state, bucket):
        return ()
    candidates = Candidates(state)
    gang, domains = candidates.about(bucket)
    scores = domain_scores_of(policy, gang, candidates.nodes, domains)
    widest = domains.levels.index(gang.within) if gang.within in domains.levels else 0
    there = np.flatnonzero((domains.fits >= gang.nodes) & (domains.level >= widest))
    best = there[np.lexsort((there, domains.fits[there], -domains.level[there], -scores[there]))][:limit]
    return tuple(
        ScoredDomain(
            str(domains.name[at]),
            domains.levels[int(domains.level[at])],
            int(scores[at]) / SCORE_ONE,
            int(domains.fits[at]),
        )
        for at in best.tolist()
    )
