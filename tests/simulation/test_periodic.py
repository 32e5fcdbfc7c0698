"""Periodic jobs while controllers die, stand still and lose their database: each due time is submitted once, or skipped
as the policy says. Real controllers and store, under virtual time; the faults come around the due times."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Final

import pytest
from msgspec.structs import replace

from hal.core.model import JobSpec, TaskState
from hal.core.model.periodic import DUE_VARIABLE, CatchUp, Overlap, PeriodicSpec, RunOutcome
from hal.daemons.controller.service.jobs.control import Action
from hal.daemons.controller.service.periodic.submission import PeriodicSubmission, run_of
from hal.planes.interface import Work
from hal.planes.tasks import Submitter
from hal.runtime.virtual_world import VirtualWorld
from hal.store import JobRow, PeriodicRun, Store
from tests.simulation.leader_faults import CONTROLLER_FAULTS
from tests.simulation.led_cluster import LedCluster

MINUTE_MS: Final = 60_000
MINUTES: Final = 6
"""Due times of a run, each with a fault."""
LED_AGAIN_S: Final = 45.0
"""After a fault somebody leads again within the minute in which a due time is on time."""
LOOK_S: Final = 10.0
MOST_LOOKS: Final = 120
ALICE: Final = Submitter("alice")
POLL: Final = PeriodicSpec(
    schedule="* * * * *", overlap=Overlap.ALLOW, job=JobSpec(command=("true",), wait_for_change=True)
)
Test = Callable[[LedCluster], Coroutine[Any, Any, None]]


def play(seed: int, test: Test, *, controllers: int = 1) -> LedCluster:
    """Controllers on one database, no nodes: what is submitted waits."""
    with VirtualWorld(seed) as world:
        cluster = LedCluster(world, controllers=controllers, nodes=0)

        async def drive() -> None:
            supervising = asyncio.ensure_future(cluster.supervise())
            await test(cluster)
            cluster.give_up()
            await supervising

        world.run(drive())
        return cluster


async def add(cluster: LedCluster, spec: PeriodicSpec, name: str = "poll") -> None:
    """Make a periodic job."""
    await cluster.ask(lambda api: api.periodic.add("alice", name, spec, ALICE, replaces=True))


def now_ms(cluster: LedCluster) -> int:
    """Of the leader's host, whose clock is no better than the others'."""
    return cluster.host.now_ms()


async def to_minute(cluster: LedCluster, *, before_ms: int = 0) -> None:
    """Until shortly before the next due time."""
    left_ms = (-now_ms(cluster) - before_ms) % MINUTE_MS
    await asyncio.sleep(left_ms / 1000)


def history(cluster: LedCluster, store: Store | None = None) -> list[PeriodicRun]:
    """Of the only periodic job, oldest first."""
    store = store or cluster.store()
    (row,) = store.periodic()
    return store.periodic_runs(row.id, limit=1_000)[::-1]


def jobs(cluster: LedCluster) -> list[JobRow]:
    """All that was ever submitted."""
    return cluster.store().jobs(limit=1_000, newest_first=False)


def check_once(cluster: LedCluster) -> None:
    """Each due time is in the history once, and each that was submitted has one job, which no other has.

    Raises:
        AssertionError: one is missing, or was submitted twice.
    """
    runs = history(cluster)
    first, last = runs[0].due_ms - (runs[0].times - 1) * MINUTE_MS, runs[-1].due_ms
    covered = Counter(run.due_ms - back * MINUTE_MS for run in runs for back in range(run.times))
    assert covered == Counter(range(first, last + 1, MINUTE_MS)), f"seed {cluster.world.seed}: {runs}"
    submitted = {run.job: run.due_ms for run in runs if run.outcome is RunOutcome.SUBMITTED}
    made = {row.id: due_of(row) for row in jobs(cluster)}
    assert made == submitted, f"seed {cluster.world.seed}\n{cluster.world.tail()}"


def due_of(row: JobRow) -> int:
    """The due time that a job was told."""
    return round(datetime.fromisoformat(row.spec.env[DUE_VARIABLE].replace("Z", "+00:00")).timestamp() * 1000)


async def faults_at_due_times(cluster: LedCluster) -> None:
    """One around each due time."""
    rng = cluster.world.rng("faults")
    await add(cluster, POLL)
    for _ in range(MINUTES):
        await to_minute(cluster, before_ms=rng.choice((0, 5, 50, 2_000)))
        await rng.choice(CONTROLLER_FAULTS)(cluster, rng)
    await asyncio.sleep(LED_AGAIN_S)
    await cluster.ask(lambda api: api.periodic.hold("alice", "poll", ALICE))


@pytest.mark.parametrize("seed", range(2))
def test_safety_each_due_time_is_submitted_once(seed: int) -> None:
    cluster = play(seed, faults_at_due_times, controllers=3)
    check_once(cluster)
    assert all(run.outcome is RunOutcome.SUBMITTED for run in history(cluster)), history(cluster)


@pytest.mark.slow
def test_safety_each_due_time_is_submitted_once_in_many_runs() -> None:
    """Other seeds."""
    for seed in range(100, 110):
        check_once(play(seed, faults_at_due_times, controllers=3))


class InTwoGroups(PeriodicSubmission):
    """A mutation: the job is committed first, and what became of the due time in another group."""

    async def _commit(self, due: Sequence[Any]) -> None:
        made: dict[int, int] = {}

        def submit(now_ms: int) -> Work[None]:
            for one in due:
                made[one.row.id] = yield from self.submitting(one.row, one.times.last_ms, now_ms)

        def note(now_ms: int) -> Work[None]:
            for row, times, *_ in due:
                run = run_of(row, times.last_ms, now_ms, RunOutcome.SUBMITTED, job=made[row.id])
                live = (*row.live, made[row.id])
                self._port.use().change(replace(row, next_ms=times.next_ms, runs=run.number, live=live), (run,))
                yield

        for work in (submit, note):
            await self._parts.loop.inbox.call_in_slices(work)


@pytest.mark.slow
def test_the_simulation_finds_a_submission_in_two_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a bounded number of runs a due time is submitted twice."""
    monkeypatch.setattr("hal.daemons.controller.service.periodic.periodic.PeriodicSubmission", InTwoGroups)
    assert any(_found(seed) for seed in range(20))


