"""`explain` and `fits_ever`: the numbers and the words that people get."""

from __future__ import annotations

import numpy as np
import pytest

from hal.core.engine import EngineError, cycle
from hal.core.engine.classes import ClassSpec, Match, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import END, INF, AttemptsEnded, JobsSubmitted, NodesChanged, NodeSpec, submit_rows
from hal.core.engine.why.explain import explain
from hal.core.engine.why.feasible import fits_ever
from hal.core.model.verdict import Reason
from tests.core.engine.clusters import ended, engine, job

RACK = (Requirement("rack", Match.IN, ("r1", "r2")),)
NODES = (
    NodeSpec("a", {"cpu": 4_000, "memory": 1 << 30}),
    NodeSpec("b", {"cpu": 2_000, "memory": 4 << 30}, {"rack": "r1"}),
)


@pytest.mark.parametrize(
    ("spec", "resource", "asked", "largest", "node", "fit", "words"),
    [
        (ClassSpec({"cpu": 5_000}), "cpu", 5_000, 4_000, "a", 0, "no node has that much; the largest, a, has 4"),
        (ClassSpec({"cpu": 3_000}, 2), "cpu", 3_000, 4_000, "a", 1, "on each of 2 nodes asked for; 1 node has"),
        (ClassSpec({"cpu": 3_000}, 1, RACK), "cpu", 3_000, 2_000, "b", 0, "the largest, b, has 2"),
        (ClassSpec({"gpu": 1_000}), "gpu", 1_000, 0, "a", 0, "no node has any"),
        (ClassSpec({"cpu": 1}, 2, RACK), "", 0, 0, "", 1, "1 of 2 nodes match rack in r1 r2; 2"),
        (ClassSpec({"cpu": 1}, 3), "", 0, 0, "", 2, "3 distinct nodes asked for; there are 2"),
        (ClassSpec({"cpu": 3_000, "memory": 2 << 30}), "memory", 2 << 30, 1 << 30, "a", 0, "at once, 1 needed; a"),
    ],
)  # fmt: skip
def test_what_could_never_run(
    spec: ClassSpec, resource: str, asked: int, largest: int, node: str, fit: int, words: str
) -> None:
    """The resource that fails, how much is asked for, the most there is and where, and a sentence with all that."""
    state, _sink, _scheduler = engine(EngineConfig(), *NODES)
    answer = fits_ever(state, spec)
    assert answer is not None
    assert (answer.resource, answer.asked, answer.largest, answer.node) == (resource, asked, largest, node)
    assert (answer.nodes, answer.nodes_that_fit) == (spec.nodes, fit)
    assert words in answer.message


def test_what_could_run_on_empty_nodes_is_not_refused() -> None:
    """Whatever runs now; also work that asks for nothing."""
    state, _sink, scheduler = engine(EngineConfig(), *NODES)
    scheduler.feed(job(1, 4_000))
    scheduler.run(0)
    for spec in (
        ClassSpec({"cpu": 4_000}),
        ClassSpec({"cpu": 2_000}, 2),
        ClassSpec({}),
        ClassSpec({"cpu": 1}, 1, RACK),
    ):
        assert fits_ever(state, spec) is None


def test_nodes_that_left_do_not_count() -> None:
    """3 cpu fit on a; a leaves; b is the largest."""
    state, _sink, scheduler = engine(EngineConfig(), *NODES)
    scheduler.feed(NodesChanged(removed=("a",)))
    answer = fits_ever(state, ClassSpec({"cpu": 3_000}))
    assert answer is not None
    assert (answer.node, answer.largest) == ("b", 2_000)


def test_what_is_free_on_different_nodes_is_not_called_too_little() -> None:
    """b has 4 GiB and no core, a has a core more than is asked for and no memory."""
    state, _sink, scheduler = engine(EngineConfig(), *NODES)
    for number, taken in enumerate(({"cpu": 2_000, "memory": 1 << 30}, {"cpu": 2_000, "memory": 2 << 30}), start=1):
        rows = submit_rows(1)
        rows["job"], rows["walltime_ms"] = number, 30_000
        scheduler.feed(JobsSubmitted(rows, (ClassSpec(taken),)))
    scheduler.run(0)
    rows = submit_rows(1)
    rows["job"] = 3
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 1_000, "memory": 1 << 30}),)))
    scheduler.run(0)
    verdict = explain(state, 3, 0)
    assert (verdict.resource, verdict.node) == ("cpu", "a")
    assert verdict.message == "no node has all it needs free now; a has 2 cpu, but not the rest"


