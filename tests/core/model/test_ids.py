"""The numbers of jobs, tasks, attempts and ranks pass up to their bounds where an id is decoded."""

from __future__ import annotations

import msgspec
import pytest

from hal.core.model.ids import AttemptId, StepId

LEAST = (1, 0, 1, 0)
MOST = (2**53, 2**31 - 1, 2**31 - 1, 2**31 - 1)


@pytest.mark.parametrize("numbers", [LEAST, MOST])
def test_a_step_at_its_bounds_is_decoded(numbers: tuple[int, ...]) -> None:
    """Jobs and attempts count from 1, tasks and ranks from 0."""
    assert msgspec.convert(numbers, StepId) == StepId(*numbers)
    assert msgspec.convert(numbers[:3], AttemptId) == AttemptId(*numbers[:3])


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("beyond", [-1, 1])
def test_a_number_beyond_its_bounds_is_no_step(place: int, beyond: int) -> None:
    """One below the least, one above the most."""
    numbers = list(LEAST if beyond < 0 else MOST)
    numbers[place] += beyond
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(numbers, StepId)


def test_steps_are_in_order_of_job_task_attempt_rank() -> None:
    """The first number that differs decides."""
    steps = [StepId(2, 0, 1, 0), StepId(1, 1, 1, 0), StepId(1, 0, 2, 0), StepId(1, 0, 1, 1)]
    assert sorted(steps) == steps[::-1]
