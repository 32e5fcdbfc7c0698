"""Affinity: work that runs together or apart, by its own terms and those of others, by whatever path it starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hal.core.engine import State
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import NODE, ClassSpec, OwnerSpec, Term, grouped
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    AttemptsEnded,
    ConfigChanged,
    Event,
    Health,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    submit_rows,
)
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import reservations, rows_of_run, running
from hal.core.engine.why.explain import explain
from hal.core.kernels.structures import layout as L
from hal.core.model import Duration
from hal.core.model.policy import Policy, PreemptMode, Qos
from hal.core.model.verdict import Reason
from tests.core.engine.clusters import Starts, ended, engine
from tests.examples import examples

ALL = pytest.mark.parametrize("backfill", list(Backfill))
LEVELS = ("rack",)
WEB, DB = "ann app=web", "ann app=db"
QOS = {
    "urgent": Qos(name="urgent", preempts=("low", "still")),
    "low": Qos(name="low", preempt_mode=PreemptMode.REQUEUE, grace=Duration(2)),
    "still": Qos(name="still", preempt_mode=PreemptMode.SUSPEND),
}


def racks(*sizes: int, cpu: int = 4) -> list[NodeSpec]:
    """Racks r1, r2 … of so many nodes: n1, n2 … in this order."""
    of = [f"r{rack}" for rack, size in enumerate(sizes, start=1) for _ in range(size)]
    return [NodeSpec(f"n{number}", {"cpu": cpu}, domains=(rack,)) for number, rack in enumerate(of, start=1)]


def cluster(*nodes: NodeSpec, backfill: Backfill = Backfill.EASY) -> tuple[State, Scheduler]:
    state, _sink, scheduler = engine(EngineConfig(levels=LEVELS, backfill=backfill), *nodes)
    return state, scheduler


def submit(
    scheduler: Scheduler,
    job: int,
    *,
    labels: Sequence[str] = (),
    apart: Sequence[Term] = (),
    together: Sequence[Term] = (),
    nodes: int = 1,
    cpu: int = 1,
    qos: str = "",
    within: str = "",
    **columns: int,
) -> None:
    rows = submit_rows(1)
    rows["job"] = job
    for name, value in columns.items():
        rows[name] = value
    spec = ClassSpec(
        {"cpu": cpu}, nodes, within=within, labels=tuple(labels), apart=tuple(apart), together=tuple(together)
    )
    scheduler.feed(JobsSubmitted(rows, (spec,), (OwnerSpec(qos=qos),)))


def where(state: State) -> dict[tuple[int, int], list[str]]:
    """The nodes of each task that runs."""
    return {
        (int(run["job"]), int(run["task"])): [state.node_name(row) for row in rows_of_run(state, int(run["run"]))]
        for run in running(state)
        if run["state"] != L.RUN_CLAIM
    }


def on(state: State, job: int, task: int = 0) -> list[str]:
    return where(state).get((job, task), [])


@ALL
def test_tasks_that_are_apart_from_their_like_are_on_a_node_each(backfill: Backfill) -> None:
    """Five tasks of one core on three nodes of four: three start, and one more when one has ended."""
    state, scheduler = cluster(*racks(3), backfill=backfill)
    submit(scheduler, 1, labels=[WEB], apart=[Term(WEB, NODE)], tasks=5, walltime_ms=100)
    scheduler.run(0)
    check_invariants(state)
    assert sorted(where(state).values()) == [["n1"], ["n2"], ["n3"]]
    scheduler.feed(ended(1))
    scheduler.run(1)
    check_invariants(state)
    assert on(state, 1, 3) == ["n1"]


@ALL
def test_jobs_apart_by_rack_go_to_other_racks(backfill: Backfill) -> None:
    """n1 and n2 are of one rack: job 2 goes to n3, job 3 waits although n2 is free."""
    state, scheduler = cluster(*racks(2, 1), backfill=backfill)
    for job in (1, 2, 3):
        submit(scheduler, job, labels=[WEB], apart=[Term(WEB, "rack")], walltime_ms=100)
    scheduler.run(0)
    assert where(state) == {(1, 0): ["n1"], (2, 0): ["n3"]}
    scheduler.feed(ended(2))
    scheduler.run(1)
    assert on(state, 3) == ["n3"]


@ALL
def test_a_term_of_what_runs_keeps_others_away(backfill: Backfill) -> None:
    """Only the job of the database says that it is apart from the web; it runs, and the web goes elsewhere."""
    state, scheduler = cluster(*racks(1, 1), backfill=backfill)
    submit(scheduler, 1, labels=[DB], apart=[Term(WEB, "rack")])
    scheduler.run(0)
    submit(scheduler, 2, labels=[WEB])
    submit(scheduler, 3)
    scheduler.run(1)
    check_invariants(state)
    assert (on(state, 1), on(state, 2), on(state, 3)) == (["n1"], ["n2"], ["n1"])


@ALL
def test_a_label_that_is_named_later_is_known_of_what_runs(backfill: Backfill) -> None:
    """The web runs before any term names it."""
    state, scheduler = cluster(*racks(1, 1), backfill=backfill)
    submit(scheduler, 1, labels=[WEB])
    scheduler.run(0)
    submit(scheduler, 2, apart=[Term(WEB, NODE)])
    scheduler.run(1)
    assert (on(state, 1), on(state, 2)) == (["n1"], ["n2"])


@ALL
def test_work_is_started_together_with_what_runs(backfill: Backfill) -> None:
    """It waits until the database runs, then goes to its rack; the rack of more free nodes is another."""
    state, scheduler = cluster(*racks(3, 2), backfill=backfill)
    submit(scheduler, 1, together=[Term(DB, "rack")], cpu=4)
    scheduler.run(0)
    assert where(state) == {}
    submit(scheduler, 2, labels=[DB], cpu=4, within="rack", nodes=1)
    scheduler.feed(NodesChanged((NodeSpec("n1", {"cpu": 1}, domains=("r1",)),)))
    scheduler.run(1)
    assert (on(state, 2), on(state, 1)) == (["n2"], ["n3"])


@ALL
def test_the_first_of_those_that_are_together_starts_anywhere(backfill: Backfill) -> None:
    """Three tasks of two cores, nodes of four in racks of one: two are in the first one's rack, the third waits."""
    state, scheduler = cluster(*racks(1, 1), backfill=backfill)
    submit(scheduler, 1, labels=[WEB], together=[Term(WEB, "rack")], cpu=2, tasks=3, walltime_ms=50)
    scheduler.run(0)
    check_invariants(state)
    assert where(state) == {(1, 0): ["n1"], (1, 1): ["n1"]}


