"""What could never run: whether enough machines, known or offered, could hold a request when they are empty.

Pure, O(nodes + offers) a question. Offers are looked at only where the nodes that are known do not do.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
from msgspec.structs import replace

from hal.core.engine.classes import ClassSpec
from hal.core.engine.state import State
from hal.core.kernels.structures import layout as L
from hal.core.model.offer import Offer
from hal.core.model.units import format_distinctly, plural


class Impossible(msgspec.Struct, frozen=True):
    """Why no set of nodes that are known could hold a request.

    resource: the one that fails ("" = labels). asked: per node. largest: the most that a matching node has: `node`.
    nodes_that_fit: how many nodes could hold the whole request; `nodes` are asked for.
    """

    resource: str
    asked: int
    largest: int
    node: str
    nodes: int
    nodes_that_fit: int
    message: str


def fits_ever(state: State, spec: ClassSpec) -> Impossible | None:
    """None when enough known nodes, up or not, and machines that are offered could hold the request when empty; else
    which constraint the nodes fail."""
    short = _shortage_of(spec, Machines(state))
    if short is not None and state.offers and _shortage_of(spec, Machines(state, state.offers)) is None:
        return None
    return short


def offers_needed(state: State, spec: ClassSpec) -> tuple[str, ...]:
    """The offers that could hold the request, where the known nodes alone are too few; () else."""
    if not state.offers or _shortage_of(spec, Machines(state)) is None:
        return ()
    alone = replace(spec, nodes=1)
    return tuple(offer.name for offer in state.offers if _shortage_of(alone, Machines(None, (offer,))) is None)


class Machines:
    """What may hold a request: nodes by their index, and behind them offers, each of which counts for several."""

    def __init__(self, state: State | None, offers: tuple[Offer, ...] = ()) -> None:
        self._state = state
        self._offers = offers
        self._first = 0 if state is None else len(state.nodes.names)
        """From here on they are offers."""

    def all(self) -> list[int]:
        """All of them but nodes that have left."""
        offers = range(self._first, self._first + len(self._offers))
        if self._state is None:
            return list(offers)
        states = self._state.nodes.rows[: self._first, L.N_STATE]
        return [*np.flatnonzero(states != L.NODE_GONE).tolist(), *offers]

    def labels(self, machine: int) -> dict[str, str]:
        """Labels of one."""
        if machine >= self._first or self._state is None:
            return self._offers[machine - self._first].labels
        return self._state.nodes.labels[machine]

    def capacity(self, machine: int, resource: str) -> int:
        """How much of a resource one has when it is empty."""
        if machine >= self._first or self._state is None:
            return self._offers[machine - self._first].resources.get(resource, 0)
        nodes = self._state.nodes
        return int(nodes.capacity[machine, nodes.resources.index(resource)]) if resource in nodes.resources else 0

    def name(self, machine: int) -> str:
        """Its name."""
        if machine >= self._first or self._state is None:
            return self._offers[machine - self._first].name
        return self._state.nodes.names[machine]

    def count(self, machines: Iterable[int]) -> int:
        """How many machines these are."""
        return sum(1 if one < self._first else self._offers[one - self._first].count for one in machines)


def _shortage_of(spec: ClassSpec, machines: Machines) -> Impossible | None:
    """None when enough of these machines could hold the request when empty; else which constraint fails."""
    rows = machines.all()
    matching = [row for row in rows if all(part.holds(machines.labels(row)) for part in spec.constraints)]
    there, known = machines.count(matching), machines.count(rows)
    if there < spec.nodes and there < known:
        wanted = ", ".join(
            f"{part.key} {part.match.value} {' '.join(part.values)}".strip() for part in spec.constraints
        )
        return Impossible(
            "", 0, 0, "", spec.nodes, there,
            f"{there} of {plural(known, 'node')} match {wanted}; {spec.nodes} asked for",
        )  # fmt: skip
    if there < spec.nodes:
        return Impossible(
            "", 0, 0, "", spec.nodes, there,
            f"{plural(spec.nodes, 'distinct node')} asked for; there {'is only' if there == 1 else 'are'} "
            f"{there or 'none'}",
        )  # fmt: skip
    fitting = set(matching)
    worst: tuple[int, str, int, int, str] | None = None
    for name, asked in spec.request.items():
        amounts = {row: machines.capacity(row, name) for row in matching}
        enough = {row for row in matching if amounts[row] >= asked}
        fitting &= enough
        best = max(matching, key=lambda row: amounts[row])
        count = machines.count(enough)
        if count < spec.nodes and (worst is None or count < worst[0]):
            worst = (count, name, asked, amounts[best], machines.name(best))
    if worst is not None:
        count, name, asked, largest, node = worst
        each = f" on each of {spec.nodes} nodes" if spec.nodes > 1 else ""
        have = {0: "no node has", 1: "1 node has"}.get(count, f"{count} nodes have")
        wanted, most = format_distinctly(name, asked, largest)
        most_there = f"{have} that much; the largest, {node}, has {most}" if largest else "no node has any"
        return Impossible(
            name, asked, largest, node, spec.nodes, machines.count(fitting),
            f"{wanted} {name}{each} asked for; {most_there}",
        )  # fmt: skip
    fit = machines.count(fitting)
    if fit < spec.nodes:
        best = max(matching, key=lambda row: sum(machines.capacity(row, n) >= a for n, a in spec.request.items()))
        name = next(n for n, a in spec.request.items() if machines.capacity(best, n) < a)
        asked, largest = spec.request[name], machines.capacity(best, name)
        wanted, most = format_distinctly(name, asked, largest)
        have = {0: "no node has", 1: "1 node has"}.get(fit, f"{fit} nodes have")
        return Impossible(
            name, asked, largest, machines.name(best), spec.nodes, fit,
            f"{have} all that is asked for at once, {spec.nodes} needed; {machines.name(best)} "
            f"comes nearest and has {most} of {wanted} {name}",
        )  # fmt: skip
    return None
