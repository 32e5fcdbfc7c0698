"""The machine on which a log is replayed, how a job of p processors is placed on it, and the names of the policies.

Pure; imports nothing heavy, so that the command line can check its arguments before it loads the engine.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hal.core.engine.classes import Preference
from hal.core.model.affinity import NODE_LEVEL
from hal.core.model.errors import SpecError
from hal.core.model.topology.node_lists import natural_key
from hal.core.model.topology.tree import Topology

if TYPE_CHECKING:
    from hal.daemons.twin.cluster import Cluster

POLICIES: Final = ("fcfs", "none", "easy", "easy-sjbf", "sjf", "top-k", "conservative")
"""Policies under which a log can be replayed, by the names that people type; and `top-K` (see `reservations_of`)."""
_TOP_K: Final = re.compile("top-([1-9][0-9]{0,5})")
"""EASY with K protected jobs, up to 999,999 of them."""


def reservations_of(policy: str) -> int | None:
    """Return K if the policy is `top-K` (top-2: the first two waiting jobs hold reservations), None for other names."""
    found = _TOP_K.fullmatch(policy)
    return None if found is None else int(found[1])


@dataclass(frozen=True, slots=True)
class Machine:
    """`nodes` equal nodes of `cpus_per_node` processors; one node is 'the pool'.

    topology: in which domains its nodes are, which then are those that it names. within: level of it of which one
    domain has all nodes of a job; '': anywhere. pack_ms: how long a job waits for that, and then starts anywhere; 0: as
    long as it takes. spread: level over whose domains the nodes of each job are spread; '': over none. cluster: instead
    of equal nodes those of a file, for jobs that say themselves what they ask for; `cpus_per_node` is then 0.
    """

    nodes: int
    cpus_per_node: int
    topology: Topology | None = None
    within: str = ""
    pack_ms: int = 0
    cluster: Cluster | None = None
    spread: str = ""

    @classmethod
    def pool(cls, procs: int) -> Machine:
        """Return one node with all processors: any free processors suit any job."""
        return cls(nodes=1, cpus_per_node=procs)

    @classmethod
    def of_topology(
        cls, topology: Topology, cpus_per_node: int, within: str = "", pack_ms: int = 0, spread: str = ""
    ) -> Machine:
        """Return the nodes that a topology names, so many processors each.

        Raises:
            SpecError: it names no node, or has no level `within` or `spread`.
        """
        if not topology.places:
            raise SpecError("the topology names no node", hint="labels of nodes say nothing of the nodes of a log")
        if within:
            topology.level_index(within)
        if spread and spread != NODE_LEVEL:
            topology.level_index(spread)
        return cls(len(topology.places), cpus_per_node, topology, within, pack_ms, spread=spread)

    @classmethod
    def of_cluster(cls, cluster: Cluster) -> Machine:
        """Return the nodes that a file describes."""
        return cls(len(cluster.rows), 0, cluster.topology, cluster=cluster)

    @property
    def node_names(self) -> list[str]:
        """In the order in which they are told to the engine: by name, as people count."""
        if self.cluster is not None:
            return [row.name for row in self.cluster.rows]
        if self.topology is not None:
            return sorted(self.topology.places, key=natural_key)
        return ["pool"] if self.nodes == 1 else [f"n{number}" for number in range(1, self.nodes + 1)]

    @property
    def node_domains(self) -> list[tuple[str, ...]]:
        """By node, in the same order, the domains that it is in; () without a topology."""
        if self.topology is None:
            return []
        if self.cluster is not None:
            return [self.topology.domains_of(row.name, row.labels) for row in self.cluster.rows]
        return [self.topology.domains_of(name, {}) for name in self.node_names]

    @property
    def job_procs(self) -> int:
        """Processors of the largest job that it can hold: all, or those of the largest domain that jobs are within."""
        if self.topology is None or not self.within or self.pack_ms:
            return self.procs
        level = self.topology.level_index(self.within)
        found = Counter(self.topology.domains_of(name, {})[level] for name in self.topology.places)
        del found[""]
        return max(found.values(), default=1) * self.cpus_per_node

    def within_of(self, nodes: int) -> str:
        """The level that a job of so many nodes is within."""
        return self.within if nodes > 1 else ""

    @property
    def preference(self) -> Preference | None:
        """What all jobs prefer."""
        return Preference(self.spread) if self.spread else None

    @property
    def procs(self) -> int:
        """All processors."""
        return self.nodes * self.cpus_per_node if self.cluster is None else self.cluster.cpus

    def shape_of(self, procs: int) -> tuple[int, int]:
        """Return (nodes, processors on each) of a job: on one node if it fits there, else whole nodes, rounded up.

        A job of 10 processors on nodes of 4 holds three nodes and uses 10 of their 12 processors.
        """
        if procs <= self.cpus_per_node:
            return 1, procs
        return -(-procs // self.cpus_per_node), self.cpus_per_node
