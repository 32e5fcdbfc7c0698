"""Which GPUs of which nodes active attempts hold: told as they begin and end, and again from the rows of a restart.

Pure. It follows from the active attempts of the table, so it is not stored, and what is undone is undone here, too.
Only attempts that hold GPUs cost anything. O(GPUs of the node) an attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from hal.core.model.devices import (
    GPU,
    GPU_ISLAND,
    HeldGpu,
    HeldGpus,
    bind_gpus,
    bound_gpus,
    withheld_beside,
    withheld_of_island,
)
from hal.core.model.facts import GpuFacts
from hal.core.model.gpu_slices import SUMS, BoundSlices, bind_slices, bound_slices, slices_in, withheld_of_gone
from hal.planes.tasks.live.attempt import Attempt
from hal.store.operations import NodeRow

NOT_KNOWN: Final[dict[str, int]] = {"": 0}
"""As if the engine had been told something else than it ever is."""


class _Bound(NamedTuple):
    """What a node binds, with the row from which it follows."""

    row: NodeRow
    gpus: tuple[GpuFacts, ...]
    slices: BoundSlices


class GpuBook:
    """The GPUs of all nodes that bind them."""

    def __init__(self, *, parts: bool = False, islands: bool = False) -> None:
        """Args:
        parts: several attempts may share a GPU.
        islands: attempts may ask for GPUs of one link island.
        """
        self.parts = parts
        self.islands = islands
        self.tells = parts or islands
        """What is left of GPUs is no sum, so the engine is told of it."""
        self._held: dict[str, dict[str, int]] = {}
        """By node and GPU: the thousandths that attempts hold, above 0."""
        self._shared: dict[str, Counter[HeldGpu]] = {}
        """All that attempts hold of each node, with how many of them hold as much."""
        self._touched: set[str] = set()
        """Nodes on which what the engine is to withhold may have changed since it was told."""
        self._told: dict[str, dict[str, int]] = {}
        """What the engine was told to withhold of each node, where that is anything."""
        self._known: dict[str, _Bound] = {}
        """By node."""

    def gpus_of(self, row: NodeRow) -> tuple[GpuFacts, ...]:
        """The whole GPUs that a node binds; () where it only counts them."""
        return self._bound(row).gpus

    def _bound(self, row: NodeRow) -> _Bound:
        known = self._known.get(row.name)
        if known is None or known.row is not row:
            facts = row.about.facts
            whole = bound_gpus(facts, row.capacity.get(GPU, 0))
            known = self._known[row.name] = _Bound(row, whole, bound_slices(facts, row.capacity))
        return known

    def bind(self, row: NodeRow, request: Mapping[str, int]) -> HeldGpus | None:
        """Choose what an attempt holds of a node that was started there; None: its GPUs cannot hold it as things
        stand. `take` must follow."""
        bound, held = self._bound(row), self._held.get(row.name, {})
        found: HeldGpus | None = ()
        if bound.gpus and GPU in request:
            found = bind_gpus(bound.gpus, held, request[GPU], one_island=GPU_ISLAND in request)
        for name, count in slices_in(request).items() if bound.slices else ():
            of_type = bind_slices(bound.slices[name], held, count) if name in bound.slices else ()
            if found is None or of_type is None:
                return None
            found += of_type
        return found

    def take(self, nodes: Iterable[str], gpus: Iterable[HeldGpus]) -> None:
        """An attempt begins to hold them on its nodes, in rank order."""
        for node, of_node in zip(nodes, gpus, strict=False):
            held = self._held.setdefault(node, {})
            for one in of_node:
                held[one.id] = held.get(one.id, 0) + one.milli
            if of_node:
                self._shared.setdefault(node, Counter()).update(of_node)
                if self.tells or node in self._told:
                    self._touched.add(node)

    def give(self, nodes: Iterable[str], gpus: Iterable[HeldGpus]) -> None:
        """An attempt holds them no longer."""
        for node, of_node in zip(nodes, gpus, strict=False):
            held = self._held.get(node, {})
            for one in of_node:
                left = held.get(one.id, 0) - one.milli
                if left > 0:
                    held[one.id] = left
                else:
                    held.pop(one.id, None)
            if not held:
                self._held.pop(node, None)
            if of_node:
                shared = self._shared[node]
                shared.subtract(of_node)
                self._shared[node] = +shared
                if self.tells or node in self._told:
                    self._touched.add(node)

    def take_all(self, attempts: Iterable[Attempt]) -> None:
        """These attempts hold what they say."""
        for attempt in attempts:
            if attempt.gpus:
                self.take(attempt.nodes, attempt.gpus)

    def give_all(self, attempts: Iterable[Attempt]) -> None:
        """These attempts hold nothing any longer."""
        for attempt in attempts:
            if attempt.gpus:
                self.give(attempt.nodes, attempt.gpus)

    def withheld(self, row: NodeRow) -> dict[str, int]:
        """What the engine is to withhold of a node (see `withheld_beside` and `withheld_of_island` in
        `hal.core.model.devices`, and `withheld_of_gone`)."""
        held = self._shared.get(row.name)
        if not held:
            return {}
        gpus = self._bound(row).gpus
        bound = {name: {one.slice.uuid for one in of_type} for name, of_type in self._bound(row).slices.items()}
        if gpus:
            bound[GPU] = {gpu.id for gpu in gpus}
        found = withheld_of_gone(row.capacity, bound, held.elements())
        if gpus or not self.parts:
            found = {name: amount for name, amount in found.items() if name not in SUMS}
        if gpus and self.parts:
            found |= withheld_beside(gpus, held.elements())
        return found | withheld_of_island(gpus, held.elements()) if self.islands else found

    def take_untold(self, nodes: Mapping[str, NodeRow]) -> list[NodeRow]:
        """The nodes of which the engine is to withhold something else than it was told last; it is told
        now."""
        untold = []
        for name in sorted(self._touched):
            row = nodes.get(name)
            now = {} if row is None else self.withheld(row)
            if row is not None and now != self._told.get(name, {}):
                untold.append(row)
            self._told[name] = now
            if not now:
                del self._told[name]
        self._touched.clear()
        return untold

    def renew(self, node: str) -> None:
        """The node has other GPUs than before; the engine may have been told of it meanwhile."""
        if node in self._shared:
            self._told[node] = NOT_KNOWN
            self._touched.add(node)

    def begin(self, nodes: Iterable[NodeRow]) -> None:
        """The engine begins anew, and is told of all of these as they are."""
        self._touched.clear()
        self._told = {row.name: now for row in nodes if (now := self.withheld(row))}

    def held(self, node: str) -> Mapping[str, int]:
        """By GPU: the thousandths that attempts hold on a node, above 0."""
        return self._held.get(node, {})

    def forget(self, node: str) -> None:
        """The node is removed."""
        self._known.pop(node, None)
        self._told.pop(node, None)

    def clear(self) -> None:
        """Begin again: the active attempts are told next."""
        self._held.clear()
        self._shared.clear()
