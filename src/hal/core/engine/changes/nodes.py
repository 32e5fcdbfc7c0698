"""Changes of the cluster: nodes that join, leave, or have another capacity, label or health.

Pure. An event that a filter does not answer for changes nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hal.core.engine.errors import EngineError
from hal.core.engine.events import Health, NodesChanged, NodesOffered, NodeSpec
from hal.core.engine.rules.admission import admit_nodes
from hal.core.engine.rules.booked_nodes import settle_bookings
from hal.core.engine.rules.configuration import use_placement
from hal.core.engine.rules.node_counts import contribution, count_apart, counts_apart, discount
from hal.core.engine.state import State
from hal.core.engine.tables.domains import Path
from hal.core.kernels.nodes.touching import overtake
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.jit import plain
from hal.core.kernels.structures.layout import M_VERSION

_overtake = plain(overtake)


def change_nodes(state: State, event: NodesChanged) -> None:
    _check_nodes(state, event)
    resources, room = int(state.meta[L.M_RESOURCES]), state.nodes.free.shape[0]
    takes = _takes_something(state, event)
    amounts_of = [amounts for node in event.nodes for amounts in (node.capacity, node.withheld)]
    state.intern_resources([name for amounts in amounts_of for name, amount in amounts.items() if amount])
    state.make_room_for_nodes(len(state.nodes.names) + len(event.nodes))
    if state.domains.levels:
        state.make_room_for_domains([state.domains.whole(node.domains) for node in event.nodes])
    state.nodes.changes += 1
    renewed = resources != state.meta[L.M_RESOURCES] or room != state.nodes.free.shape[0]
    if takes or renewed or not _continues_over_gains(state):
        state.nodes.breaks += 1
    before = _nodes_now(state) if state.plugins.filters else None
    contributed = None
    if resources == state.meta[L.M_RESOURCES] and counts_apart(state, len(event.nodes) + len(event.removed)):
        named = (*event.removed, *(node.name for node in event.nodes))
        known = [state.nodes.by_name[name] for name in named if name in state.nodes.by_name]
        contributed = contribution(state, known)
        discount(state, known)
    touched = [_remove_node(state, name) for name in event.removed]
    touched += [_put_node(state, node) for node in event.nodes]
    state.meta[L.M_NODES] = len(state.nodes.names)
    if state.domains.levels:
        state.settle_domains()
        if state.keeps_timelines and state.meta[L.M_WITHIN]:
            _make_again_what_was_parted(state)
    try:
        admit_nodes(state, touched)
    except EngineError:
        if before is not None:
            _put_back(state, before)
        raise
    state.touch(range(len(state.nodes.names)) if state.plugins.filters else touched)
    if contributed is None:
        state.recount(0, int(state.meta[L.M_SHAPES]))
    else:
        count_apart(state, contributed, list(dict.fromkeys(touched)))
    state.set_charge()
    use_placement(state)
    state.wake_all()
    state.meta[M_VERSION] += 1
    if state.bookings.all:
        settle_bookings(state)


def _continues_over_gains(state: State) -> bool:
    """Whether an unfinished pass may continue when nodes only gain something, as it does when attempts end.

    It may where reservations are kept while another slice looks at the top of the order. EASY makes them anew there,
    and a part of the order might be without; its passes are short. Filters and bookings may say something else of all.
    """
    return state.keeps_timelines and not state.plugins.filters and not state.bookings.all


def _takes_something(state: State, event: NodesChanged) -> bool:
    """Whether a node that was up is not any more, or not all that it was: work may have been promised a part of it."""
    nodes, levels = state.nodes, state.domains.levels
    for name in event.removed:
        if nodes.rows[nodes.by_name[name], L.N_STATE] == L.NODE_UP:
            return True
    for node in event.nodes:
        row = nodes.by_name.get(node.name, -1)
        if row < 0 or nodes.rows[row, L.N_STATE] != L.NODE_UP:
            continue
        had = zip(nodes.resources, nodes.capacity[row].tolist(), strict=False)
        if (
            node.health is not Health.UP
            or nodes.labels[row] != dict(node.labels)
            or nodes.taints.get(row, {}) != node.taints
            or (levels and state.domains.path_of(row) != state.domains.whole(node.domains))
            or any(node.capacity.get(name, 0) < amount for name, amount in had)
            or _withholds_more(state, row, node)
        ):
            return True
    return False


def _withholds_more(state: State, row: int, node: NodeSpec) -> bool:
    """Whether less of a node is free than it was, by what is withheld alone."""
    nodes = state.nodes
    before = {nodes.resources[at]: amount for at, amount in nodes.withheld.get(row, {}).items()}
    return any(node.withheld.get(name, 0) > before.get(name, 0) for name in {*before, *node.withheld})


def _make_again_what_was_parted(state: State) -> None:
    """A reservation of nodes that must be in one domain and no longer are is made again, with those behind it that
    compete with it. Under EASY all are made again when nodes change."""
    work, catalogue = state.work, state.catalogue
    for reservation in work.reservations[: int(state.meta[L.M_RESERVATIONS])]:
        shape = int(catalogue.classes[reservation[L.V_CLASS], L.C_SHAPE])
        line = int(catalogue.shapes[shape, L.S_WITHIN]) - 1
        if reservation[L.V_ENTRY] < 0 or reservation[L.V_KIND] == L.KIND_NEVER or line < 0:
            continue
        first = int(reservation[L.V_FIRST])
        nodes = work.reserved[first : first + int(reservation[L.V_NODES]), L.Q_NODE]
        level = int(state.domains.within[line, L.WITHIN_LEVEL])
        domains = np.unique(state.domains.domain_of[level, nodes])
        if domains.shape[0] > 1 or not domains.all():
            _overtake(state.tables(), int(reservation[L.V_KEY]), int(reservation[L.V_JOB]), shape)


def take_offers(state: State, event: NodesOffered) -> None:
    state.offers = event.offers


def _remove_node(state: State, name: str) -> int:
    row = state.nodes.by_name.pop(name)
    state.nodes.rows[row, L.N_STATE] = L.NODE_GONE
    state.nodes.labels[row] = {}
    state.nodes.taints.pop(row, None)
    state.nodes.withhold(row, {})
    if state.domains.levels:
        state.domains.put(row, None)
    state.plugins.forget_node(row)
    state.nodes.free[row] -= state.nodes.capacity[row]
    state.nodes.capacity[row] = 0
    return row


def _put_node(state: State, node: NodeSpec) -> int:
    row = state.nodes.by_name.get(node.name, -1)
    if row < 0:
        row = _free_node(state)
        state.nodes.by_name[node.name] = row
        state.nodes.names[row] = node.name
    state.nodes.withhold(row, {})
    used = state.nodes.capacity[row] - state.nodes.free[row]
    state.nodes.capacity[row] = 0
    for resource, amount in node.capacity.items():
        if amount:
            state.nodes.capacity[row, state.nodes.resources.index(resource)] = amount
    state.nodes.free[row] = state.nodes.capacity[row] - used
    if node.withheld:
        state.nodes.withhold(row, node.withheld)
    state.nodes.labels[row] = dict(node.labels)
    state.nodes.taints.pop(row, None)
    if node.taints:
        state.nodes.taints[row] = dict(node.taints)
    if state.domains.levels:
        state.domains.put(row, state.domains.whole(node.domains))
    state.nodes.health[row] = str(node.health)
    state.nodes.rows[row, L.N_STATE] = L.NODE_UP if node.health is Health.UP else L.NODE_CLOSED
    return row


def _free_node(state: State) -> int:
    """A tombstone that nothing runs on any more, else a new row."""
    rows = len(state.nodes.names)
    if len(state.nodes.by_name) < rows:
        of = state.nodes.rows[:rows]
        free = (of[:, L.N_STATE] == L.NODE_GONE) & (of[:, L.N_PIECES] == 0)
        first = int(free.argmax())
        if free[first]:
            return first
    state.nodes.names.append("")
    state.nodes.labels.append({})
    state.nodes.health.append("")
    return rows


class _Nodes(NamedTuple):
    """All of the nodes' tables, to be put back when a filter refuses to answer."""

    tables: tuple[Any, ...]
    names: list[str]
    labels: list[dict[str, str]]
    health: list[str]
    by_name: dict[str, int]
    masks: dict[tuple[str, tuple[object, ...]], Any]
    withheld: dict[int, dict[int, int]]
    taints: dict[int, dict[str, str]]
    paths: list[Path | None]


