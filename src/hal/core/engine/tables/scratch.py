"""What a pass writes down for itself: how much room that takes, and what is kept of nodes from one pass to the next.

Pure.
"""

from __future__ import annotations

from typing import Final

from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.declaration import Room
from hal.core.kernels.structures.declared import PICKED, SEARCH_AMOUNTS, SEARCH_NODES, SEARCH_RUNS, WIDTH, ScratchTables

FOLLOWING_NODES: Final = ("lagging", "counted", "block_touched", "room", "ready", "unready")
"""Tables that follow nodes: what they say holds no longer when there is room for more nodes or resources."""


class Scratch(ScratchTables):
    """The part of a `State` that means nothing: it may be lost between any two events, and decisions stay the same."""

    def following_rooms(self, *, nodes: int, shapes: int, reservations: int, starts: int) -> dict[Room, int]:
        """The longest list that a kernel may make."""
        return {WIDTH: max(L.MAX_DEPTH, shapes, nodes, starts + 1, reservations)}

    def search_rooms(self, nodes: int, resources: int, runs: int) -> dict[Room, int]:
        """Rooms of searches for work to preempt: only where some may be."""
        return {
            SEARCH_NODES: nodes,
            SEARCH_AMOUNTS: 2 * resources,
            SEARCH_RUNS: runs,
            PICKED: max(L.MAX_CANDIDATES, resources),
        }