@ALL
def test_a_node_in_no_rack_is_not_one_to_be_apart_in(backfill: Backfill) -> None:
    """Nor is there a level that nobody named."""
    state, scheduler = cluster(NodeSpec("n0", {"cpu": 4}), *racks(1), backfill=backfill)
    submit(scheduler, 1, labels=[WEB], apart=[Term(WEB, "rack")])
    submit(scheduler, 2, labels=[WEB], apart=[Term(WEB, "zone")])
    scheduler.run(0)
    assert where(state) == {(1, 0): ["n1"]}


def test_levels_may_come_and_go() -> None:
    """Without levels nothing that is apart by rack starts; it does when there are racks again."""
    state, scheduler = cluster(*racks(1, 1))
    submit(scheduler, 1, labels=[WEB], apart=[Term(WEB, "rack")], tasks=2)
    scheduler.feed(ConfigChanged(EngineConfig()))
    scheduler.run(0)
    check_invariants(state)
    assert where(state) == {}
    scheduler.feed(ConfigChanged(EngineConfig(levels=LEVELS)))
    scheduler.feed(NodesChanged(tuple(racks(1, 1))))
    scheduler.run(1)
    check_invariants(state)
    assert where(state) == {(1, 0): ["n1"], (1, 1): ["n2"]}


def test_suspended_work_that_is_apart_from_its_like_resumes() -> None:
    """It is itself what keeps its like away from its node."""
    config = EngineConfig(backfill=Backfill.EASY, policy=Policy(qos=QOS))
    state, _, scheduler = engine(config, NodeSpec("n1", {"cpu": 4}))
    submit(scheduler, 1, labels=[WEB], apart=[Term(WEB, NODE)], cpu=4, qos="still", walltime_ms=500_000)
    scheduler.run(0)
    submit(scheduler, 2, cpu=4, qos="urgent", priority=10, walltime_ms=10_000)
    scheduler.run(100_000)
    assert on(state, 2) == ["n1"]
    scheduler.feed(ended(2))
    scheduler.run(110_000)
    assert [int(run["state"]) for run in running(state)] == [L.RUN_ON]


def preempting(*sizes: int, backfill: Backfill) -> tuple[State, Starts, Scheduler]:
    """Racks of so many nodes with four cores, where urgent work preempts low work, which has 2 ms to leave."""
    config = EngineConfig(backfill=backfill, levels=LEVELS, policy=Policy(qos=QOS))
    return engine(config, *racks(*sizes))


