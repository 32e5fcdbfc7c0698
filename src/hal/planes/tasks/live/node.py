"""A node's row: what the engine hears of it, and in words why nothing new starts there.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from hal.core.engine.events import Health, NodeSpec
from hal.core.model import NodeState
from hal.core.model.devices import GPU, GPU_ISLAND, GPU_PART, GPU_WHOLE, WHOLE, free_of_one_island
from hal.core.model.facts import DOMAIN_LABEL, GPUS_LABEL, WHOLE_GPUS
from hal.core.model.gpu_reserves import GpuReserves
from hal.core.model.states import AWAY_NODE_STATES
from hal.core.model.topology.tree import Topology
from hal.planes.tasks.live.gpu_book import GpuBook
from hal.store.operations import Closure, NodeRow

PERSON: Final = "person"
"""Source of what a person closed."""
PROLOG: Final = "prolog"
EPILOG: Final = "epilog"
"""Sources of what a program of the site closed that failed for a task: nobody but a person can tell whether the node is
fit again."""
QUARANTINE: Final = "quarantine"
"""Source of what the controller closed because the node reported what cannot be true."""
FENCED: Final = "fenced"
"""Source of what closes a node whose machine is gone, as somebody who knows has said: it stays closed until the machine
has started again, whoever opens it."""
LIFTED_BY_PEOPLE: Final = frozenset({PERSON, PROLOG, EPILOG, QUARANTINE})
CHECK: Final = "check "
"""Sources that begin so are health checks; what closed the node is lifted when the check passes."""
HEARD: Final = frozenset({NodeState.UP, NodeState.CORDONED, NodeState.DRAINING})
GONE: Final = frozenset({NodeState.DOWN, NodeState.REMOVED})
"""The engine knows no such node: nothing is admitted because it could once have held it."""
_JOB: Final = "job "
_HEALTH: Final = {
    NodeState.UP: Health.UP,
    NodeState.CORDONED: Health.CORDONED,
    NodeState.DRAINING: Health.DRAINING,
}
"""The states as the engine knows them; to it, every other state is down."""


def node_spec(row: NodeRow, gpus: GpuBook, topology: Topology | None, reserves: GpuReserves) -> NodeSpec:
    """The node as the engine knows it: with what is held of its GPUs now, and the domains of the topology that it is
    in, which its labels may say.

    Args:
        reserves: what work without GPUs must leave for each of its GPUs.
    """
    capacity, labels = row.capacity, row.labels
    withheld = gpus.withheld(row)
    if capacity.get(GPU, 0):
        bound = gpus.gpus_of(row)
        if bound:
            labels = labels | {GPUS_LABEL: WHOLE_GPUS}
        if gpus.parts:
            amount = capacity[GPU]
            capacity = capacity | {GPU_WHOLE: amount, GPU_PART: WHOLE if bound else amount}
        if gpus.islands and bound:
            capacity = capacity | {GPU_ISLAND: free_of_one_island(bound, {gpu.index for gpu in bound})}
    if reserves:
        capacity = capacity | reserves.rests(row.capacity)
    domains: tuple[str, ...] = ()
    if topology is not None:
        domains = topology.domains_of(row.name, row.labels)
        labels = labels | {f"{DOMAIN_LABEL}{level}": path for level, path in domain_paths(topology.levels, domains)}
    health = _HEALTH.get(row.state, Health.DOWN)
    return NodeSpec(row.name, capacity, labels, health, withheld, domains, row.about.taints)


def domain_paths(levels: Sequence[str], domains: Sequence[str]) -> list[tuple[str, str]]:
    """By level in which domain a node is, named with all wider ones; without levels of which it is in none."""
    return [(level, "/".join(domains[: place + 1])) for place, level in enumerate(levels) if domains[place]]


def reason_of(row: NodeRow, *, to_all: bool = False) -> str:
    """Why nothing new starts on the node, in words; '' when it is up.

    Args:
        to_all: as everybody may read it, see `without_jobs`.
    """
    closures = map(without_jobs, row.about.closures) if to_all else row.about.closures
    return "; ".join([row.reason] * bool(row.reason) + [in_words(one) for one in closures])


def in_words(closure: Closure) -> str:
    """A closure as people read it."""
    if closure.source != PERSON:
        return f"{closure.source}: {closure.reason}" + (f", for {closure.by}" if closure.by else "")
    what = "drained" if closure.drain else "cordoned"
    return f"{what} by {closure.by}" + (f": {closure.reason}" if closure.reason else "")


def job_name(job: int) -> str:
    """By whom a node is closed on which a script has failed for that job; no user's name has a space."""
    return f"{_JOB}{job}"


def without_jobs(closure: Closure) -> Closure:
    """The closure as everybody may read it: not for whose job a script failed."""
    return replace(closure, by="") if closure.by.startswith(_JOB) else closure


def eviction_of(row: NodeRow) -> int | None:
    """When what is left on the node is evicted, as it is drained; None: never, or it has been."""
    if row.state is not NodeState.DRAINING and row.state not in AWAY_NODE_STATES:
        return None  # it holds nothing
    return next((one.evict_at_ms for one in row.about.closures if one.evict and not one.evicted), None)


def is_quarantined(row: NodeRow) -> bool:
    """Whether it is closed because it lied."""
    return any(one.source == QUARANTINE for one in row.about.closures)
