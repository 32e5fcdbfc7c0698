"""Classes, shapes and owners get numbers, and lose them again when nobody refers to them any more.

Pure. O(1) for what is known; a new shape is counted on every node.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.errors import EngineError
from hal.core.engine.rules.admission import name_booking, set_id
from hal.core.engine.rules.configuration import begin_extensions
from hal.core.engine.rules.licensing import want_licences
from hal.core.engine.rules.owners import describe_owner, owner_ids_in_use, plain_owner
from hal.core.engine.rules.policy_tables import set_policy
from hal.core.engine.rules.preferences import preference_id
from hal.core.engine.state import State
from hal.core.engine.tables.catalogue import ClassKey
from hal.core.engine.tables.licences import check_licences
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints
from hal.core.kernels.structures.declared import CLASSES, FIRST_SLOTS, OWNERS, SHAPES

MOST_MASKS_KEPT: Final = 1_024
"""What filters that are stopped have said of kinds of jobs of which there are none now: the latest of it."""


def intern_classes(state: State, specs: tuple[ClassSpec, ...]) -> Ints:
    """Class ids of specs; remembers the tuple by identity."""
    catalogue = state.catalogue
    if specs is catalogue.seen:
        return catalogue.seen_ids
    for spec in specs:
        _check_class(spec)
    ids = np.array([_class_id(state, spec) for spec in specs], np.int64)
    if len(catalogue.class_ids) > FIRST_SLOTS and _forget_classes(state, set(ids.tolist())):
        state.rewire()
    catalogue.seen, catalogue.seen_ids = specs, ids
    return ids


def _class_id(state: State, spec: ClassSpec) -> int:
    catalogue = state.catalogue
    shape = shape_id(state, spec)
    following = 1 + _class_id(state, spec.groups[0]) if spec.groups else 0
    key: ClassKey = (shape, spec.nodes, spec.movable, spec.preference)
    if following or spec.follows:
        key = (*key, following, spec.follows, spec.group)
        state.meta[L.M_GROUPS] = 1
    there = catalogue.class_ids.get(key)
    if there is not None:
        return there
    if catalogue.class_free:
        class_id = catalogue.class_free.pop()
        catalogue.class_specs[class_id] = spec
    else:
        class_id = len(catalogue.class_specs)
        catalogue.class_specs.append(spec)
        if class_id >= catalogue.classes.shape[0]:
            state.make_room({CLASSES: 2 * class_id})
    catalogue.classes[class_id] = 0
    catalogue.classes[class_id, L.C_PREFERENCE] = preference_id(state, spec.preference)
    catalogue.classes[class_id, : L.C_AFFINE] = (shape, spec.nodes, 0, int(spec.movable))
    catalogue.classes[class_id, [L.C_NEXT, L.C_FOLLOWS]] = (following, int(spec.follows))
    if spec.is_social or (spec.preference is not None and spec.preference.near):
        state.meta[L.M_PARTED] = 1
    catalogue.class_ids[key] = class_id
    return class_id


def shape_id(state: State, spec: ClassSpec) -> int:
    """The shape of a class, a new one where it is new."""
    catalogue = state.catalogue
    key = spec.shape_key()
    there = catalogue.shape_ids.get(key)
    if there is not None:
        return there
    state.intern_resources([name for name, amount in spec.request.items() if amount])
    cset = set_id(state, spec)
    if catalogue.shape_free:
        shape = catalogue.shape_free.pop()
        catalogue.shape_specs[shape] = spec
    else:
        shape = len(catalogue.shape_specs)
        catalogue.shape_specs.append(spec)
        if shape >= catalogue.shapes.shape[0]:
            state.allocation.resize({SHAPES: 2 * shape})
        state.meta[L.M_SHAPES] = shape + 1
    catalogue.shape_ids[key] = shape
    catalogue.request[:, shape] = 0
    for name, amount in spec.request.items():
        if amount:
            catalogue.request[state.nodes.resources.index(name), shape] = amount
    catalogue.shapes[shape] = 0
    catalogue.shapes[shape, L.S_SCORES] = -1
    catalogue.shapes[shape, L.S_CSET] = cset
    name_booking(state, shape, spec)
    want_licences(state, shape, spec)
    if spec.within:
        state.allocation.resize(state.domains.line_rooms(state.meta))
        catalogue.shapes[shape, L.S_WITHIN] = 1 + state.domains.give_line(state.meta, shape, spec.within)
    state.rewire()
    state.recount(shape, shape + 1)
    return shape


def _forget_classes(state: State, keep: set[int]) -> bool:
    """Forget classes and shapes that no bucket refers to, when they are most of what is interned."""
    catalogue = state.catalogue
    live = set(np.flatnonzero(catalogue.classes[: len(catalogue.class_specs), L.C_REFS]).tolist()) | keep
    for class_id in tuple(live):
        while (class_id := int(catalogue.classes[class_id, L.C_NEXT]) - 1) >= 0:
            live.add(class_id)
    if len(catalogue.class_ids) <= max(FIRST_SLOTS, 2 * len(live)):
        return False
    for key, class_id in list(catalogue.class_ids.items()):
        if class_id not in live:
            del catalogue.class_ids[key]
            catalogue.class_specs[class_id] = None
            catalogue.classes[class_id, L.C_SCORES] = 0
            catalogue.class_free.append(class_id)
    used = {key[0] for key in catalogue.class_ids}
    for shape_key, shape in list(catalogue.shape_ids.items()):
        if shape not in used:
            del catalogue.shape_ids[shape_key]
            catalogue.shape_specs[shape] = None
            catalogue.shape_free.append(shape)
            catalogue.request[:, shape] = L.INF
            if catalogue.shapes[shape, L.S_WITHIN]:
                state.domains.take_line(state.meta, int(catalogue.shapes[shape, L.S_WITHIN]) - 1)
                catalogue.shapes[shape, L.S_WITHIN] = 0
            catalogue.shapes[shape, L.S_FIT] = 0
            catalogue.shapes[shape, L.S_EVER] = 0
            catalogue.shapes[shape, L.S_CSET] = 0
            catalogue.shapes[shape, L.S_SCORES] = -1
    # A filter that is stopped cannot be asked again when such jobs come back.
    gone = [key for key in state.plugins.masks if key[1] not in catalogue.shape_ids]
    said = [key for key in gone if key[0] in state.plugins.stopped]
    kept = set(said[-MOST_MASKS_KEPT:])
    for lost in gone:
        if lost not in kept:
            del state.plugins.masks[lost]
    needed = {int(catalogue.shapes[shape, L.S_CSET]) for shape in catalogue.shape_ids.values()} | {0}
    for cset_key, cset in list(catalogue.set_ids.items()):
        if cset not in needed:
            del catalogue.set_ids[cset_key]
            catalogue.sets[cset] = None
            state.nodes.unparted.pop(cset, None)
            catalogue.set_free.append(cset)
            catalogue.changes += 1
    return True


def intern_owners(state: State, owners: tuple[OwnerSpec, ...]) -> Ints:
    """Owner ids; remembers the tuple by identity."""
    shares = state.shares
    if owners is shares.seen:
        return shares.seen_ids
    for owner in owners:
        if owner not in shares.owner_ids:
            _new_owner(state, owner)
    if len(shares.owner_ids) > FIRST_SLOTS:
        _forget_owners(state, set(owners))
    ids = np.array([shares.owner_ids[owner] for owner in owners], np.int64)
    shares.seen, shares.seen_ids = owners, ids
    return ids


def _new_owner(state: State, owner: OwnerSpec) -> None:
    shares = state.shares
    if shares.owner_free:
        row = shares.owner_free.pop()
        shares.owner_specs[row] = owner
    else:
        row = len(shares.owner_specs)
        shares.owner_specs.append(owner)
        if row >= shares.owners.shape[0]:
            state.make_room({OWNERS: 2 * row})
    shares.owner_ids[owner] = row
    shares.owners[row, L.O_REFS] = 0
    if owner.extension:
        begin_extensions(state)
    if state.accounts is None:
        plain_owner(state, row, owner)
    else:
        describe_owner(state, row, owner)


def _forget_owners(state: State, keep: set[OwnerSpec]) -> None:
    """Forget owners that no bucket refers to, when they are most of what is interned."""
    shares = state.shares
    idle = [owner for owner, row in shares.owner_ids.items() if shares.owners[row, L.O_REFS] == 0 and owner not in keep]
    if 2 * len(idle) <= len(shares.owner_ids):
        return
    for owner in idle:
        shares.owner_free.append(shares.owner_ids.pop(owner))
    if state.accounts is not None:
        set_policy(state, state.accounts.policy, list(owner_ids_in_use(state)))


def _check_class(spec: ClassSpec) -> None:
    if spec.nodes < 1 or any(not 0 <= amount < L.INF for amount in spec.request.values()):
        raise EngineError(
            f"class {spec.request} on {spec.nodes} nodes: nodes must be at least 1 and amounts 0..2**60 base units; "
            "the event was not applied"
        )
    if len(spec.groups) >= L.MAX_GROUPS:
        raise EngineError(f"class of {len(spec.groups) + 1} groups: at most {L.MAX_GROUPS}; the event was not applied")
    for part in spec.groups:
        _check_class(part)
    check_licences(spec)
