"""Which GPUs of which nodes active attempts hold: told as they begin and end, and again from the rows of a restart.

Pure. It follows from the active attempts of the table, so it is not stored, and what is undone is undone here, too.
Only attempts that hold GPUs cost anything. O(GPUs of the node) an attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from hal.core.model.devices import GPU, HeldGpu, HeldGpus, bind_gpus, bound_gpus, withheld_beside
from hal.core.model.facts import GpuFacts
from hal.planes.tasks.live.attempt import Attempt
from hal.store.operations import NodeRow


class GpuBook:
    """The GPUs of all nodes that bind them."""

    def __init__(self, *, parts: bool = False) -> None:
        """Args:
        parts: several attempts may share a GPU.
        """
        self.parts = parts
        self._held: dict[str, dict[str, int]] = {}
        """By node and GPU: the thousandths that attempts hold, above 0."""
        self._shared: dict[str, Counter[HeldGpu]] = {}
        """With parts: all that attempts hold of each node, with how many of them hold as much."""
        self._touched: set[str] = set()
        """With parts: nodes on which what is held has changed since the engine was told."""
        self._told: dict[str, dict[str, int]] = {}
        """With parts: what the engine was told to withhold of each node, where that is anything."""
        self._known: dict[str, tuple[NodeRow, tuple[GpuFacts, ...]]] = {}
        """What a node binds, with the row from which it follows."""

    def gpus_of(self, row: NodeRow) -> tuple[GpuFacts, ...]:
        """The GPUs that a node binds; () where it only counts them."""
        known = self._known.get(row.name)
        if known is None or known[0] is not row:
            known = self._known[row.name] = (row, bound_gpus(row.about.facts, row.capacity.get(GPU, 0)))
        return known[1]

    def bind(self, row: NodeRow, milli: int) -> HeldGpus | None:
        """Choose what an attempt holds of a node that was started there; None: its GPUs cannot hold it as things
        stand. `take` must follow."""
        gpus = self.gpus_of(row)
        return bind_gpus(gpus, self._held.get(row.name, {}), milli) if gpus else ()

    def take(self, nodes: Iterable[str], gpus: Iterable[HeldGpus]) -> None:
        """An attempt begins to hold them on its nodes, in rank order."""
        for node, of_node in zip(nodes, gpus, strict=False):
            held = self._held.setdefault(node, {})
            for one in of_node:
                held[one.id] = held.get(one.id, 0) + one.milli
            if self.parts and of_node:
                self._shared.setdefault(node, Counter()).update(of_node)
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
            if self.parts and of_node:
                shared = self._shared[node]
                shared.subtract(of_node)
                self._shared[node] = +shared
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
        """With parts: what the engine is to withhold of a node (see `hal.core.model.devices.withheld_beside`)."""
        held = self._shared.get(row.name)
        return withheld_beside(self.gpus_of(row), held.elements()) if held else {}

    def take_untold(self, nodes: Mapping[str, NodeRow]) -> list[NodeRow]:
        """With parts: the nodes of which the engine is to withhold something else than it was told last; it is told
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

    def begin(self, nodes: Iterable[NodeRow]) -> None:
        """With parts: the engine begins anew, and is told of all of these as they are."""
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
