"""Which nodes a kind of work may use: up, labels as required, no filter against it, in its booking.

Pure. O(nodes) a constraint set; O(constraint sets) a node that changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hal.core.engine.classes import ClassSpec, Requirement
from hal.core.engine.errors import EngineError
from hal.core.engine.plugins.answers import mask_of
from hal.core.engine.state import State
from hal.core.engine.views import node_view, request_of
from hal.core.interfaces.filter import Filter
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Allowed
from hal.core.kernels.structures.declared import CONSTRAINT_SETS


def admit_nodes(state: State, touched: list[int]) -> None:
    """Work out anew which of these rows each constraint set admits: up, labels as required, no filter against it.

    Raises EngineError, and changes nothing, when a filter's answer is wrong.
    """
    masks = {
        cset: _masks(state, spec)
        for cset, spec in enumerate(state.catalogue.sets)
        if state.plugins.filters and cset and spec is not None
    }
    for cset, spec in enumerate(state.catalogue.sets):
        if spec is not None:
            # A filter may look at all rows, so one that changed may change what it says of the others.
            state.admit(range(len(state.nodes.names)) if cset in masks else touched, cset, spec)
    for cset, mask in masks.items():
        state.nodes.allowed[cset, : mask.shape[0]] &= mask
    for cset, spec in enumerate(state.catalogue.sets):
        if spec is not None:
            _keep(state, range(len(state.nodes.names)) if cset in masks else touched, cset, spec)
    state.open_nodes()


def admit_bookings(state: State) -> None:
    """Work out anew which rows the classes of bookings may ever use (part of `apply`)."""
    for cset, spec in enumerate(state.catalogue.sets):
        if spec is not None and spec.booking:
            masks = _masks(state, spec, anew=False)  # bookings are nothing that a filter looks at
            state.admit(range(len(state.nodes.names)), cset, spec)
            state.nodes.allowed[cset, : masks.shape[0]] &= masks
            _keep(state, range(len(state.nodes.names)), cset, spec)
    for shape, spec in enumerate(state.catalogue.shape_specs):
        if spec is not None and spec.booking:
            name_booking(state, shape, spec)


def set_id(state: State, spec: ClassSpec) -> int:
    """The constraint set of a shape: its requirements, and the shape itself where filters look at it.

    Raises EngineError, and interns nothing, when a filter's answer is wrong.
    """
    nodes = state.nodes
    catalogue = state.catalogue
    key: tuple[Any, ...] = tuple(sorted(set(spec.constraints), key=_requirement_key))
    if spec.booking:
        key = (*key, ("booking", spec.booking))
    if spec.within:
        key = (*key, ("within", spec.within))
    if spec.tolerates:
        key = (*key, ("tolerates", *sorted(set(spec.tolerates))))
    if spec.is_social:
        key = (*key, spec.social_key())
    if state.plugins.filters:
        key = (*key, spec.shape_key())
    there = catalogue.set_ids.get(key)
    if there is not None:
        return there
    masks = _masks(state, spec)
    if catalogue.set_free:
        cset = catalogue.set_free.pop()
        catalogue.sets[cset] = spec
    else:
        cset = len(catalogue.sets)
        catalogue.sets.append(spec)
        if cset >= nodes.allowed.shape[0]:
            state.make_room({CONSTRAINT_SETS: 2 * nodes.allowed.shape[0]})
        state.meta[L.M_CSETS] = cset + 1
    catalogue.set_ids[key] = cset
    state.admit(range(len(nodes.names)), cset, spec)
    nodes.allowed[cset, : masks.shape[0]] &= masks
    catalogue.changes += 1
    nodes.unparted.pop(cset, None)
    asked = nodes.asked
    _keep(state, range(len(nodes.names)), cset, spec)
    nodes.asked = asked  # what others are kept from is as before
    return cset


def admit_within(state: State) -> None:
    """Work out anew which nodes the classes may ever use that ask for a domain: the levels have changed (part of
    `apply`)."""
    for cset, spec in enumerate(state.catalogue.sets):
        if spec is not None and spec.levels():
            masks = _masks(state, spec, anew=False)
            state.admit(range(len(state.nodes.names)), cset, spec)
            state.nodes.allowed[cset, : masks.shape[0]] &= masks
            _keep(state, range(len(state.nodes.names)), cset, spec)
    state.open_nodes()


def _keep(state: State, some: range | list[int], cset: int, spec: ClassSpec) -> None:
    """Note what a set that affinity may matter to admits of some nodes whatever runs, and ask affinity again."""
    if not spec.is_social:
        return
    known = state.nodes.unparted.get(cset)
    kept = np.zeros(state.nodes.allowed.shape[1], np.int8)
    if known is not None:
        kept[: known.shape[0]] = known
    at = slice(some.start, some.stop) if isinstance(some, range) else some
    kept[at] = state.nodes.allowed[cset, at]
    state.nodes.unparted[cset] = kept
    state.nodes.asked = None
    state.meta[L.M_PARTED] = 1


def use_filters(state: State, filters: list[Filter], stopped: frozenset[str]) -> None:
    """Other filters: every shape is admitted anew. Raises EngineError, and changes nothing, on a wrong answer."""
    plugins = state.plugins
    catalogue = state.catalogue
    before = plugins.filters, plugins.stopped, plugins.masks.copy()
    plugins.filters, plugins.stopped = filters, stopped
    shapes = [(shape, spec) for shape, spec in enumerate(catalogue.shape_specs) if spec is not None]
    try:
        for _shape, spec in shapes:
            _masks(state, spec)
    except EngineError:
        plugins.filters, plugins.stopped, plugins.masks = before
        raise
    named = {policy.info.name for policy in filters}
    plugins.masks = {
        key: mask
        for key, mask in plugins.masks.items()
        if key[0] in named and (key[0] in stopped or key[1] in catalogue.shape_ids)
    }
    catalogue.sets, catalogue.set_ids, catalogue.set_free = catalogue.sets[:1], {(): 0}, []
    state.nodes.unparted, state.nodes.parted, state.nodes.asked = {}, set(), None
    catalogue.changes += 1
    state.meta[L.M_CSETS] = 1
    for shape, spec in shapes:
        catalogue.shapes[shape, L.S_CSET] = set_id(state, spec)
    for shape in catalogue.shape_free:
        catalogue.shapes[shape, L.S_CSET] = 0
    state.recount(0, int(state.meta[L.M_SHAPES]))


def _masks(state: State, spec: ClassSpec, *, anew: bool = True) -> Allowed:
    """1 where all filters admit a row for this shape; empty without filters. anew: they are asked again."""
    plugins = state.plugins
    if not plugins.filters:
        return np.zeros(0, np.int8)
    view = node_view(state)
    request = request_of(state, spec)
    admitted = np.ones(view.rows, np.int8)
    for policy in plugins.filters:
        key = (policy.info.name, spec.shape_key())
        if anew and policy.info.name not in plugins.stopped:
            plugins.masks[key] = mask_of(policy, request, view)
        said = plugins.masks.get(key, np.zeros(0, np.bool_))
        admitted[: said.shape[0]] &= said
        admitted[said.shape[0] :] = 0  # it has said of no other row that it may be used
    return admitted


def name_booking(state: State, shape: int, spec: ClassSpec) -> None:
    """Note in which booking jobs of a shape run."""
    inside = state.bookings.id_of(spec.booking)
    state.catalogue.shapes[shape, L.S_INSIDE] = inside
    state.catalogue.shapes[shape, L.S_BOOKING] = 0 if state.bookings.anywhere(spec.booking) else inside


def _requirement_key(requirement: Requirement) -> tuple[str, str, tuple[str, ...]]:
    return (requirement.key, requirement.match.value, requirement.values)
