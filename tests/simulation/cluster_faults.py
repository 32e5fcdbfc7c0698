"""What befalls a cluster in a simulation: a seeded handful of faults, each over by itself after a while."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tests.simulation.cluster import HEAD, Cluster

Fault = Callable[[Cluster, random.Random], Awaitable[None]]


def _span_s(cluster: Cluster, rng: random.Random) -> float:
    """Shorter than L, between L and T, or longer than T."""
    l_s, t_s = cluster.times.node_ms / 1000, _t_s(cluster)
    return rng.uniform(*rng.choice(((0.2, 0.9 * l_s), (1.1 * l_s, t_s), (1.1 * t_s, 2 * t_s))))


def _t_s(cluster: Cluster) -> float:
    return cluster.times.lost_after_ms / 1000


def _some_heads(cluster: Cluster, rng: random.Random) -> list[str]:
    """The leader's host, or those of all controllers."""
    leader = cluster.leader()
    if len(cluster.heads) == 1 or leader is None or rng.random() < 0.5:
        return list(cluster.heads)
    return [leader.host.name]


async def _parted(cluster: Cluster, rng: random.Random) -> None:
    """A node and controllers' hosts do not hear each other, or only in one direction."""
    node, network = rng.choice(list(cluster.hosts)), cluster.world.network
    which = rng.choice(("both", "up", "down"))
    heads = _some_heads(cluster, rng)
    cluster.world.note("fault", "parted", f"{node} {which} {' '.join(heads)}")
    for head in heads:
        if which != "down":
            network.block(node, head)
        if which != "up":
            network.block(head, node)
    await asyncio.sleep(_span_s(cluster, rng))
    for head in heads:
        network.heal(node, head)
    cluster.world.note("fault", "healed", node)


async def _cut(cluster: Cluster, rng: random.Random) -> None:
    """Connections break; what was on its way is lost."""
    for _ in range(rng.randint(1, 4)):
        node = rng.choice(list(cluster.hosts))
        for head in cluster.heads:
            cluster.world.network.cut(node, head)
        await asyncio.sleep(rng.random())


async def _suspended(cluster: Cluster, rng: random.Random) -> None:
    await cluster.suspend(rng.choice(list(cluster.hosts)), _span_s(cluster, rng))


async def _power(cluster: Cluster, rng: random.Random) -> None:
    cluster.power_off_node(rng.choice(list(cluster.hosts)))


async def _head_power(cluster: Cluster, rng: random.Random) -> None:
    """The controller's host loses power at any point of what it does, between a commit and its flush, say."""
    process = cluster.process("controller")
    if process is not None:
        process.kill_after(rng.randint(1, 60))
        for _ in range(300):
            if cluster.process("controller") is not process:
                break
            await asyncio.sleep(0.001)
    cluster.power_off_head()


async def _kill(cluster: Cluster, rng: random.Random) -> None:
    """Any process, at any point."""
    running = cluster.processes()
    if running:
        victim = rng.choice(running)
        victim.kill_after(rng.randint(1, 60))
        await asyncio.sleep(rng.random())
        victim.kill()


async def _controller(cluster: Cluster, rng: random.Random) -> None:
    """The controller dies, sometimes for as long as a lease."""
    process = cluster.process("controller")
    if process is not None:
        process.kill()


async def _paused(cluster: Cluster, rng: random.Random) -> None:
    """The controller or an agent stands still (a keeper does so only with its whole host)."""
    victims = [process for process in cluster.processes() if not process.name.startswith("keeper")]
    if victims:
        victim = rng.choice(victims)
        victim.pause()
        await asyncio.sleep(_span_s(cluster, rng))
        victim.resume()


async def _helper(cluster: Cluster, rng: random.Random) -> None:
    cluster.machines[rng.choice(list(cluster.machines))].kill_helper()


async def _full(cluster: Cluster, rng: random.Random) -> None:
    """The disk of a node, or of the controller."""
    machine = cluster.machines[rng.choice(list(cluster.machines))]
    if rng.random() < 0.5:
        machine.disk_full = True
        await asyncio.sleep(rng.random() * 4)
        machine.disk_full = False
    else:
        with cluster.full_disk():
            await asyncio.sleep(rng.random() * 4)


async def _jump(cluster: Cluster, rng: random.Random) -> None:
    rng.choice([*cluster.heads.values(), *cluster.hosts.values()]).jump_clock(rng.randint(-3_600_000, 3_600_000))


