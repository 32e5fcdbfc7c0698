"""The plugins that a configuration names, and what is kept of their answers.

Pure.
"""

from __future__ import annotations

import numpy as np

from hal.core.engine.tables.advice import Floats
from hal.core.interfaces.domain_score import DomainScore
from hal.core.interfaces.filter import Filter
from hal.core.interfaces.order import Order
from hal.core.interfaces.preempt import Preempt
from hal.core.interfaces.score import Score
from hal.core.kernels.structures.arrays import Ints, Mask


class Plugins:
    """The part of a `State` that asks plugins; None where a built-in policy decides in kernels."""

    def __init__(self) -> None:
        self.order: Order | None = None
        """Gives waiting work its keys."""
        self.score: Score | None = None
        """Scores nodes; answers are kept in the table `scores`."""
        self.domain_score: DomainScore | None = None
        """Scores domains for gangs, for one slice."""
        self.preempt: Preempt | None = None
        """Prices running work."""
        self.filters: list[Filter] = []
        """All of them must admit a node."""
        self.stopped: frozenset[str] = frozenset()
        """Names of filters that have failed: they keep what they said last and admit nothing else."""
        self.masks: dict[tuple[str, tuple[object, ...]], Mask] = {}
        """By filter and shape key what it said last, by node: all that counts of one that has failed since."""
        self.scored_shapes: list[int] = []
        """By line of `scores`: the shape that the score plugin was asked about."""
        self.scored_classes: list[int] = []
        """By line of `scores`: the class that it was asked about, with what it prefers; -1 = the shape alone."""
        self.scored_at = -1
        """TICK_TOUCHED when it was last asked; -1 = all answers are out of date."""
        self.reads_advice: frozenset[str] = frozenset()
        """Kinds of advice that the order and the score read."""
        self.scored_advice = -1
        """`Advice.changes` when answers were last compared with advice."""
        self.advised: dict[str, Floats] = {}
        """By kind that the score plugin reads: its values by node, as they were then."""
        self.outdated_nodes: Ints = np.zeros(0, np.int64)
        """Nodes of which advice has changed since the shapes in `outdated_lines` were scored."""
        self.outdated_lines: list[int] = []
        """Lines of `scores` whose answers about `outdated_nodes` are of earlier advice."""
        self.node_slots: tuple[int, int, Ints] | None = None
        """Slots of the nodes' names in advice, with the counts of changes of nodes and of names that they are of."""

    def forget_node(self, node: int) -> None:
        """What stopped filters said of a node does not hold for the next one of its index."""
        for key, mask in self.masks.items():
            if key[0] in self.stopped and node < mask.shape[0]:
                self.masks[key] = mask.copy()
                self.masks[key][node] = False

    def unasked(self, shape_key: tuple[object, ...]) -> list[str]:
        """Filters that have failed before they said anything of such jobs: none of these starts."""
        return [
            policy.info.name
            for policy in self.filters
            if policy.info.name in self.stopped and (policy.info.name, shape_key) not in self.masks
        ]
