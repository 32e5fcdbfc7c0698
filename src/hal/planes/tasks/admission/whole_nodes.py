"""Jobs that want whole nodes: everything that a node has, as amounts.

Pure. The engine hears of a request like any other, so nothing that decides where jobs start knows of it. An amount fits
nodes of one size, so the job is bound to that size by its label; nodes of other sizes, also those that join later,
would be shared. O(nodes) a job that asks for it, nothing for others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from hal.core.model import Constraint, JobSpec, Resources, SpecError, format_amount
from hal.core.model.facts import CORES_LABEL, NODE_LABEL
from hal.core.model.taint import untolerated
from hal.planes.tasks.live.node import GONE
from hal.store.operations import NodeRow

CPU: Final = "cpu"
MAX_SIZES: Final = 8
"""Sizes of nodes that an error names."""


def with_whole_nodes(spec: JobSpec, pool: tuple[Constraint, ...], nodes: Iterable[NodeRow]) -> JobSpec:
    """Return the spec of an `exclusive` job with all that its nodes have, and bound to nodes of that size.

    Args:
        pool: what its queue asks of nodes.
        nodes: all that there are.
    Raises:
        SpecError: there is none that it may use, or they are of several sizes.
    """
    rules = (*spec.constraints, *pool)
    usable = [
        row
        for row in nodes
        if row.state not in GONE
        and CORES_LABEL in row.labels
        and row.labels.get(NODE_LABEL) not in spec.exclude
        and all(rule.holds(row.labels) for rule in rules)
        and not untolerated(row.about.taints, spec.tolerate)
        and all(row.capacity.get(name, 0) >= amount for name, amount in spec.request.items())
    ]
    if not usable:
        raise SpecError(
            "exclusive: no node that the job may use has what it asks for",
            hint="`hal nodes` shows what there is; whole nodes are counted when the job is submitted",
        )
    sizes = sorted({row.capacity.get(CPU, 0) for row in usable})
    if len(sizes) > 1:
        named = ", ".join(format_amount(CPU, size) for size in sizes[:MAX_SIZES])
        raise SpecError(
            f"exclusive: the nodes that the job may use have different numbers of cores: {named}",
            hint=f"say which: --constraint {CORES_LABEL}={format_amount(CPU, sizes[-1])}",
        )
    every = set.intersection(*(set(row.capacity) for row in usable))
    whole = {name: min(row.capacity[name] for row in usable) for name in every}
    size = Constraint(CORES_LABEL, values=(format_amount(CPU, sizes[0]),))
    constraints = spec.constraints if size in spec.constraints else (*spec.constraints, size)
    return replace(spec, request=Resources({**spec.request, **whole}), constraints=constraints)
