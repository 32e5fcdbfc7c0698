"""Affinity: which nodes work is kept from by what runs there, its own terms and those of others, and which it prefers.

Pure. A term names a label of work and a level: the work is in no domain of it (`apart`, which holds in both directions)
or only in such (`together`). When an attempt that matters to somebody has come or gone, what runs is compared with
what ran, in whole columns, and only those are asked again whom the difference concerns: O(running attempts with labels
or terms, and nodes for each constraint set that is concerned). Nodes that change ask all again. The result is taken
from `allowed`, so that whatever asks which nodes a class may use, now or later, asks the same. Preferred terms add to
the scores of nodes instead. Nothing is asked where no term names any work.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from hal.core.engine.classes import NODE, ClassSpec, Preference, Term
from hal.core.engine.state import State
from hal.core.engine.tables.terms import Asked, Kinds
from hal.core.kernels.passes.node_scores import SCORE_ONE
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints, Mask

NOBODY: Final = np.zeros(0, np.int64)


class Held(NamedTuple):
    """What holds nodes, piece by piece."""

    sets: Ints
    """The constraint set of the attempt."""
    nodes: Ints
    begun: Mask
    """False: it is a claim, of which nothing runs yet."""

    def keys(self, rows: int) -> Ints:
        """A number for each that differs, ascending. rows: of nodes."""
        return np.unique((self.sets * rows + self.nodes) * 2 + self.begun)


def part_nodes(state: State) -> None:
    """Take from `allowed` the nodes that affinity keeps work from as things are now (end of `apply`)."""
    state.meta[L.M_PARTED] = 0
    nodes, catalogue = state.nodes, state.catalogue
    before = nodes.asked
    if before is not None and before.version == catalogue.changes:
        kinds = before.kinds
    else:
        kinds = Kinds(catalogue.sets, catalogue.preference_ids)
    _note_classes(state, kinds)
    if not (kinds.affine or kinds.liking or nodes.parted):
        nodes.asked = None
        return
    rows = len(nodes.names)
    held = _held(state)
    now = Asked(kinds, catalogue.changes, nodes.changes, rows, held.keys(rows))
    nodes.asked = now
    near = _Near(state, kinds, held)
    if before is None or (before.nodes, before.rows) != (now.nodes, rows):
        again = kinds.affine.keys() | nodes.parted  # no others can have been parted, or be now
        favoured: Iterable[int] = kinds.liking
    else:
        again, favoured = _concerned(before, now)
    nodes.parted = set(kinds.affine)
    for row in favoured:
        _favour(state, near, row, kinds.liking[row])
    if again:
        _part(state, near, kinds.affine, sorted(again))


def terms_hold(state: State, cset: int, rows: Ints, without: Ints) -> bool:
    """Whether work of a constraint set could start on some nodes, were they free, as things are without some attempts
    and claims: by its terms, by those of others, and by what else is asked of nodes. Bookings are not looked at."""
    asked = state.nodes.asked
    spec = asked.kinds.affine.get(cset) if asked is not None else None
    if asked is None or spec is None:
        return bool(state.nodes.allowed[cset, rows].all())
    unparted = state.nodes.unparted.get(cset, state.nodes.allowed[cset])
    away = _Near(state, asked.kinds, _held(state, without)).parted(spec)
    return bool(unparted[rows].all() and not away[rows].any())


def _concerned(before: Asked, now: Asked) -> tuple[set[int], list[int]]:
    """The constraint sets, and the rows of preferences, whose answers may differ from those before."""
    differ = np.unique(np.setxor1d(before.held, now.held, assume_unique=True) // (2 * now.rows)).tolist()
    others = set(differ)
    old, new = before.kinds, now.kinds
    if old is not new:
        for earlier, later in ((old.affine, new.affine), (old.liked, new.liked)):
            others |= {cset for cset in earlier.keys() | later.keys() if earlier.get(cset) is not later.get(cset)}
    again = set(others)
    labels: set[str] = set()
    for cset in others:
        for kinds in (old, new):
            spec = kinds.spec_of(cset)
            if spec is not None:
                labels.update(spec.labels)
                for term in spec.apart:
                    again.update(new.labelled.get(term.label, ()))
    for label in labels:
        again.update(new.namers.get(label, ()))
    favoured = [
        row
        for row, preference in new.liking.items()
        if old.liking.get(row) is not preference or any(like.term.label in labels for like in preference.near)
    ]
    return again & (old.affine.keys() | new.affine.keys()), favoured


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


def _favour(state: State, near: _Near, row: int, preference: Preference) -> None:
    """Work out what a preference adds to the score of each node as things are now."""
    favour = np.zeros(len(state.nodes.names), np.int64)
    for like in preference.near:
        favour[near.beside(like.term, begun=like.weight > 0)] += like.weight * (SCORE_ONE // 100)
    state.catalogue.favours[row, : favour.shape[0]] = favour


def _note_classes(state: State, kinds: Kinds) -> None:
    """Tell kernels which classes terms concern, and which ones preferred terms alone."""
    catalogue = state.catalogue
    classes = catalogue.classes[: len(catalogue.class_specs)]
    classes[:, L.C_AFFINE] = kinds.flags[catalogue.shapes[classes[:, L.C_SHAPE], L.S_CSET]]
    if kinds.liking:
        rather = np.isin(classes[:, L.C_PREFERENCE], list(kinds.liking)) & (classes[:, L.C_AFFINE] == 0)
        classes[rather, L.C_AFFINE] = 2
    state.meta[L.M_AFFINE] = int(bool(kinds.affine or kinds.liking))


def _held(state: State, without: Ints = NOBODY) -> Held:
    """The nodes of all attempts and claims that matter to somebody."""
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    there = runs[:, L.R_NODES] > 0
    there[without] = False
    held = np.flatnonzero(there)  # others name a bucket that may be gone, and its class with it
    classes = state.catalogue.classes[state.work.buckets[runs[held, L.R_BUCKET], L.B_CLASS]]
    affine = classes[:, L.C_AFFINE] != 0
    live, classes = held[affine], classes[affine]
    csets = state.catalogue.shapes[classes[:, L.C_SHAPE], L.S_CSET]
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

    def __init__(self, state: State, kinds: Kinds, held: Held) -> None:
        self._state = state
        self._kinds = kinds
        order = np.argsort(held.sets, kind="stable")
        self._held = Held(held.sets[order], held.nodes[order], held.begun[order])
        self._known: dict[tuple[str | Term, str], Mask] = {}

    def parted(self, spec: ClassSpec) -> Mask:
        """The nodes that affinity keeps a class from."""
        away: Mask = np.zeros(len(self._state.nodes.names), np.bool_)
        for term in spec.apart:
            away |= self._around(term.label, term.level, self._kinds.labelled.get(term.label, []))
        for label in spec.labels:
            for term in self._kinds.apart_from.get(label, []):
                away |= self._around(term, term.level, self._kinds.by_term[term])
        for term in spec.together:
            named = self._kinds.labelled.get(term.label, [])
            there = self._nodes(named, begun=True)
            if there.size or term.label not in spec.labels or self._nodes(named).size:  # a claim will be the first
                away |= ~_near(self._state, there, term.level)
        return away

    def beside(self, term: Term, *, begun: bool) -> Mask:
        """The nodes in a domain with work that a term names; `begun`: with such as runs already."""
        return _near(self._state, self._nodes(self._kinds.labelled.get(term.label, []), begun=begun), term.level)

    def _around(self, what: str | Term, level: str, csets: list[int]) -> Mask:
        known = self._known.get((what, level))
        if known is None:
            known = self._known[what, level] = _near(self._state, self._nodes(csets), level)
        return known

    def _nodes(self, csets: list[int], *, begun: bool = False) -> Ints:
        """The nodes that work of these sets holds; `begun`: that runs there."""
        held = self._held
        asked = np.array(csets, np.int64)
        starts, ends = held.sets.searchsorted(asked), held.sets.searchsorted(asked, side="right")
        parts = [slice(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True) if start < end]
        if not parts:
            return np.zeros(0, np.int64)
        return np.concatenate([held.nodes[part][held.begun[part]] if begun else held.nodes[part] for part in parts])


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
