"""What befalls controllers of which one leads: killed, stopped, cut off from the database or from nodes, relieved."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from typing import Final

from hal.runtime.interface import Lane
from hal.store import LEASE_MS
from tests.simulation.cluster import Cluster
from tests.simulation.cluster_faults import FAULTS, Fault
from tests.simulation.led_cluster import LedCluster

E_S: Final = LEASE_MS / 1000
LOOK_S: Final = 0.0003
MOST_LOOKS: Final = 10_000


def _led(cluster: Cluster) -> LedCluster:
    if not isinstance(cluster, LedCluster):
        raise TypeError("one controller alone has no followers")
    return cluster


async def _killed(cluster: Cluster, rng: random.Random) -> None:
    """The leader dies at any point of what it does."""
    leader = cluster.leader()
    if leader is not None:
        leader.kill_after(rng.randint(1, 60))
        await asyncio.sleep(rng.random())
        leader.kill()


async def _stopped(cluster: Cluster, rng: random.Random) -> None:
    """The leader is stopped for longer than its lease, at any point of what it does, and goes on: another leads by
    then."""
    leader = cluster.leader()
    if leader is not None:
        leader.pause_after(rng.randint(1, 30))
        cluster.world.note("fault", "stopped", leader.name)
        await asyncio.sleep(E_S * rng.uniform(1.1, 3))
        cluster.world.note("fault", "goes on", leader.name)
        leader.resume()


async def _stopped_committing(cluster: Cluster, rng: random.Random) -> None:
    """As `_stopped`, between its asking for a commit and the database."""
    leader = cluster.leader()
    for _ in range(MOST_LOOKS):
        if leader is None or leader.runtime.blocked_calls(Lane.WRITER):
            break
        await asyncio.sleep(LOOK_S)
    if leader is not None:
        leader.pause()
        await asyncio.sleep(E_S * rng.uniform(1.1, 3))
        leader.resume()


async def _off_database(cluster: Cluster, rng: random.Random) -> None:
    """The leader's host does not reach the database, for less than its lease or for more."""
    leader = cluster.leader()
    if leader is not None:
        await _led(cluster).database.cut_off([leader.host.name], E_S * rng.uniform(0.1, 3))


async def _database_away(cluster: Cluster, rng: random.Random) -> None:
    """The database is started again: nobody reaches it, and what was being committed may have been."""
    await _led(cluster).database.cut_off(list(cluster.heads), E_S * rng.uniform(0.1, 2))


async def _away_while_taken(cluster: Cluster, rng: random.Random) -> None:
    """The leader dies, and who takes the leadership does not hear whether it has it."""
    leader = cluster.leader()
    if leader is not None:
        leader.kill()
        await _unanswered(cluster, rng, "taking leadership")


async def _commit_unknown(cluster: Cluster, rng: random.Random) -> None:
    """The connection is lost while the leader commits; sometimes for longer than its lease."""
    await _unanswered(cluster, rng, "committing group")


async def _unanswered(cluster: Cluster, rng: random.Random, doing: str) -> None:
    others = rng.choice(([], list(cluster.heads)))
    await _led(cluster).database.cut_off_when(doing, others, E_S * rng.uniform(0.05, 3), patience_s=2 * E_S)


async def _off_nodes(cluster: Cluster, rng: random.Random) -> None:
    """The leader and the nodes do not hear each other, or only in one direction; it goes on leading."""
    leader, network = cluster.leader(), cluster.world.network
    if leader is None:
        return
    head, which = leader.host.name, rng.choice(("both", "up", "down"))
    cluster.world.note("fault", "off nodes", f"{head} {which}")
    for node in cluster.hosts:
        if which != "down":
            network.block(node, head)
        if which != "up":
            network.block(head, node)
    await asyncio.sleep(cluster.times.lost_after_ms / 1000 * rng.uniform(0.1, 1.5))
    for node in cluster.hosts:
        network.heal(node, head)


async def _relieved(cluster: Cluster, rng: random.Random) -> None:
    """The leader is asked to stop, as for an upgrade, and comes back as a follower."""
    leader = cluster.leader()
    if leader is not None:
        leader.terminate()


async def _relieved_unheard(cluster: Cluster, rng: random.Random) -> None:
    """What the leader sends to nodes is held up, then lost, and it is asked to stop meanwhile."""
    leader, network = cluster.leader(), cluster.world.network
    if leader is None:
        return
    head = leader.host.name
    for node in cluster.hosts:
        network.block(head, node)
    await asyncio.sleep(rng.uniform(0.3, 1.0))
    leader.terminate()
    await asyncio.sleep(rng.uniform(0.05, 0.3))
    for node in cluster.hosts:
        network.cut(node, head)
        network.heal(node, head)


async def _apart(cluster: Cluster, rng: random.Random, spans: tuple[float, float] = (0.2, 2.0)) -> None:
    """Two sides: the leader with some nodes, which hear nobody else; the database with the other controllers.

    Args:
        spans: how long, in T.
    """
    leader, network = cluster.leader(), cluster.world.network
    if leader is None:
        return
    head = leader.host.name
    its = rng.sample(list(cluster.hosts), rng.randint(1, len(cluster.hosts) - 1))
    parted = [(node, other) for node in cluster.hosts for other in cluster.heads if (node in its) != (other == head)]
    cluster.world.note("fault", "apart", f"{head} {' '.join(its)}")
    for node, other in parted:
        network.partition(node, other)
    await _led(cluster).database.cut_off([head], cluster.times.lost_after_ms / 1000 * rng.uniform(*spans))
    for node, other in parted:
        network.heal(node, other)


APART: Final[Sequence[Fault]] = (partial(_apart, spans=(1.5, 2.0)),)
COMMITTING: Final[Sequence[Fault]] = (_stopped_committing,)
INTERREGNUM: Final[Sequence[Fault]] = (_away_while_taken,)

CONTROLLER_FAULTS: Final[Sequence[Fault]] = (
    _killed, _killed, _stopped, _stopped_committing, _off_database, _database_away, _relieved, _away_while_taken,
    _commit_unknown,
)  # fmt: skip
"""What befalls controllers and their database alone."""

LEADER_FAULTS: Final[Sequence[Fault]] = (
    *FAULTS, _killed, _killed, _stopped, _stopped_committing, _off_database, _off_database, _database_away, _off_nodes,
    _relieved, _relieved_unheard, _away_while_taken, _commit_unknown, _apart, _apart,
)  # fmt: skip
