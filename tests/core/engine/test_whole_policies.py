"""Whole policies by chance: limits, cohorts, QOS, licences, bookings, arrays and all that happens to them at once.

What judges them is in `policy_world`. A failure prints the seed; `shrink` of that module makes its script short.
"""

from __future__ import annotations

import time

import pytest

from tests.core.engine.policy_world import draw_script, play
from tests.examples import examples

HAPPENINGS = 40
SOAK_S = 3_600


def play_seed(seed: int, happenings: int = HAPPENINGS) -> None:
    """One site and what happens there."""
    try:
        play(*draw_script(seed, happenings))
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("seed", range(4))
def test_safety_any_policy_ends_agrees_and_leaves_nothing_pending_that_could_start(seed: int) -> None:
    """Few seeds; see below for many."""
    play_seed(seed)


@pytest.mark.parametrize(
    ("seed", "happenings"), [(1_003, 40), (1_007, 40), (319, 25), pytest.param(5_121, 70, marks=pytest.mark.slow)]
)
def test_a_start_that_was_missed_or_came_otherwise_in_slices(seed: int, happenings: int) -> None:
    """1,003: under conservative a reservation too many was dropped after the job ahead, which could have used its
    nodes, had been looked at. 1,007: shares had moved, and a job that was refused by counts not yet settled was not
    asked to wait for the new order. 319: an end moved shares, so that parked work ranked before the job with the
    reservation, and nobody looked at it. 5,121: shares moved who holds one of the first reservations; parked work was
    not told.
    """
    play_seed(seed, happenings)


@pytest.mark.parametrize("first", [2_000, *(pytest.param(first, marks=pytest.mark.slow) for first in (2_030, 2_060))])
def test_safety_sites_where_little_has_happened_end_agree_and_know_what_they_do(first: int) -> None:
    """Many policies, each with ten happenings: what is wrong with a rule shows soon."""
    for seed in range(first, first + examples(30)):
        play_seed(seed, 10)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 1_090, 30))
def test_safety_many_policies_end_agree_and_leave_nothing_pending(first: int) -> None:
    """A minute of seeds."""
    for seed in range(first, first + 30):
        play_seed(seed)


@pytest.mark.soak
def test_safety_policies_for_an_hour() -> None:
    """Fresh seeds each time, by the clock; they are printed as they go."""
    begun_s = time.monotonic()
    seed = time.time_ns() % (1 << 40)
    while time.monotonic() - begun_s < SOAK_S:
        print(f"seed {seed}", end="\r", flush=True)
        play_seed(seed)
        seed += 1
