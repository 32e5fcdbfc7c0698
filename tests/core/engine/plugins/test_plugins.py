"""Orders, scores and filters of other people: the engine does as they say, and refuses what is no answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from hal.core.engine import EngineError, cycle
from hal.core.engine.checks.digest import state_digest
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import Match, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import ConfigChanged, JobsCancelled, JobsUpdated, NodesChanged, NodeSpec, update_rows
from hal.core.engine.policies import register
from hal.core.interfaces import BucketView, ClusterView, JobView, NodeView, PolicyInfo, Request
from tests.core.engine.clusters import ended, engine, job, places

A, B, C = NodeSpec("a", {"cpu": 4}), NodeSpec("b", {"cpu": 4}), NodeSpec("c", {"cpu": 8})


class LastFirst:
    """The latest job first; accounts named by the test go before all others."""

    info = PolicyInfo("test-last-first", "order/2")
    answer: Callable[[JobView], Any] = staticmethod(lambda jobs: -jobs.job)
    favoured = -1

    def key(self, jobs: JobView, view: ClusterView) -> NDArray[np.int64]:
        return self.answer(jobs)

    def offset(self, buckets: BucketView, view: ClusterView, now_ms: int) -> NDArray[np.int64]:
        return np.where(buckets.owner_id == self.favoured, -1_000_000, 0)


class LastRow:
    """The last row is the best."""

    info = PolicyInfo("test-last-row", "score/1")
    answer: Callable[[int], Any] = staticmethod(lambda rows: np.arange(rows) / max(rows, 1))

    def score(self, request: Request, view: NodeView) -> NDArray[np.float32]:
        return self.answer(view.rows)


class SmallOnly:
    """No row of more than 4 cpu for a request below 4 cpu."""

    info = PolicyInfo("test-small-only", "filter/1")
    answer: Callable[[NDArray[np.bool_]], Any] = staticmethod(lambda mask: mask)

    def mask(self, request: Request, view: NodeView) -> NDArray[np.bool_]:
        return self.answer((view.capacity[0] <= 4) | (request.amounts[0] >= 4))


class FullestCheapest:
    """The cheapest node by its label, of equals the one with the least free; remembers how many rows it was shown."""

    info = PolicyInfo("test-cheapest", "score/1", reads_free=True)
    shown: ClassVar[list[int]] = []

    def score(self, request: Request, view: NodeView) -> NDArray[np.float32]:
        self.shown.append(view.rows)
        price = view.labels.number("price", 9.0)
        full = 1.0 - view.free[0] / np.maximum(view.capacity[0], 1.0)
        return np.where(view.labels.has("price") & view.up, 0.1 / price + 0.001 * full, 0.0).astype(np.float32)


class ByAccount:
    """Accounts in the order of their names, whoever came first."""

    info = PolicyInfo("test-by-account", "order/2")

    def key(self, jobs: JobView, view: ClusterView) -> NDArray[np.int64]:
        return np.array([ord(view.owner(owner).account) for owner in jobs.owner_id.tolist()], np.int64)

    def offset(self, buckets: BucketView, view: ClusterView, now_ms: int) -> NDArray[np.int64]:
        biggest = max(view.request(int(class_id)).amounts[0] for class_id in buckets.class_id)
        return np.full(len(buckets.waiting), biggest <= view.capacity()[0], np.int64)


ORDER, SCORE, FILTER, CHEAPEST = LastFirst(), LastRow(), SmallOnly(), FullestCheapest()
for _policy in (ORDER, SCORE, FILTER, CHEAPEST, ByAccount()):
    register(_policy)
ORDERED = EngineConfig(order="test-last-first", backfill=Backfill.NONE)
SCORED = EngineConfig(placement="test-last-row")
FILTERED = EngineConfig(filters=("test-small-only",))


def test_an_order_says_who_is_first_and_its_offsets_move_whole_buckets() -> None:
    """Of four jobs of 4 cpu on one node the last goes first; with account y favoured, y's go before all others."""
    for favoured, expected in ((-1, [9, 4, 3, 2, 1]), (1, [9, 3, 1, 4, 2])):
        ORDER.favoured = favoured
        state, sink, scheduler = engine(ORDERED, A)
        scheduler.feed(job(9, 4, account="x"))
        scheduler.run(0)
        for number in (1, 2, 3, 4):
            scheduler.feed(job(number, 4, account="y" if number % 2 else "x"))
        for now, running in enumerate(expected):
            scheduler.run(now)
            assert sink.jobs()[-1] == running
            check_invariants(state)
            scheduler.feed(ended(running))
    ORDER.favoured = -1


