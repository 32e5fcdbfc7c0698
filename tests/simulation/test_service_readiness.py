"""Services in a simulated cluster through all faults: what the controller says of readiness becomes what is true.

The test is the stream service of each host: it answers probes by what runs there, and is away now and then.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from hal.core.model import (
    ArrayRange,
    Duration,
    JobSpec,
    OnNodeLost,
    Readiness,
    Resources,
    Retries,
    Service,
    StepId,
    TaskState,
)
from hal.core.model.service import Replacement
from hal.daemons.agent.step_service import StreamPlaces
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.daemons.controller.service.jobs.control import Action
from hal.planes.tasks import Submitter
from hal.runtime.started_service import StartedService
from hal.runtime.virtual_network import Conditions
from hal.runtime.virtual_world import VirtualHost, VirtualWorld
from tests.simulation.checkers import check_nothing_ran_twice, without_standstill
from tests.simulation.cluster import Cluster
from tests.simulation.cluster_faults import FAULTS, ClusterFaults
from tests.simulation.machine import Machine, Work

TASKS: Final = 3
JOBS: Final = 2
LONG: Final = Work(3_600_000)
SETTLED_MS: Final = 120_000
DEATHS: Final = 2
"""Of controllers during a replacement."""
AWAY: Final = 0.1
ALICE: Final = Submitter("alice")
SERVICE: Final = StartedService(name="streams", socket=Path("streams.sock"), argv=["streams"], output=None)
PLACES: Final = StreamPlaces(service=SERVICE, directory=lambda: "/virtual", shared=False)


class Probes:
    """The stream service of one host."""

    def __init__(self, host: VirtualHost, machine: Machine) -> None:
        self.failing: set[str] = set()
        """Tasks, as `JOB.TASK`, that cannot serve."""
        self._machine = machine
        self._rng = host.world.rng(f"probes {host.name}")
        host.services["streams.sock"] = self._serve

    def _serve(self, line: bytes) -> tuple[int, bytes]:
        order = json.loads(line)
        if self._rng.random() < AWAY:
            return self._rng.choice(((1, b""), (10**6, b""), (1, b'{"code":"too-many","error":"busy"}\n')))
        job, task, attempt, rank = map(int, order["step"].split("."))
        runs = StepId(job, task, attempt, rank) in self._machine.running()
        serves = runs and f"{job}.{task}" not in self.failing
        takes_ms = self._rng.randint(1, 200)
        return takes_ms, json.dumps({"ready": serves, "reason": "" if serves else "status 503"}).encode() + b"\n"


def service(name: str) -> JobSpec:
    """Three tasks that run for long, and are restarted whatever befalls them."""
    probe = Readiness(http="/ok", interval=Duration(1_000), timeout=Duration(500))
    return JobSpec(
        name=name,
        command=tuple(LONG.command()),
        array=ArrayRange(count=TASKS),
        request=Resources({"cpu": 500}),
        on_node_lost=OnNodeLost.REQUEUE,
        retries=Retries(max=1_000, backoff=Duration(100)),
        service=Service(ports={"http": 0}, readiness=probe),
    )


async def ready_tasks(cluster: Cluster, jobs: Sequence[int]) -> dict[str, bool | None]:
    """As REST shows it."""

    async def ask(api: ControllerApi) -> dict[str, bool | None]:
        found: dict[str, bool | None] = {}
        for job in jobs:
            for task in range(TASKS):
                view = await api.jobs.task(job, task)
                found[f"{job}.{task}"] = view.ready if isinstance(view.ready, bool) else None
        return found

    return await cluster.ask(ask)


async def until_ready(cluster: Cluster, jobs: Sequence[int], wanted: dict[str, bool]) -> None:
    """Until the controller says that of every task.

    Raises:
        AssertionError: it does not.
    """
    deadline_s = cluster.world.loop.time() + SETTLED_MS / 1000
    while (found := await ready_tasks(cluster, jobs)) != wanted:
        assert cluster.world.loop.time() < deadline_s, f"{found} is not {wanted}\n{cluster.world.tail()}"
        await asyncio.sleep(0.5)


async def replaced(cluster: Cluster, old: int) -> int:
    """Let a job take the place of a service while controllers die; its id, once that is over."""
    about = Replacement(job=old, max_unavailable=1, give_up_after=Duration(SETTLED_MS))
    spec = service("web-0")
    assert spec.service is not None
    spec = replace(spec, service=replace(spec.service, replaces=about))
    new = int((await cluster.ask(lambda api: api.jobs.submit([spec], ALICE))).ids[0])
    for _ in range(DEATHS):
        await asyncio.sleep(cluster.world.rng("deaths").random())
        leader = cluster.process("controller")
        if leader is not None:
            leader.kill()
    row = await cluster.ask(lambda api: api.jobs.wait(old, SETTLED_MS / 1000))
    assert (row.state, row.reason) == (TaskState.CANCELLED, f"replaced by job {new}"), cluster.world.tail()
    return new


def one_run(seed: int) -> None:
    """A whole run of that seed."""
    with VirtualWorld(seed, Conditions(again_chance=0.05)) as world:
        cluster = Cluster(world, kill_chance=0.001, streams=PLACES)
        probes = [Probes(host, cluster.machines[name]) for name, host in cluster.hosts.items()]
        rng = world.rng("failing")

        async def drive() -> None:
            supervising = asyncio.ensure_future(cluster.supervise())
            await cluster.all_nodes_known()
            specs = [service(f"web-{number}") for number in range(JOBS)]
            made = [int(job) for job in (await cluster.ask(lambda api: api.jobs.submit(specs, ALICE))).ids]
            await ClusterFaults(3, FAULTS).happen(cluster)
            all_ready = {f"{job}.{task}": True for job in made for task in range(TASKS)}
            await until_ready(cluster, made, all_ready)
            failing = rng.choice(sorted(all_ready))
            for one in probes:
                one.failing.add(failing)
            await until_ready(cluster, made, all_ready | {failing: False})
            for one in probes:
                one.failing.clear()
            leader = cluster.process("controller")
            if leader is not None:
                leader.kill()  # what is not stored is reported again
            await until_ready(cluster, made, all_ready)
            made[0] = await replaced(cluster, made[0])
            await until_ready(cluster, made, {f"{job}.{task}": True for job in made for task in range(TASKS)})
            named = [str(job) for job in made]
            await cluster.ask(lambda api: api.jobs.control(Action.CANCEL, named, None, ALICE))
            await world.until(cluster.idle, limit_ms=60_000, what="no process left")
            cluster.give_up()
            await supervising

        world.run(drive())
        guarded = {run.step.job for run in cluster.runs}
        check_nothing_ran_twice(without_standstill(cluster, guarded))


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(s, marks=pytest.mark.slow) for s in range(3, 20))])
def test_what_is_said_of_readiness_becomes_true_whatever_befalls_the_cluster(seed: int) -> None:
    """Partitions, suspended hosts, losses of power, deaths of every process, probes that are not answered: afterwards
    every task that runs is ready, one that cannot serve is not, and a new controller hears it again. A service is
    replaced, whoever leads."""
    one_run(seed)
