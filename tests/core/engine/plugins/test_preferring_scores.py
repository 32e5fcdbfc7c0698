"""Scores of other people that read what a job prefers: asked about each class that prefers something."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from hal.core.engine import EngineError, State
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import NODE, ClassSpec, Liking, OwnerSpec, Preference, Requirement, Term, grouped
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import AdviceUpdated, JobsCancelled, JobsSubmitted, NodeSpec, submit_rows
from hal.core.engine.policies import register
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import rows_of_run, running
from hal.core.engine.why.scores import score_of_nodes
from hal.core.interfaces import Near, NodeView, PolicyInfo, Request
from hal.core.model.advice import KeySpace
from tests.core.engine.clusters import ended, engine, places

ALL = pytest.mark.parametrize("backfill", list(Backfill))
NODES = tuple(NodeSpec(name, {"cpu": 4}, {name: ""}) for name in ("a", "b", "c"))
NEAR = Liking(Term("ann app=web", NODE), 50)
AWAY = Liking(Term("ann app=db", NODE), -50)


class ByTaste:
    """The last node for who would be near something, the second for who would be away, the first for others; what is
    advised counts for more."""

    info = PolicyInfo("test-by-taste", "score/2", reads_advice=("price",), reads_preference=True)
    shown: ClassVar[list[Request]] = []

    def score(self, request: Request, view: NodeView) -> NDArray[Any]:
        self.shown.append(request)
        taste = sum(one.weight for one in request.near)
        wanted = "a" if taste == 0 else "c" if taste > 0 else "b"
        return view.labels.has(wanted) * 0.4 + 0.5 * np.nan_to_num(view.advice["price"])


class BySize:
    """The second node for who asks for one core, the third one for others; the first one is never the best."""

    info = PolicyInfo("test-by-size", "score/2")

    def score(self, request: Request, view: NodeView) -> NDArray[Any]:
        return view.labels.has("b" if request.amounts[0] == 1 else "c") * 0.5


class BySizeAndTaste(BySize):
    """The same, asked about classes that prefer something."""

    info = PolicyInfo("test-by-size-and-taste", "score/2", reads_preference=True)


class Blind(ByTaste):
    """The same without a word of it."""

    info = PolicyInfo("test-blind", "score/2", reads_advice=("price",))


for _policy in (ByTaste(), Blind(), BySize(), BySizeAndTaste()):
    register(_policy)


@pytest.fixture(autouse=True)
def _nothing_shown() -> None:
    ByTaste.shown.clear()


def cluster(placement: str = "test-by-taste", **config: Any) -> tuple[State, Scheduler]:
    state, _sink, scheduler = engine(EngineConfig(placement=placement, levels=("rack",), **config), *NODES)
    return state, scheduler


def submit(scheduler: Scheduler, job: int, *near: Liking, spread: str = "", cpu: int = 1) -> None:
    rows = submit_rows(1)
    rows["job"] = job
    preference = Preference(spread, near) if near or spread else None
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": cpu}, preference=preference),), (OwnerSpec(),)))


@ALL
def test_what_a_job_prefers_decides_where_the_policy_says_so(backfill: Backfill) -> None:
    """Three jobs of one shape: near, away, and neither."""
    state, scheduler = cluster(backfill=backfill)
    submit(scheduler, 1, NEAR)
    submit(scheduler, 2, AWAY)
    submit(scheduler, 3)
    scheduler.run(0)
    check_invariants(state)
    assert places(state) == {1: ["c"], 2: ["b"], 3: ["a"]}


def test_a_policy_that_does_not_declare_it_sees_nothing_of_it() -> None:
    """All of them go to the first node, and each is asked about once: they have one shape."""
    state, scheduler = cluster("test-blind")
    for job, near in ((1, (NEAR,)), (2, (AWAY,)), (3, ())):
        submit(scheduler, job, *near)
    scheduler.run(0)
    assert set(map(tuple, places(state).values())) == {("a",)}
    assert [(one.spread, one.near) for one in ByTaste.shown] == [("", ())]


def test_it_sees_labels_levels_and_weights() -> None:
    """The user, who is part of a label in the engine, is not named: terms see work of their own user only."""
    _state, scheduler = cluster()
    submit(scheduler, 1, NEAR, AWAY, spread="rack")
    scheduler.run(0)
    plain, asked = ByTaste.shown
    assert (plain.spread, plain.near) == ("", ())
    assert asked.spread == "rack"
    assert asked.near == (Near("app=web", NODE, 0.5), Near("app=db", NODE, -0.5))


def test_scores_of_a_class_are_asked_once_and_again_where_advice_has_changed() -> None:
    """b gets 0.5 for its price, more than the 0.4 for taste; when that is withdrawn by a lower one, it is c again."""
    state, scheduler = cluster()
    submit(scheduler, 1, NEAR)
    scheduler.run(0)
    asked = len(ByTaste.shown)
    submit(scheduler, 2, NEAR)
    scheduler.run(1)
    assert len(ByTaste.shown) == asked
    scheduler.feed(AdviceUpdated("price", KeySpace.NODES, 1, ("b",), np.array([1.0]), 10**15))
    submit(scheduler, 3, NEAR)
    scheduler.run(2)
    scheduler.feed(AdviceUpdated("price", KeySpace.NODES, 2, ("b",), np.array([0.1]), 10**15))
    submit(scheduler, 4, NEAR)
    scheduler.run(3)
    assert places(state) == {1: ["c"], 2: ["c"], 3: ["b"], 4: ["c"]}


def test_classes_that_come_and_go_have_scores_of_their_own() -> None:
    """Hundreds of kinds come and are cancelled; numbers of classes are used again, and lines with them."""
    state, scheduler = cluster()
    for number in range(1, 400):
        submit(scheduler, number, Liking(Term(f"ann app={number}", NODE), 1 if number % 2 else -1), cpu=9)
        scheduler.run(number)
        scheduler.feed(JobsCancelled(np.array([number])))
    for job, near in ((1_000, (NEAR,)), (1_001, (AWAY,)), (1_002, ())):
        submit(scheduler, job, *near)
        scheduler.run(job)
    check_invariants(state)
    assert places(state) == {1_000: ["c"], 1_001: ["b"], 1_002: ["a"]}
    assert len(state.plugins.scored_shapes) < 400
    scheduler.feed(ended(1_000, 1_001, 1_002))


def test_the_question_about_scores_is_asked_with_what_the_job_prefers() -> None:
    """As the job would be placed."""
    state, scheduler = cluster()
    submit(scheduler, 1, NEAR)
    assert score_of_nodes(state, 1, 1).nodes[0].node == "c"
    scheduler.run(0)
    assert places(state) == {1: ["c"]}


def test_only_a_score_of_the_newest_version_reads_it() -> None:
    """Others are refused by name."""
    for interface in ("score/1", "order/3"):
        policy = ByTaste()
        policy.info = PolicyInfo("test-other", interface, reads_preference=True)  # type: ignore[misc]
        policy.key = policy.offset = policy.score  # type: ignore[attr-defined]
        with pytest.raises(EngineError, match=rf"'test-other': {interface} has no reads_preference"):
            register(policy)


def test_constraints_and_preferences_are_independent() -> None:
    """Near c by taste, but only on a or b."""
    state, scheduler = cluster()
    rows = submit_rows(1)
    rows["job"] = 1
    spec = ClassSpec({"cpu": 1}, constraints=(Requirement("b"),), preference=Preference("", (NEAR,)))
    scheduler.feed(JobsSubmitted(rows, (spec,), (OwnerSpec(),)))
    scheduler.run(0)
    assert places(state) == {1: ["b"]}


@ALL
@pytest.mark.parametrize("placement", ["test-by-size", "test-by-size-and-taste"])
@pytest.mark.parametrize("preference", [None, Preference("rack"), Preference(near=(NEAR,))])
def test_each_group_of_a_job_is_scored_by_what_it_asks_for(
    backfill: Backfill, placement: str, preference: Preference | None
) -> None:
    """One core in the first group, two in the second: b and c. The tasks of the second wait outside of buckets."""
    state, scheduler = cluster(placement, backfill=backfill)
    parts = grouped([ClassSpec({"cpu": cpu}, group=f"g{cpu}", preference=preference) for cpu in (1, 2)])
    rows = submit_rows(2)
    rows["job"], rows["first_task"], rows["class_index"], rows["walltime_ms"] = 1, (0, 1), (0, 1), 1_000
    scheduler.feed(JobsSubmitted(rows, parts, (OwnerSpec(),)))
    scheduler.run(0)
    check_invariants(state)
    assert [state.node_name(int(rows_of_run(state, int(run["run"]))[0])) for run in running(state)] == ["b", "c"]