def test_an_order_sees_edits() -> None:
    """By planned time instead: job 2 is edited from 9 s to 1 s and goes before job 1."""
    ORDER.answer = lambda jobs: jobs.planned_ms
    try:
        _state, sink, scheduler = engine(ORDERED, A)
        scheduler.feed(job(1, 4, walltime_ms=5_000))
        scheduler.feed(job(2, 4, walltime_ms=9_000))
        rows = update_rows(1)
        rows["job"], rows["walltime_ms"] = 2, 1_000
        scheduler.feed(JobsUpdated(rows))
        scheduler.run(0)
        assert sink.jobs() == [2]
    finally:
        ORDER.answer = lambda jobs: -jobs.job


def test_offsets_end_with_the_order_that_gave_them() -> None:
    """Back under fcfs the account that was favoured waits for its turn."""
    ORDER.favoured = 1
    try:
        _state, sink, scheduler = engine(ORDERED, A)
        scheduler.feed(job(1, 4, account="x"))
        scheduler.run(0)
        scheduler.feed(job(2, 4, account="x"))
        scheduler.feed(job(3, 4, account="y"))
        scheduler.run(1)
        scheduler.feed(ConfigChanged(EngineConfig(backfill=Backfill.NONE)))
        scheduler.feed(ended(1))
        scheduler.run(2)
        assert sink.jobs() == [1, 2]
    finally:
        ORDER.favoured = -1


def test_a_score_says_where() -> None:
    """Six jobs of 2 cpu fill c from the back, then b."""
    state, _sink, scheduler = engine(SCORED, A, B, C)
    for number in range(1, 7):
        scheduler.feed(job(number, 2))
    scheduler.run(0)
    check_invariants(state)
    assert [nodes for _job, nodes in sorted(places(state).items())] == [["c"]] * 4 + [["b"]] * 2


def test_a_score_that_reads_what_is_free_is_asked_again_about_touched_rows_only() -> None:
    """300 nodes at 2, two at 1: jobs fill the first of the cheap ones, then the other; later slices show few rows."""
    CHEAPEST.shown.clear()
    many = tuple(NodeSpec(f"n{k:03d}", {"cpu": 4}, {"price": "2"}) for k in range(300))
    cheap = tuple(NodeSpec(name, {"cpu": 4}, {"price": "1"}) for name in ("x", "y"))
    state, _sink, scheduler = engine(EngineConfig(placement="test-cheapest"), *many, *cheap, A)
    for number in range(1, 6):
        scheduler.feed(job(number, 2))
        scheduler.run(number)
        check_invariants(state)
    assert [nodes for _job, nodes in sorted(places(state).items())] == [["x"], ["x"], ["y"], ["y"], ["n000"]]
    assert CHEAPEST.shown[0] == 303
    assert max(CHEAPEST.shown[1:]) < 10


def test_an_order_looks_up_accounts_and_requests() -> None:
    """Job 3 of account a goes before jobs 1 and 2 of b and c."""
    _state, sink, scheduler = engine(EngineConfig(order="test-by-account", backfill=Backfill.NONE), A)
    for number, account in ((1, "b"), (2, "c"), (3, "a")):
        scheduler.feed(job(number, 4, account=account))
    scheduler.run(0)
    assert sink.jobs() == [3]


def test_a_filter_says_where_not() -> None:
    """Small work stays off c though c is free; what needs 4 cpu may go there."""
    state, _sink, scheduler = engine(FILTERED, C, A)
    for number, cpu in ((1, 2), (2, 2), (3, 2), (4, 8)):
        scheduler.feed(job(number, cpu))
    scheduler.run(0)
    check_invariants(state)
    assert places(state) == {1: ["a"], 2: ["a"], 4: ["c"]}


def test_filters_hold_for_nodes_that_join_and_shapes_that_were_forgotten() -> None:
    """After 300 shapes came and went, nodes still change; the filter is asked about the new node."""
    state, _sink, scheduler = engine(FILTERED, C)
    for number in range(1, 301):
        scheduler.feed(job(number, 1, constraints=(Requirement("host", Match.NOT_IN, (f"x{number}",)),)))
        scheduler.feed(ConfigChanged(FILTERED))
        scheduler.feed(JobsCancelled(np.array([number])))
    scheduler.feed(job(301, 2))
    scheduler.run(0)
    assert places(state) == {}
    scheduler.feed(NodesChanged((A,)))
    scheduler.run(1)
    assert places(state) == {301: ["a"]}
    check_invariants(state)
    assert len(state.catalogue.sets) < 200


