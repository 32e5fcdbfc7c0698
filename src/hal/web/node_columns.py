"""Nodes in compact columns: per node a state, a domain and the use of each resource in percent; and what has changed.

Pure.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

SHOWN: Final = ("cpu", "memory", "gpu")
"""Resources of which the map shows the use."""
NONE: Final = -1
"""A node has none of a resource."""

Column = npt.NDArray[np.int64]


class ResourceUse(Struct, frozen=True):
    """See `GET /v1/node-use`."""

    capacity: list[int]
    free: list[int]


class NodeUse(Struct, frozen=True, kw_only=True):
    """See `GET /v1/node-use`."""

    version: str
    names: list[str] = []
    states: list[str] = []
    state: list[int] = []
    running: list[int] = []
    levels: list[str] = []
    domains: list[str] = []
    domain: list[int] = []
    resources: dict[str, ResourceUse] = {}
    reasons: dict[str, str] = {}


class NodeColumns:
    """The newest columns."""

    def __init__(self) -> None:
        self._use = NodeUse(version="")
        self._columns: dict[str, Column] = {}
        """State, running and the percents, by a letter each."""
        self._totals: dict[str, tuple[int, int]] = {}

    def update(self, use: NodeUse) -> dict[str, Any] | None:
        """Take newer columns; returns what has changed, by position, or None where it is other nodes."""
        columns: dict[str, Column] = {"s": np.array(use.state, np.int64), "r": np.array(use.running, np.int64)}
        self._totals = {}
        up = columns["s"] == (use.states.index("up") if "up" in use.states else 0)
        for name, letter in zip(SHOWN, "cmg", strict=True):
            if (found := use.resources.get(name)) is None:
                columns[letter] = np.full(len(use.names), NONE, np.int64)
                continue
            capacity, free = np.array(found.capacity, np.int64), np.array(found.free, np.int64)
            used = capacity - free
            columns[letter] = np.where(capacity > 0, (used * 100 + capacity // 2) // np.maximum(capacity, 1), NONE)
            total = int(capacity[up | (used > 0)].sum())
            self._totals[name] = (int(used.sum()), total)
        before, known = self._use, self._columns
        self._use, self._columns = use, columns
        alike = before.names == use.names and before.domain == use.domain and before.domains == use.domains
        if not alike or before.states != use.states:
            return None
        moved = np.zeros(len(use.names), np.bool_)
        for letter, column in columns.items():
            moved |= column != known[letter]
        at = np.flatnonzero(moved)
        found_reasons = use.reasons if use.reasons != before.reasons else None
        changes: dict[str, Any] = {
            "i": at.tolist(),
            **{letter: column[at].tolist() for letter, column in columns.items()},
        }
        if found_reasons is not None:
            changes["reasons"] = found_reasons
        return changes

    def whole(self) -> dict[str, Any]:
        """All that a page needs to draw the map."""
        use = self._use
        return {
            "names": use.names,
            "states": use.states,
            "levels": use.levels,
            "domains": use.domains,
            "d": use.domain,
            "reasons": use.reasons,
            "gpus": [amount // 1_000 for amount in use.resources["gpu"].capacity] if "gpu" in use.resources else [],
            **{letter: column.tolist() for letter, column in self._columns.items()},
        }

    def totals(self) -> dict[str, tuple[int, int]]:
        """What is used of each resource, and what there is on nodes that are up or hold something."""
        return self._totals

    def used_permille(self) -> tuple[int, int, int]:
        """Of the shown resources; -1 where there is none."""

        def share(name: str) -> int:
            used, total = self._totals.get(name, (0, 0))
            return used * 1_000 // total if total else NONE

        return share("cpu"), share("memory"), share("gpu")
