"""What moving work for a gang must satisfy, in plain Python: it tries every set of victims and every way to place them.

It shares with the kernels the definitions of loss and gain, and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from tests.core.engine.reference_victims import Running, Scene

MOST_WAIT_MS = 7 * 86_400_000


@dataclass
class Moving:
    """A scene whose candidates may be moved. together: jobs whose nodes must be in one rack."""

    scene: Scene
    racks: dict[str, str]
    factor: int
    together: Collection[int] = ()

    def alone_ms(self) -> int:
        """When the gang would start by planned ends alone; a week after any victim has left where that is unknown."""
        for end in sorted({run.end_ms for run in self.scene.running if run.end_ms > self.scene.now_ms}):
            if end < 1 << 60 and self.scene.fitting((), until_ms=end) >= self.scene.gang:
                return end
        return 1 << 60

    def gain(self, victims: Sequence[Running]) -> float:
        """What the gang gains by them less what they lose; below zero: it does not pay."""
        scene = self.scene
        due = scene.now_ms + max(run.grace_ms for run in victims)
        wait = min(self.alone_ms() - due, MOST_WAIT_MS)
        names = [name for name, _ in scene.request.items()]
        most = {name: max(node.get(name, 0) for node in scene.capacity.values()) for name in names}
        weight = max([1, *(scene.request[name] * 1000 // most[name] for name in names)])
        gained = weight * scene.gang * wait
        lost = sum(scene.lost(run) for run in victims)
        return gained - lost if wait > 0 and gained >= -(-lost // 1000) * 1000 * self.factor else -1

    def left(self, victims: Iterable[Running]) -> dict[str, dict[str, int]]:
        """What is free of each node when the victims, and what leaves by itself in their time, have left."""
        gone = {run.job for run in victims}
        free = {name: dict(node) for name, node in self.scene.capacity.items()}
        for run in self.scene.running:
            if run.job not in gone and not self.scene.leaves(run):
                take(free, run.nodes, dict(run.request))
        return free

    def has_room(self, victims: Sequence[Running], claimed: Sequence[str]) -> bool:
        """Whether all victims find room at once beside the gang on these nodes."""
        free = self.left(victims)
        take(free, claimed, self.scene.request)
        return self._places(sorted(victims, key=lambda run: -len(run.nodes)), free)

    def has_room_without(self, victims: Sequence[Running], node: str) -> bool:
        """Whether all of them find room at once on the other nodes."""
        free = self.left(victims)
        del free[node]
        return self._places(sorted(victims, key=lambda run: -len(run.nodes)), free)

    def _places(self, victims: Sequence[Running], free: dict[str, dict[str, int]]) -> bool:
        if not victims:
            return True
        run, request = victims[0], dict(victims[0].request)
        fit = [name for name in free if all(free[name].get(key, 0) >= amount for key, amount in request.items())]
        for nodes in combinations(fit, len(run.nodes)):
            if run.job in self.together and not self.in_one_rack(nodes):
                continue
            left = {name: dict(amounts) for name, amounts in free.items()}
            take(left, nodes, request)
            if self._places(victims[1:], left):
                return True
        return False

    def in_one_rack(self, nodes: Sequence[str]) -> bool:
        """Whether these nodes are in one rack, all of them."""
        return len({self.racks[name] for name in nodes}) == 1 and self.racks[nodes[0]] != ""

    def claims(self, victims: Sequence[Running]) -> list[tuple[str, ...]]:
        """Every choice of nodes that the gang could get when they have left."""
        free, request = self.left(victims), self.scene.request
        fit = [name for name in free if all(free[name].get(key, 0) >= amount for key, amount in request.items())]
        choices = combinations(fit, self.scene.gang)
        return [nodes for nodes in choices if self.scene.racks is None or self.in_one_rack(nodes)]

    def best(self, *, chains: bool) -> float:
        """The largest gain that any lawful set of victims has; 0: none pays.

        chains: also sets with victims that leave only to make room for other victims.
        """
        best = 0.0
        for victims in self.scene.sets():
            gain = self.gain(victims)
            if gain <= best or not (chains or self.needed(victims)):
                continue
            if any(self.has_room(victims, nodes) for nodes in self.claims(victims)):
                best = gain
        return best

    def needed(self, victims: Sequence[Running]) -> bool:
        """Whether the gang needs each of them to leave."""
        return not any(self.scene.enough([other for other in victims if other is not run]) for run in victims)


def take(free: dict[str, dict[str, int]], nodes: Iterable[str], request: dict[str, int]) -> None:
    """Take a request from each of these nodes."""
    for name in nodes:
        for key, amount in request.items():
            free[name][key] = free[name].get(key, 0) - amount
