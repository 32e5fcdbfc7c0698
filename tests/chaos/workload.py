"""Seeded work for real nodes: arrays, gangs, retries, time limits, dependencies; what each job must come to."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from hal.core.model import ArrayRange, Dependency, DependencyKind, Duration, JobSpec, Resources, Retries, TaskState
from tests.chaos.diary import Diary

NODES: Final = 2
NODE_CPU_MILLI: Final = 4_000
MANY: Final = 50
"""Retries of a job that must succeed however often its processes are killed."""


class Wanted(NamedTuple):
    """A job to submit."""

    spec: JobSpec
    end: TaskState
    """Of each task, unless its processes are killed and no retry is left."""
    fails: int = 0
    """Attempts up to this number fail."""
    endless: bool = False
    """Somebody has to cancel it."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def steps(self) -> int:
        """Steps that run when nothing is killed."""
        tasks = self.spec.array.count if self.spec.array else 1
        tries = min(self.fails, self.spec.retries.max) + (self.end is TaskState.SUCCEEDED)
        return tasks * self.spec.nodes * max(1, tries)


class Workload(NamedTuple):
    """What is submitted in one call at first, and what one by one afterwards."""

    first: list[Wanted]
    later: list[Wanted]

    @property
    def all(self) -> list[Wanted]:
        return [*self.first, *self.later]


def some_work(rng: random.Random, diary: Diary, jobs: int) -> Workload:
    """`jobs` jobs at first, a third as many later; at least one of every kind, and two that never end."""
    made = _Jobs(rng, diary)
    kinds = ["array", "array", "gang", "gang", "sleeper", "fragile", "flaky", "failing", "limit", "leftover"]
    kinds += ["fan-in", "after-failure"]
    kinds += [rng.choice(kinds) for _ in range(jobs - len(kinds))]
    first = [made.job(kind) for kind in sorted(kinds, key=lambda kind: (kind in _DEPENDENT, rng.random()))]
    first += [made.job("endless"), made.job("endless")]
    return Workload(first, [made.job(rng.choice(("array", "gang", "fragile", "flaky"))) for _ in range(jobs // 3)])


_DEPENDENT: Final = ("fan-in", "after-failure")


class _Jobs:
    def __init__(self, rng: random.Random, diary: Diary) -> None:
        self._rng = rng
        self._diary = diary
        self._made: list[Wanted] = []

    def job(self, kind: str) -> Wanted:
        made = self._job(kind, f"{kind}-{len(self._made)}")
        self._made.append(made)
        return made

    def _job(self, kind: str, name: str) -> Wanted:
        rng = self._rng
        run_s = rng.choice((0.0, 0.0, 0.02, 0.1))
        succeeded, failed = TaskState.SUCCEEDED, TaskState.FAILED
        match kind:
            case "array":
                return Wanted(self._spec(name, run_s, array=ArrayRange(count=rng.randint(3, 16))), succeeded)
            case "gang":
                return Wanted(self._spec(name, run_s * 3, nodes=NODES), succeeded)
            case "sleeper":
                return Wanted(self._spec(name, rng.uniform(0.2, 1.0)), succeeded)
            case "fragile":
                array = ArrayRange(count=rng.randint(1, 6))
                return Wanted(self._spec(name, run_s, array=array, retries=0), succeeded)
            case "flaky":
                fails = rng.randint(1, 3)
                return Wanted(self._spec(name, run_s, fails=fails), succeeded, fails)
            case "failing":
                return Wanted(self._spec(name, run_s, fails=MANY, retries=1), failed, MANY)
            case "limit":
                walltime = Duration(rng.randint(200, 600))
                return Wanted(self._spec(name, 600, retries=0, walltime=walltime), TaskState.TIMED_OUT)
            case "leftover":
                return Wanted(self._spec(name, run_s, leave=True), succeeded)
            case "fan-in":
                good = [job.name for job in self._made if job.end is succeeded]
                return Wanted(self._spec(name, run_s, after=rng.sample(good, rng.randint(1, 3))), succeeded)
            case "after-failure":
                bad = [job.name for job in self._made if job.end is failed]
                how = rng.choice((DependencyKind.AFTERNOTOK, DependencyKind.AFTERANY))
                return Wanted(self._spec(name, run_s, after=[rng.choice(bad)], how=how), succeeded)
            case _:
                return Wanted(self._spec(name, 600, retries=0, cpu_milli=250), TaskState.CANCELLED, endless=True)

    def _spec(
        self,
        name: str,
        run_s: float,
        *,
        fails: int = 0,
        leave: bool = False,
        array: ArrayRange | None = None,
        nodes: int = 1,
        retries: int = MANY,
        walltime: Duration | None = None,
        after: list[str] | None = None,
        how: DependencyKind = DependencyKind.AFTEROK,
        cpu_milli: int = 0,
    ) -> JobSpec:
        return JobSpec(
            name=name,
            command=self._diary.command(run_s, fails=fails, leave=leave),
            env=self._diary.env,
            request=Resources({"cpu": cpu_milli or self._rng.choice((500, 500, 1_000, 2_000))}),
            array=array,
            nodes=nodes,
            retries=Retries(max=retries, backoff=Duration(20), factor=1.0),
            walltime=walltime,
            dependencies=tuple(Dependency(job=other, kind=how) for other in after or ()),
        )
