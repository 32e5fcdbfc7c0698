"""Bytes of bodies that are kept at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.rest.byte_budget import ByteBudget
from hal.rest.limiter import Limiter, TooManyError


def test_one_user_leaves_room_for_the_others() -> None:
    """(M6) Of 100 in all alice may keep 40: the 41st is refused, bob's is not; what she gives back she may take."""
    budget = ByteBudget(of_one=40, of_all=100)
    budget.take("alice", 40)
    with pytest.raises(TooManyError):
        budget.take("alice", 1)
    budget.take("bob", 40)
    with pytest.raises(TooManyError):
        budget.take("carol", 21)
    budget.give_back("alice", 10)
    budget.take("alice", 10)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60))))
def test_safety_no_more_is_kept_than_the_bounds(steps: list[tuple[str, int]]) -> None:
    """Whatever is taken; and when all is given back nothing is left."""
    budget = ByteBudget(of_one=50, of_all=100)
    taken: list[tuple[str, int]] = []
    for step in steps:
        try:
            budget.take(*step)
        except TooManyError:
            continue
        taken.append(step)
        assert budget.kept == sum(amount for _, amount in taken) <= 100
        assert all(sum(amount for who, amount in taken if who == name) <= 50 for name in "abc")
    for step in taken:
        budget.give_back(*step)
    assert budget.kept == 0


def test_a_long_body_is_paid_for_by_waiting() -> None:
    """(H5) Ten requests a second, and one that cost 20 more than the bucket held: two seconds pass before the next."""
    limits = Limiter(per_s=10, burst=5, at_once=5)
    limits.enter("alice", 0)
    limits.charge("alice", 23)  # 4 are left of 5: -19
    limits.leave("alice")
    with pytest.raises(TooManyError) as refused:
        limits.enter("alice", 0)
    assert refused.value.retry_after_s == 2
    limits.enter("alice", 2_000)