def _nodes_now(state: State) -> _Nodes:
    tables = (state.nodes.free.copy(), state.nodes.capacity.copy(), state.nodes.rows.copy())
    return _Nodes(
        tables, list(state.nodes.names), list(state.nodes.labels), list(state.nodes.health), dict(state.nodes.by_name),
        dict(state.plugins.masks), dict(state.nodes.withheld), dict(state.nodes.taints),
        state.domains.all_paths(len(state.nodes.names)),
    )  # fmt: skip


def _put_back(state: State, before: _Nodes) -> None:
    state.nodes.free[:], state.nodes.capacity[:], state.nodes.rows[:] = before.tables
    state.nodes.names, state.nodes.labels, state.nodes.health = before.names, before.labels, before.health
    state.nodes.by_name, state.plugins.masks = before.by_name, before.masks
    state.nodes.withheld, state.nodes.taints = before.withheld, before.taints
    state.meta[L.M_NODES] = len(state.nodes.names)
    if state.domains.levels:
        for row in range(state.nodes.rows.shape[0]):
            state.domains.put(row, before.paths[row] if row < len(before.paths) else None)
        state.domains.moved = True  # rows that are no more stand in the order
        state.settle_domains()


def _check_nodes(state: State, event: NodesChanged) -> None:
    for name in event.removed:
        if name not in state.nodes.by_name:
            raise EngineError(f"NodesChanged: node {name!r} cannot leave, it is not here; the event was not applied")
    names = [node.name for node in event.nodes]
    if (
        len(set(names)) != len(names)
        or len(set(event.removed)) != len(event.removed)
        or set(names) & set(event.removed)
    ):
        raise EngineError("NodesChanged: a node is named twice; the event was not applied")
    for node in event.nodes:
        _check_node(node)


def _check_node(node: NodeSpec) -> None:
    for resource, amount in node.capacity.items():
        if not 0 <= amount < L.INF:
            raise EngineError(
                f"NodesChanged: node {node.name!r} has {amount} of {resource!r}; amounts are 0..2**60 base units; "
                "the event was not applied"
            )
    for resource, amount in node.withheld.items():
        if (amount > 0 and not node.capacity.get(resource)) or not -L.INF < amount < L.INF:
            raise EngineError(
                f"NodesChanged: node {node.name!r} withholds {amount} of {resource!r}, of which it has "
                f"{node.capacity.get(resource, 0)}; the event was not applied"
            )
