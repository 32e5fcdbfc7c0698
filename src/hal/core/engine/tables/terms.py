"""Whom the terms of affinity concern, and what of it was known when they were last asked. Pure values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hal.core.engine.classes import ClassSpec, Preference, Term
from hal.core.kernels.structures.arrays import Ints


class Kinds:
    """The kinds of work that terms concern, and who asks about whom; never changed after it was made.

    Attributes:
        affine: by constraint set, those with terms, and those that a term names.
        liked: by constraint set, those that a preferred term names.
        liking: by row, preferences with terms.
        labelled: by label, the sets that have it and that some term names.
        by_term: the sets with a term `apart`.
        apart_from: by label, the terms `apart` that name it.
        namers: by label, the sets with any term that names it.
        flags: by constraint set, C_AFFINE of its classes.
    """

    def __init__(self, sets: list[ClassSpec | None], preference_ids: dict[Preference, int]) -> None:
        social = {cset: spec for cset, spec in enumerate(sets) if spec is not None and spec.is_social}
        self.namers: dict[str, list[int]] = {}
        for cset, spec in social.items():
            for term in (*spec.apart, *spec.together):
                self.namers.setdefault(term.label, []).append(cset)
        self.affine: dict[int, ClassSpec] = {
            cset: spec
            for cset, spec in social.items()
            if spec.apart or spec.together or not self.namers.keys().isdisjoint(spec.labels)
        }
        self.liking = {row: preference for preference, row in preference_ids.items() if preference.near}
        named = {like.term.label for preference in self.liking.values() for like in preference.near}
        self.liked: dict[int, ClassSpec] = {
            cset: spec for cset, spec in social.items() if named and not named.isdisjoint(spec.labels)
        }
        self.labelled: dict[str, list[int]] = {}
        self.by_term: dict[Term, list[int]] = {}
        self.apart_from: dict[str, list[Term]] = {}
        for cset, spec in (self.liked | self.affine).items():
            for label in spec.labels:
                self.labelled.setdefault(label, []).append(cset)
            for term in spec.apart:
                if term not in self.by_term:
                    self.apart_from.setdefault(term.label, []).append(term)
                self.by_term.setdefault(term, []).append(cset)
        self.flags: Ints = np.zeros(len(sets), np.int64)
        self.flags[list(self.liked)] = 2
        self.flags[list(self.affine)] = 1

    def spec_of(self, cset: int) -> ClassSpec | None:
        """Of a set that some term concerns."""
        return self.affine.get(cset) or self.liked.get(cset)


class Asked(NamedTuple):
    """Which work was asked about, and what held nodes then."""

    kinds: Kinds
    version: int
    """`Catalogue.changes` then."""
    nodes: int
    """`Nodes.changes` then."""
    rows: int
    held: Ints
    """`Held.keys`."""
