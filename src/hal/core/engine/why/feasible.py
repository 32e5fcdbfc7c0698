"""What could never run: whether enough machines, known or offered, could hold a request when they are empty.

Pure, O(nodes + offers) a question. Nodes are looked at one by one, and offers at all, only where the nodes that are
known do not do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set

import msgspec
import numpy as np
from msgspec.structs import replace

from hal.core.engine.classes import ClassSpec
from hal.core.engine.state import State
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints, Mask
from hal.core.model.devices import GPU_ISLAND, is_counted_beside
from hal.core.model.facts import GPUS_LABEL, SANDBOX_LABEL
from hal.core.model.offer import Offer
from hal.core.model.taint import untolerated
from hal.core.model.units import format_amount, format_distinctly, plural
from hal.core.model.verdict import Never, Reason

SANDBOXES_NEED = "a node with bubblewrap: install it there (apt-get install bubblewrap), and start its agent again"
MAX_RESOURCES_NAMED = 8
"""Kinds of resources that a message lists."""
MAX_TAINTS_NAMED = 4
"""Taints that a message lists."""


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
    apart: bool = False
    """There are enough nodes, but not in one domain of the level that it names."""
    taints: tuple[str, ...] = ()
    """Taints that it does not tolerate, of nodes that would do otherwise."""


def fits_ever(
    state: State, spec: ClassSpec, without: Set[str] = frozenset(), only: Set[str] | None = None
) -> Impossible | None:
    """None when enough known nodes, up or not, and machines that are offered could hold the request when empty; else
    which constraint the nodes fail.

    Args:
        without: nodes that do not count.
        only: nodes that alone count, and no offer; None: all.
    """
    if enough_known(state, spec, without, only):
        return None
    short = _shortage_of(spec, Machines(state, without=without, only=only))
    if short is None or only is not None or not state.offers:
        return short
    return None if _shortage_of(spec, Machines(state, state.offers, without)) is None else short


def never_fits(
    state: State, spec: ClassSpec, without: Set[str] = frozenset(), only: Set[str] | None = None
) -> Never | None:
    """The same as an answer for whoever submits it, or asks why it waits."""
    short = fits_ever(state, spec, without, only)
    if short is None:
        return None
    one = short.nodes == 1  # of several groups it is one of them, or some together
    if not short.resource:
        until = "a node like that" if one else "enough such nodes"
        mend = "ask for fewer nodes" if short.nodes_that_fit else "ask for other labels; `hal nodes` lists the nodes"
        if short.apart:
            until = f"enough such nodes of one {spec.within}"
            mend = "ask for fewer nodes, or for a wider level" if short.nodes_that_fit else "name another level"
            mend += "; `hal topology` shows which nodes are where"
        if short.taints:
            until = "a node without these taints" if one else "enough nodes without these taints"
            mend = f"tolerate them, if it may run there: {' '.join(f'--tolerate {one}' for one in short.taints)}"
        elif _lacks_sandboxes(state, spec):
            mend = f"its sandbox, or its queue's, needs {SANDBOXES_NEED}"
        elif any(part.key == GPUS_LABEL for part in spec.constraints):
            mend = "ask for whole GPUs, or let several jobs share one: `gpu_parts = true` under [engine] of hal.toml"
    elif short.resource == GPU_ISLAND and GPU_ISLAND not in state.nodes.resources:
        until = "a node whose GPUs are linked"
        mend = "let jobs ask for GPUs of one island: `gpu_islands = true` under [engine] of hal.toml"
    elif not short.largest:
        named = [state.nodes.resources[at] for at in np.flatnonzero(state.nodes.capacity.any(axis=0)).tolist()]
        there = [name for name in named if not is_counted_beside(name)]
        until = f"a node with {short.resource}" if one else f"enough nodes with {short.resource}"
        mend = f"nodes have {', '.join(there[:MAX_RESOURCES_NAMED])}, and no {short.resource}; `hal nodes` lists them"
    else:
        until = "a node that large" if one else "enough nodes that large"
        fewer = "; `hal nodes` lists the nodes" if one else ", or for fewer nodes"
        mend = f"ask for at most {format_amount(short.resource, short.largest)} {short.resource}{fewer}"
    verbs = "joins or is" if one else "join or are"
    return Never(
        reason=Reason.IMPOSSIBLE, because=short.message, until=f"{until} {verbs} offered for rent", mend=mend,
        resource=short.resource, asked=short.asked, available=short.largest, node=short.node,
    )  # fmt: skip


def _lacks_sandboxes(state: State, spec: ClassSpec) -> bool:
    """Whether a sandbox is asked for, and no known node can make any."""
    asked = any(part.key == SANDBOX_LABEL for part in spec.constraints)
    return asked and not any(SANDBOX_LABEL in labels for labels in state.nodes.labels)


def enough_known(state: State, spec: ClassSpec, without: Set[str] = frozenset(), only: Set[str] | None = None) -> bool:
    """Whether enough known nodes, up or not, could hold a request when they are empty, and may. In whole columns but
    for labels."""
    rows = len(state.nodes.names)
    there = state.nodes.rows[:rows, L.N_STATE] != L.NODE_GONE
    if without or only is not None:
        counts = [name not in without and (only is None or name in only) for name in state.nodes.names]
        there &= np.array(counts, np.bool_)
    parts = (spec, *spec.groups)
    does_for = np.zeros(rows, np.int64)
    for place, part in enumerate(parts):
        does_for |= _known_that_hold(state, part, there).astype(np.int64) << place
    return enough_for_all(state, spec, does_for)


def _known_that_hold(state: State, spec: ClassSpec, there: Mask) -> Mask:
    """Which of some known nodes could hold one part of a request, and may."""
    nodes = state.nodes
    holds = there.copy()
    for name, asked in spec.request.items():
        if name in nodes.resources:
            holds &= nodes.capacity[: holds.shape[0], nodes.resources.index(name)] >= asked
        elif asked > 0:
            holds[:] = False
    for row, taints in nodes.taints.items():
        holds[row] &= not untolerated(taints, spec.tolerates)
    if spec.constraints:
        for row in np.flatnonzero(holds).tolist():
            holds[row] = all(part.holds(nodes.labels[row]) for part in spec.constraints)
    return holds


def enough_for_all(state: State, spec: ClassSpec, does_for: Ints) -> bool:
    """Whether there are nodes for a job with all its groups, in one domain where it says so: for each set of groups, as
    many do for some group of it as its groups have together (see `passes.group_sets`). does_for: by node, a bit for
    each group, the job itself the first. O(nodes + domains x 2**groups)."""
    some = np.flatnonzero(does_for)
    at = np.zeros(some.size, np.int64)
    if spec.within:
        level = state.domains.level_of(spec.within)
        if level < 0:
            return False
        domains = state.domains.domain_of[level, some]
        some = some[domains > 0]
        at = np.unique(domains[domains > 0], return_inverse=True)[1]
    if not some.size:
        return False
    parts = (spec, *spec.groups)
    sets = np.arange(1 << len(parts))
    domains = int(at.max()) + 1
    there = np.bincount(at * sets.size + does_for[some], minlength=domains * sets.size).reshape(domains, sets.size)
    reached = there @ (sets[:, None] & sets != 0).astype(np.float64)
    asked = ((sets[:, None] >> np.arange(len(parts)) & 1) * [part.nodes for part in parts]).sum(axis=1)
    return bool((reached >= asked).all(axis=1).any())


def offers_needed(state: State, spec: ClassSpec) -> tuple[str, ...]:
    """The offers that could hold the request, where the known nodes alone are too few; () else."""
    if not state.offers or enough_known(state, spec):
        return ()
    alone = replace(spec, nodes=1)
    return tuple(offer.name for offer in state.offers if _shortage_of(alone, Machines(None, (offer,))) is None)


class Machines:
    """What may hold a request: nodes by their index, and behind them offers, each of which counts for several."""

    def __init__(
        self,
        state: State | None,
        offers: tuple[Offer, ...] = (),
        without: Set[str] = frozenset(),
        only: Set[str] | None = None,
    ) -> None:
        self._state = state
        self._offers = offers
        self._without = without
        self._only = only
        self._first = 0 if state is None else len(state.nodes.names)
        """From here on they are offers."""

    def all(self) -> list[int]:
        """All of them but nodes that have left, or do not count."""
        offers = range(self._first, self._first + len(self._offers))
        if self._state is None:
            return list(offers)
        states = self._state.nodes.rows[: self._first, L.N_STATE]
        there: list[int] = np.flatnonzero(states != L.NODE_GONE).tolist()
        if self._without or self._only is not None:
            names = self._state.nodes.names
            there = [
                row
                for row in there
                if names[row] not in self._without and (self._only is None or names[row] in self._only)
            ]
        return [*there, *offers]

    def labels(self, machine: int) -> dict[str, str]:
        """Labels of one."""
        if machine >= self._first or self._state is None:
            return self._offers[machine - self._first].labels
        return self._state.nodes.labels[machine]

    def taints(self, machine: int) -> dict[str, str]:
        """Taints of one; machines that are offered have none."""
        return {} if machine >= self._first or self._state is None else self._state.nodes.taints.get(machine, {})

    def capacity(self, machine: int, resource: str) -> int:
        """How much of a resource one has when it is empty."""
        if machine >= self._first or self._state is None:
            return self._offers[machine - self._first].resources.get(resource, 0)
        nodes = self._state.nodes
        return int(nodes.capacity[machine, nodes.resources.index(resource)]) if resource in nodes.resources else 0

    def most_in_one(self, machines: Iterable[int], level: str) -> int:
        """How many of them one domain of a level has at most. Where a machine would be that is offered is not known."""
        if self._state is None or level not in self._state.domains.levels:
            return 0
        nodes = np.array([one for one in machines if one < self._first], np.int64)
        domains = self._state.domains.domain_of[self._state.domains.level_of(level), nodes]
        return int(np.bincount(domains[domains > 0]).max(initial=0))

    def by_domain(self, machines: dict[int, int], level: str) -> list[dict[int, int]]:
        """The same by the domain of a level that each is in; without those in none."""
        assert self._state is not None
        domain_of = self._state.domains.domain_of[self._state.domains.level_of(level)]
        found: dict[int, dict[int, int]] = {}
        for machine, value in machines.items():
            if machine < self._first and domain_of[machine]:
                found.setdefault(int(domain_of[machine]), {})[machine] = value
        return list(found.values())

    def levels(self) -> tuple[str, ...]:
        """Names of the topology's levels."""
        return () if self._state is None else self._state.domains.levels

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
    if spec.groups:
        return _shortage_of_groups(spec, machines)
    rows = machines.all()
    labelled = [row for row in rows if all(part.holds(machines.labels(row)) for part in spec.constraints)]
    matching = [row for row in labelled if not untolerated(machines.taints(row), spec.tolerates)]
    there, known = machines.count(matching), machines.count(rows)
    if there < spec.nodes <= machines.count(labelled):
        return _tainted(spec, machines, labelled, there)
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
    if spec.within:
        return _apart(spec, machines, fitting)
    return None