def victims(sink: Starts) -> list[int]:
    """The jobs that were preempted, in order."""
    return [int(one["job"]) for plan in sink.plans for one in plan.preemptions]


@ALL
def test_work_with_terms_preempts_where_they_let_it_be(backfill: Backfill) -> None:
    """Low work has run for a shorter time on n1, beside the web; the job that is apart from it preempts on n2."""
    state, sink, scheduler = preempting(1, 1, backfill=backfill)
    submit(scheduler, 1, labels=[WEB], cpu=1, walltime_ms=500_000)
    submit(scheduler, 2, cpu=4, qos="low", walltime_ms=500_000)
    scheduler.run(0)
    submit(scheduler, 3, cpu=3, qos="low", walltime_ms=500_000)
    scheduler.run(50_000)
    assert (on(state, 1), on(state, 2), on(state, 3)) == (["n1"], ["n2"], ["n1"])
    submit(scheduler, 4, apart=[Term(WEB, "rack")], cpu=3, qos="urgent", priority=10, walltime_ms=10_000)
    scheduler.run(100_000)
    check_invariants(state)
    assert victims(sink) == [2]
    scheduler.feed(ended(2))
    scheduler.run(100_001)
    assert on(state, 4) == ["n2"]


@ALL
def test_what_is_cleared_for_work_with_terms_keeps_its_like_away(backfill: Backfill) -> None:
    """While low work leaves n1 for the first web, the second, which is apart from it by rack, starts in the other rack,
    though n2 is nearer and free; and the third nowhere."""
    state, sink, scheduler = preempting(2, 1, backfill=backfill)
    submit(scheduler, 1, cpu=4, qos="low", walltime_ms=500_000)
    scheduler.run(0)
    web: dict[str, Any] = {"labels": [WEB], "apart": [Term(WEB, "rack")], "walltime_ms": 10_000}
    submit(scheduler, 2, cpu=4, tasks=2, walltime_ms=110_000)
    scheduler.run(1)
    submit(scheduler, 3, cpu=4, qos="urgent", priority=10, **web)
    scheduler.run(100_000)
    assert victims(sink) == [1]
    scheduler.feed(AttemptsEnded(np.array([(2, task, 1, 0, 0, 0, 0) for task in (0, 1)], END)))
    submit(scheduler, 4, cpu=1, **web)
    submit(scheduler, 5, cpu=1, **web)
    scheduler.run(100_001)
    check_invariants(state)
    assert (on(state, 4), on(state, 5)) == (["n3"], [])
    scheduler.feed(ended(1))
    scheduler.run(100_002)
    assert on(state, 3) == ["n1"]


@ALL
def test_what_was_to_be_together_with_work_that_ends_first_gives_its_claim_up(backfill: Backfill) -> None:
    """The database ends while low work leaves for the job that is to be beside it: it does not start there."""
    state, sink, scheduler = preempting(1, 1, backfill=backfill)
    submit(scheduler, 1, labels=[DB], cpu=1, walltime_ms=500_000)
    scheduler.run(0)
    submit(scheduler, 2, cpu=3, tasks=2, qos="low", walltime_ms=500_000)
    scheduler.run(1)
    submit(scheduler, 3, together=[Term(DB, "rack")], cpu=3, qos="urgent", priority=10, walltime_ms=10_000)
    scheduler.run(100_000)
    assert victims(sink) == [2]
    scheduler.feed(ended(1))
    scheduler.run(100_001)
    check_invariants(state)
    assert [run for run in running(state) if run["state"] == L.RUN_CLAIM] == []
    scheduler.feed(AttemptsEnded(np.array([(2, 0, 1, 0, 0, 0, 0)], END)))
    scheduler.run(100_002)
    assert on(state, 3) == []
    assert explain(state, 3, 100_002).reason is Reason.AFFINITY


@ALL
def test_nobody_preempts_what_it_is_to_be_together_with(backfill: Backfill) -> None:
    """The database itself would have to leave."""
    _state, sink, scheduler = preempting(1, backfill=backfill)
    submit(scheduler, 1, labels=[DB], cpu=4, qos="low", walltime_ms=500_000)
    scheduler.run(0)
    submit(scheduler, 2, together=[Term(DB, "rack")], cpu=3, qos="urgent", priority=10, walltime_ms=10_000)
    scheduler.run(100_000)
    assert victims(sink) == []