def _found(seed: int) -> bool:
    cluster = play(seed, faults_at_due_times, controllers=3)
    try:
        check_once(cluster)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("catch_up", CatchUp)
def test_after_a_downtime_as_many_are_made_up_for_as_the_policy_says(catch_up: CatchUp) -> None:
    """Nobody leads for 5:20 min, in which two were due: none or one is submitted late; then it goes on."""

    async def test(cluster: LedCluster) -> None:
        await add(cluster, replace(POLL, schedule="*/2 * * * *", catch_up=catch_up))
        await entries(cluster, 1)
        await cluster.database.cut_off(list(cluster.heads), 5 * 60 + 20)
        await entries(cluster, 4 if catch_up is CatchUp.ONE else 3)

    cluster = play(1, test)
    runs = history(cluster)
    assert len({run.due_ms for run in runs}) == len(runs)
    assert sum(run.times for run in runs) == (runs[-1].due_ms - runs[0].due_ms) // (2 * MINUTE_MS) + 1
    late = [run for run in runs if run.outcome is RunOutcome.SUBMITTED and run.at_ms - run.due_ms > MINUTE_MS]
    missed = sum(run.times for run in runs if run.outcome is RunOutcome.MISSED)
    assert (len(late), missed) == ((1, 1) if catch_up is CatchUp.ONE else (0, 2))
    assert runs[-1].outcome is RunOutcome.SUBMITTED


def outcomes(cluster: LedCluster) -> list[str]:
    return [run.outcome.value for run in history(cluster)]


async def entries(cluster: LedCluster, count: int) -> None:
    """Until the history has so many entries."""
    store = cluster.store()
    for _ in range(MOST_LOOKS):
        if len(history(cluster, store)) >= count:
            return
        await asyncio.sleep(LOOK_S)
    raise AssertionError(f"seed {cluster.world.seed}: {history(cluster)}")


async def due_times(cluster: LedCluster, spec: PeriodicSpec, count: int) -> None:
    """Until so many entries are in the history, and no more."""
    await add(cluster, spec)
    await entries(cluster, count)
    await cluster.ask(lambda api: api.periodic.hold("alice", "poll", ALICE))


def test_while_a_job_lives_further_due_times_are_skipped() -> None:
    async def test(cluster: LedCluster) -> None:
        await due_times(cluster, replace(POLL, overlap=Overlap.SKIP), 3)

    cluster = play(3, test)
    assert outcomes(cluster) == ["submitted", "skipped", "skipped"]
    assert history(cluster)[1].reason == "job 1 has not ended"


def test_once_it_has_ended_the_next_due_time_is_submitted() -> None:
    async def test(cluster: LedCluster) -> None:
        await due_times(cluster, replace(POLL, overlap=Overlap.SKIP), 1)
        await cluster.ask(lambda api: api.jobs.control(Action.CANCEL, ["1"], None, ALICE))
        await due_times(cluster, replace(POLL, overlap=Overlap.SKIP), 2)

    assert outcomes(play(3, test)) == ["submitted", "submitted"]


def test_a_queued_job_waits_for_the_one_before() -> None:
    async def test(cluster: LedCluster) -> None:
        await due_times(cluster, replace(POLL, overlap=Overlap.QUEUE), 3)

    found = [[one.job for one in row.spec.dependencies] for row in jobs(play(4, test))]
    assert found == [[], ["1"], ["1", "2"]]


def test_a_job_that_replaces_another_cancels_it() -> None:
    async def test(cluster: LedCluster) -> None:
        await due_times(cluster, replace(POLL, overlap=Overlap.REPLACE), 3)

    found = [row.state for row in jobs(play(5, test))]
    assert found == [TaskState.CANCELLED, TaskState.CANCELLED, TaskState.PENDING]


def test_what_is_held_is_not_submitted_and_goes_on_when_resumed() -> None:
    async def test(cluster: LedCluster) -> None:
        await due_times(cluster, POLL, 1)
        await asyncio.sleep(2.5 * 60)
        await cluster.ask(lambda api: api.periodic.resume("alice", "poll", ALICE))
        await entries(cluster, 2)

    found = history(play(6, test))
    assert [run.due_ms - found[0].due_ms for run in found] == [0, 3 * MINUTE_MS]