def _shortage_of_groups(spec: ClassSpec, machines: Machines) -> Impossible | None:
    """The same of several groups, each on machines of its own: of one of them, or of some together."""
    parts = [replace(part, groups=(), within="") for part in (spec, *spec.groups)]
    for part in parts:
        short = _shortage_of(part, machines)
        if short is not None:
            return replace(short, message=f"group {part.group}: {short.message}")
    does_for = {
        machine: sum(1 << place for place, part in enumerate(parts) if _could_hold(part, machines, machine))
        for machine in machines.all()
    }
    short = _shortage_together(parts, machines, does_for)
    if short is not None or not spec.within:
        return short
    if spec.within not in machines.levels():
        return _apart(spec, machines, set())
    if any(_shortage_together(parts, machines, one) is None for one in machines.by_domain(does_for, spec.within)):
        return None
    asked = sum(part.nodes for part in parts)
    return Impossible(
        "", 0, 0, "", asked, 0, f"all {len(parts)} groups are to be in one {spec.within}, and no {spec.within} could "
        "hold all of them", apart=True,
    )  # fmt: skip


def _shortage_together(parts: list[ClassSpec], machines: Machines, does_for: dict[int, int]) -> Impossible | None:
    """Which groups ask for more machines together than there are that could hold any of them. does_for: by machine,
    a bit for each group."""
    masks: Counter[int] = Counter()
    for machine, mask in does_for.items():
        masks[mask] += machines.count((machine,))
    for some in range(1, 1 << len(parts)):
        asked = sum(part.nodes for place, part in enumerate(parts) if some >> place & 1)
        there = sum(count for mask, count in masks.items() if mask & some)
        if there < asked:
            names = ", ".join(part.group for place, part in enumerate(parts) if some >> place & 1)
            return Impossible(
                "", 0, 0, "", asked, there,
                f"groups {names}: {plural(asked, 'distinct node')} asked for together; {there} could hold one of them",
            )  # fmt: skip
    return None


