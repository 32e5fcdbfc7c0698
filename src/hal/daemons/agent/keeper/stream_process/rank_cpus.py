"""Which of a step's CPUs each of its ranks on a node keeps to."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from hal.core.model.cpu_lists import cpus_of
from hal.runtime.cpu_topology import SYSTEM, read_topology


def parts_of_cpus(cpus: Collection[int], ranks: int, system: Path = SYSTEM) -> list[tuple[int, ...]]:
    """Return equal parts, one for each rank: neighbouring ranks share a NUMA node, and no two share a core if they can
    do without. Empty if the CPUs cannot be divided evenly.

    Args:
        system: as for `read_topology`.
    """
    if ranks < 2 or not cpus or len(cpus) % ranks:
        return []
    topology = read_topology(cpus, system)
    numa_of = {cpu: at for at, mask in enumerate(topology.nodes) for cpu in cpus_of(mask)}
    core_of = {cpu: at for at, mask in enumerate(topology.cores) for cpu in cpus_of(mask)}
    ordered = sorted(cpus, key=lambda cpu: (numa_of.get(cpu, 0), core_of.get(cpu, cpu), cpu))
    each = len(ordered) // ranks
    return [tuple(ordered[at : at + each]) for at in range(0, len(ordered), each)]
