"""Placement of gangs: a DomainScore ranks the domains of the topology that could hold one. Interface domain-score/1.

Pure values. Columns of domains are counted from the columns of nodes: a domain's nodes are neighbours in them.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from hal.core.interfaces.policy import NodeView, PolicyInfo

INTERFACE: Final = "domain-score/1"
VERSIONS: Final = (INTERFACE,)


class Gang(msgspec.Struct, frozen=True):
    """Work of several nodes that waits: what it uses on each of them, how many they are, and whose it is.

    amounts: by resource index, shape (R,), base units; wanted: indices of those above 0. within: the level in one
    domain of which it must be; "" = it need not.
    """

    amounts: NDArray[np.int64]
    wanted: tuple[int, ...]
    nodes: int
    within: str
    queue: str
    account: str
    user: str
    qos: str


class DomainView(msgspec.Struct, frozen=True):
    """Domains as read-only columns of equal length D (int64). A view may contain only some of them.

    levels: names, widest first. name: whole names, as "east/r1". level: index into `levels`. first, last: its nodes
    are rows first..last-1 of the NodeView. nodes: of them that are up. idle: of these, that hold nothing. fits: on
    which there is room for one part of the gang now; reservations are not looked at. gang_nodes: on which a part of
    other work of several nodes runs.
    """

    domains: int
    levels: tuple[str, ...]
    name: NDArray[np.str_]
    level: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    nodes: NDArray[np.int64]
    idle: NDArray[np.int64]
    fits: NDArray[np.int64]
    gang_nodes: NDArray[np.int64]

    def total(self, column: NDArray[Any]) -> NDArray[np.float64]:
        """Return shape (D,): the sum of a column of the NodeView (`view.free[r]`, a price) over each domain's nodes."""
        return sums(column, self.first, self.last)


def sums(column: NDArray[Any], first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the sum over column[first:last] for each pair; each is of its own values alone, whatever lies around."""
    total = np.zeros(first.shape, np.float64)
    some = np.flatnonzero(last > first)
    if some.size:
        bounds = np.stack((first[some], last[some]), axis=1).ravel()
        total[some] = np.add.reduceat(np.append(np.asarray(column, np.float64), 0.0), bounds)[::2]
    return total


class DomainScore(Protocol):
    """Called once a slice for each kind of waiting gang (request, number of nodes, owner) that has room; never for a
    single decision."""

    info: PolicyInfo

    def score(self, request: Gang, view: NodeView, domains: DomainView) -> NDArray[np.float32]:
        """Return shape (D,), 0..1, higher is better; rounded to 1e-6. Domains without enough room are ignored; of
        equals the narrowest one is taken, and of these the smallest that holds the gang."""
        ...
