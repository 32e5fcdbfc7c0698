"""A domain score plugin's answers: asked once a slice about each kind of waiting gang that could start in it.

Pure. Answers hold for one slice: the table `domain_scores` has a line for each such kind, `domain_lines` says which
line a bucket has. O(nodes) a slice, and O(nodes + domains) a kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hal.core.engine.plugins.answers import domain_scores_of
from hal.core.engine.state import State
from hal.core.engine.views import request_of
from hal.core.interfaces.domain_score import DomainView, Gang
from hal.core.interfaces.labels import Labels
from hal.core.interfaces.policy import NodeView
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints, Mask, Table

GANGS_A_SLICE: Final = 100
"""Kinds of gangs about which a domain score is asked in one slice, by rank; others go to the smallest domain."""


def score_domains(state: State) -> None:
    """Ask a domain score plugin, once a slice, about gangs for which there is room."""
    policy = state.plugins.domain_score
    assert policy is not None
    state.scratch.domain_lines.fill(0)
    asked = _kinds_with_room(state)
    if not asked.shape[0]:
        return
    state.room_for_domain_scores(GANGS_A_SLICE)
    domains = Candidates(state)
    for line, bucket in enumerate(asked.tolist()):
        gang, view = domains.about(bucket)
        state.scratch.domain_scores[line, domains.listed] = domain_scores_of(policy, gang, domains.nodes, view)
        state.scratch.domain_lines[bucket] = line + 1


def _kinds_with_room(state: State) -> Ints:
    """Buckets with gangs that are placed by domain and fit now, the first in rank first."""
    catalogue, meta = state.catalogue, state.meta
    buckets: Ints = state.work.active[: int(meta[L.M_ACTIVE])]
    table = state.work.buckets[buckets]
    shapes, nodes = (catalogue.classes[table[:, L.B_CLASS], column] for column in (L.C_SHAPE, L.C_NODES))
    chosen: Mask = (nodes > 1) & (catalogue.shapes[shapes, L.S_FIT] >= nodes)
    if not meta[L.M_COMPACT]:
        chosen &= (catalogue.shapes[shapes, L.S_WITHIN] != 0) & bool(meta[L.M_WITHIN])
    table = table[chosen]
    first: Ints = np.lexsort((table[:, L.B_HEAD_JOB], table[:, L.B_HEAD_KEY] + table[:, L.B_OFFSET]))
    return buckets[chosen][first[:GANGS_A_SLICE]]


def is_placed_by_domain(state: State, bucket: int) -> bool:
    """Whether gangs of a bucket are placed by domain."""
    catalogue, meta = state.catalogue, state.meta
    shape, nodes = catalogue.classes[state.work.buckets[bucket, L.B_CLASS], [L.C_SHAPE, L.C_NODES]].tolist()
    within = meta[L.M_WITHIN] and catalogue.shapes[shape, L.S_WITHIN]
    return nodes > 1 and bool(meta[L.M_COMPACT] or within)


class Candidates:
    """Domains and nodes as they are in one slice; what depends on the gang is counted for each."""

    def __init__(self, state: State) -> None:
        self._state = state
        domains, nodes = state.domains, state.nodes
        count = len(nodes.names)
        self._order: Ints = domains.node_order[:count].copy()
        self.listed: Ints = domains.listed[: int(domains.level_domains[len(domains.levels) - 1, L.LISTED_LAST])]
        """Domains, by number."""
        self._names = domains.listed_names()
        self._first, self._last = (domains.domains[self.listed, at] for at in (L.DOMAIN_FIRST, L.DOMAIN_LAST))
        up = nodes.rows[:count, L.N_STATE][self._order] == L.NODE_UP
        idle = up & (nodes.rows[:count, L.N_PIECES][self._order] == 0)
        picked: Any = _Picked(nodes.labels, self._order)
        self.nodes = NodeView(
            rows=count,
            resources=tuple(nodes.resources),
            free=self._columns(nodes.free),
            capacity=self._columns(nodes.capacity),
            up=up,
            labels=Labels(picked),
        )
        """All nodes, in topological order."""
        self._up = self._count(up)
        self._idle = self._count(idle)
        self._gangs = self._count(_holds_gangs(state)[self._order])
        self._fits: dict[int, Ints] = {}
        """By shape."""

    def about(self, bucket: int) -> tuple[Gang, DomainView]:
        """A kind of gang by its bucket, and the domains as it sees them."""
        state = self._state
        class_id, owner_id = state.work.buckets[bucket, [L.B_CLASS, L.B_OWNER]].tolist()
        spec, owner = state.catalogue.class_specs[class_id], state.shares.owner_specs[owner_id]
        assert spec is not None
        shape = int(state.catalogue.classes[class_id, L.C_SHAPE])
        if shape not in self._fits:
            self._fits[shape] = self._count(self._holds(shape))
        asked = request_of(state, spec)
        gang = Gang(
            amounts=asked.amounts, wanted=asked.wanted, nodes=spec.nodes, within=spec.within,
            queue=owner.queue, account=owner.account, user=owner.user, qos=owner.qos,
        )  # fmt: skip
        view = DomainView(
            domains=self.listed.shape[0], levels=state.domains.levels, name=self._names,
            level=state.domains.domains[self.listed, L.DOMAIN_LEVEL], first=self._first, last=self._last,
            nodes=self._up, idle=self._idle, fits=self._fits[shape], gang_nodes=self._gangs,
        )  # fmt: skip
        return gang, view

    def _holds(self, shape: int) -> Mask:
        """Whether nodes, in topological order, have room for a shape."""
        state, count = self._state, len(self._state.nodes.names)
        cset = int(state.catalogue.shapes[shape, L.S_CSET])
        there: Mask = state.nodes.open_now[cset, :count] != 0
        amounts = state.catalogue.request[:, shape]
        for resource in np.flatnonzero(amounts[: len(state.nodes.resources)]).tolist():
            there &= state.nodes.free[:count, resource] >= amounts[resource]
        return there[self._order]

    def _columns(self, table: Table) -> NDArray[np.float32]:
        """The amounts of nodes, resource by resource, in topological order."""
        resources, count = len(self._state.nodes.resources), self._order.shape[0]
        columns = np.empty((resources, count), np.float32)
        for resource in range(resources):
            columns[resource] = table[:count, resource][self._order]
        return columns

    def _count(self, nodes: Mask) -> Ints:
        """How many of these nodes each domain has."""
        ahead = np.zeros(nodes.shape[0] + 1, np.int64)
        np.cumsum(nodes, out=ahead[1:])
        counted: Ints = ahead[self._last] - ahead[self._first]
        return counted


def _holds_gangs(state: State) -> Mask:
    """Whether a part of an attempt of several nodes is on a node."""
    count = len(state.nodes.names)
    holds = np.zeros(count, np.bool_)
    nodes = np.arange(count)
    pieces = state.nodes.rows[:count, L.N_ATTEMPTS] - 1
    of_run, following = state.work.pieces[:, L.P_RUN], state.work.pieces[:, L.P_ON_ROW]
    is_gang = state.work.runs[:, L.R_NODES] > 1
    while True:  # as often as attempts are on one node
        there = np.flatnonzero(pieces >= 0)
        if not there.shape[0]:
            return holds
        nodes, pieces = nodes[there], pieces[there]
        holds[nodes] |= is_gang[of_run[pieces]]
        pieces = following[pieces] - 1


class _Picked:
    """Some items of a list in another order, looked up when they are asked for."""

    def __init__(self, of: Any, order: Ints) -> None:
        self._of, self._order = of, order

    def __len__(self) -> int:
        return int(self._order.shape[0])

    def __getitem__(self, at: int) -> Any:
        return self._of[self._order[at]]

    def __iter__(self) -> Iterator[Any]:
        return (self._of[row] for row in self._order.tolist())
