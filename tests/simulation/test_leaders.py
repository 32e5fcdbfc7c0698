"""Three controllers on one database under virtual time: stopped, killed and started at random, one acts at a time.

The leadership alone is simulated: taking it, the lease, commits, stepping down, following. Whoever acts writes it down.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

import pytest

from hal.daemons.controller.cycle.committer import Committer
from hal.daemons.controller.cycle.leader_lease import Lease
from hal.daemons.controller.following.follower import Follower
from hal.runtime.interface import Address, Runtime, UnixAddress
from hal.runtime.virtual_network import Conditions
from hal.runtime.virtual_process import VirtualProcess
from hal.runtime.virtual_world import VirtualWorld
from hal.store import MemoryDatabase, PutMeta, StaleEpoch, Store, StoreError, StoreLed

HOSTS: Final = ("h1", "h2", "h3")
ROUNDS: Final = 30
SLOW_DATABASE: Final = Conditions(blocking_us=(5_000, 150_000), stall_chance=0.0)
"""A call takes up to 0.3 s: a process is often stopped between a renewal and its answer."""


class Act(NamedTuple):
    """Something was sent."""

    at_s: float
    host: str
    epoch: int


class Offices:
    """The three processes, their database, and what they did."""

    def __init__(self, world: VirtualWorld) -> None:
        self.world = world
        self.database = MemoryDatabase(clock=lambda: round(world.loop.time() * 1_000) + 1)
        self.acts: list[Act] = []
        self.lease: type[Lease] = Lease

    async def main(self, runtime: Runtime, host: str) -> None:
        """Follow, lead, step down, and again."""
        address = UnixAddress(runtime.paths.wire_socket())
        while not runtime.stopping.is_set():
            committer = Committer(runtime, lambda: Store.open(self.database))
            committer.lease = self.lease(runtime)
            try:
                await committer.open(runtime.now_ms())
            except StoreLed:
                await committer.close()
                await self._follow(Follower(runtime, lambda: Store.open(self.database)), address)
                continue
            keeping = runtime.spawn_task(self._keep(committer), "keep")
            answering = runtime.spawn_task(self._answer_heartbeats(runtime, host, committer), "heartbeats")
            try:
                await self._lead(runtime, host, committer)
            except StaleEpoch:
                keeping.cancel()
                answering.cancel()
                await committer.close()

    @staticmethod
    async def _follow(follower: Follower, address: Address) -> None:
        try:
            await follower.serve(address)
            await follower.wait()
        finally:
            await follower.close()

    @staticmethod
    async def _keep(committer: Committer) -> None:
        await committer.lease.keep(lambda: committer.store, lambda: committer.epoch)

    async def _answer_heartbeats(self, runtime: Runtime, host: str, committer: Committer) -> None:
        """No commit is between: the lease alone says whether nodes may hear of this leader."""
        while True:
            await runtime.sleep(100)
            self._act(host, committer)

    def _act(self, host: str, committer: Committer) -> None:
        # As `Agents._send`: looked at right before something leaves.
        if committer.lease.holds:
            self.acts.append(Act(self.world.loop.time(), host, committer.epoch))

    async def _lead(self, runtime: Runtime, host: str, committer: Committer) -> None:
        while True:
            await runtime.sleep(100)
            try:
                await committer.commit([PutMeta({"led by": host})], runtime.now_ms())
            except StaleEpoch:
                raise
            except StoreError:
                continue
            await committer.lease.held()
            self._act(host, committer)

    async def disturb(self) -> None:
        """Stop and kill at random; at last all run, and one must lead."""
        rng = self.world.rng("disturbance")
        processes = {host: self._start(host) for host in HOSTS}
        for _ in range(ROUNDS):
            await asyncio.sleep(rng.uniform(0.1, 3.0))
            host = rng.choice(HOSTS)
            process = processes[host]
            if rng.random() < 0.5:
                process.pause()
                await asyncio.sleep(rng.uniform(0.0, 6.0))
                process.resume()
            elif rng.random() < 0.5:
                process.kill_after(rng.randint(0, 30))
                await process.wait()
                processes[host] = self._start(host)
        before = len(self.acts)
        await asyncio.sleep(20)
        assert len(self.acts) > before, f"seed {self.world.seed}: nobody leads\n{self.world.tail()}"
        for process in processes.values():
            process.kill()

    def _start(self, host: str) -> VirtualProcess:
        return self.world.start(self.world.host(host), "controller", lambda runtime: self.main(runtime, host))

    def check(self) -> None:
        """Once an epoch has acted, no earlier one acts any more."""
        epochs = [act.epoch for act in self.acts]
        late = [act for act, highest in zip(self.acts, _highest(epochs), strict=True) if act.epoch < highest]
        assert not late, f"seed {self.world.seed}: {late[:3]} acted after a later leader had"


def _highest(epochs: list[int]) -> list[int]:
    highest, out = 0, []
    for epoch in epochs:
        highest = max(highest, epoch)
        out.append(highest)
    return out


def run(seed: int, lease: type[Lease] = Lease) -> None:
    """One seed, one run."""
    with VirtualWorld(seed, SLOW_DATABASE) as world:
        offices = Offices(world)
        offices.lease = lease
        world.run(offices.disturb())
        offices.check()


@pytest.mark.parametrize("seed", range(2))
def test_safety_one_controller_acts_at_a_time(seed: int) -> None:
    """Whatever is stopped or killed, and however slow the database is; and somebody leads in the end."""
    run(seed)


@pytest.mark.slow
def test_safety_one_controller_acts_at_a_time_in_many_runs() -> None:
    """Other seeds."""
    for seed in range(100, 115):
        run(seed)


class CountedFromTheAnswer(Lease):
    """A mutation: the lease is counted from when the answer came."""

    def taken(self, sent_boot_ms: int, store: Store) -> None:
        super().taken(self._runtime.boot_ms(), store)


class NeverOver(Lease):
    """A mutation: who took the leadership acts until it is told otherwise."""

    @property
    def holds(self) -> bool:
        return self._over is None


@pytest.mark.slow
@pytest.mark.parametrize("mutation", [CountedFromTheAnswer, NeverOver])
def test_the_simulation_finds_a_lease_that_is_kept_too_long(mutation: type[Lease]) -> None:
    """Within a bounded number of runs a former leader is seen acting after its successor."""
    assert any(_found(seed, mutation) for seed in range(60))


def _found(seed: int, mutation: type[Lease]) -> bool:
    try:
        run(seed, mutation)
    except AssertionError as error:
        return "acted after a later leader had" in str(error)
    return False
