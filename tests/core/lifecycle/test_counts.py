"""How a job counts its tasks by state, and what it is for each two of them."""

from __future__ import annotations

from itertools import combinations

import pytest

from hal.core.lifecycle import TaskCounts, job_state
from hal.core.model import InternalError, TaskState

FURTHEST_FIRST = (
    TaskState.RUNNING,
    TaskState.SUSPENDED,
    TaskState.FINALISING,
    TaskState.PREPARING,
    TaskState.ALLOCATED,
    TaskState.PENDING,
    TaskState.HELD,
    TaskState.FAILED,
    TaskState.TIMED_OUT,
    TaskState.CANCELLED,
    TaskState.SUCCEEDED,
)
"""As docs/lifecycle.md has it: what lives before what has ended, the worst end before the best."""
COUNTS = TaskCounts(
    pending=1, held=2, allocated=4, preparing=8, running=16, suspended=32, finalising=64,
    succeeded=128, failed=256, timed_out=512, cancelled=1_024,
)  # fmt: skip
"""Each state has a bit of its own, so that a sum says which were added."""


@pytest.mark.parametrize(
    ("sum_of", "expected"),
    [("active", 4 + 8 + 16 + 32 + 64), ("live", 1 + 2 + 4 + 8 + 16 + 32 + 64), ("total", 2_047)],
)
def test_a_sum_adds_each_of_its_states_once(sum_of: str, expected: int) -> None:
    """Active hold resources; live have not ended; total is all."""
    assert getattr(COUNTS, sum_of) == expected


@pytest.mark.parametrize(("furthest", "other"), list(combinations(FURTHEST_FIRST, 2)))
def test_of_two_states_the_job_is_in_the_one_that_is_further(furthest: TaskState, other: TaskState) -> None:
    """One task in each."""
    counts = TaskCounts()
    counts.move(None, furthest)
    counts.move(None, other)
    assert job_state(counts) is furthest


@pytest.mark.parametrize("state", TaskState)
def test_a_job_of_one_task_is_in_its_state(state: TaskState) -> None:
    """Whatever it is."""
    counts = TaskCounts()
    counts.move(None, state)
    assert job_state(counts) is state


def test_one_task_moves_where_no_number_is_given() -> None:
    """Of three pending ones two stay."""
    counts = TaskCounts(pending=3)
    counts.move(TaskState.PENDING, TaskState.HELD)
    assert (counts.pending, counts.held) == (2, 1)


def test_all_that_are_there_may_leave() -> None:
    """Three of three."""
    counts = TaskCounts(timed_out=3)
    counts.move(TaskState.TIMED_OUT, TaskState.PENDING, 3)
    assert (counts.timed_out, counts.pending) == (0, 3)


def test_a_count_that_cannot_leave_is_named() -> None:
    """With the state and what is there."""
    with pytest.raises(InternalError, match="4 tasks should leave 'held', where 3 are"):
        TaskCounts(held=3).move(TaskState.HELD, TaskState.PENDING, 4)
