"""Whole-system simulation: everything may be killed at any point, and no job is lost, doubled or wrongly ended."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Final

import pytest
from msgspec.structs import replace

from hal.core.engine.config import EngineConfig
from hal.core.model import AttemptState, Duration, EventKind, TaskState
from hal.core.model.policy import Policy, PreemptMode, Qos
from hal.daemons.controller.config import Config
from hal.daemons.controller.service.jobs.control import Action
from hal.planes.tasks import Submitter
from hal.runtime.virtual_world import VirtualWorld
from tests.simulation.checkers import (
    UNFLUSHED_S,
    check_attempts_follow,
    check_no_node_was_oversubscribed,
    check_nobody_was_blamed,
    check_nothing_ran_twice,
    check_store_equals_what_ran,
)
from tests.simulation.system import CPU_MILLI, System
from tests.simulation.test_cluster import digest_of as digest_of_cluster
from tests.simulation.workload import Wanted, some_jobs, submit

LIMIT_MS: Final = 4 * 3_600_000
JOBS: Final = 14
ALICE: Final = Submitter("alice")


def seeds(fast: int, low: int, high: int) -> pytest.MarkDecorator:
    """So many seeds in every run of the tests; the rest of `low` from 0 and of `high` from 1000 in the long one."""
    more = (pytest.param(seed, marks=pytest.mark.slow) for seed in (*range(fast, low), *range(1_000, 1_000 + high)))
    return pytest.mark.parametrize("seed", [*range(fast), *more])


class Faults:
    """How many of each kind befall a run."""

    def __init__(
        self, *, kills: int = 0, helpers: int = 0, power: int = 0, pauses: int = 0, jumps: int = 0, full: int = 0
    ) -> None:
        self.kinds = ["kill"] * kills + ["helper"] * helpers + ["power"] * power
        self.kinds += ["pause"] * pauses + ["jump"] * jumps + ["full"] * full

    async def happen(self, system: System) -> None:
        """All of them, in a seeded order, at seeded instants."""
        rng = system.world.rng("faults")
        rng.shuffle(self.kinds)
        for kind in self.kinds:
            await asyncio.sleep(rng.random() * 2)
            if kind == "helper":
                system.machines[rng.choice(list(system.machines))].kill_helper()
            elif kind == "power":
                system.power_off()
            elif kind == "full":
                with system.full_disk():
                    await asyncio.sleep(rng.random() * 10)
            elif kind == "jump":
                system.host.jump_clock(rng.randint(-3_600_000, 3_600_000))
            elif (running := system.processes()) and kind == "pause":
                victim = rng.choice(running)
                victim.pause()
                await asyncio.sleep(rng.random() * 15)
                victim.resume()
            elif running:
                # The controller is one of many processes; half of all kills are for it.
                controller = system.process("controller")
                victim = controller if controller is not None and rng.random() < 0.5 else rng.choice(running)
                victim.kill_after(rng.randint(1, 80))
                await asyncio.sleep(rng.random() * 2)
                victim.kill()


async def ended(system: System, job: int) -> TaskState:
    """The state that people are told the job has ended in."""
    world = system.world
    while world.loop.time() * 1000 < LIMIT_MS:
        view = await system.ask(lambda api: api.jobs.wait(job, 30.0))
        if view.state.ended:
            return view.state
    raise AssertionError(f"seed {world.seed}: job {job} is still {view.state}: {view}\n{world.tail()}")


Meddling = Callable[[System, list[int]], Coroutine[Any, Any, None]]
"""What people do besides submitting; the list grows as jobs are submitted."""


async def nobody_meddles(system: System, ids: list[int]) -> None:
    """Nothing."""


def run_all(system: System, wanted: Sequence[Wanted], faults: Faults, meddling: Meddling = nobody_meddles) -> list[int]:
    """Submit the jobs while the faults happen, and go on until all have ended and no process is left; their ids."""
    world, ids = system.world, list[int]()

    async def drive() -> None:
        supervising = asyncio.ensure_future(system.supervise())
        await system.all_nodes_known()
        await asyncio.sleep(UNFLUSHED_S)
        troubling = asyncio.ensure_future(faults.happen(system))
        meddles = asyncio.ensure_future(meddling(system, ids))
        await submit(system, wanted, ids)
        await meddles
        await troubling
        # What people hold would wait for ever.
        await system.ask(lambda api: api.jobs.control(Action.RELEASE, [str(job) for job in ids], None, ALICE))
        for job in ids:
            await ended(system, job)
        await world.until(system.idle, limit_ms=60_000, what="no process left")
        system.give_up()
        await supervising

    world.run(drive())
    return ids


@pytest.fixture
def world(seed: int) -> Iterator[VirtualWorld]:
    with VirtualWorld(seed) as made:
        yield made


@seeds(fast=2, low=16, high=24)
def test_kills_lose_and_double_nothing(world: VirtualWorld) -> None:
    """Controller, agents and keepers are killed between and within their steps; helpers and so all ends stay known."""
    system = System(world, kill_chance=0.002)
    wanted = some_jobs(world.rng("jobs"), JOBS)
    ids = run_all(system, wanted, Faults(kills=12))
    check_everything(system, wanted, ids)
    assert all(attempt.state is not AttemptState.LOST for job in ids for attempt in system.store().attempts(job))


@seeds(fast=2, low=8, high=12)
def test_losses_of_power_and_helpers_lose_and_double_nothing(world: VirtualWorld) -> None:
    """What nobody saw end is lost, runs again, and never at the same time as what is left of it."""
    system = System(world, kill_chance=0.002)
    wanted = some_jobs(world.rng("jobs"), JOBS)
    ids = run_all(system, wanted, Faults(kills=5, helpers=4, power=2, pauses=2, jumps=2, full=2))
    check_everything(system, wanted, ids)


@seeds(fast=2, low=8, high=12)
def test_whatever_people_do_meanwhile_nothing_is_lost_or_doubled(world: VirtualWorld) -> None:
    """Jobs are cancelled, held, released, changed and run again at any moment, among kills; all come to an end."""
    system = System(world, kill_chance=0.002)
    wanted = some_jobs(world.rng("jobs"), JOBS)
    touched: set[int] = set()

    async def meddle(system: System, ids: list[int]) -> None:
        rng = world.rng("people")
        await world.until(lambda: bool(ids), limit_ms=LIMIT_MS, what="a job is submitted")
        for _ in range(20):
            await asyncio.sleep(rng.random())
            job = rng.choice(ids)
            touched.add(job)
            action = rng.choice(list(Action))
            named = [str(job)] if rng.random() < 0.7 else [f"{job}.0"]
            outcomes = await system.ask(lambda api, a=action, n=named: api.jobs.control(a, n, None, ALICE))  # type: ignore[misc]
            world.note("people", action, str(outcomes.results))
            assert {result.code for result in outcomes.results} <= {"", "conflict"}

    ids = run_all(system, wanted, Faults(kills=8, helpers=2, power=1), meddle)
    runs = system.runs
    check_nothing_ran_twice(runs)
    check_attempts_follow(runs)
    check_no_node_was_oversubscribed(runs, CPU_MILLI)
    store = system.store()
    check_store_equals_what_ran(system, ids)
    for job, one in zip(ids, wanted, strict=True):
        row = store.job(job)
        assert row is not None
        before = None if one.after is None else ids[one.after]
        if job not in touched and before not in touched and before is None:
            assert row.state is one.end


@seeds(fast=2, low=6, high=12)
def test_short_tasks_on_credit_are_not_lost_or_doubled(world: VirtualWorld) -> None:
    """Swarms of short tasks, held and cancelled among kills and losses of power: handed over, placed and given back."""
    system = System(world, nodes=2, kill_chance=0.001)
    wanted = some_jobs(world.rng("jobs"), 8, ("swarm", "swarm", "swarm", "plain", "retried"))
    touched: set[int] = set()

    async def meddle(system: System, ids: list[int]) -> None:
        rng = world.rng("people")
        await world.until(lambda: bool(ids), limit_ms=LIMIT_MS, what="a job is submitted")
        for _ in range(12):
            await asyncio.sleep(rng.random())
            job = rng.choice(ids)
            touched.add(job)
            action = rng.choice((Action.HOLD, Action.RELEASE, Action.CANCEL, Action.REQUEUE))
            await system.ask(lambda api, a=action, j=job: api.jobs.control(a, [str(j)], None, ALICE))  # type: ignore[misc]

    ids = run_all(system, wanted, Faults(kills=6, helpers=1, power=1), meddle)
    check_nothing_ran_twice(system.runs)
    check_attempts_follow(system.runs)
    check_no_node_was_oversubscribed(system.runs, CPU_MILLI)
    check_store_equals_what_ran(system, ids)
    for job, one in zip(ids, wanted, strict=True):
        row = system.store().job(job)
        assert row is not None
        assert job in touched or row.state is one.end
    check_credit_was_used(system)


TAKING: Final = Policy(
    qos={
        "urgent": Qos(name="urgent", priority=10, preempts=("requeued", "saved", "suspended")),
        "requeued": Qos(name="requeued", preempt_mode=PreemptMode.REQUEUE, grace=Duration(500)),
        "saved": Qos(name="saved", preempt_mode=PreemptMode.CHECKPOINT, grace=Duration(800)),
        "suspended": Qos(name="suspended", preempt_mode=PreemptMode.SUSPEND),
    }
)
MIN_RUN_MS: Final = 500


def work_with_ranks(world: VirtualWorld, low: Sequence[str]) -> list[Wanted]:
    """Seeded jobs, of which a third may take from the others."""
    rng = world.rng("ranks")
    kinds = ("plain", "plain", "array", "gang", "retried", "failing", "limit", "leftover")
    wanted = some_jobs(world.rng("jobs"), 2 * JOBS, kinds)
    return [one._replace(spec=replace(one.spec, qos=rng.choice(("urgent", *low, *low)))) for one in wanted]


@seeds(fast=2, low=8, high=12)
def test_taking_back_loses_and_doubles_nothing(world: VirtualWorld) -> None:
    """Urgent work takes the place of other work, among kills of everything: all comes to its end, nothing runs twice.

    No task is taken back more often than its doubling protection allows.
    """
    config = Config(policy=TAKING, engine=EngineConfig(min_run_ms=MIN_RUN_MS, claim_patience_ms=5_000))
    system = System(world, kill_chance=0.002, config=config)
    wanted = work_with_ranks(world, ("requeued", "saved"))
    ids = run_all(system, wanted, Faults(kills=8, helpers=1, power=1))
    check_everything(system, wanted, ids)
    check_taken_back_within_bounds(system, ids)


@seeds(fast=2, low=4, high=10)
def test_suspended_work_goes_on_whatever_is_killed(world: VirtualWorld) -> None:
    """Nothing stands still for ever, walltimes count the time that work runs. For a moment cpus may be shared."""
    config = Config(policy=TAKING, engine=EngineConfig(min_run_ms=MIN_RUN_MS, claim_patience_ms=5_000))
    system = System(world, kill_chance=0.002, config=config)
    wanted = work_with_ranks(world, ("suspended", "requeued"))
    ids = run_all(system, wanted, Faults(kills=8, helpers=1))
    check_nothing_ran_twice(system.runs)
    check_attempts_follow(system.runs)
    check_store_equals_what_ran(system, ids)
    for job, one in zip(ids, wanted, strict=True):
        row = system.store().job(job)
        assert row is not None
        assert row.state is one.end, f"job {job} ({row.name}) ended {row.state}, not {one.end}: {row.reason}"
    check_taken_back_within_bounds(system, ids)


def check_taken_back_within_bounds(system: System, ids: Sequence[int]) -> None:
    """Each time it runs twice as long before it may be taken back again: log2 of its work, and two."""
    most = 2 + math.ceil(math.log2(3_600_000 / MIN_RUN_MS))
    times = Counter(
        (attempt.job, attempt.task)
        for job in ids
        for attempt in system.store().attempts(job, limit=1_000)
        if attempt.preemption is not None
    )
    assert not times or max(times.values()) <= most


def digest_of(seed: int) -> str:
    """Of one short run of everything."""
    with VirtualWorld(seed) as world:
        system = System(world, kill_chance=0.002)
        run_all(system, some_jobs(world.rng("jobs"), 6), Faults(kills=4, helpers=1, power=1, pauses=1, jumps=1, full=1))
        return world.digest()


@pytest.mark.slow
def test_a_seed_gives_the_same_run_in_any_interpreter() -> None:
    """The whole system, byte for byte, whatever the hash seed and the time of day: a failure can be looked at again.
    One host, and a cluster with several controllers."""
    code = (
        "from tests.simulation import test_cluster, test_system;"
        "print(test_system.digest_of(1), test_system.digest_of(2), test_cluster.digest_of(3))"
    )
    digests = {
        subprocess.check_output(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": "src:.", "PYTHONHASHSEED": hash_seed, "TZ": zone},
            text=True,
        ).strip()
        for hash_seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    }
    assert digests == {f"{digest_of(1)} {digest_of(2)} {digest_of_cluster(3)}"}


@seeds(fast=2, low=8, high=0)
def test_what_people_were_told_survives_losses_of_power(world: VirtualWorld) -> None:
    """A job that was answered to have ended stays ended, although commits that were not flushed are taken back."""
    system = System(world, kill_chance=0.002)
    wanted = some_jobs(world.rng("jobs"), JOBS)
    told: dict[int, TaskState] = {}

    async def listen(system: System, ids: list[int]) -> None:
        async def one(position: int) -> None:
            await world.until(lambda: len(ids) > position, limit_ms=LIMIT_MS, what="the job is submitted")
            told[ids[position]] = await ended(system, ids[position])

        await asyncio.gather(*(one(position) for position in range(len(wanted))))

    ids = run_all(system, wanted, Faults(kills=4, power=8), listen)
    check_everything(system, wanted, ids)
    rows = {job: system.store().job(job) for job in ids}
    assert told == {job: row.state for job, row in rows.items() if row is not None}


def check_everything(system: System, wanted: Sequence[Wanted], ids: Sequence[int]) -> None:
    """What the machines saw, what the store says and what was asked for agree."""
    runs = system.runs
    check_nothing_ran_twice(runs)
    check_attempts_follow(runs)
    check_no_node_was_oversubscribed(runs, CPU_MILLI)
    store = system.store()
    check_nobody_was_blamed(system.world, store)
    assert len(set(ids)) == len(wanted)
    assert sum(store.counts().values()) == len(wanted), "a submission that was repeated made a second job"
    for job, one in zip(ids, wanted, strict=True):
        row = store.job(job)
        assert row is not None
        assert row.state is one.end, f"job {job} ({row.name}) ended {row.state}, not {one.end}: {row.reason}"
        for task in store.tasks(job, limit=100):
            assert task.state is one.end
    check_store_equals_what_ran(system, ids)
    for job, one in zip(ids, wanted, strict=True):
        if one.after is not None:
            # A loss of power may take back that the one before had ended, after this one had begun on that boot.
            before = [run for run in runs if run.step.job == ids[one.after]]
            for mine in (run for run in runs if run.step.job == job):
                over_s = max((run.end_s for run in before if run.boot <= mine.boot), default=0.0)
                assert over_s <= mine.begin_s, f"job {job} did not wait for job {ids[one.after]}: {mine}"


def check_credit_was_used(system: System) -> None:
    """Some attempts were handed over ahead of time; else the run shows nothing about them."""
    allocated = [
        item
        for event in system.store().events(0, limit=100_000)
        if event.kind is EventKind.ATTEMPTS_ALLOCATED
        for item in event.payload["attempts"]
    ]
    assert [item for item in allocated if item.get("credit")], "no task was handed over on credit"
