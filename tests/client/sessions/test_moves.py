"""Which slots go from one broker of a session to another, and sums of brokers' numbers."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from hal.client.sessions.moves import Move, Spare, kept_slots, moves_between
from hal.client.sessions.sums import sum_of
from hal.wire.frames.sessions import GroupNumbers, SessionNumbers, ShapeNumbers
from tests.examples import examples


def test_a_slot_moves_that_was_spare_twice_to_where_one_was_missed_twice() -> None:
    """Broker 0 had 3 and has 2 to spare, broker 1 missed none and now misses 1, broker 2 missed 4 and misses 1."""
    before = [Spare(0, 3), Spare(1, 0), Spare(2, -4)]
    assert moves_between(before, [Spare(0, 2), Spare(1, -1), Spare(2, -1)], 1) == [Move(0, 2, 1)]


def test_nothing_moves_at_the_first_look() -> None:
    assert moves_between([], [Spare(0, 2), Spare(1, -2)], 1) == []


def test_threads_of_a_worker_move_together() -> None:
    """Of five spare threads four are two whole workers; one task that waits is worth a worker."""
    now = [Spare(0, 5), Spare(1, -1)]
    assert moves_between(now, now, 2) == [Move(0, 1, 2)]


@given(
    before=st.lists(st.integers(-9, 9), min_size=1, max_size=6),
    now=st.lists(st.integers(-9, 9), min_size=1, max_size=6),
)
@settings(max_examples=examples(300))
def test_no_broker_gives_what_it_needs_or_gets_what_it_does_not(before: list[int], now: list[int]) -> None:
    """At either look; and nothing moves any more only when nobody could give or nobody wants."""
    first, second = list(map(Spare, range(6), before)), list(map(Spare, range(6), now))
    gives, gets = Counter[int](), Counter[int]()
    for move in moves_between(first, second, 1):
        gives[move.origin] += move.slots
        gets[move.target] += move.slots
    spare = {shard: min(one, other) for shard, (one, other) in enumerate(zip(before, now, strict=False))}
    missed = {shard: min(-one, -other) for shard, (one, other) in enumerate(zip(before, now, strict=False))}
    assert all(gives[shard] <= max(spare[shard], 0) for shard in gives)
    assert all(gets[shard] <= max(missed[shard], 0) for shard in gets)
    most = min(sum(max(one, 0) for one in spare.values()), sum(max(one, 0) for one in missed.values()))
    assert gives.total() == gets.total() == most


def test_what_is_too_much_leaves_where_it_is_spare() -> None:
    """Three of ten slots are too many: broker 1 has two to spare, broker 0 two of which one leaves."""
    assert kept_slots([Spare(0, 2), Spare(1, 2), Spare(2, -1)], {0: 4, 1: 4, 2: 2}, 3) == {0: 2, 1: 3}
    assert kept_slots([Spare(0, 2)], {0: 4}, 0) == {}


def numbers(done: int, *, seconds: tuple[int, ...], shape: ShapeNumbers, group: GroupNumbers) -> SessionNumbers:
    return SessionNumbers(
        uptime_ms=done, clients=1, waiting=1, unanswered=2, done=done, busy=1, slots=shape.slots,
        latencies=(1, 2), ended=(done, 0), seconds=seconds, shapes=(shape,), functions=(group,),
    )  # fmt: skip


def test_numbers_of_brokers_add_up() -> None:
    """A client is connected to each of them; the present second is the last one of both."""
    one = numbers(
        10,
        seconds=(1, 2, 3),
        shape=ShapeNumbers(shape="", wanted=2, slots=3),
        group=GroupNumbers(name="f", done=1, failed=2, retried=3, busy_us=4),
    )
    other = numbers(
        20,
        seconds=(5, 6),
        shape=ShapeNumbers(shape="", wanted=4, slots=1),
        group=GroupNumbers(name="f", done=1, failed=1, retried=1, busy_us=1),
    )
    found = sum_of([one, other])
    assert (found.uptime_ms, found.clients, found.waiting, found.unanswered, found.done) == (20, 1, 2, 4, 30)
    assert (found.slots, found.latencies, found.ended, found.seconds) == (4, (2, 4), (30, 0), (1, 7, 9))
    assert found.shapes == (ShapeNumbers(shape="", wanted=6, slots=4),)
    assert found.functions == (GroupNumbers(name="f", done=2, failed=3, retried=4, busy_us=5),)
    assert sum_of([one]) is one
