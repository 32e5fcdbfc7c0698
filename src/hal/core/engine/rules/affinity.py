"""Affinity: which nodes work is kept from by what runs there, its own terms and those of others.

Pure. A term names a label of work and a level: the work is in no domain of it (`apart`, which holds in both directions)
or only in such (`together`). What runs is counted again when an attempt that matters to somebody has come or gone:
O(running attempts, and nodes for each term), in whole columns. The result is taken from `allowed`, so that whatever
asks which nodes a class may use, now or later, asks the same. Nothing is asked where no term names any work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hal.core.engine.classes import NODE, ClassSpec, Term
from hal.core.engine.state import State
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
    _note_classes(state, affine)
    held = _held(state)
    rows = len(state.nodes.names)
    changed: Mask = np.zeros(rows, np.bool_)
    sets: list[int] = []
    for cset in social:
        before = state.nodes.allowed[cset, :rows]
        after = state.nodes.unparted[cset][:rows].copy()
        if cset in affine:
            after[parted(state, affine, affine[cset], held)] = 0
        differs = before != after
        if differs.any():
            state.nodes.allowed[cset, :rows] = after
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


def _note_classes(state: State, affine: dict[int, ClassSpec]) -> None:
    """Tell kernels which classes these are."""
    catalogue = state.catalogue
    flags = np.zeros(len(catalogue.sets), np.int64)
    flags[list(affine)] = 1
    classes = catalogue.classes[: len(catalogue.class_specs)]
    classes[:, L.C_AFFINE] = flags[catalogue.shapes[classes[:, L.C_SHAPE], L.S_CSET]]
    state.meta[L.M_AFFINE] = int(bool(affine))


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


def parted(state: State, affine: dict[int, ClassSpec], spec: ClassSpec, held: Held) -> Mask:
    """The nodes that affinity keeps a class from."""
    away: Mask = np.zeros(len(state.nodes.names), np.bool_)
    for term in spec.apart:
        away |= _near(state, held.nodes[_of(held, affine, term.label)], term.level)
    for term in {term for other in affine.values() for term in other.apart if term.label in spec.labels}:
        away |= _near(state, held.nodes[_with(held, affine, term)], term.level)
    for term in spec.together:
        there = held.nodes[_of(held, affine, term.label) & held.begun]
        if there.size or term.label not in spec.labels:
            away |= ~_near(state, there, term.level)
    return away


def _of(held: Held, affine: dict[int, ClassSpec], label: str) -> Mask:
    """What of all that is held is of work with a label."""
    return np.isin(held.sets, [cset for cset, spec in affine.items() if label in spec.labels])


def _with(held: Held, affine: dict[int, ClassSpec], term: Term) -> Mask:
    """What of all that is held is of work that is to be apart by a term."""
    return np.isin(held.sets, [cset for cset, spec in affine.items() if term in spec.apart])


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
