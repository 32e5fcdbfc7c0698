"""Whole-cluster simulation: hosts that part, stand still, lose power; nothing is lost and nothing runs twice at once.

A seed is a run. One that fails is looked at again with `pytest tests/simulation/test_cluster.py -k 'NAME and SEED'`, or
`python -m tests.simulation.test_cluster SEED`, which prints the newest lines of what happened.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Final

import pytest
from msgspec.structs import replace

from hal.core.engine.config import EngineConfig
from hal.core.model import Duration, JobSpec, OnNodeLost, Resources, TaskState
from hal.daemons.controller.config import Config
from hal.planes.tasks import Submitter
from hal.runtime.virtual_network import Conditions
from hal.runtime.virtual_world import VirtualWorld
from tests.simulation.advising import ENGINE, Plane
from tests.simulation.checkers import (
    check_gangs_follow,
    check_lapsed_steps_end_after_a_thaw,
    check_no_node_was_oversubscribed,
    check_nobody_was_blamed,
    check_nothing_ran_twice,
    check_store_equals_what_ran,
    without_standstill,
)
from tests.simulation.cluster import TIMES, Cluster
from tests.simulation.cluster_faults import FAULTS as ALL_FAULTS
from tests.simulation.cluster_faults import NOTHING, ClusterFaults, Fault
from tests.simulation.evicting import Evictor, check_evictions, check_left_in_time
from tests.simulation.leader_faults import LEADER_FAULTS
from tests.simulation.led_cluster import LedCluster
from tests.simulation.machine import Work
from tests.simulation.scripts import check_epilogs_follow, check_prologs_come_first, operate
from tests.simulation.services import check_gates_come_first, check_gates_come_last, clear_exclusions, with_gates
from tests.simulation.system import CPU_MILLI
from tests.simulation.workload import Wanted, some_jobs, submit

JOBS: Final = 4
FAULTS: Final = 3
KINDS: Final = ("plain", "plain", "array", "gang", "gang", "retried", "leftover")
QUIET_S: Final = 60.0
"""After the last fault something ends at least as often as this, until every job has."""
LONGEST_S: Final = 900.0
"""So long after the last fault every job has ended: a hundred tasks that each hold a node while its gate waits."""
LOSSY: Final = Conditions(again_chance=0.05)
SEEDS: Final = int(os.environ.get("HAL_SOAK_SEEDS", "5000"))
WORDS: Final = ("scripts", "gates", "plane")
"""What a run may have besides; arguments of `one_run`, and of this module as a program."""
ALICE: Final = Submitter("alice")


def some_work(world: VirtualWorld, *, gates: bool = False, evicted: bool = False) -> list[Wanted]:
    """Seeded jobs, most of which run again elsewhere when their node is lost; with gates, short tasks too."""
    rng = world.rng("lost")
    kinds = KINDS + gates * ("swarm",) + evicted * ("swarm", "stubborn")
    wanted = some_jobs(world.rng("jobs"), JOBS, kinds)
    choices = (OnNodeLost.REQUEUE, OnNodeLost.REQUEUE, OnNodeLost.WAIT, None)
    wanted = [one._replace(spec=replace(one.spec, on_node_lost=rng.choice(choices))) for one in wanted]
    return with_gates(world.rng("gates"), wanted) if gates else wanted


def long_work(cluster: Cluster, *, gangs: bool = False, count: int = 5) -> list[Wanted]:
    """Jobs that run for as long as the longest fault, of which a node has room for two; one of them may be a gang."""
    work = Work(3 * cluster.times.lost_after_ms + 1_220)
    request, walltime = Resources({"cpu": 1_500}), Duration(600_000)
    command = tuple(work.command())
    spec = JobSpec(command=command, request=request, walltime=walltime, on_node_lost=OnNodeLost.REQUEUE)
    specs = [replace(spec, name=f"long-{number}", nodes=2 if gangs and number == 0 else 1) for number in range(count)]
    return [Wanted(one, work, TaskState.SUCCEEDED) for one in specs]


def run_cluster(
    cluster: Cluster,
    wanted: Sequence[Wanted],
    faults: ClusterFaults,
    plane: Plane | None = None,
    evictor: Evictor | None = None,
) -> list[int]:
    """Submit the jobs while the faults happen, and go on until all have ended and no process is left; their ids."""
    world, ids = cluster.world, list[int]()

    async def drive() -> None:
        supervising = asyncio.ensure_future(cluster.supervise())
        await cluster.all_nodes_known()
        over = asyncio.Event()
        operating = [asyncio.ensure_future(operate(cluster, over))] if cluster.scripts else []
        if cluster.services:
            operating.append(asyncio.ensure_future(clear_exclusions(cluster, ids, over)))
        if plane is not None:
            operating.append(asyncio.ensure_future(plane.advise(over)))
        calm = asyncio.Event()
        evicting = asyncio.ensure_future(evictor.evict(ids, calm)) if evictor is not None else None
        troubling = asyncio.ensure_future(faults.happen(cluster))
        await submit(cluster, wanted, ids)
        await troubling
        if evicting is not None:
            calm.set()
            await evicting
        await all_ended(cluster, ids)
        await world.until(cluster.idle, limit_ms=60_000, what="no process left")
        left = [one.notes for one in cluster.gate_notes.values()]
        await world.until(lambda: not any(left), limit_ms=60_000, what="no step left at a gate")
        cluster.settled_s = world.loop.time()
        over.set()
        for task in operating:
            await task
        cluster.give_up()
        await supervising

    world.run(drive())
    return ids


async def all_ended(cluster: Cluster, ids: Sequence[int]) -> None:
    """Until every job has ended.

    Raises:
        AssertionError: one is stuck: nothing ends any more, or things end without end.
    """
    world, seen = cluster.world, -1
    began_s = quiet_s = world.loop.time()
    for job in ids:
        while not (view := await cluster.ask(lambda api, job=job: api.jobs.wait(job, 5.0))).state.ended:  # type: ignore[misc]
            now_s, last = world.loop.time(), cluster.store().last_end()
            if last != seen:
                seen, quiet_s = last, now_s
            if now_s < min(quiet_s + QUIET_S, began_s + LONGEST_S):
                continue
            why = await cluster.ask(lambda api, job=job: api.jobs.why(job))  # type: ignore[misc]
            raise AssertionError(f"job {job} is stuck: {view.state}, {why}\n{world.tail()}")


def check_everything(
    cluster: Cluster, wanted: Sequence[Wanted], ids: Sequence[int], evictor: Evictor | None = None
) -> None:
    """What the machines saw, what the store says and what was asked for agree."""
    guarded = {job for job, one in zip(ids, wanted, strict=True) if one.spec.on_node_lost is OnNodeLost.REQUEUE}
    runs = without_standstill(cluster, guarded)
    check_nothing_ran_twice(runs)
    check_gangs_follow(runs)
    check_no_node_was_oversubscribed(runs, CPU_MILLI)
    store = cluster.store()
    check_nobody_was_blamed(cluster.world, store)
    check_store_equals_what_ran(cluster, ids)
    cancelled = check_evictions(store, ids, {} if evictor is None else evictor.asked)
    for job, one in zip(ids, wanted, strict=True):
        row, end = store.job(job), TaskState.CANCELLED if job in cancelled else one.end
        assert row is not None
        assert row.state is end, f"job {job} ({row.name}) ended {row.state}, not {end}: {row.reason}"
    check_lapsed_steps_end_after_a_thaw(cluster, guarded)
    assert not cluster.given_up, "a controller ended that nobody had asked to"
    if cluster.scripts:
        scripts = [run for one in cluster.scripts.values() for run in one.runs]
        check_prologs_come_first(cluster.runs, scripts)
        check_epilogs_follow(cluster, cluster.runs, scripts)
    if cluster.services:
        let_in = [one for service in cluster.services.values() for one in service.let_in]
        gates = {job: one.spec.gates for job, one in zip(ids, wanted, strict=True)}
        check_gates_come_first(cluster.runs, let_in, gates)
        check_gates_come_last(cluster, let_in, gates)


def _controllers_of(seed: int) -> int:
    """One seed in five has two or three."""
    return 2 + seed // 5 % 2 if seed % 5 == 4 else 1


def one_run(
    seed: int,
    faults: int = FAULTS,
    kinds: Sequence[Fault] | None = None,
    *,
    long: bool = False,
    gangs: bool = False,
    crowded: bool = False,
    controllers: int | None = None,
    conditions: Conditions = LOSSY,
    scripts: bool = False,
    gates: bool = False,
    plane: bool = False,
) -> None:
    """A whole run of that seed, checked.

    Args:
        kinds: of faults; None: all.
        long, gangs, crowded: jobs that run for as long as the longest fault; a gang among them; more than fit at once.
        controllers: None: one, and for one seed in five two or three.
        plane: it gates, advises, evicts.
    Raises:
        AssertionError: something that must hold does not.
    """
    with VirtualWorld(seed, conditions) as world:
        controllers = _controllers_of(seed) if controllers is None else controllers
        gates, engine = gates or plane, ENGINE if plane else None
        cluster = cluster_of(world, controllers, scripts=scripts, gates=gates, engine=engine)
        if kinds is None:
            kinds = LEADER_FAULTS if isinstance(cluster, LedCluster) else ALL_FAULTS
        wanted = (
            long_work(cluster, gangs=gangs, count=9 if crowded else 5)
            if long
            else some_work(world, gates=gates, evicted=plane)
        )
        advisor, evictor = (Plane(cluster), Evictor(cluster)) if plane else (None, None)
        try:
            ids = run_cluster(cluster, wanted, ClusterFaults(faults, kinds), advisor, evictor)
            check_everything(cluster, wanted, ids, evictor)
        except AssertionError as error:
            words = [name for name in WORDS if {"scripts": scripts, "gates": gates, "plane": plane}[name]]
            command = " ".join(["python -m tests.simulation.test_cluster", str(seed), *words])
            raise AssertionError(f"seed {seed} (once more: {command}): {error}") from error


def cluster_of(
    world: VirtualWorld,
    controllers: int,
    *,
    scripts: bool = False,
    gates: bool = False,
    engine: EngineConfig | None = None,
) -> Cluster:
    """One whose keepers may die at any write."""
    if controllers == 1:
        return Cluster(world, kill_chance=0.001, scripts=scripts, gates=gates, engine=engine)
    return LedCluster(world, controllers=controllers, kill_chance=0.001, scripts=scripts, gates=gates, engine=engine)


def digest_of(seed: int) -> str:
    """Of a run of several controllers."""
    with VirtualWorld(seed, LOSSY) as world:
        run_cluster(cluster_of(world, 3), some_work(world), ClusterFaults(FAULTS, LEADER_FAULTS))
        return world.digest()


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(s, marks=pytest.mark.slow) for s in range(6, 200))])
def test_a_cluster_loses_and_doubles_nothing(seed: int) -> None:
    """Partitions of any length and direction, suspended hosts, losses of power, full disks, deaths, repeated frames;
    leaders that are killed, stopped beyond their lease, cut off from the database or from nodes, relieved."""
    one_run(seed)


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(s, marks=pytest.mark.slow) for s in range(2, 46))])
def test_prologs_come_first_and_epilogs_follow(seed: int) -> None:
    """The same with scripts on all nodes that take up to longer than a lease, and of which a few fail or hang."""
    one_run(seed, scripts=True)


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(s, marks=pytest.mark.slow) for s in range(2, 12))])
def test_gates_of_jobs_come_first_and_last(seed: int) -> None:
    """The same with a service on all nodes, absent, slow or silent now and then, and jobs that name it, some of them
    short tasks on credit; one seed in three with prologs and epilogs too."""
    one_run(seed, gates=True, scripts=seed % 3 == 2)


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(s, marks=pytest.mark.slow) for s in range(2, 12))])
def test_a_plane_that_gates_advises_and_evicts_costs_nothing_that_must_hold(seed: int) -> None:
    """All of a plane at once, through all faults: what it evicts ends once, as its mode says, for the reason that it
    gave, and never runs twice; a node that it drains is given nothing; one seed in three with prologs and epilogs."""
    one_run(seed, plane=True, scripts=seed % 3 == 2)


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(s, marks=pytest.mark.slow) for s in range(2, 6))])
def test_what_is_evicted_leaves_in_its_time(seed: int) -> None:
    """Also what ignores every signal but the last, and what a drained node still holds."""
    with VirtualWorld(seed, LOSSY) as world:
        cluster = Cluster(world)
        wanted, evictor = some_work(world, evicted=True), Evictor(cluster)
        ids = run_cluster(cluster, wanted, ClusterFaults(6, NOTHING), evictor=evictor)
        check_everything(cluster, wanted, ids, evictor)
        check_left_in_time(cluster.store(), ids, evictor.asked)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "scripts"), [(2312, False), (803, True)])
def test_work_that_gates_hold_up_for_long_is_not_stuck(seed: int, scripts: bool) -> None:
    """Over a hundred attempts of short tasks wait one after the other at gates that are away now and then: it takes
    minutes, and something ends all the time."""
    one_run(seed, gates=True, scripts=scripts)


def test_a_start_that_waited_for_a_stamp_is_withdrawn_with_its_attempt() -> None:
    """A node comes back within milliseconds of the end of its lease and is given a guarded attempt, which is lost with
    the lease before its start could leave: it must not leave with the next stamp."""
    one_run(10_252, faults=5, scripts=True)


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(s, marks=pytest.mark.slow) for s in range(2, 30))])
def test_advice_changes_nothing_that_must_hold(seed: int) -> None:
    """An order and a score read what a plane puts several times a second and lets expire, through all faults;
    a controller that was started again asks for whole tables."""
    with VirtualWorld(seed, LOSSY) as world:
        cluster = Cluster(world, kill_chance=0.001, config=Config(leases=TIMES, engine=ENGINE))
        wanted, plane = some_work(world), Plane(cluster)
        try:
            check_everything(cluster, wanted, run_cluster(cluster, wanted, ClusterFaults(FAULTS, ALL_FAULTS), plane))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        assert plane.put > 0


@pytest.mark.parametrize("seed", [368, 2312])
def test_a_start_of_an_earlier_group_does_not_leave_on_a_newer_connection(seed: int) -> None:
    """A node's machine was started again, and it arrives while a group that starts something there is flushed: its
    arrival, in the next group, makes that start lost before the first group's orders are delivered."""
    one_run(seed, faults=5, scripts=True)


def test_what_a_keeper_refused_does_not_begin_while_its_epilog_runs() -> None:
    """The keeper's disk was full, and is not any more when the next controller asks for the step again: the refusal is
    still to be reported, and the task runs elsewhere for it."""
    one_run(803, faults=5, scripts=True)


@pytest.mark.soak
def test_a_cluster_loses_and_doubles_nothing_for_thousands_of_seeds() -> None:
    """HAL_SOAK_SEEDS of them (5,000), with more faults each."""
    for seed in range(10_000, 10_000 + SEEDS):
        one_run(seed, faults=5, scripts=seed % 4 == 0, gates=seed % 3 == 0, plane=seed % 6 == 1)


if __name__ == "__main__":
    one_run(int(sys.argv[1]), **{word: word in sys.argv for word in WORDS})
