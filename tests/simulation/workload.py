"""Seeded work for the whole system, each job with the end that it must come to whatever is killed meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from hal.core.model import ArrayRange, Dependency, DependencyKind, Duration, JobSpec, Resources, Retries, TaskState
from hal.daemons.controller.service.idempotency import Key
from hal.planes.tasks import Submitter
from tests.simulation.machine import Work

if TYPE_CHECKING:
    from tests.simulation.system import System

ALICE: Final = Submitter("alice")
"""Who submits."""


class Wanted(NamedTuple):
    """A job to submit."""

    spec: JobSpec
    work: Work
    end: TaskState
    """Of every task."""
    after: int | None = None
    """Position in the list of the job that it depends on."""


KINDS: Final = (
    "plain", "plain", "array", "swarm", "swarm", "gang", "retried", "failing", "limit", "missing", "leftover", "after",
)  # fmt: skip


def some_jobs(rng: random.Random, count: int, kinds: Sequence[str] = KINDS) -> list[Wanted]:
    """`count` jobs: arrays, gangs, retries, failures, time limits, dependencies."""
    wanted: list[Wanted] = []
    for position in range(count):
        wanted.append(_job(rng.choice(kinds), position, rng, wanted))
    return wanted


def _job(kind: str, position: int, rng: random.Random, earlier: list[Wanted]) -> Wanted:
    duration_ms = rng.randint(1, 4_000)
    cpu = rng.choice((500, 1_000, 2_000, 3_000))
    name = f"{kind}-{position}"
    succeeded, failed = TaskState.SUCCEEDED, TaskState.FAILED
    match kind:
        case "array":
            work = Work(duration_ms // 4)
            return Wanted(_spec(name, work, cpu, array=ArrayRange(count=rng.randint(2, 12))), work, succeeded)
        case "swarm":
            # Short enough to be handed over on credit; most of it, at least.
            work = Work(rng.choice((1, 5, 20, 60)), rng.choice(((0,), (1, 0))))
            array = ArrayRange(count=rng.randint(20, 80))
            return Wanted(_spec(name, work, cpu, array=array, retries=Retries(max=2)), work, succeeded)
        case "gang":
            work = Work(duration_ms)
            return Wanted(_spec(name, work, cpu, nodes=rng.randint(2, 3)), work, succeeded)
        case "retried":
            work = Work(duration_ms // 4, (1, 0))
            return Wanted(_spec(name, work, cpu, retries=Retries(max=3, backoff=Duration(200))), work, succeeded)
        case "failing":
            work = Work(duration_ms // 4, (3,))
            return Wanted(_spec(name, work, cpu, retries=Retries(max=1, backoff=Duration(100))), work, failed)
        case "limit":
            work = Work(3_600_000, flags=frozenset(rng.choice(((), ("stubborn",), ("leftover",)))))
            return Wanted(_spec(name, work, cpu, walltime=Duration(rng.randint(300, 3_000))), work, TaskState.TIMED_OUT)
        case "missing":
            work = Work(1, flags=frozenset({"missing"}))
            return Wanted(_spec(name, work, cpu), work, failed)
        case "leftover":
            work = Work(duration_ms, flags=frozenset({"leftover"}))
            return Wanted(_spec(name, work, cpu), work, succeeded)
        case "stubborn":
            # Only a kill ends it before its time.
            work = Work(duration_ms, flags=frozenset({"stubborn"}))
            return Wanted(_spec(name, work, cpu), work, succeeded)
        case "after" if earlier:
            return _dependent(name, rng.randrange(len(earlier)), duration_ms, cpu, earlier)
        case _:
            work = Work(duration_ms)
            return Wanted(_spec(name, work, cpu, walltime=Duration(600_000)), work, succeeded)


def _dependent(name: str, position: int, duration_ms: int, cpu: int, earlier: list[Wanted]) -> Wanted:
    good = earlier[position].end is TaskState.SUCCEEDED
    work = Work(duration_ms)
    kind = DependencyKind.AFTEROK if good else DependencyKind.AFTERANY
    spec = _spec(name, work, cpu, dependencies=(Dependency(job="", kind=kind),))
    return Wanted(spec, work, TaskState.SUCCEEDED, position)


def _spec(
    name: str,
    work: Work,
    cpu: int,
    *,
    array: ArrayRange | None = None,
    nodes: int = 1,
    walltime: Duration | None = None,
    retries: Retries | None = None,
    dependencies: tuple[Dependency, ...] = (),
) -> JobSpec:
    return JobSpec(
        name=name,
        command=tuple(work.command()),
        request=Resources({"cpu": cpu}),
        array=array,
        nodes=nodes,
        walltime=walltime,
        retries=retries or Retries(),
        dependencies=dependencies,
    )


async def submit(system: System, wanted: Sequence[Wanted], ids: list[int]) -> None:
    """Submit all, one call a job, each until it is answered; the ids come into `ids` in the same order."""
    rng = system.world.rng("client")
    for position, one in enumerate(wanted):
        spec = one.spec
        if one.after is not None:
            spec = replace(spec, dependencies=(replace(spec.dependencies[0], job=str(ids[one.after])),))
        key = Key(f"job {position}", "same")
        submitted = await system.ask(lambda api, spec=spec, key=key: api.jobs.submit([spec], ALICE, key=key))  # type: ignore[misc]
        ids.append(int(submitted.ids[0]))
        await asyncio.sleep(rng.random() * 0.5)
