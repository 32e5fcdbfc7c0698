"""Generate a synthetic log: Lublin-Feitelson jobs scaled to an offered load, with users and rounded-up time limits.

Pure given the seed: the same parameters and seed give the same bytes (with the same numpy). O(jobs).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hal.core.model.errors import SpecError
from hal.daemons.twin.lublin import KINDS, arrivals, daily_cycle, draw_gaps, draw_runs, draw_sizes

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

LIMITS_S = np.array(
    [60 * m for m in (5, 10, 15, 20, 30, 45)]
    + [3600 * h for h in (1, 1.5, 2, 3, 4, 6, 8, 10, 12, 16, 18, 20, 24, 30, 36, 48)],
    np.int64,
)
"""The limits that people typically request; the longest exceeds the longest run that the model draws."""

USER_EXPONENT = 1.0
"""User k submits in proportion to 1 / k ** USER_EXPONENT (a Zipf law)."""

SHARE_USED_MIN = 0.1
"""People request run / share, share uniform in [SHARE_USED_MIN, 1], rounded up to one of LIMITS_S."""

JOBS_MAX = 10_000_000
CPUS_MAX = 10**11
LOAD_MAX = 100.0

_SCALE_STEPS = 200
_RECORD = "{} {} -1 {} {} -1 -1 {} {} -1 1 {} -1 -1 1 -1 -1 -1\n"


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """Parameters of the generator. `load`: offered load, see `offered_load`. `kind`: one of lublin.KINDS."""

    jobs: int
    cpus: int
    load: float
    seed: int
    users: int
    kind: str = "all"

    def __post_init__(self) -> None:
        """Raises: SpecError naming the first value out of range."""
        for name, value, low, high in (
            ("jobs", self.jobs, 1, JOBS_MAX),
            ("cpus", self.cpus, 1, CPUS_MAX),
            ("users", self.users, 1, JOBS_MAX),
            ("seed", self.seed, 0, 1 << 64),
        ):
            if not low <= value <= high:
                raise SpecError(f"{name} is {value}", hint=f"give a whole number from {low} to {high}")
        if not 0.0 < self.load <= LOAD_MAX:
            raise SpecError(
                f"load is {self.load}", hint=f"give a number above 0 and at most {LOAD_MAX:g}; 1 = saturated"
            )
        if self.kind not in KINDS:
            raise SpecError(f"unknown kind of jobs {self.kind!r}", hint=f"one of {', '.join(KINDS)}")


@dataclass(frozen=True, slots=True, eq=False)
class GeneratedJobs:
    """The jobs of a synthetic log, by submit time; every array has the shape (J,)."""

    submit_s: IntArray
    run_s: IntArray
    limit_s: IntArray
    procs: IntArray
    user: IntArray


def offered_load(submit_s: IntArray, run_s: IntArray, procs: IntArray, cpus: int) -> float:
    """Compute processor-seconds requested / (processors x time from first to last submit); infinite for one instant."""
    span_s = int(submit_s[-1] - submit_s[0])
    return float((run_s.astype(np.float64) * procs).sum()) / (cpus * span_s) if span_s else float("inf")


def generate(spec: WorkloadSpec) -> GeneratedJobs:
    """Draw the jobs. The load is reached by stretching the gaps *before* the daily cycle is applied to them.

    So a day keeps its 24 hours at any load. With very few jobs, or a load that would require submits closer together
    than the daily cycle allows in whole seconds, the load is met as closely as whole seconds permit.
    """
    random = np.random.Generator(np.random.PCG64(spec.seed))
    kind = KINDS[spec.kind]
    procs = draw_sizes(kind, spec.jobs, spec.cpus, random)
    run_s = draw_runs(kind, procs, random)
    gaps_s = draw_gaps(kind, spec.jobs, random)
    span_s = float((procs.astype(np.float64) * run_s).sum()) / (spec.cpus * spec.load)
    submit_s = np.floor(_arrivals_spanning(gaps_s, daily_cycle(kind), span_s)).astype(np.int64)
    return GeneratedJobs(
        submit_s=submit_s,
        run_s=run_s,
        limit_s=_limits(run_s, random),
        procs=procs,
        user=_users(spec.users, spec.jobs, random),
    )


def write_swf(jobs: GeneratedJobs, spec: WorkloadSpec) -> bytes:
    """Format the log in the Standard Workload Format 2.2. Its content does not depend on when or where it was
    generated."""
    header = "".join(
        f"; {line}\n"
        for line in (
            "Version: 2.2",
            "Computer: synthetic",
            f"Note: Lublin-Feitelson 2003 model, {spec.kind} jobs; users and time limits added by HAL",
            f"Note: hal workload generate --model lublin --kind {spec.kind} --jobs {spec.jobs} --cpus {spec.cpus}"
            f" --load {spec.load!r} --users {spec.users} --seed {spec.seed}",
            f"MaxJobs: {spec.jobs}",
            f"MaxRecords: {spec.jobs}",
            "UnixStartTime: 0",
            "TimeZoneString: UTC",
            f"MaxNodes: {spec.cpus}",
            f"MaxProcs: {spec.cpus}",
            f"MaxRuntime: {int(LIMITS_S[-1])}",
        )
    )
    rows = zip(
        *(column.tolist() for column in (jobs.submit_s, jobs.run_s, jobs.procs, jobs.limit_s, jobs.user)), strict=True
    )
    records = "".join(
        _RECORD.format(number, submit, run, procs, procs, limit, user)
        for number, (submit, run, procs, limit, user) in enumerate(rows, start=1)
    )
    return (header + records).encode("ascii")


def _arrivals_spanning(gaps_s: FloatArray, rate: FloatArray, span_s: float) -> FloatArray:
    """Compute arrivals whose last is `span_s` after the first: the factor on the gaps after the first is found by
    bisection."""
    if gaps_s.size == 1:
        return arrivals(gaps_s, rate)
    later = np.cumsum(gaps_s[1:])

    def at(factor: float) -> FloatArray:
        ends = np.array([gaps_s[0], factor * later[-1]])
        return arrivals(ends, rate)

    low, high = 0.0, 1.0
    for _ in range(_SCALE_STEPS):
        first, last = at(high)
        if last - first >= span_s:
            break
        high *= 2.0
    for _ in range(_SCALE_STEPS):
        middle = (low + high) / 2.0
        first, last = at(middle)
        low, high = (middle, high) if last - first < span_s else (low, middle)
    return arrivals(np.concatenate([gaps_s[:1], high * gaps_s[1:]]), rate)


def _limits(run_s: IntArray, random: np.random.Generator) -> IntArray:
    share = SHARE_USED_MIN + (1.0 - SHARE_USED_MIN) * random.random(run_s.size)
    asked_s = np.minimum(run_s / share, LIMITS_S[-1])
    limit_s: IntArray = LIMITS_S[np.searchsorted(LIMITS_S, asked_s)]
    return limit_s


def _users(users: int, jobs: int, random: np.random.Generator) -> IntArray:
    weight = 1.0 / np.arange(1, users + 1) ** USER_EXPONENT
    reach = np.cumsum(weight)
    user: IntArray = np.searchsorted(reach, random.random(jobs) * reach[-1], side="right") + 1
    return user
