"""The Lublin-Feitelson model of rigid parallel jobs: sizes, run times and arrivals drawn as described in the paper.

Pure given its random number generator. O(jobs). Source: U. Lublin and D. G. Feitelson, 'The workload on parallel
supercomputers: modeling the characteristics of rigid jobs', J. Parallel and Distributed Computing 63(11), 2003;
parameter values as published with the model (Parallel Workloads Archive).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

LOG_RUN_MAX = 12.0
"""Run times above exp(12) s (45 h) are redrawn."""

LOG_GAP_MAX = 13.0
"""Gaps between arrivals above exp(13) s (5 days) are redrawn."""

SLOTS_PER_DAY = 48
SLOT_S = 1800
DAY_S = SLOTS_PER_DAY * SLOT_S

_CYCLE_FIRST_SLOT = 11
"""The gamma of the daily cycle describes the slots from this one on; later ones wrap around to the next morning."""

_REDRAWS_MAX = 1000


@dataclass(frozen=True, slots=True)
class JobKind:
    """Parameters of one kind of jobs; `_below` values are distances below log2(machine).

    Size: serial with `serial`; else log2(size) is uniform in [low, med] with `low_part`, in [med, high] otherwise;
    rounded to a power of two with `power_of_two`. Run time: exp of gamma(a1, b1) with p, of gamma(a2, b2) with 1 - p,
    p = slope x size + intercept. Arrivals: gaps exp(gamma(gap_a, gap_b)) in units of the mean rate; `cycle_a`,
    `cycle_b` give each half hour's part of a day's jobs.
    """

    serial: float
    power_of_two: float
    low: float
    med_below: float
    high_below: float
    low_part: float
    a1: float
    b1: float
    a2: float
    b2: float
    slope: float
    intercept: float
    gap_a: float
    gap_b: float
    cycle_a: float
    cycle_b: float


KINDS = {
    "all": JobKind(
        serial=0.244, power_of_two=0.576, low=0.8, med_below=2.5, high_below=0.0, low_part=0.86,
        a1=4.2, b1=0.94, a2=312.0, b2=0.03, slope=-0.0054, intercept=0.78,
        gap_a=10.2303 * 1.0225, gap_b=0.4871, cycle_a=8.1737, cycle_b=3.9631,
    ),
    "batch": JobKind(
        serial=0.2927, power_of_two=0.6686, low=1.2, med_below=2.0, high_below=0.0, low_part=0.875,
        a1=6.57, b1=0.823, a2=639.1, b2=0.0156, slope=-0.003, intercept=0.6986,
        gap_a=6.0415 * 1.0519, gap_b=0.8531, cycle_a=6.1271, cycle_b=5.2740,
    ),
    "interactive": JobKind(
        serial=0.1541, power_of_two=0.625, low=1.0, med_below=4.0, high_below=1.5, low_part=0.705,
        a1=3.8351, b1=0.6605, a2=7.073, b2=0.6856, slope=-0.0118, intercept=0.9156,
        gap_a=6.5510 * 0.9797, gap_b=0.6621, cycle_a=8.9186, cycle_b=3.6680,
    ),
}  # fmt: skip
"""The paper's three fits: the whole log, and its batch and interactive jobs separately (128-node machines)."""


def draw_sizes(kind: JobKind, jobs: int, cpus: int, random: np.random.Generator) -> IntArray:
    """Draw the processors of each job, shape (jobs,), 1..cpus."""
    high = max(math.log2(cpus) - kind.high_below, 0.0)
    low = min(kind.low, high)
    med = min(max(math.log2(cpus) - kind.med_below, low), high)
    which = random.random(jobs)
    stage = random.random(jobs)
    within = random.random(jobs)
    exponent = np.where(stage <= kind.low_part, low + within * (med - low), med + within * (high - med))
    rounded = np.minimum(np.floor(exponent + 0.5), math.floor(math.log2(cpus)))
    exponent = np.where(which <= kind.serial + kind.power_of_two, rounded, exponent)
    size = np.floor(np.exp2(exponent) + 0.5).astype(np.int64)
    size[which <= kind.serial] = 1
    return np.clip(size, 1, cpus)


def draw_runs(kind: JobKind, size: IntArray, random: np.random.Generator) -> IntArray:
    """Draw the run time of each job in whole seconds, >= 1, given the jobs' sizes; same shape."""
    first = np.clip(kind.slope * size + kind.intercept, 0.0, 1.0)
    log_run = np.empty(size.size)
    todo = np.arange(size.size)
    for _ in range(_REDRAWS_MAX):
        short = random.random(todo.size) <= first[todo]
        a, b = np.where(short, kind.a1, kind.a2), np.where(short, kind.b1, kind.b2)
        log_run[todo] = random.gamma(a, b)
        todo = todo[log_run[todo] > LOG_RUN_MAX]
        if not todo.size:
            break
    return np.exp(np.minimum(log_run, LOG_RUN_MAX)).astype(np.int64)


def draw_gaps(kind: JobKind, jobs: int, random: np.random.Generator) -> FloatArray:
    """Draw gaps between arrivals in seconds of *working time*, shape (jobs,): they do not include the daily cycle
    yet."""
    log_gap = np.empty(jobs)
    todo = np.arange(jobs)
    for _ in range(_REDRAWS_MAX):
        log_gap[todo] = random.gamma(kind.gap_a, kind.gap_b, todo.size)
        todo = todo[log_gap[todo] > LOG_GAP_MAX]
        if not todo.size:
            break
    return np.exp(np.minimum(log_gap, LOG_GAP_MAX))


def daily_cycle(kind: JobKind) -> FloatArray:
    """Return the relative arrival rate in each half hour from midnight, shape (SLOTS_PER_DAY,), mean 1.

    Slot s (counted from 1, up to 48, then on into the next morning) has the part cdf(s + 1/2) - cdf(s - 1/2) of
    gamma(cycle_a, cycle_b).
    """
    rate = np.empty(SLOTS_PER_DAY)
    for slot in range(_CYCLE_FIRST_SLOT, _CYCLE_FIRST_SLOT + SLOTS_PER_DAY):
        part = _gamma_cdf(slot + 0.5, kind.cycle_a, kind.cycle_b) - _gamma_cdf(slot - 0.5, kind.cycle_a, kind.cycle_b)
        rate[(slot - 1) % SLOTS_PER_DAY] = part
    relative: FloatArray = rate / rate.mean()
    return relative


def arrivals(gaps_s: FloatArray, rate: FloatArray) -> FloatArray:
    """Return arrival times in seconds after midnight of the first day, shape (J,), ascending.

    A gap is used up faster in busy half hours: the arrival is where the integral of `rate` reaches the sum of gaps.
    """
    worked = np.concatenate([np.zeros(1), np.cumsum(rate * SLOT_S)])
    clock = np.arange(SLOTS_PER_DAY + 1) * float(SLOT_S)
    total = np.cumsum(gaps_s)
    days = np.floor(total / worked[-1])
    time_of_day: FloatArray = np.interp(total - days * worked[-1], worked, clock)
    arrival_s: FloatArray = days * DAY_S + time_of_day
    return arrival_s


def _gamma_cdf(x: float, a: float, b: float) -> float:
    """P(gamma(shape a, scale b) <= x), by the series of the regularised lower incomplete gamma function."""
    x /= b
    if x <= 0:
        return 0.0
    term = total = 1.0 / a
    n = a
    while term > total * 1e-15:
        n += 1.0
        term *= x / n
        total += term
    return total * math.exp(a * math.log(x) - x - math.lgamma(a))