async def _stalled_agents(cluster: Cluster, rng: random.Random) -> None:
    """Agents stand still for longer than T; what they were sent arrives at their keepers afterwards."""
    agents = [process for process in cluster.processes() if process.name.startswith("agent")]
    for agent in rng.sample(agents, min(2, len(agents))):
        agent.pause()
    await asyncio.sleep(rng.uniform(1.1, 1.5) * _t_s(cluster))
    for agent in agents:
        agent.resume()


async def _congested(cluster: Cluster, rng: random.Random) -> None:
    """What a node is sent takes ever longer, as through a queue that grows; then nothing that it sends arrives."""
    node, network = rng.choice(list(cluster.hosts)), cluster.world.network
    for step in range(1, 41):
        network.slow(HEAD, node, step * 0.08)
        await asyncio.sleep(0.15)
    await asyncio.sleep(rng.random())
    network.block(node, HEAD)
    await asyncio.sleep(1.5 * _t_s(cluster))
    network.slow(HEAD, node, 0.0)
    network.heal(HEAD, node)


async def _orphaned(cluster: Cluster, rng: random.Random) -> None:
    """A keeper and its guards are killed in one instant, which leaves guarded steps to the next keeper; then the node
    is cut off for longer than T."""
    node = rng.choice(list(cluster.hosts))
    keeper, machine = cluster.process(f"keeper-{node}"), cluster.machines[node]
    await asyncio.sleep(rng.uniform(1.0, 2.0))
    if keeper is not None:
        machine.guard_holds = False
        keeper.kill()
        machine.guard_holds = True
    await asyncio.sleep(rng.uniform(0.8, 1.2))
    for head in cluster.heads:
        cluster.world.network.partition(node, head)
    await asyncio.sleep(1.5 * _t_s(cluster))
    for head in cluster.heads:
        cluster.world.network.heal(node, head)


async def _parted_for_long(cluster: Cluster, rng: random.Random) -> None:
    """A node is cut off for longer than T while it has work."""
    await asyncio.sleep(rng.uniform(1.0, 2.0))
    node = rng.choice(list(cluster.hosts))
    for head in cluster.heads:
        cluster.world.network.partition(node, head)
    await asyncio.sleep(rng.uniform(1.3, 1.8) * _t_s(cluster))
    for head in cluster.heads:
        cluster.world.network.heal(node, head)


async def _nothing(cluster: Cluster, rng: random.Random) -> None:
    """Time passes."""
    await asyncio.sleep(rng.random())


async def _nearly_lost(cluster: Cluster, rng: random.Random) -> None:
    """An agent stands still and is started again: its node arrives within an instant of the end of its lease, when work
    waits that it has room for. What it is sent takes long, and so does its first heartbeat: the lease is over between
    the commit that gives it this work and the stamp that the work waits for."""
    node, network = rng.choice(list(cluster.hosts)), cluster.world.network
    agent = cluster.process(f"agent-{node}")
    if agent is None:
        return
    agent.pause()
    await asyncio.sleep(_t_s(cluster) - rng.uniform(0.1, 1.0))
    network.slow(HEAD, node, 0.3)
    agent.kill()
    await asyncio.sleep(2.0)
    network.slow(HEAD, node, 0.0)


NEARLY_LOST: Final[Sequence[Fault]] = (_nearly_lost,)
NOTHING: Final[Sequence[Fault]] = (_nothing,)
PARTED: Final[Sequence[Fault]] = (_parted_for_long,)
ORPHANS: Final[Sequence[Fault]] = (_orphaned,)
STALLS: Final[Sequence[Fault]] = (_stalled_agents,)
CONGESTION: Final[Sequence[Fault]] = (_congested,)
HEAD_POWER: Final[Sequence[Fault]] = (_head_power,)

FAULTS: Final[Sequence[Fault]] = (
    _parted, _parted, _parted, _cut, _suspended, _power, _head_power, _kill, _kill, _controller, _paused, _helper,
    _full, _jump,
)  # fmt: skip


class ClusterFaults:
    """So many of them, one after the other or overlapping, chosen by the world's seed."""

    def __init__(self, count: int, kinds: Sequence[Fault] = FAULTS) -> None:
        self._count = count
        self._kinds = kinds

    async def happen(self, cluster: Cluster) -> None:
        """Until the last is over."""
        rng = cluster.world.rng("faults")
        under_way = []
        for number in range(self._count):
            await asyncio.sleep(rng.random() * 1.5)
            own = random.Random(f"{cluster.world.seed}/fault {number}")
            under_way.append(asyncio.ensure_future(rng.choice(self._kinds)(cluster, own)))
        await asyncio.gather(*under_way)