@ALL
def test_the_first_of_several_that_are_together_may_be_one_that_preempts(backfill: Backfill) -> None:
    """Two webs are together by rack. While low work leaves n1 for the first one, the second starts nowhere; then beside
    it, though n3 was free before."""
    state, sink, scheduler = preempting(2, 1, backfill=backfill)
    submit(scheduler, 1, cpu=4, tasks=2, qos="low", walltime_ms=500_000)
    submit(scheduler, 2, cpu=4, walltime_ms=200_000)
    scheduler.run(0)
    web: dict[str, Any] = {"labels": [WEB], "together": [Term(WEB, "rack")], "walltime_ms": 10_000}
    submit(scheduler, 3, cpu=2, qos="urgent", priority=10, **web)
    scheduler.run(100_000)
    assert victims(sink) == [1]
    scheduler.feed(ended(2))
    submit(scheduler, 4, cpu=2, **web)
    scheduler.run(100_001)
    assert on(state, 4) == []
    scheduler.feed(AttemptsEnded(np.array([(1, int(sink.plans[-1].preemptions["task"][0]), 1, 0, 0, 0, 0)], END)))
    scheduler.run(100_002)
    check_invariants(state)
    assert on(state, 3) == on(state, 4)
    assert on(state, 3) in (["n1"], ["n2"])


def test_terms_are_followed_after_very_many_users_have_come_and_gone() -> None:
    """What is kept of attempts that are over names buckets whose numbers are free for others."""
    state, scheduler = cluster(*racks(1, cpu=1000))
    users = 2 * state.catalogue.classes.shape[0]
    rows = submit_rows(users)
    rows["job"] = rows["owner_index"] = np.arange(users)
    rows["job"] += 1
    owners = tuple(OwnerSpec(user=f"u{number}") for number in range(users))
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 1}),), owners))
    scheduler.run(0)
    ends = np.zeros(users, END)
    ends["job"], ends["attempt"] = rows["job"], 1
    scheduler.feed(AttemptsEnded(ends))
    for job in (users + 1, users + 2):
        submit(scheduler, job, labels=[WEB], apart=[Term(WEB, NODE)])
    scheduler.run(1)
    assert (on(state, users + 1), on(state, users + 2)) == (["n1"], [])


def test_labels_that_no_term_names_change_no_decision() -> None:
    """Nothing is parted, and nothing asked again."""
    state, scheduler = cluster(*racks(1))
    submit(scheduler, 1, labels=[WEB], tasks=3)
    scheduler.run(0)
    assert sorted(where(state)) == [(1, 0), (1, 1), (1, 2)]
    assert state.meta[L.M_AFFINE] == 0


def test_what_is_reserved_is_where_it_may_be() -> None:
    """n1 comes free first, but the web runs there; the job that is apart from it has n2."""
    state, scheduler = cluster(*racks(2), backfill=Backfill.EASY)
    submit(scheduler, 1, cpu=3, walltime_ms=10)
    submit(scheduler, 2, cpu=4, walltime_ms=100)
    submit(scheduler, 3, labels=[WEB], cpu=1)
    scheduler.run(0)
    assert (on(state, 1), on(state, 3)) == (["n1"], ["n1"])
    submit(scheduler, 4, apart=[Term(WEB, NODE)], cpu=3, walltime_ms=5)
    scheduler.run(1)
    assert [(int(one["job"]), int(one["start_ms"])) for one in reservations(state)] == [(4, 100)]


TERMS = [Term(label, level) for label in (WEB, DB) for level in (NODE, "rack")]


