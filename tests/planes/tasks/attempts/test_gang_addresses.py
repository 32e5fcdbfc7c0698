"""Gangs are told where their nodes are reached; everything else is not."""

from __future__ import annotations

from hal.core.model.facts import Facts
from hal.planes.tasks import Arrival
from tests.planes.tasks.small_plane import SmallPlane


def arrive(small: SmallPlane, name: str, address: str) -> None:
    facts = Facts(address=address)
    small.plane.record_arrival(Arrival(name=name, capacity={"cpu": 64_000}, boot_id="b1", facts=facts), small.now_ms)
    small.commit()


def test_the_starts_of_a_gang_carry_addresses_in_the_order_of_ranks() -> None:
    """Where an address is not known, the node's name stands for it."""
    small = SmallPlane(nodes=3)
    arrive(small, "n1", "10.1.0.1")
    arrive(small, "n3", "n3.ib")
    (job,) = small.submit({"nodes": 3})
    orders = small.start((job, 0)).orders
    known = {"n1": "10.1.0.1", "n2": "n2", "n3": "n3.ib"}
    starts = [start for node in orders for start in orders[node].starts]
    assert len(starts) == 3
    assert {start.addresses for start in starts} == {tuple(known[name] for name in starts[0].nodes)}


def test_a_step_on_one_node_carries_none() -> None:
    """It costs nothing."""
    small = SmallPlane()
    arrive(small, "n1", "10.1.0.1")
    (job,) = small.submit({})
    orders = small.start((job, 0)).orders
    assert [start.addresses for node in orders for start in orders[node].starts] == [()]