@pytest.mark.parametrize("constraints", [(), (Requirement("rack", Match.ABSENT),)])
def test_filters_that_come_and_go_reach_shapes_that_were_there_before(constraints: tuple[Requirement, ...]) -> None:
    """A job of a shape known before the filter keeps off c; without the filter the next one goes there."""
    state, _sink, scheduler = engine(EngineConfig(), C, A)
    scheduler.feed(job(1, 2, constraints=constraints))
    scheduler.run(0)
    assert places(state) == {1: ["c"]}
    scheduler.feed(ConfigChanged(FILTERED))
    scheduler.feed(job(2, 2, constraints=constraints))
    scheduler.run(1)
    check_invariants(state)
    assert places(state) == {1: ["c"], 2: ["a"]}
    scheduler.feed(ConfigChanged(EngineConfig()))
    scheduler.feed(job(3, 2, constraints=constraints))
    scheduler.run(2)
    check_invariants(state)
    assert places(state)[3] == ["c"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda jobs: np.zeros(7, np.int64), r"test-last-first.*key.*shape \(7,\)"),
        (lambda jobs: jobs.job.astype(np.float64), "test-last-first.*key.*dtype float64"),
        (lambda jobs: jobs.job + (1 << 60), "test-last-first.*key.*2\\*\\*60"),
        (lambda jobs: None, "test-last-first.*key"),
    ],
)
def test_keys_that_are_none_are_refused(answer: Callable[[JobView], Any], says: str) -> None:
    """The order is named and nothing has changed: neither by the submission nor by a change of policy."""
    state, _sink, scheduler = engine(EngineConfig(), A)
    scheduler.feed(job(1, 1))
    before = state_digest(state)
    ORDER.answer = answer
    try:
        with pytest.raises(EngineError, match=says):
            scheduler.feed(ConfigChanged(ORDERED))
        assert state_digest(state) == before
        other, _sink, scheduler = engine(ORDERED, A)
        with pytest.raises(EngineError, match=says):
            scheduler.feed(job(1, 1))
        assert other.pending_tasks == 0
    finally:
        ORDER.answer = lambda jobs: -jobs.job


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda rows: np.zeros(1), r"test-last-row.*score.*shape \(1,\)"),
        (lambda rows: np.full(rows, np.nan), "test-last-row.*score.*NaN for row 0"),
        (lambda rows: np.full(rows, "high"), "test-last-row.*score.*dtype"),
    ],
)
def test_scores_that_are_none_are_refused(answer: Callable[[int], Any], says: str) -> None:
    """The score is named by the cycle that asked."""
    state, _sink, scheduler = engine(SCORED, A, B)
    scheduler.feed(job(1, 1))
    SCORE.answer = answer
    try:
        with pytest.raises(EngineError, match=says):
            cycle(state, 0)
    finally:
        SCORE.answer = lambda rows: np.arange(rows) / max(rows, 1)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda mask: mask[:1], r"test-small-only.*mask.*shape \(1,\)"),
        (lambda mask: mask.astype(np.float32), "test-small-only.*mask.*dtype float32"),
    ],
)
def test_masks_that_are_none_are_refused(answer: Callable[[Any], Any], says: str) -> None:
    """The filter is named and nothing has changed: by a submission, a node, or a change of policy."""
    state, _sink, scheduler = engine(FILTERED, A, B)
    scheduler.feed(job(1, 1))
    plain, _sink, without = engine(EngineConfig(), A, B)
    without.feed(job(1, 1))
    befores = state_digest(state), state_digest(plain)
    FILTER.answer = answer
    try:
        for feed, event in (
            (scheduler.feed, job(2, 3)),
            (scheduler.feed, NodesChanged((C,), ("a",))),
            (without.feed, ConfigChanged(FILTERED)),
        ):
            with pytest.raises(EngineError, match=says):
                feed(event)
    finally:
        FILTER.answer = lambda mask: mask
    assert (state_digest(state), state_digest(plain)) == befores
    check_invariants(state)
    check_invariants(plain)
    scheduler.run(0)
    assert places(state) == {1: ["a"]}


def test_an_order_cannot_write_to_the_engines_columns_and_what_it_raises_names_it() -> None:
    """Its write fails; the error says which policy and method, and the event is refused."""

    def sort_in_place(jobs: JobView) -> NDArray[np.int64]:
        jobs.priority.sort()
        return jobs.priority

    ORDER.answer = sort_in_place
    try:
        _state, _sink, scheduler = engine(ORDERED, A)
        with pytest.raises(EngineError, match=r"order 'test-last-first': key\(\) raised ValueError: .*read-only"):
            scheduler.feed(job(1, 4))
    finally:
        ORDER.answer = lambda jobs: -jobs.job
