"""Jobs for whole nodes: everything that a node has, as amounts, on nodes of one size."""

from __future__ import annotations

import pytest

from hal.core.model import Constraint, SpecError
from hal.core.model.policy import Policy, Queue
from hal.planes.tasks import Arrival
from hal.planes.tasks.admission.whole_nodes import with_whole_nodes
from tests.planes.tasks.small_plane import SmallPlane

GIB = 1 << 30


def plane_of(sizes: dict[str, tuple[int, int]], policy: Policy | None = None) -> SmallPlane:
    """Nodes with so many cores and so much memory each."""
    small = SmallPlane(policy, nodes=0)
    for name, (cores, memory) in sizes.items():
        labels = {"hal.node": name, "hal.cores": str(cores)}
        arrival = Arrival(name=name, capacity={"cpu": 1_000 * cores, "memory": memory}, labels=labels, boot_id="b1")
        small.plane.record_arrival(arrival, small.now_ms)
    small.commit()
    return small


ALIKE = {"n1": (8, 64 * GIB), "n2": (8, 63 * GIB)}
MIXED = {**ALIKE, "big": (32, 256 * GIB)}


def test_a_whole_node_is_all_that_its_nodes_have() -> None:
    """Of memory as much as each of them has; bound to nodes of that size, whatever joins later."""
    small = plane_of(ALIKE)
    (job,) = small.submit({"exclusive": True, "request": {"cpu": 2}})
    spec = small.live(job).spec
    assert dict(spec.request) == {"cpu": 8_000, "memory": 63 * GIB}
    assert spec.constraints == (Constraint("hal.cores", values=("8",)),)


def test_a_job_that_is_submitted_again_is_the_same() -> None:
    """As `hal replace` does, with the spec that was accepted."""
    small = plane_of(ALIKE)
    (first,) = small.submit({"exclusive": True})
    spec = small.live(first).spec
    assert with_whole_nodes(spec, (), small.plane.nodes.values()) == spec


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({}, "have different numbers of cores: 8, 32"),
        ({"request": {"cpu": 64}}, "no node that the job may use has what it asks for"),
        ({"constraints": ["gpu"]}, "no node that the job may use has what it asks for"),
    ],
)
def test_nodes_of_several_sizes_are_refused_with_what_to_say(asked: dict[str, object], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        plane_of(MIXED).submit({"exclusive": True, **asked})


@pytest.mark.parametrize(
    ("asked", "cores"),
    [
        ({"constraints": ["hal.cores=8"]}, 8_000),
        ({"exclude": ["n1", "n2"]}, 32_000),
        ({"request": {"cpu": 9}}, 32_000),
        ({"request": {"memory": 100 * GIB}}, 32_000),
    ],
)
def test_what_a_job_asks_for_says_which_size_it_means(asked: dict[str, object], cores: int) -> None:
    small = plane_of(MIXED)
    (job,) = small.submit({"exclusive": True, **asked})
    assert small.live(job).spec.request["cpu"] == cores


def test_the_nodes_of_its_queue_are_those_that_count() -> None:
    policy = Policy(queues={"default": Queue(name="default", nodes=(Constraint("hal.node", values=("big",)),))})
    small = plane_of(MIXED, policy)
    (job,) = small.submit({"exclusive": True})
    assert small.live(job).spec.request["cpu"] == 32_000
