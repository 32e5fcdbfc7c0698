"""Taints: what does not tolerate them starts there by no path; what runs stays; reasons; bookings keep away."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine import State, apply
from hal.core.engine.checks.digest import state_digest
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, Match, OwnerSpec, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    AttemptsEnded,
    BookingsChanged,
    BookingSpec,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    submit_rows,
)
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import reservations, reserved_rows, rows_of_run, running
from hal.core.engine.why.feasible import never_fits
from hal.core.kernels.structures import layout as L
from hal.core.model import Duration
from hal.core.model.policy import Policy, PreemptMode, Qos
from tests.core.engine.clusters import ended, engine, places
from tests.examples import examples

ALL = pytest.mark.parametrize("backfill", list(Backfill))
QOS = {
    "urgent": Qos(name="urgent", preempts=("low",)),
    "low": Qos(name="low", preempt_mode=PreemptMode.REQUEUE, grace=Duration(10)),
}


def node(name: str, cpu: int = 4, **taints: str) -> NodeSpec:
    return NodeSpec(name, {"cpu": cpu}, {"kind": "a"}, taints=taints)


def submit(
    scheduler: Scheduler,
    job: int,
    tolerates: Sequence[str] = (),
    *,
    nodes: int = 1,
    cpu: int = 4,
    qos: str = "",
    **columns: int,
) -> None:
    rows = submit_rows(1)
    rows["job"] = job
    for name, value in columns.items():
        rows[name] = value
    classes = (ClassSpec({"cpu": cpu}, nodes, tolerates=tuple(tolerates)),)
    scheduler.feed(JobsSubmitted(rows, classes, (OwnerSpec(qos=qos),)))


@ALL
def test_work_goes_past_a_node_whose_taint_it_does_not_tolerate(backfill: Backfill) -> None:
    """n1 is tainted: job 1 goes to n2, job 2 tolerates the taint and takes n1, job 3 waits for n2."""
    state, _, scheduler = engine(EngineConfig(backfill=backfill), node("n1", team="bio"), node("n2"))
    submit(scheduler, 1)
    submit(scheduler, 2, ["team=bio"], walltime_ms=5)
    submit(scheduler, 3)
    scheduler.run(0)
    assert places(state) == {1: ["n2"], 2: ["n1"]}
    scheduler.feed(ended(2))
    scheduler.run(1)
    assert places(state) == {1: ["n2"]}


@pytest.mark.parametrize(
    ("tolerates", "starts"), [(["team"], True), (["team=bio"], True), (["team=geo"], False), (["other"], False)]
)
def test_a_taint_is_tolerated_by_key_or_by_key_and_value(tolerates: list[str], starts: bool) -> None:
    """Whatever value a key has is tolerated by the key alone."""
    state, _, scheduler = engine(EngineConfig(), node("n1", team="bio"))
    submit(scheduler, 1, tolerates)
    scheduler.run(0)
    assert (1 in places(state)) is starts


def test_each_taint_of_a_node_is_to_be_tolerated() -> None:
    """One of two does not do."""
    state, _, scheduler = engine(EngineConfig(), node("n1", team="bio", spot=""))
    submit(scheduler, 1, ["spot"])
    submit(scheduler, 2, ["spot", "team"], walltime_ms=1)
    scheduler.run(0)
    assert places(state) == {2: ["n1"]}


@ALL
def test_what_runs_on_a_node_that_is_tainted_stays(backfill: Backfill) -> None:
    """Job 2 waits although job 1 has ended; it starts when the taint is taken off."""
    state, _, scheduler = engine(EngineConfig(backfill=backfill), node("n1"))
    submit(scheduler, 1)
    scheduler.run(0)
    scheduler.feed(NodesChanged((node("n1", drive=""),)))
    submit(scheduler, 2)
    scheduler.run(1)
    assert places(state) == {1: ["n1"]}
    scheduler.feed(ended(1))
    scheduler.run(2)
    assert places(state) == {}
    scheduler.feed(NodesChanged((node("n1"),)))
    scheduler.run(3)
    assert places(state) == {2: ["n1"]}


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.CONSERVATIVE, Backfill.TOP_K])
def test_nothing_is_reserved_on_a_tainted_node(backfill: Backfill) -> None:
    """n1 comes free at 10, n2 at 100: job 3, which does not tolerate the taint of n1, has n2."""
    state, _, scheduler = engine(EngineConfig(backfill=backfill), node("n1", team="bio"), node("n2"))
    submit(scheduler, 1, ["team"], walltime_ms=10)
    submit(scheduler, 2, walltime_ms=100)
    scheduler.run(0)
    assert places(state) == {1: ["n1"], 2: ["n2"]}
    submit(scheduler, 3, walltime_ms=10)
    scheduler.run(1)
    (reserved,) = reservations(state)
    assert (int(reserved["job"]), int(reserved["start_ms"])) == (3, 100)
    assert [state.node_name(row) for row in reserved_rows(state).tolist()] == ["n2"]


def test_nobody_is_preempted_on_a_tainted_node() -> None:
    """Low work runs on both nodes; the urgent job takes that of n2, though that of n1 is younger."""
    state, sink, scheduler = engine(
        EngineConfig(backfill=Backfill.EASY, policy=Policy(qos=QOS)), node("n1", team="bio"), node("n2")
    )
    submit(scheduler, 2, qos="low")
    scheduler.run(0)
    submit(scheduler, 3, ["team"], qos="low")
    scheduler.run(1)
    assert places(state) == {2: ["n2"], 3: ["n1"]}
    submit(scheduler, 4, qos="urgent")
    scheduler.run(2)
    assert [int(row["job"]) for plan in sink.plans for row in plan.preemptions] == [2]


def test_nodes_that_a_booking_chooses_have_no_taints() -> None:
    """Of two nodes the booking of one takes n2."""
    state, _, scheduler = engine(EngineConfig(), node("n1", team="bio"), node("n2"))
    scheduler.feed(BookingsChanged((BookingSpec("b", 10, 20, count=1),)))
    scheduler.run(0)
    assert [state.node_name(row) for row in state.bookings.all[0].rows] == ["n2"]


def test_work_that_only_tainted_nodes_could_hold_is_told_so() -> None:
    """With what to write; what its labels rule out is no matter of taints."""
    state, _, _scheduler = engine(EngineConfig(), node("n1", team="bio"), node("n2", cpu=1))
    apply(state, NodesChanged((node("n1", team="bio"), node("n2", cpu=1, spot=""))))
    found = never_fits(state, ClassSpec({"cpu": 1}))
    assert found is not None
    assert found.because == "2 of 2 nodes have taints that it does not tolerate (spot, team=bio); 1 asked for"
    assert "--tolerate spot --tolerate team=bio" in found.mend
    assert never_fits(state, ClassSpec({"cpu": 1}, tolerates=("spot",))) is None
    other = never_fits(state, ClassSpec({"cpu": 1}, constraints=(Requirement("kind", Match.IN, ("b",)),)))
    assert other is not None
    assert "kind in b" in other.because


def test_a_recorded_taint_is_part_of_the_digest() -> None:
    """Two states that differ in a taint alone differ."""
    one, _, _ = engine(EngineConfig(), node("n1", team="bio"))
    other, _, _ = engine(EngineConfig(), node("n1"))
    for state, spec in ((one, node("n1", team="bio")), (other, node("n1"))):
        apply(state, NodesChanged((spec,)))
    assert state_digest(one) != state_digest(other)


KEYS = ("a", "b")
TOLERATED = ((), ("a",), ("b",), ("a=1",), ("a", "b"), ("a=1", "b=2"))


def may(taints: dict[str, str], tolerates: Sequence[str]) -> bool:
    """The plain judge: each taint is tolerated by its key, or as it is."""
    return all(key in tolerates or f"{key}={value}" in tolerates for key, value in taints.items())


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_safety_nothing_starts_where_a_taint_is_not_tolerated(data: st.DataObject) -> None:
    """Whatever the policy, and however taints come and go; what the tables say holds after each step."""
    config = EngineConfig(
        backfill=data.draw(st.sampled_from(list(Backfill))),
        placement=data.draw(st.sampled_from(["first-fit", "best-fit"])),
        policy=Policy(qos=QOS),
    )
    taints = {f"n{number}": draw_taints(data) for number in range(4)}
    state, _, scheduler = engine(config, *(node(name, **some) for name, some in taints.items()))
    wanted: dict[int, tuple[str, ...]] = {}
    seen: set[tuple[int, int]] = set()
    for now in range(data.draw(st.integers(3, 10))):
        what = data.draw(st.sampled_from(["submit", "submit", "submit", "end", "taint"]))
        if what == "submit":
            job = len(wanted) + 1
            wanted[job] = data.draw(st.sampled_from(TOLERATED))
            gang, cpu = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
            qos, wall = data.draw(st.sampled_from(["", "urgent", "low"])), data.draw(st.integers(1, 8))
            submit(scheduler, job, wanted[job], nodes=gang, cpu=cpu, qos=qos, walltime_ms=wall)
        elif what == "end" and (there := attempts(state)):
            rows = np.zeros(1, END)
            rows["job"], rows["attempt"] = data.draw(st.sampled_from(sorted(there)))
            scheduler.feed(AttemptsEnded(rows))
        elif what == "taint":
            name = data.draw(st.sampled_from(sorted(taints)))
            taints[name] = draw_taints(data)
            scheduler.feed(NodesChanged((node(name, **taints[name]),)))
        scheduler.run(now)
        seen = judge(state, seen, wanted, taints)
        check_invariants(state)


def draw_taints(data: st.DataObject) -> dict[str, str]:
    keys = data.draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=2))
    return {key: data.draw(st.sampled_from(["", "1", "2"])) for key in keys}


def attempts(state: State) -> dict[tuple[int, int], list[str]]:
    """The nodes of each attempt that has begun, by job and attempt."""
    return {
        (int(run["job"]), int(run["attempt"])): [state.node_name(row) for row in rows_of_run(state, int(run["run"]))]
        for run in running(state)
        if run["state"] != L.RUN_CLAIM
    }


def judge(
    state: State, before: set[tuple[int, int]], wanted: dict[int, tuple[str, ...]], taints: dict[str, dict[str, str]]
) -> set[tuple[int, int]]:
    """What runs now; what has begun since was allowed to."""
    now = attempts(state)
    for (job, attempt), names in now.items():
        if (job, attempt) not in before:
            assert all(may(taints[name], wanted[job]) for name in names), (job, names, taints)
    return set(now)
