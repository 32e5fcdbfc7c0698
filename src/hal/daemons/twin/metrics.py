"""The figures of a replay: bounded slowdown, waits, utilisation, makespan, over all jobs and per user.

Pure. Definitions (also in docs/simulate.md):
- bounded slowdown = max(1, (wait + run) / max(run, TAU_S)) with TAU_S = 10 s (Feitelson et al., JSSPP 1997);
- utilisation = processor-seconds used by jobs / (processors of the machine x (last end - first submit)), where a job
  uses the processors that it asked for, for as long as it ran;
- makespan = last end - first submit;
- p95 = the 95th percentile with linear interpolation between neighbours.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

TAU_S = 10
"""Shorter runs count as this long, so that one short job cannot dominate a mean."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Figures of one replay (or of one user's jobs in it). Times in seconds; `utilisation` in 0..1.

    For one user, `utilisation` is the fraction of the machine that the user's jobs used over the duration of the whole
    replay, and `makespan_s` runs from the user's first submit to the user's last end.
    """

    jobs: int
    mean_bounded_slowdown: float
    median_bounded_slowdown: float
    p95_bounded_slowdown: float
    max_bounded_slowdown: float
    mean_wait_s: float
    median_wait_s: float
    p95_wait_s: float
    max_wait_s: int
    utilisation: float
    makespan_s: int

    def as_dict(self) -> dict[str, float]:
        """The fields by name, ready for JSON."""
        return asdict(self)


def bounded_slowdown(wait_s: IntArray, run_s: IntArray) -> FloatArray:
    """Compute the bounded slowdown of each job; shapes (J,), seconds in, a factor >= 1 out."""
    return np.maximum(1.0, (wait_s + run_s) / np.maximum(run_s, TAU_S))


def judge(
    submit_s: IntArray,
    start_s: IntArray,
    end_s: IntArray,
    procs: IntArray,
    *,
    machine_procs: int,
    span_s: int | None = None,
) -> Metrics:
    """Compute figures over the given jobs; all arrays of shape (J,), J > 0.

    Args:
        span_s: the duration for utilisation; default: these jobs' own makespan.
    """
    wait_s, run_s = start_s - submit_s, end_s - start_s
    slowdown = bounded_slowdown(wait_s, run_s)
    makespan_s = int(end_s.max() - submit_s.min())
    median, p95 = np.percentile(slowdown, [50, 95])
    median_wait, p95_wait = np.percentile(wait_s, [50, 95])
    return Metrics(
        jobs=int(submit_s.size),
        mean_bounded_slowdown=float(slowdown.mean()),
        median_bounded_slowdown=float(median),
        p95_bounded_slowdown=float(p95),
        max_bounded_slowdown=float(slowdown.max()),
        mean_wait_s=float(wait_s.mean()),
        median_wait_s=float(median_wait),
        p95_wait_s=float(p95_wait),
        max_wait_s=int(wait_s.max()),
        utilisation=float(
            (procs.astype(np.float64) * run_s).sum() / (machine_procs * (makespan_s if span_s is None else span_s))
        ),
        makespan_s=makespan_s,
    )


def judge_by_user(
    user: IntArray, submit_s: IntArray, start_s: IntArray, end_s: IntArray, procs: IntArray, *, machine_procs: int
) -> dict[int, Metrics]:
    """Compute the same figures for each user number, by descending processor-seconds (ties by number)."""
    span_s = int(end_s.max() - submit_s.min())
    order = np.argsort(user, kind="stable")
    numbers, first = np.unique(user[order], return_index=True)
    by_user: dict[int, Metrics] = {}
    for number, rows in zip(numbers, np.split(order, first[1:]), strict=True):
        by_user[int(number)] = judge(
            submit_s[rows], start_s[rows], end_s[rows], procs[rows], machine_procs=machine_procs, span_s=span_s
        )
    return dict(sorted(by_user.items(), key=lambda item: (-item[1].utilisation, item[0])))