def test_a_gang_says_how_many_nodes_fit_now_and_what_would_help() -> None:
    """One of the two nodes it asks for is taken until 30 s."""
    state, _sink, scheduler = engine(EngineConfig(), *NODES)
    scheduler.feed(job(1, 4_000, walltime_ms=30_000))
    scheduler.run(0)
    scheduler.feed(job(2, 2_000, gang=2))
    scheduler.run(0)
    verdict = explain(state, 2, 0)
    assert (verdict.reason, verdict.resource, verdict.asked) == (Reason.RESOURCES, "cpu", 2_000)
    assert (verdict.starts_at_ms, verdict.basis) == (30_000, "reservation")
    assert verdict.helps == ("1 node instead of 2 would fit now",)
    assert "on each of 2 nodes; 1 node has all it needs free now" in verdict.message


@pytest.mark.parametrize("backfill", list(Backfill))
def test_positions_count_those_ahead(backfill: Backfill) -> None:
    """Three wait in one line: 0, 1 and 2 are ahead of them."""
    state, _sink, scheduler = engine(EngineConfig(backfill=backfill), NODES[0])
    for number in (1, 2, 3, 4):
        scheduler.feed(job(number, 4_000, walltime_ms=10_000))
    scheduler.run(0)
    assert [explain(state, number, 0).position for number in (2, 3, 4)] == [0, 1, 2]


def test_work_that_fits_but_would_delay_one_ahead_says_how_short_it_must_be() -> None:
    """a is free, promised at 10 s to a gang of both: 20 s is too long, 10 s would do."""
    state, _sink, scheduler = engine(EngineConfig(), NodeSpec("a", {"cpu": 4}), NodeSpec("b", {"cpu": 4}))
    scheduler.feed(job(1, 4, walltime_ms=10_000))
    scheduler.feed(job(2, 4, gang=2, walltime_ms=10_000))
    scheduler.feed(job(3, 4, walltime_ms=20_000))
    scheduler.run(0)
    verdict = explain(state, 3, 0)
    assert (verdict.reason, verdict.position) == (Reason.PRIORITY, 1)
    assert verdict.helps == ("a walltime of at most 10s could let it start now",)


def test_each_kind_of_waiting_has_its_reason() -> None:
    """Not looked at yet, later, after another, again later, running, unknown."""
    state, _sink, scheduler = engine(EngineConfig(), *NODES)
    scheduler.feed(job(1, 1))
    assert explain(state, 1, 0).reason is Reason.NOT_CONSIDERED
    scheduler.run(0)
    scheduler.feed(job(2, 1, eligible_ms=5_000))
    scheduler.feed(job(3, 1, eligible_ms=INF))
    begin = explain(state, 2, 1_000)
    assert (begin.reason, begin.starts_at_ms, begin.message) == (Reason.BEGIN_AT, 5_000, "may start in 4s")
    assert explain(state, 3, 0).reason is Reason.DEPENDENCY
    running = explain(state, 1, 0)
    assert (running.reason, running.message) == (Reason.NONE, "all its tasks are running")
    rows = np.zeros(1, END)
    rows["job"], rows["attempt"], rows["requeue"], rows["eligible_ms"] = 1, 1, 1, 9_000
    scheduler.feed(AttemptsEnded(rows))
    again = explain(state, 1, 1_000)
    assert (again.reason, again.message, again.basis) == (Reason.BACKOFF, "attempt 2 may start in 8s", "back-off")
    with pytest.raises(EngineError, match="job 7 neither waits nor runs"):
        explain(state, 7, 0)


def test_wants_say_how_many_nodes_are_lacking() -> None:
    """A gang of two with one node free wants one; work on a full node wants one."""
    state, _sink, scheduler = engine(EngineConfig(), NodeSpec("a", {"cpu": 4}), NodeSpec("b", {"cpu": 4}))
    scheduler.feed(job(1, 4))
    scheduler.run(0)
    rows = submit_rows(2)
    rows["job"], rows["class_index"] = (2, 3), (0, 0)
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 4}, 2),)))
    wants = cycle(state, 0).wants
    assert [(int(want["job"]), int(want["short_rows"])) for want in wants][:1] == [(2, 1)]
    scheduler.feed(ended(1))
    assert len(cycle(state, 1).starts) == 1
