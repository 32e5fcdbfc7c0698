"""Nodes: what they are called, what they have, what is free on them, and which constraint set each of them meets.

Pure. O(nodes) where something is worked out again for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from hal.core.engine.classes import ClassSpec
from hal.core.engine.tables.terms import Asked
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Allowed
from hal.core.kernels.structures.declaration import Room
from hal.core.kernels.structures.declared import NODE_BLOCKS, NODE_GROUPS, NODES, NodeTables

NO_TAINTS: Final[dict[str, str]] = {}


class Nodes(NodeTables):
    """The nodes' part of a `State`. A node keeps its index; one that left is a tombstone until its work has ended."""

    def __init__(self) -> None:
        self.resources: list[str] = []
        """Names, by resource index: the second index of `free` and `capacity`. Only ever longer."""
        self.names: list[str] = []
        """By node index; of a tombstone the name that it had."""
        self.labels: list[dict[str, str]] = []
        """By node index; replaced, never changed in place."""
        self.taints: dict[int, dict[str, str]] = {}
        """By node index; only of nodes that have some. Replaced, never changed in place."""
        self.unparted: dict[int, Allowed] = {}
        """By constraint set of work that terms of affinity may part from nodes: what `allowed` would be without. Arrays
        are replaced, never changed in place."""
        self.parted: set[int] = set()
        """Constraint sets from which terms of affinity may have taken nodes. Replaced, never changed in place."""
        self.asked: Asked | None = None
        """What `parted` was last worked out from; None: all is to be asked again. Replaced, never changed in place."""
        self.health: list[str] = []
        """By node index: a value of `events.Health`."""
        self.withheld: dict[int, dict[int, int]] = {}
        """By node index and resource index: what is neither free nor held; only what is not 0. Replaced, never changed
        in place."""
        self.by_name: dict[str, int] = {}
        """Node index of every node that is here, without tombstones."""
        self.changes = 0
        """Counts events that changed nodes: what was looked up by their names holds as long as it stays the same."""
        self.breaks = 0
        """Those of them over which an unfinished pass does not continue."""

    def rooms_for(self, count: int) -> dict[Room, int]:
        """Rooms for `count` nodes, where there is not room for as many."""
        room = self.free.shape[0]
        return {NODES: max(count, 2 * room)} if count > room else {}

    def following_rooms(self) -> dict[Room, int]:
        """Blocks and groups of nodes: as many as there is room for nodes."""
        nodes = self.free.shape[0]
        return {NODE_BLOCKS: (nodes + L.BLOCK - 1) // L.BLOCK, NODE_GROUPS: (nodes >> L.ROOM_BITS) + 1}

    def withhold(self, node: int, amounts: dict[str, int]) -> None:
        """Withhold these amounts of a node, by resource name, and nothing else any more."""
        for resource, amount in self.withheld.pop(node, {}).items():
            self.free[node, resource] += amount
        held = {self.resources.index(name): amount for name, amount in amounts.items() if amount}
        for resource, amount in held.items():
            self.free[node, resource] -= amount
        if held:
            self.withheld[node] = held

    def admit(self, some: Iterable[int], constraint_set: int, spec: ClassSpec, booked: set[int] | None) -> None:
        """Work out which of some nodes a constraint set admits: up, labels as required, no taint that it does not
        tolerate, and if so booked.

        booked: the only nodes on which a booking's jobs may run; None = they may run on any.
        """
        nodes = np.asarray(some if isinstance(some, range) else list(some), np.int64)
        self.allowed[constraint_set, nodes] = self.rows[nodes, L.N_STATE] == L.NODE_UP
        if spec.constraints or self.taints:
            for node in nodes.tolist():
                if not spec.holds(self.labels[node], self.taints.get(node, NO_TAINTS)):
                    self.allowed[constraint_set, node] = 0
        if booked is not None:
            self.allowed[constraint_set, [node for node in nodes.tolist() if node not in booked]] = 0
