"""What work without GPUs uses of nodes beyond what it may: what runs stays when a reserve for GPUs rises.

Pure. The engine takes nothing into a node of which it has less than nothing of anything. So it is told of what is used
too much, until that has ended. Filled when the engine begins; only attempts on such nodes cost anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

Key = tuple[int, int, int]
"""Job, task and attempt."""
Use = tuple[Key, tuple[str, ...], Mapping[str, int]]
"""What an attempt uses of each of its nodes, by the amounts of `GpuReserves.rests`."""


class ReserveBook:
    """The nodes of which too much is used."""

    def __init__(self) -> None:
        self._over: dict[str, Counter[str]] = {}
        """By node: how much too much of each amount; all above 0."""
        self._uses: dict[Key, Use] = {}
        """Of attempts on these nodes."""
        self._touched: set[str] = set()
        """Nodes on which that has changed since the engine was told."""

    def begin(self, uses: Iterable[Use], rests: Callable[[str], Mapping[str, int]]) -> None:
        """The engine begins anew, with these attempts.

        Args:
            rests: what such work may use of a node.
        """
        known = [use for use in uses if use[2]]
        used: dict[str, Counter[str]] = {}
        for _, nodes, amounts in known:
            for node in nodes:
                used.setdefault(node, Counter()).update(amounts)
        self._over = {node: over for node, of_node in used.items() if (over := of_node - Counter(rests(node)))}
        self._uses = {use[0]: use for use in known if not self._over.keys().isdisjoint(use[1])}
        self._touched.clear()

    def end(self, key: Key) -> None:
        """An attempt uses nothing any longer."""
        use = self._uses.pop(key, None)
        if use is None:
            return
        _, nodes, amounts = use
        for node in nodes:
            if node in self._over:
                left = self._over[node] - Counter(amounts)
                self._touched.add(node)
                if left:
                    self._over[node] = left
                else:
                    del self._over[node]

    def withheld(self, node: str) -> dict[str, int]:
        """What the engine is to withhold of a node: less than nothing of what is used too much."""
        over = self._over.get(node)
        return {name: -amount for name, amount in over.items()} if over else {}

    def take_untold(self) -> list[str]:
        """Nodes of which the engine is to be told again; it is told now."""
        untold = sorted(self._touched)
        self._touched.clear()
        return untold
