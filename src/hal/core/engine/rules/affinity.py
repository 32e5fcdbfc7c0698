"""Affinity: which nodes work is kept from by what runs there, its own terms and those of others, and which it prefers.

Pure. A term names a label of work and a level: the work is in no domain of it (`apart`, which holds in both directions)
or only in such (`together`). What runs is counted again when an attempt that matters to somebody has come or gone:
O(running attempts, and nodes for each term), in whole columns. The result is taken from `allowed`, so that whatever
asks which nodes a class may use, now or later, asks the same. Preferred terms add to the scores of nodes instead.
Nothing is asked where no term names any work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hal.core.engine.classes import NODE, ClassSpec, Preference, Term
from hal.core.engine.state import State
from hal.core.kernels.passes.node_scores import SCORE_ONE
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints, Mask


class Held(NamedTuple):
    """What holds nodes, piece by piece."""

    sets: Ints
    """The constraint set of the attempt."""
    nodes: Ints
    begun: Mask
    """False: it is a claim, of which nothing runs yet."""


def part_nodes(state: State) -> None:
    """Take from `allowed` the nodes that affinity keeps work from as things are now (end of `apply`)."""
    state.meta[L.M_PARTED] = 0
    social = {cset: spec for cset, spec in enumerate(state.catalogue.sets) if spec is not None and spec.is_social}
    affine = _affine(social)
    liking = {row: preference for preference, row in state.catalogue.preference_ids.items() if preference.near}
    liked = _liked(social, liking)
    _note_classes(state, affine, liked, liking)
    nodes = state.nodes
    again = sorted(affine.keys() | nodes.parted)  # no others can have been parted, or be now
    nodes.parted = set(affine)
    if not again and not liking:
        return
    near = _Near(state, liked | affine)
    for row, preference in liking.items():
        _favour(state, near, row, preference)
    if again:
        _part(state, near, affine, again)


def _part(state: State, near: _Near, affine: dict[int, ClassSpec], again: list[int]) -> None:
    """Take from what these sets admit the nodes that affinity keeps them from now."""
    nodes = state.nodes
    rows = len(nodes.names)
    changed: Mask = np.zeros(rows, np.bool_)
    sets: list[int] = []
    for cset in again:
        if cset not in nodes.unparted:
            continue  # nothing has it any more
        before = nodes.allowed[cset, :rows]
        after = nodes.unparted[cset][:rows]
        if cset in affine:
            after = after & ~near.parted(affine[cset])
        differs = before != after
        if differs.any():
            nodes.allowed[cset, :rows] = after
            changed |= differs
            sets.append(cset)
    if sets:
        _follow(state, sets, changed)


def _affine(social: dict[int, ClassSpec]) -> dict[int, ClassSpec]:
    """Of these sets the ones with terms, and those that a term names."""
    named = {term.label for spec in social.values() for term in (*spec.apart, *spec.together)}
    return {
        cset: spec for cset, spec in social.items() if spec.apart or spec.together or not named.isdisjoint(spec.labels)
    }


def _liked(social: dict[int, ClassSpec], liking: dict[int, Preference]) -> dict[int, ClassSpec]:
    """Of these sets those that a preferred term names."""
    named = {like.term.label for preference in liking.values() for like in preference.near}
    return {cset: spec for cset, spec in social.items() if not named.isdisjoint(spec.labels)} if named else {}


def _favour(state: State, near: _Near, row: int, preference: Preference) -> None:
    """Work out what a preference adds to the score of each node as things are now."""
    favour = np.zeros(len(state.nodes.names), np.int64)
    for like in preference.near:
        favour[near.beside(like.term, begun=like.weight > 0)] += like.weight * (SCORE_ONE // 100)
    state.catalogue.favours[row, : favour.shape[0]] = favour


def _note_classes(
    state: State, affine: dict[int, ClassSpec], liked: dict[int, ClassSpec], liking: dict[int, Preference]
) -> None:
    """Tell kernels which classes terms concern, and which ones preferred terms alone."""
    catalogue = state.catalogue
    flags = np.zeros(len(catalogue.sets), np.int64)
    flags[list(liked)] = 2
    flags[list(affine)] = 1
    classes = catalogue.classes[: len(catalogue.class_specs)]
    classes[:, L.C_AFFINE] = flags[catalogue.shapes[classes[:, L.C_SHAPE], L.S_CSET]]
    if liking:
        rather = np.isin(classes[:, L.C_PREFERENCE], list(liking)) & (classes[:, L.C_AFFINE] == 0)
        classes[rather, L.C_AFFINE] = 2
    state.meta[L.M_AFFINE] = int(bool(affine or liking))


def _held(state: State) -> Held:
    """The nodes of all attempts and claims that matter to somebody."""
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    classes = state.catalogue.classes[state.work.buckets[runs[:, L.R_BUCKET], L.B_CLASS]]
    live = np.flatnonzero((runs[:, L.R_NODES] > 0) & (classes[:, L.C_AFFINE] != 0))
    csets = state.catalogue.shapes[classes[live, L.C_SHAPE], L.S_CSET]
    begun = runs[live, L.R_STATE] != L.RUN_CLAIM
    piece = runs[live, L.R_PIECE]
    parts: list[tuple[Ints, Ints, Mask]] = []
    while piece.size:  # the next node of each that has one more
        parts.append((csets, state.work.pieces[piece, L.P_NODE], begun))
        following = state.work.pieces[piece, L.P_NEXT]
        more = following >= 0
        piece, csets, begun = following[more], csets[more], begun[more]
    if not parts:
        return Held(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_))
    return Held(*(np.concatenate(column) for column in zip(*parts, strict=True)))


class _Near:
    """What is near to all that is held: each question is answered once, whoever asks it."""

    def __init__(self, state: State, affine: dict[int, ClassSpec]) -> None:
        self._state = state
        self._held = _held(state)
        self._labelled: dict[str, list[int]] = {}
        self._by_term: dict[Term, list[int]] = {}
        self._terms: dict[str, list[Term]] = {}
        self._known: dict[tuple[str | Term, str], Mask] = {}
        for cset, spec in affine.items():
            for label in spec.labels:
                self._labelled.setdefault(label, []).append(cset)
            for term in spec.apart:
                if term not in self._by_term:
                    self._terms.setdefault(term.label, []).append(term)
                self._by_term.setdefault(term, []).append(cset)

    def parted(self, spec: ClassSpec) -> Mask:
        """The nodes that affinity keeps a class from."""
        away: Mask = np.zeros(len(self._state.nodes.names), np.bool_)
        for term in spec.apart:
            away |= self._around(term.label, term.level, self._labelled.get(term.label, []))
        for label in spec.labels:
            for term in self._terms.get(label, []):
                away |= self._around(term, term.level, self._by_term[term])
        for term in spec.together:
            there = self._nodes(self._labelled.get(term.label, []), begun=True)
            if there.size or term.label not in spec.labels:
                away |= ~_near(self._state, there, term.level)
        return away

    def beside(self, term: Term, *, begun: bool) -> Mask:
        """The nodes in a domain with work that a term names; `begun`: with such as runs already."""
        return _near(self._state, self._nodes(self._labelled.get(term.label, []), begun=begun), term.level)

    def _around(self, what: str | Term, level: str, csets: list[int]) -> Mask:
        known = self._known.get((what, level))
        if known is None:
            known = self._known[what, level] = _near(self._state, self._nodes(csets), level)
        return known

    def _nodes(self, csets: list[int], *, begun: bool = False) -> Ints:
        """The nodes that work of these sets holds; `begun`: that runs there."""
        asked: Mask = np.zeros(len(self._state.catalogue.sets), np.bool_)
        asked[csets] = True
        mine = asked[self._held.sets]
        return self._held.nodes[mine & self._held.begun if begun else mine]


def _near(state: State, nodes: Ints, level: str) -> Mask:
    """The nodes that are in a domain of a level with one of some nodes."""
    near: Mask = np.zeros(len(state.nodes.names), np.bool_)
    if level == NODE:
        near[nodes] = True
        return near
    at = state.domains.level_of(level)
    if at < 0 or not nodes.size:
        return near
    domains = state.domains.domain_of[at]
    theirs = np.unique(domains[nodes])
    return np.isin(domains[: near.shape[0]], theirs[theirs > 0])


def _follow(state: State, sets: list[int], changed: Mask) -> None:
    """Some sets admit other nodes than before: all that is counted or kept of them is made anew."""
    state.open_nodes()
    shapes = state.catalogue.shapes[: int(state.meta[L.M_SHAPES])]
    for shape in np.flatnonzero(np.isin(shapes[:, L.S_CSET], sets)).tolist():
        if state.catalogue.shape_specs[shape] is not None:
            state.recount(shape, shape + 1)
    state.note_new_nodes()
    state.touch(np.flatnonzero(changed).tolist())
    state.wake_all()
    state.nodes.breaks += 1
    state.meta[L.M_VERSION] += 1
