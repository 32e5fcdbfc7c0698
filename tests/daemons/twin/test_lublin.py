"""The Lublin-Feitelson model: its marginals are those of the paper (fixed seeds, tolerances of several sigmas)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hal.daemons.twin.lublin import (
    DAY_S,
    KINDS,
    LOG_RUN_MAX,
    SLOT_S,
    SLOTS_PER_DAY,
    arrivals,
    daily_cycle,
    draw_gaps,
    draw_runs,
    draw_sizes,
)

JOBS = 40_000


def generator() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(2003))


@pytest.mark.parametrize(("kind", "serial"), [("all", 0.244), ("batch", 0.2927), ("interactive", 0.1541)])
def test_the_papers_part_of_the_jobs_is_serial(kind: str, serial: float) -> None:
    """24.4 % of all jobs; sigma of 40,000 draws is 0.2 points."""
    sizes = draw_sizes(KINDS[kind], JOBS, 128, generator())
    assert (sizes == 1).mean() == pytest.approx(serial, abs=0.01)


def test_three_quarters_of_parallel_jobs_are_powers_of_two_by_choice() -> None:
    """57.6 % of all = 76 % of the parallel jobs are rounded to a power of two; of the others a few are one anyhow."""
    sizes = draw_sizes(KINDS["all"], JOBS, 128, generator())
    parallel = sizes[sizes > 1]
    power = ((parallel & (parallel - 1)) == 0).mean()
    assert 0.762 - 0.01 < power < 0.762 + 0.10


@pytest.mark.parametrize("cpus", [1, 2, 3, 7, 100, 128, 5000])
def test_sizes_lie_within_any_machine(cpus: int) -> None:
    """From one processor to all of them, also where log2 of the machine is below the model's smallest job."""
    sizes = draw_sizes(KINDS["all"], 5000, cpus, generator())
    assert sizes.min() == 1
    assert sizes.max() <= cpus


def test_log_sizes_have_the_mean_of_the_two_stage_uniform() -> None:
    """0.86 x (0.8 + 4.5) / 2 + 0.14 x (4.5 + 7) / 2 = 3.084 for parallel jobs on 128 processors."""
    sizes = draw_sizes(KINDS["all"], JOBS, 128, generator())
    assert np.log2(sizes[sizes > 1]).mean() == pytest.approx(3.084, abs=0.06)


@pytest.mark.parametrize("size", [1, 32, 128])
def test_log_run_times_have_the_mean_of_the_hyper_gamma_at_that_size(size: int) -> None:
    """p a1 b1 + (1 - p) a2 b2 with p = 0.78 - 0.0054 x size: 5.17 at 1, 6.11 at 32, 8.91 at 128 processors.

    Cutting at exp(12) s and rounding down to whole seconds lower it by less than 0.06.
    """
    kind = KINDS["all"]
    p = 0.78 - 0.0054 * size
    expected = p * 4.2 * 0.94 + (1 - p) * 312 * 0.03
    runs = draw_runs(kind, np.full(JOBS, size), generator())
    assert np.log(runs).mean() == pytest.approx(expected, abs=0.08)
    assert runs.min() >= 1
    assert runs.max() <= math.exp(LOG_RUN_MAX)


def test_gaps_have_the_papers_gamma() -> None:
    """The logarithm of a gap is gamma with mean 10.2303 x 1.0225 x 0.4871 = 5.095 (cut at 13, which is rare)."""
    assert np.log(draw_gaps(KINDS["all"], JOBS, generator())).mean() == pytest.approx(5.095, abs=0.05)


def test_arrivals_peak_in_the_early_afternoon_and_are_fewest_before_dawn() -> None:
    """The cycle's busiest half hour is at 13:30-14:30, its quietest at 5:00-5:30, with a tenth of the jobs."""
    rate = daily_cycle(KINDS["all"])
    assert rate.mean() == pytest.approx(1.0)
    assert 26 <= int(rate.argmax()) <= 29
    assert int(rate.argmin()) == 10
    assert 8 < rate.max() / rate.min() < 14


def test_generated_arrivals_follow_the_daily_cycle() -> None:
    """Even work through the cycle: each half hour of the day gets its rate's part of the arrivals."""
    rate = daily_cycle(KINDS["all"])
    times = arrivals(np.full(200_000, 60.0), rate)
    slot = (times % DAY_S // SLOT_S).astype(np.int64)
    part = np.bincount(slot, minlength=SLOTS_PER_DAY) / times.size * SLOTS_PER_DAY
    assert np.abs(part - rate).max() < 0.05
    assert (np.diff(times) > 0).all()