def _could_hold(spec: ClassSpec, machines: Machines, machine: int) -> bool:
    """Whether a machine could hold a request when it is empty."""
    return (
        all(part.holds(machines.labels(machine)) for part in spec.constraints)
        and not untolerated(machines.taints(machine), spec.tolerates)
        and all(machines.capacity(machine, name) >= asked for name, asked in spec.request.items())
    )


def _tainted(spec: ClassSpec, machines: Machines, labelled: list[int], there: int) -> Impossible:
    """Enough machines have its labels, and too many of these have taints that it does not tolerate."""
    named: dict[str, int] = {}
    for row in labelled:
        for taint in untolerated(machines.taints(row), spec.tolerates):
            named[taint] = named.get(taint, 0) + 1
    most = sorted(named, key=lambda taint: (-named[taint], taint))[:MAX_TAINTS_NAMED]
    known = machines.count(labelled)
    matching = " that match its constraints" if spec.constraints else ""
    return Impossible(
        "", 0, 0, "", spec.nodes, there,
        f"{known - there} of {plural(known, 'node')}{matching} {'has' if known - there == 1 else 'have'} taints that "
        f"it does not tolerate ({', '.join(most)}); {spec.nodes} asked for", taints=tuple(most),
    )  # fmt: skip


def _apart(spec: ClassSpec, machines: Machines, fitting: set[int]) -> Impossible | None:
    """None when enough of the machines that could hold the request are in one domain of the level that it names."""
    levels = machines.levels()
    if spec.within not in levels:
        known = f"levels are {', '.join(levels)}" if levels else "no topology is declared"
        return Impossible("", 0, 0, "", spec.nodes, 0, f"there is no level '{spec.within}'; {known}", apart=True)
    most = machines.most_in_one(fitting, spec.within)
    if most >= spec.nodes:
        return None
    return Impossible(
        "", 0, 0, "", spec.nodes, most,
        f"{plural(spec.nodes, 'node')} of one {spec.within} asked for; of those that could hold it, one {spec.within} "
        f"has {'at most ' if most else ''}{most or 'none'}", apart=True,
    )  # fmt: skip