def judged(state: State, specs: dict[int, ClassSpec], seen: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """What has begun now, in the order in which it began, is lawful given all that held nodes when it did.

    Within one instant an order is known only up to those that began together: what began is judged against what ran
    before, and against those that began with it for being apart, which holds whatever the order.
    """
    rack = {name: state.domains.path_of(state.node_index(name)) for name in state.nodes.by_name}

    def near(one: str, other: str, level: str) -> bool:
        return one == other if level == NODE else bool(rack[one][0]) and rack[one] == rack[other]

    there: dict[tuple[int, int], list[str]] = {}
    for run in running(state):
        if run["state"] != L.RUN_CLAIM:
            names = [state.node_name(row) for row in rows_of_run(state, int(run["run"]))]
            there.setdefault((int(run["job"]), int(run["attempt"])), []).extend(names)  # of all its groups
    for new in sorted(set(there) - seen):
        mine = specs[new[0]]
        for other in set(there) - {new}:
            theirs = specs[other[0]]
            terms = [term for term in mine.apart if term.label in theirs.labels]
            terms += [term for term in theirs.apart if term.label in mine.labels]
            for term in terms:
                assert not any(near(a, b, term.level) for a in there[new] for b in there[other]), (new, other, there)
        for term in mine.together:
            like = [names for other, names in there.items() if other != new and term.label in specs[other[0]].labels]
            for name in there[new]:
                together = any(near(name, other, term.level) for names in like for other in names)
                first = term.label in mine.labels and not like
                # The first of several that began together stands alone until the others come to it.
                leads = term.label in mine.labels and all(
                    other in set(there) - seen for other in _like(there, specs, term)
                )
                assert together or first or leads, (new, term, there)
    return set(there)


def _like(there: dict[tuple[int, int], list[str]], specs: dict[int, ClassSpec], term: Term) -> list[tuple[int, int]]:
    return [one for one in there if term.label in specs[one[0]].labels]


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_safety_no_term_is_broken_by_any_path(data: st.DataObject) -> None:
    """Whatever the policy, with preemption, nodes that come, go and move, and slices cut anywhere: what has begun is
    apart from and together with what its terms and those of others say. Tables agree after each step."""
    config = EngineConfig(
        levels=LEVELS,
        backfill=data.draw(st.sampled_from(list(Backfill))),
        placement=data.draw(st.sampled_from(["first-fit", "best-fit"])),
        slice_starts=data.draw(st.sampled_from([1, 10_000])),
        slice_work=data.draw(st.sampled_from([3, 1 << 40])),
        policy=Policy(qos=QOS),
    )
    racks_of = {f"n{number}": f"r{number % 3}" for number in range(5)}
    state, _, scheduler = engine(config, *(NodeSpec(n, {"cpu": 4}, domains=(r,)) for n, r in racks_of.items()))
    specs: dict[int, ClassSpec] = {}
    seen: set[tuple[int, int]] = set()
    for now in range(data.draw(st.integers(4, 14))):
        event = draw_event(data, state, specs, racks_of)
        if event is not None:
            scheduler.feed(event)
        scheduler.run(now)
        seen = judged(state, specs, seen)
        check_invariants(state)


def draw_event(
    data: st.DataObject, state: State, specs: dict[int, ClassSpec], racks_of: dict[str, str]
) -> Event | None:
    """Work that comes, or an attempt that ends, or a node that moves, closes or opens."""
    what = data.draw(st.sampled_from(["submit", "submit", "submit", "end", "end", "node"]))
    if what == "submit":
        job = len(specs) + 1
        within = data.draw(st.sampled_from(["", "rack"]))
        specs[job] = ClassSpec(
            {"cpu": data.draw(st.integers(1, 3))},
            data.draw(st.integers(1, 2)),
            within=within,
            labels=tuple(data.draw(st.lists(st.sampled_from([WEB, DB]), unique=True))),
            apart=tuple(data.draw(st.lists(st.sampled_from(TERMS), unique=True, max_size=2))),
            together=tuple(data.draw(st.lists(st.sampled_from(TERMS), unique=True, max_size=1))),
        )
        parts: tuple[ClassSpec, ...] = (specs[job],)
        if data.draw(st.integers(0, 3)) == 0:  # two groups, of which the other one has a node
            parts = grouped([replace(specs[job], group="a"), replace(specs[job], nodes=1, group="b")])
        rows = submit_rows(len(parts))
        rows["first_task"] = rows["class_index"] = range(len(parts))
        rows["job"], rows["walltime_ms"] = job, data.draw(st.integers(1, 9))
        owner = OwnerSpec(qos=data.draw(st.sampled_from(["", "urgent", "low", "still"])))
        rows["priority"] = 10 if owner.qos == "urgent" else 0
        return JobsSubmitted(rows, parts, (owner,))
    if what == "end":
        there = [(int(run["job"]), int(run["attempt"])) for run in running(state) if run["state"] != L.RUN_CLAIM]
        if not there:
            return None
        ends, attempt = data.draw(st.sampled_from(sorted(there)))
        tasks = sorted({int(run["task"]) for run in running(state) if run["job"] == ends})
        rows = np.zeros(len(tasks), END)
        rows["job"], rows["attempt"], rows["task"] = ends, attempt, tasks
        rows["requeue"] = data.draw(st.integers(0, 1))
        return AttemptsEnded(rows)
    name = data.draw(st.sampled_from(sorted(racks_of)))
    health = data.draw(st.sampled_from([Health.UP, Health.UP, Health.CORDONED]))
    return NodesChanged((NodeSpec(name, {"cpu": 4}, health=health, domains=(racks_of[name],)),))
