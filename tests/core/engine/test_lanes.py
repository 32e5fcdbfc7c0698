"""The scheduler's two lanes: what is new is looked at from the top while a long pass goes on by its cursor."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from hal.core.engine import cycle
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import Event, Health, JobsSubmitted, NodesChanged, NodeSpec, submit_rows
from hal.core.engine.scheduler import Scheduler
from hal.core.model.policy import Discipline, Limit, Policy, Queue
from tests.core.engine.clusters import Starts, ended, engine, job, places

NODES = tuple(NodeSpec(f"n{k}", {"cpu": 4}) for k in range(3))
MOST_STEPS = 10_000


@pytest.mark.parametrize("backfill", list(Backfill))
def test_urgent_work_starts_beside_an_unfinished_pass(backfill: Backfill) -> None:
    """200 jobs start five a slice; urgent work comes after the first slice and is what the next one starts with."""
    config = EngineConfig(backfill=backfill, slice_starts=5, fast_starts=1)
    state, sink, scheduler = engine(config, NodeSpec("large", {"cpu": 1_000}))
    for number in range(10, 210):
        scheduler.feed(job(number, 4, account=str(number % 7), walltime_ms=60_000))
    step = scheduler.step(1)
    assert (step.more, step.starts) == (True, 5)
    scheduler.feed(job(900, 4, priority=100, walltime_ms=1_000))
    step = scheduler.step(2)
    assert sink.jobs() == [10, 11, 12, 13, 14, 900]
    check_invariants(state)
    assert not scheduler.run(2, MOST_STEPS).more
    assert sink.jobs() == [*range(10, 15), 900, *range(15, 210)]
    check_invariants(state)


@pytest.mark.parametrize("backfill", list(Backfill))
def test_cut_small_or_not_the_same_work_starts(backfill: Backfill) -> None:
    """Thirty jobs, the oldest running one ends each second: the same starts whatever the size of a slice."""
    started = []
    for slice_work in (3, 1 << 40):
        config = EngineConfig(backfill=backfill, slice_work=slice_work, fast_starts=1, fast_work=4)
        state, sink, scheduler = engine(config, *NODES)
        for number in range(1, 31):
            scheduler.feed(job(number, 1 + number % 4, account=str(number % 5), walltime_ms=1_000 * (1 + number % 7)))
        for now_ms in range(1_000, 60_000, 1_000):
            assert not scheduler.run(now_ms, MOST_STEPS).more
            check_invariants(state)
            running = places(state)
            if running:
                scheduler.feed(ended(next(number for number in sink.jobs() if number in running)))
        started.append(sink.jobs())
    assert started[0] == started[1]
    assert sorted(started[0]) == list(range(1, 31))


def test_a_new_pass_does_not_count_the_starts_of_the_one_before_it() -> None:
    """A queue of turns, slices of one candidate: the first of a pass starts nothing, and the next one still may; the
    count of the pass before it had it begin anew for ever."""
    policy = Policy(
        queues={"turns": Queue(name="turns", order=Discipline.ROUND_ROBIN), "first": Queue(name="first", priority=9)},
        limits={"none": Limit(user="bob", running=0)},
    )
    config = EngineConfig(order="priority", policy=policy, slice_work=1)
    state, sink, scheduler = engine(config, NodeSpec("n", {"cpu": 4}))
    scheduler.feed(owned(1, "turns", "ada"))
    scheduler.run(0)
    scheduler.feed(owned(2, "first", "bob"))
    scheduler.feed(owned(3, "turns", "eve"))
    step = scheduler.run(0, most_slices=20)
    assert (sink.jobs(), step.more) == ([1, 3], False)
    check_invariants(state)


def owned(number: int, queue: str, user: str) -> JobsSubmitted:
    """A job of one cpu."""
    rows = submit_rows(1)
    rows["job"] = number
    return JobsSubmitted(rows, (ClassSpec({"cpu": 1}),), (OwnerSpec(queue, "", user),))


# ── nodes that come while a pass is unfinished ────────────────────────────────────────────────────────────────────

KEEPING: Final = (Backfill.TOP_K, Backfill.CONSERVATIVE)
"""Whose reservations outlast a slice from the top."""


class Anew(Scheduler):
    """Every change of nodes has the pass begin anew."""

    def feed(self, event: Event) -> None:
        super().feed(event)
        if isinstance(event, NodesChanged):
            self._cursor = None


def small(number: int) -> NodesChanged:
    """A node that joins, and has room for nothing that waits."""
    return NodesChanged((NodeSpec(f"s{number}", {"cpu": 1}),))


def behind_two_hundred(backfill: Backfill, of: type[Scheduler]) -> tuple[Starts, Scheduler]:
    """200 jobs wait for a node that is taken; behind them all is one that could start on another. Slices are short, and
    there is room for 1,024 nodes."""
    config = EngineConfig(backfill=backfill, slice_work=40, fast_work=40)
    state, sink, _ = engine(config, *(NodeSpec(f"m{k}", {"cpu": 1}) for k in range(600)))
    scheduler = of(state, sink)
    scheduler.feed(NodesChanged((NodeSpec("large", {"cpu": 4}), NodeSpec("idle", {"cpu": 2}))))
    scheduler.feed(job(1, 4, walltime_ms=600_000))
    scheduler.run(0, MOST_STEPS)
    for number in range(10, 210):
        scheduler.feed(job(number, 3, account=str(number % 50), walltime_ms=60_000))
    scheduler.feed(job(900, 2, walltime_ms=1_000))
    return sink, scheduler


@pytest.mark.parametrize("backfill", KEEPING)
@pytest.mark.parametrize(("of", "starts"), [(Scheduler, [1, 900]), (Anew, [1])])
def test_a_pass_comes_to_its_end_while_nodes_join(backfill: Backfill, of: type[Scheduler], starts: list[int]) -> None:
    """A node joins after every third slice of a pass that takes more: it continues where it was. Begun anew each time,
    it never looked at who waits last."""
    sink, scheduler = behind_two_hundred(backfill, of)
    for number in range(120):
        for now_ms in range(1 + 3 * number, 4 + 3 * number):
            scheduler.step(now_ms)
        scheduler.feed(small(number))
    check_invariants(scheduler.state)
    assert sink.jobs() == starts


@pytest.mark.parametrize(
    "event",
    [
        NodesChanged(removed=("m0",)),
        NodesChanged((NodeSpec("m0", {"cpu": 1}, health=Health.CORDONED),)),
        NodesChanged((NodeSpec("m0", {}),)),
        NodesChanged((NodeSpec("m0", {"cpu": 1}, {"rack": "a"}),)),
        NodesChanged((NodeSpec("m0", {"cpu": 1, "gpu": 1}),)),
        NodesChanged(tuple(NodeSpec(f"x{k}", {"cpu": 1}) for k in range(600))),
    ],
    ids=["leaves", "closes", "shrinks", "other labels", "a new resource", "more than there is room for"],
)
def test_a_pass_begins_anew_when_a_node_loses_something_or_tables_are_made_again(event: NodesChanged) -> None:
    """What it has decided may count on that, or what is kept about nodes is gone and is to be learnt in slices."""
    _, scheduler = behind_two_hundred(Backfill.CONSERVATIVE, Scheduler)
    breaks = scheduler.state.nodes.breaks
    scheduler.feed(event)
    assert scheduler.state.nodes.breaks == breaks + 1


@pytest.mark.parametrize("backfill", KEEPING)
@pytest.mark.parametrize("seed", range(3))
def test_a_pass_that_continues_starts_what_one_from_the_beginning_does(backfill: Backfill, seed: int) -> None:
    """Jobs of any size come, attempts end, and nodes join that have room for nothing that waits, at any point of a pass
    in small slices: at each instant the same jobs run on the same nodes, whether passes continue or begin anew."""
    ran: list[list[dict[int, list[str]]]] = []
    for of in (Scheduler, Anew):
        draw = Random(seed)
        state, sink, _ = engine(EngineConfig(backfill=backfill, slice_work=5, fast_work=5, fast_starts=1), *NODES)
        scheduler, seen, number = of(state, sink), list[dict[int, list[str]]](), 0
        for now_ms in range(1_000, 16_000, 1_000):
            for _ in range(draw.randrange(4)):
                number += 1
                wall_ms = 1_000 * draw.randint(1, 9)
                scheduler.feed(
                    job(
                        number,
                        draw.randint(2, 4),
                        gang=draw.choice((1, 1, 2)),
                        account=str(number % 3),
                        walltime_ms=wall_ms,
                    )
                )
            running = sorted(places(state))
            if running and draw.random() < 0.7:
                scheduler.feed(ended(draw.choice(running)))
            for _ in range(draw.randrange(6)):
                scheduler.step(now_ms)
            scheduler.feed(small(now_ms))
            scheduler.run(now_ms, MOST_STEPS)
            check_invariants(state)
            seen.append(places(state))
        ran.append(seen)
    assert ran[0] == ran[1]


@pytest.mark.parametrize("backfill", KEEPING)
@pytest.mark.parametrize("seed", [2, 4, 6, 41])
def test_when_passes_are_over_nothing_waits_that_could_start(backfill: Backfill, seed: int) -> None:
    """Attempts end, and nodes join, open and close, while passes in small slices are unfinished: when all is done,
    another pass from the top, over everything, starts nothing."""
    draw = Random(seed)
    state, _, scheduler = engine(EngineConfig(backfill=backfill, slice_work=5, fast_work=5, fast_starts=1), *NODES)
    for number in range(1, 60):
        wall_ms = 1_000 * draw.randint(1, 9)
        scheduler.feed(job(number, draw.randint(1, 6), gang=draw.choice((1, 1, 2)), walltime_ms=wall_ms))
        running = sorted(places(state))
        if running and draw.random() < 0.4:
            scheduler.feed(ended(draw.choice(running)))
        name, health = f"n{draw.randrange(6)}", draw.choice((Health.UP, Health.UP, Health.CORDONED))
        if draw.random() < 0.3:
            scheduler.feed(NodesChanged((NodeSpec(name, {"cpu": draw.randint(4, 6)}, health=health),)))
        for _ in range(draw.randrange(6)):
            scheduler.step(number)
        check_invariants(state)
    scheduler.run(100, MOST_STEPS)
    state.wake_all()
    assert len(cycle(state, 100, budget=1 << 40).starts) == 0
