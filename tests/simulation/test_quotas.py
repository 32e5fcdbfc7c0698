"""Quotas hold whatever dies: judged by what ran on the machines, with real controllers, store, agents and keepers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest

from hal.core.model import Duration, JobSpec, Resources
from hal.core.model.policy import Account, Limit, Policy
from hal.daemons.controller.config import Config
from hal.daemons.controller.service.idempotency import Key
from hal.daemons.controller.service.jobs.control import Action
from hal.planes.tasks import Submitter
from hal.runtime.virtual_world import VirtualWorld
from tests.simulation.checkers import check_nothing_ran_twice
from tests.simulation.machine import Run, Work
from tests.simulation.system import System
from tests.simulation.test_system import UNFLUSHED_S, Faults, seeds

USERS: Final = ("alice", "bob", "carol")
RUNNING_OF_A_USER: Final = 2
CPU_OF_ML: Final = 3_000
CPU_HOURS_OF_ML: Final = 12
"""In thousandths: 43.2 cpu-seconds."""
SETTLED_S: Final = 60.0
"""So long after the last fault, whatever may start has started and ended."""

POLICY: Final = Policy(
    accounts={"ml": Account(name="ml"), "bio": Account(name="bio")},
    limits={
        "few": Limit(name="few", user="*", running=RUNNING_OF_A_USER),
        "cpus": Limit(name="cpus", account="ml", resources=Resources({"cpu": CPU_OF_ML})),
        "hours": Limit(
            name="hours", account="ml", hours=Resources({"cpu": CPU_HOURS_OF_ML}), period=Duration(7 * 86_400_000)
        ),
    },
)


def most_at_once(runs: Sequence[Run], amount: Callable[[Run], int]) -> int:
    """The largest sum of amounts at any instant; what ends at an instant makes room for what begins at it."""
    changes = sorted(change for run in runs for change in ((run.begin_s, amount(run)), (run.end_s, -amount(run))))
    most = used = 0
    for _, change in changes:
        used += change
        most = max(most, used)
    return most


@pytest.fixture
def world(seed: int) -> Iterator[VirtualWorld]:
    with VirtualWorld(seed) as made:
        yield made


@seeds(fast=2, low=6, high=10)
def test_no_limit_is_exceeded_whatever_dies(world: VirtualWorld) -> None:
    """More work than the limits let through; controllers, agents and keepers are killed, stopped, and cannot commit."""
    system = System(world, config=Config(policy=POLICY))
    rng = world.rng("jobs")
    whose: dict[int, tuple[str, str]] = {}

    async def submit() -> None:
        for position in range(40):
            user, account = rng.choice(USERS), rng.choice(("ml", "ml", "ml", "bio"))
            spec = JobSpec(
                name=f"job-{position}",
                command=tuple(Work(rng.randint(100, 3_000)).command()),
                request=Resources({"cpu": rng.choice((500, 1_000, 1_000, 2_000))}),
                walltime=Duration(4_000),
                account=account,
                user=user,
            )
            key, by = Key(f"job {position}", "same"), Submitter(user)
            told = await system.ask(lambda api, spec=spec, key=key, by=by: api.jobs.submit([spec], by, key=key))  # type: ignore[misc]
            whose[int(told.ids[0])] = (user, account)
            await asyncio.sleep(rng.random() * 0.5)

    async def drive() -> None:
        supervising = asyncio.ensure_future(system.supervise())
        await system.all_nodes_known()
        await asyncio.sleep(UNFLUSHED_S)
        troubling = asyncio.ensure_future(Faults(kills=14, helpers=2, pauses=2, full=2).happen(system))
        await submit()
        await troubling
        await asyncio.sleep(SETTLED_S)
        waiting = [str(job) for job in whose]
        await system.ask(lambda api: api.jobs.control(Action.CANCEL, waiting, None, Submitter("alice")))
        await world.until(system.idle, limit_ms=60_000, what="no process left")
        system.give_up()
        await supervising

    world.run(drive())
    check_nothing_ran_twice(system.runs)
    for user in USERS:
        of_user = [run for run in system.runs if whose[run.step.job][0] == user]
        assert most_at_once(of_user, lambda run: 1) <= RUNNING_OF_A_USER
    ml = [run for run in system.runs if whose[run.step.job][1] == "ml"]
    assert most_at_once(ml, lambda run: run.cpu_milli) <= CPU_OF_ML
    spent = sum(run.cpu_milli * (run.end_s - run.begin_s) for run in ml)
    assert spent <= CPU_HOURS_OF_ML * 3_600
    # And it was these limits that held work back, not the cluster.
    assert spent > CPU_HOURS_OF_ML * 3_600 / 4
    assert len(ml) < sum(account == "ml" for _, account in whose.values())
