"""Emptying nodes to give them back: what would be moved, what that loses, whether it pays; asking changes nothing."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine import State
from hal.core.engine.config import Backfill
from hal.core.engine.events import INF, AdviceUpdated
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.why.emptying import Emptied, emptied, releasable
from hal.core.model.advice import KeySpace
from tests.core.engine.clusters import places
from tests.core.engine.reference_victims import Amounts
from tests.core.engine.test_compaction import HOUR, SECOND, job, moved, scattered
from tests.core.engine.test_compaction_safety import WORK, Before, judge, prepare
from tests.examples import examples


def priced(scheduler: Scheduler, **prices: float) -> None:
    """Advice about what nodes cost."""
    values = np.array(list(prices.values()), np.float64)
    scheduler.feed(AdviceUpdated("price", KeySpace.NODES, 1, tuple(prices), values))
    scheduler.run(0)


def answer(state: State, now: int = 0) -> list[Emptied]:
    """All slices of the answer."""
    work = releasable(state, now)
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: list[Emptied] = end.value
            return found


def test_a_node_whose_work_has_room_elsewhere_can_be_emptied() -> None:
    """Job 1 holds a quarter of n0 and has run for an hour: a quarter of an hour of a node is lost, nine are gained."""
    state, _, _ = scattered(job(1, 1), job(3, 1))
    found = emptied(state, "n0", HOUR)
    assert found is not None
    assert (found.tasks, found.lost_ms, found.empty_ms, found.pays) == (1, HOUR // 4, 10 * HOUR, True)


def test_an_empty_node_costs_nothing() -> None:
    state, _, _ = scattered(job(1, 1), job(3, 1))
    found = emptied(state, "n2", HOUR)
    assert found is not None
    assert (found.tasks, found.lost_ms, found.empty_ms, found.pays) == (0, 0, HOUR, True)


@pytest.mark.parametrize(
    ("first", "second"),
    [(job(1, 1, movable=False), job(3, 1)), (job(1, 1, hours=1, attempt=4), job(3, 1))],
    ids=["not movable", "moved before"],
)
def test_what_may_not_be_moved_keeps_its_node(first: object, second: object) -> None:
    """Also for the minutes for which what was moved is protected."""
    state, _, _ = scattered(first, second)  # type: ignore[arg-type]
    assert emptied(state, "n0", SECOND) is None
    assert emptied(state, "n1", SECOND) is not None


def test_work_without_room_elsewhere_keeps_its_node() -> None:
    """Three of four cpus on each, and the empty node is reserved for whom it was kept: it takes one of them only."""
    state, _, scheduler = scattered(job(1, 3), job(3, 3))
    assert emptied(state, "n0", SECOND) is not None
    scheduler.feed(job(9, 4, movable=False))
    scheduler.run(SECOND)
    assert emptied(state, "n0", SECOND) is None


@pytest.mark.parametrize(("after_h", "pays"), [(6.6, True), (6.7, False)])
def test_it_pays_while_the_node_would_be_held_for_long(after_h: float, pays: bool) -> None:
    """After h hours 10 - h node-hours are gained and h / 4 lost; twice that is as much after 6.67 hours."""
    state, _, _ = scattered(job(1, 1), job(3, 1))
    found = emptied(state, "n0", int(after_h * HOUR))
    assert found is not None
    assert found.pays is pays


def test_work_without_a_limit_is_worth_a_week() -> None:
    state, _, _ = scattered(job(1, 1, hours=float(INF)), job(3, 1))
    found = emptied(state, "n0", HOUR)
    assert found is not None
    assert (found.empty_ms, found.pays) == (INF, True)


def test_only_nodes_with_a_price_are_listed_the_dearest_first() -> None:
    state, _, scheduler = scattered(job(1, 1), job(3, 1, movable=False))
    assert answer(state) == []
    priced(scheduler, n0=0.1, n1=0.9, n2=0.5, gone=7.0)
    assert [(one.node, one.price) for one in answer(state)] == [("n2", 0.5), ("n0", 0.1)]


def test_where_nothing_is_moved_nothing_can_be_emptied() -> None:
    """Neither asked for nor listed."""
    state, _, scheduler = scattered(job(1, 1), job(3, 1), compaction=0.0)
    priced(scheduler, n0=0.1)
    assert emptied(state, "n0", SECOND) is None
    assert answer(state) == []


def test_a_node_that_is_not_there_is_no_error() -> None:
    state, _, _ = scattered(job(1, 1), job(3, 1))
    assert emptied(state, "n17", SECOND) is None


def drive(scheduler: Scheduler, state: State, now: int, names: Iterable[str]) -> None:
    """Run, and ask about these nodes between any two slices."""
    for _ in range(100_000):
        for name in names:
            emptied(state, name, now)
        if not scheduler.step(now).more:
            return
    raise AssertionError("no end of slices")


@pytest.mark.parametrize("asked", [(), ("n0", "n2", "n4")])
def test_asking_between_two_slices_of_a_search_does_not_change_what_it_finds(asked: tuple[str, ...]) -> None:
    """With and without questions the same work moves, in slices of one unit."""
    state, sink, scheduler = scattered(*(job(2 * at + 1, 1) for at in range(5)), slice_work=20)
    scheduler.feed(job(19, 4, gang=3, movable=False, submit_ms=60 * SECOND))
    drive(scheduler, state, 60 * SECOND, asked)
    assert [victim for victim, _, _ in moved(sink)] == [1, 3]


@settings(max_examples=examples(300), deadline=None)
@given(
    nodes=st.lists(
        st.fixed_dictionaries({"cpu": st.integers(3, 5), "memory": st.integers(3, 6)}), min_size=3, max_size=5
    ),
    racks=st.lists(st.sampled_from(["a", "a", "b", ""]), min_size=5, max_size=5),
    before=WORK, pause=st.integers(0, 60), over=st.sets(st.integers(1, 9), min_size=1, max_size=6),
    backfill=st.sampled_from([Backfill.EASY, Backfill.CONSERVATIVE]),
)  # fmt: skip
def test_safety_what_would_be_moved_may_be_and_has_room_at_once(
    nodes: list[Amounts], racks: list[str], before: list[Before], pause: int, over: set[int], backfill: Backfill
) -> None:
    """Against a search through all placements; the loss is the sum over all that runs there, the time its last end."""
    state, _, scheduler, now = prepare(nodes, racks, before, over, pause, backfill)
    scheduler.run(now)
    moving = judge(state, nodes, racks, before, {"cpu": 1}, 1, now, within=False)
    where = places(state)
    for at in range(len(nodes)):
        name = f"n{at}"
        there = [run for run in moving.scene.running if name in run.nodes]
        assert len(there) == sum(name in held for held in where.values())
        found = emptied(state, name, now)
        if found is None:
            continue
        assert all(moving.scene.may_go(run) or moving.scene.leaves(run) for run in there), "it may not be moved"
        assert moving.has_room_without(there, name), "it has no room elsewhere"
        assert found.tasks == len(there)
        assert found.lost_ms == int(sum(moving.scene.lost(run) for run in there)) // 1000
        assert found.empty_ms == max([now, *(run.end_ms for run in there)])
