"""On how many domains the jobs of several nodes were."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from hal.core.engine import cycle, new_state
from hal.core.engine.config import EngineConfig
from hal.core.engine.plan import START, Plan
from hal.core.model import SpecError
from hal.core.model.topology.files import topology_from_text
from hal.core.model.topology.tree import topology_of_labels
from hal.daemons.twin.gang_domains import GangDomains
from hal.daemons.twin.machine import Machine
from hal.daemons.twin.replay import node_specs

SITE = topology_from_text(
    'levels = ["row", "rack"]\n[nodes]\n"n[1,2]" = "a/r1"\n"n10" = "a/r2"\n"n3" = "a"\n"n4" = "a"\n', "site.toml"
)


def plan_of(*starts: tuple[int, ...]) -> Plan:
    """A plan that starts a job on each of these sets of nodes."""
    rows = [row for nodes in starts for row in nodes]
    firsts = np.cumsum([0, *(len(nodes) for nodes in starts)]).tolist()
    table = np.array([(at, 0, 1, firsts[at], len(nodes), -1) for at, nodes in enumerate(starts)], START)
    return replace(cycle(new_state(EngineConfig()), 0), starts=table, rows=np.array(rows, np.int64))


def test_the_nodes_of_a_topology_are_told_by_name_as_people_count() -> None:
    """n10 is behind n4."""
    machine = Machine.of_topology(SITE, 4)
    specs = node_specs(machine)
    assert [(node.name, node.domains) for node in specs] == [
        ("n1", ("a", "a/r1")),
        ("n2", ("a", "a/r1")),
        ("n3", ("a", "")),
        ("n4", ("a", "")),
        ("n10", ("a", "a/r2")),
    ]
    assert (machine.procs, machine.job_procs) == (20, 20)


def test_a_job_of_one_node_does_not_count_and_a_node_in_no_domain_is_one_of_its_own() -> None:
    """n1 and n2: one rack. n2, n3, n4: a rack and two nodes of none. One row each."""
    gangs = GangDomains(Machine.of_topology(SITE, 4))
    gangs.count(plan_of((0, 1), (4,), (1, 2, 3)))
    assert gangs.figures() == (2, {"row": 1.0, "rack": 2.0})


def test_within_a_level_the_largest_domain_bounds_a_job() -> None:
    """Two nodes of four processors."""
    assert Machine.of_topology(SITE, 4, "rack").job_procs == 8
    assert Machine.of_topology(SITE, 4, "row").job_procs == 20
    assert [Machine.of_topology(SITE, 4, "rack").within_of(nodes) for nodes in (1, 2)] == ["", "rack"]


def test_without_a_topology_nothing_is_counted() -> None:
    """Nor on a pool."""
    gangs = GangDomains(Machine(4, 1))
    gangs.count(plan_of((0, 1)))
    assert gangs.figures() is None


def test_labels_name_no_nodes_of_a_log() -> None:
    """There is no machine to replay on."""
    with pytest.raises(SpecError, match="names no node"):
        Machine.of_topology(topology_of_labels(["rack"], "levels"), 4)
