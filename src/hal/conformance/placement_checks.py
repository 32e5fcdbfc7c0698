"""Check the contracts of a Score, a DomainScore and a Filter."""

from __future__ import annotations

from functools import partial

import numpy as np

from hal.conformance import inputs
from hal.conformance.answers import SAME_WITHIN, Asking, info_of
from hal.core.interfaces import domain_score as domain_interface
from hal.core.interfaces import filter as filter_interface
from hal.core.interfaces import score as score_interface
from hal.core.interfaces.domain_score import DomainScore
from hal.core.interfaces.filter import Filter
from hal.core.interfaces.score import Score


def check_score(policy: Score, *, seed: int = 0) -> None:
    """Check that scores are numbers; 0..1 where the request fits; a row's score depends on that row, and on `free`
    only if declared.

    Raises:
        NonConformance: at the first answer that breaks the contract.
    """
    info = info_of(policy, score_interface.VERSIONS, ("score",))
    chance = np.random.default_rng(seed)
    score = Asking(info.name, "score")
    for case, count in enumerate(inputs.lengths(chance)):
        view, asked = inputs.nodes(count, chance, info.reads_advice), inputs.request(chance)
        if info.reads_preference:
            asked = inputs.preferring(asked, chance)
        score.about(f"case {case} of seed {seed}, {count} rows")
        whole = score.column(partial(policy.score, asked, view), count, "iuf")
        if not np.isfinite(whole).all():
            at = int(np.flatnonzero(~np.isfinite(whole))[0])
            raise score.wrong(
                f"returned the score {whole[at]} for row {at} (free {view.free[:, at].tolist()} of "
                f"{view.capacity[:, at].tolist()}); every row needs a number, even where a resource is missing"
            )
        fits = inputs.holding(view, asked)
        outside = fits & ((whole < 0) | (whole > 1 + SAME_WITHIN))
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            raise score.wrong(
                f"returned the score {whole[at]} for row {at}, which can hold the request; 0..1 is needed"
            )
        chosen = inputs.some_of(count, chance)
        part = inputs.nodes_at(view, chosen)
        some = score.column(partial(policy.score, asked, part), chosen.size, "iuf")
        score.same_for_some(whole, some, chosen, "row")
        if not info.reads_free:
            other = inputs.otherwise_free(view, chance)
            again = score.column(partial(policy.score, asked, other), count, "iuf")
            both = fits & inputs.holding(other, asked)
            moved = both & (np.abs(whole.astype(np.float64) - again) > SAME_WITHIN)
            if moved.any():
                at = int(np.flatnonzero(moved)[0])
                raise score.wrong(
                    f"returned {whole[at]} for row {at}, and {again[at]} when other amounts were free: declare "
                    "PolicyInfo(reads_free=True), or the first answer is kept"
                )


def check_domain_score(policy: DomainScore, *, seed: int = 0) -> None:
    """Check that scores are numbers; 0..1 where the gang fits; a domain's score depends on that domain and its nodes,
    not on which other domains and nodes are passed.

    Raises:
        NonConformance: at the first answer that breaks the contract.
    """
    info = info_of(policy, domain_interface.VERSIONS, ("score",))
    chance = np.random.default_rng(seed)
    score = Asking(info.name, "score")
    for case, count in enumerate(inputs.lengths(chance)):
        nodes, gang = inputs.nodes(count, chance), inputs.gang(chance)
        view = inputs.domains(nodes, gang, chance)
        score.about(f"case {case} of seed {seed}, {view.domains} domains of {count} nodes")
        whole = score.column(partial(policy.score, gang, nodes, view), view.domains, "iuf")
        if not np.isfinite(whole).all():
            at = int(np.flatnonzero(~np.isfinite(whole))[0])
            raise score.wrong(
                f"returned the score {whole[at]} for domain {view.name[at]} ({view.nodes[at]} nodes up, "
                f"{view.fits[at]} with room); every domain needs a number"
            )
        outside = (view.fits >= gang.nodes) & ((whole < 0) | (whole > 1 + SAME_WITHIN))
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            raise score.wrong(
                f"returned the score {whole[at]} for domain {view.name[at]}, which can hold the gang; 0..1 is needed"
            )
        chosen = inputs.some_of(view.domains, chance)
        fewer, part = inputs.domains_at(nodes, view, chosen)
        some = score.column(partial(policy.score, gang, fewer, part), chosen.size, "iuf")
        score.same_for_some(whole, some, chosen, "domain")


def check_filter(policy: Filter, *, seed: int = 0) -> None:
    """Check that a mask is one bool per row, depends on that row alone, and never on what is free.

    Raises:
        NonConformance: at the first answer that breaks the contract.
    """
    info = info_of(policy, filter_interface.VERSIONS, ("mask",))
    chance = np.random.default_rng(seed)
    mask = Asking(info.name, "mask")
    for case, count in enumerate(inputs.lengths(chance)):
        view, asked = inputs.nodes(count, chance), inputs.request(chance)
        mask.about(f"case {case} of seed {seed}, {count} rows")
        whole = mask.column(partial(policy.mask, asked, view), count, "b")
        chosen = inputs.some_of(count, chance)
        part = inputs.nodes_at(view, chosen)
        some = mask.column(partial(policy.mask, asked, part), chosen.size, "b")
        mask.same_for_some(whole, some, chosen, "row")
        other = inputs.otherwise_free(view, chance)
        again = mask.column(partial(policy.mask, asked, other), count, "b")
        if (whole != again).any():
            at = int(np.flatnonzero(whole != again)[0])
            raise mask.wrong(
                f"returned {whole[at]} for row {at}, and {again[at]} when other amounts were free: a filter is called "
                f"once "
                "and its answer kept; the engine checks what is free"
            )
