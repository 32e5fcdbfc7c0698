"""Extensions of a job that is to be within one rack: they are where their base is, after everything that moves it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.model import AttemptState, StepId
from hal.core.model.topology.tree import Domain, Topology
from hal.wire.frames.agent_keeper import ExitCause, StepExit, StepStarted, Usage
from tests.examples import examples
from tests.planes.tasks.gpu_site import BY, GpuSite

RACKS = {"n1": "r1", "n2": "r1", "n3": "r1", "n4": "r2", "n5": "r2", "n6": "r2", "n7": ""}
TREE = Topology(
    levels=("zone", "rack"),
    domains=(Domain("z", 0, -1), Domain("r1", 1, 0), Domain("r2", 1, 0)),
    places={name: {"r1": 1, "r2": 2}[rack] for name, rack in RACKS.items() if rack},
)


class Elastic(GpuSite):
    """Seven nodes of two racks, one of them in none."""

    def __init__(self, backfill: Backfill = Backfill.EASY) -> None:
        super().__init__(nodes=7, config=EngineConfig(backfill=backfill), topology=TREE)

    def begin_all(self) -> None:
        """Steps of all attempts run."""
        for (job, task), attempt in self.running().items():
            if attempt.state is AttemptState.ALLOCATED:
                for rank, node in enumerate(attempt.nodes):
                    step = StepId(job, task, attempt.attempt, rank)
                    self.plane.record_starts(node, [StepStarted(step, 7, self.now_ms)], self.now_ms)
        self.turn()
        self.turn()
        check_invariants(self.engine.state)

    def finish(self, job: int, task: int, cause: ExitCause) -> None:
        """What is left of an attempt ends."""
        attempt = self.running()[job, task]
        for node, step in attempt.steps_left(job):
            report = StepExit(step, cause, 143, 0, self.now_ms, self.now_ms, Usage(1, 1, 1, 0, 0, 0), "")
            self.plane.record_exits(node, [report], self.now_ms)

    def judge(self, job: int) -> None:
        """Each extension that was not told to leave is in the rack of the base that runs."""
        attempts = {task: one for (number, task), one in self.running().items() if number == job}
        base = attempts.get(0)
        if base is None:
            return
        racks = {RACKS[node] for node in base.nodes}
        assert len(racks) == 1
        assert racks != {""}
        for task, attempt in attempts.items():
            if task and not attempt.stopping:
                assert {RACKS[node] for node in attempt.nodes} == racks


def test_extensions_start_in_the_rack_of_their_base_alone() -> None:
    """Whole nodes: a base of one and six extensions. Two more nodes are in its rack, so two of these start."""
    site = Elastic()
    job = site.submit(nodes=1, extensions=6, within="rack", request={"gpu": 4})
    site.turn()
    site.begin_all()
    site.begin_all()
    assert sorted(site.running()) == [(job, 0), (job, 1), (job, 2)]
    site.judge(job)


def test_after_a_restart_they_are_still_where_the_base_is() -> None:
    """The controller begins again from its rows, and one that ends starts again in that rack."""
    site = Elastic()
    job = site.submit(nodes=2, extensions=3, within="rack", request={"gpu": 4}, retries=3)
    site.turn()
    site.begin_all()
    site.restart()
    site.finish(job, 1, ExitCause.PREEMPTED)
    site.now_ms += 600_000
    site.turn()
    site.begin_all()
    assert len(site.running()) == 2
    site.judge(job)


def test_extensions_follow_a_base_that_runs_again_in_another_rack() -> None:
    """Its node is closed, so it runs in r2; extensions that leave r1 after that wait for r2."""
    site = Elastic()
    job = site.submit(nodes=1, extensions=2, within="rack", request={"gpu": 4}, retries=3)
    site.turn()
    site.begin_all()
    assert {RACKS[node] for one in site.running().values() for node in one.nodes} == {"r1"}
    site.plane.requeue(job, None, (), BY, site.now_ms)
    (node,) = site.running()[job, 0].nodes
    site.plane.cordon(node, "", BY, site.now_ms)
    site.finish(job, 0, ExitCause.PREEMPTED)
    site.turn()
    site.now_ms += 600_000
    site.turn()
    site.begin_all()
    assert {RACKS[one] for one in site.running()[job, 0].nodes} == {"r2"}
    for task in (1, 2):
        site.finish(job, task, ExitCause.PREEMPTED)
        site.turn()
        site.now_ms += 600_000
        site.turn()
        site.begin_all()
        site.judge(job)
    assert len(site.running()) == 3


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.just(0)),
        st.tuples(st.just("requeue"), st.just(0)),
        st.tuples(st.just("end"), st.integers(0, 5)),
        st.tuples(st.just("fill"), st.integers(1, 3)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("wait"), st.sampled_from([1_000, 600_000])),
    ),
    max_size=15,
)


@given(STEPS, st.integers(1, 2), st.sampled_from(list(Backfill)))
@settings(max_examples=examples(100), deadline=None)
def test_safety_no_extension_starts_outside_the_rack_of_its_base(
    steps: list[tuple[str, Any]], nodes: int, backfill: Backfill
) -> None:
    """Whatever ends, is requeued, fills the racks or restarts the controller."""
    site = Elastic(backfill)
    job = site.submit(nodes=nodes, extensions=4, within="rack", request={"gpu": 2, "cpu": 1}, retries=9)
    site.turn()
    for what, value in steps:
        mine = sorted(task for number, task in site.running() if number == job)
        if what == "requeue" and 0 in mine:
            site.plane.requeue(job, None, (), BY, site.now_ms)
        elif what == "end" and mine:
            task = mine[value % len(mine)]
            if task or site.running()[job, 0].stopping:
                site.finish(job, task, ExitCause.PREEMPTED)
        elif what == "fill":
            site.submit(nodes=value, request={"gpu": 4}, walltime="1h")
        elif what == "restart":
            site.turn()
            site.restart()
        elif what == "wait":
            site.now_ms += value
        site.turn()
        site.begin_all()
        site.judge(job)
