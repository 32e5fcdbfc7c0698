"""The loop without I/O, refusals of events, and the answers to 'why' and 'could it ever'."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hal.core.engine import EngineError, State, apply, new_state
from hal.core.engine.checks.digest import state_digest
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, Match, OwnerSpec, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    AttemptsEnded,
    ConfigChanged,
    Event,
    Health,
    JobsHeld,
    JobsReleased,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    StartsRefused,
    submit_rows,
)
from hal.core.engine.plan import Plan
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.why.explain import explain
from hal.core.engine.why.feasible import fits_ever
from hal.core.kernels.structures.layout import INF
from hal.core.model import HALError
from hal.core.model.verdict import Reason


class Starts:
    """A sink that remembers (job, task, node names)."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.plans: list[Plan] = []

    def accept(self, plan: Plan) -> None:
        self.plans.append(plan)

    def jobs(self) -> list[tuple[int, int]]:
        return [(int(s["job"]), int(s["task"])) for plan in self.plans for s in plan.starts]


def cluster(config: EngineConfig | None = None) -> tuple[State, Starts, Scheduler]:
    """Two nodes: a has 4 cpu, b has 2 cpu and a label."""
    state = new_state(config or EngineConfig())
    sink = Starts(state)
    scheduler = Scheduler(state, sink)
    scheduler.feed(NodesChanged((NodeSpec("a", {"cpu": 4}), NodeSpec("b", {"cpu": 2}, {"rack": "r1"}))))
    return state, sink, scheduler


def submit(job: int, cpu: int, **columns: Any) -> JobsSubmitted:
    """One job of one class."""
    rows = submit_rows(1)
    rows["job"] = job
    for name, value in columns.items():
        rows[name] = value
    return JobsSubmitted(rows, (ClassSpec({"cpu": cpu}),), (OwnerSpec(),))


def ended(job: int, task: int = 0) -> AttemptsEnded:
    """The first attempt of a task ended."""
    rows = np.zeros(1, END)
    rows["job"], rows["task"], rows["attempt"] = job, task, 1
    return AttemptsEnded(rows)


def test_a_job_begins_at_its_time() -> None:
    """Eligible at 500: the step at 0 says to wake at 500, the step at 500 starts it."""
    _state, sink, scheduler = cluster()
    scheduler.feed(submit(1, 1, eligible_ms=500))
    assert scheduler.run(0).wake_ms == 500
    assert sink.jobs() == []
    scheduler.run(500)
    assert sink.jobs() == [(1, 0)]


def test_a_large_array_starts_in_slices_and_stays_one_entry() -> None:
    """1,000,000 tasks of 1 cpu on 6: six start, at most two a slice, and one entry waits."""
    state, sink, scheduler = cluster(EngineConfig(slice_starts=2))
    scheduler.feed(submit(1, 1, tasks=1_000_000))
    scheduler.run(0)
    assert sink.jobs() == [(1, task) for task in range(6)]
    assert state.pending_tasks == 999_994
    check_invariants(state)


def test_refused_starts_wait_at_their_old_place() -> None:
    """Undone in reverse, the state is as before the plan but for the clock, and the same starts are planned again."""
    state, sink, scheduler = cluster()
    scheduler.feed(submit(1, 2, tasks=3))
    scheduler.run(0)
    first = sink.jobs()
    for plan in reversed(sink.plans):
        scheduler.feed(StartsRefused(plan.starts))
    check_invariants(state)
    assert (state.pending_tasks, state.running_attempts) == (3, 0)
    sink.plans.clear()
    scheduler.run(0)
    assert sink.jobs() == first


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (ended(7), "no such attempt is running"),
        (submit(1, 1, tasks=0), "at least 1"),
        (submit(1, 1, priority=1 << 17), "priority"),
        (submit(1, 1, class_index=5), "class_index"),
        (JobsSubmitted(submit_rows(1), (ClassSpec({"cpu": -1}),)), "amounts"),
        (JobsSubmitted(submit_rows(1), (ClassSpec({"cpu": 1}, nodes=0),)), "nodes"),
        (NodesChanged(removed=("z",)), "it is not here"),
        (ConfigChanged(EngineConfig(order="nonsense")), "order: no policy 'nonsense' .* fcfs, priority,.* sjf"),
        (ConfigChanged(EngineConfig(placement="nonsense")), "placement: no policy .nonsense. .* best-fit,.* first-fit"),
        (ConfigChanged(EngineConfig(filters=("nonsense",))), "filters: no policy 'nonsense'"),
    ],
)
def test_an_event_that_contradicts_the_state_changes_nothing(event: Event, says: str) -> None:
    """The error says what is wrong; the digest is the same afterwards."""
    state, _sink, _scheduler = cluster()
    before = state_digest(state)
    with pytest.raises(EngineError, match=says) as refusal:
        apply(state, event)
    assert isinstance(refusal.value, HALError)
    assert state_digest(state) == before


def test_why_names_what_is_short_and_when() -> None:
    """a, the only node that could hold 4 cpu, is full until 60 s: 0 free there, and a start is forecast at 60 s."""
    state, _sink, scheduler = cluster()
    scheduler.feed(submit(1, 4, walltime_ms=60_000))
    scheduler.feed(submit(2, 4))
    scheduler.run(0)
    verdict = explain(state, 2, 0)
    assert (verdict.reason, verdict.resource, verdict.asked, verdict.available) == (Reason.RESOURCES, "cpu", 4, 0)
    assert (verdict.starts_at_ms, verdict.basis, verdict.position) == (60_000, "reservation", 0)


def test_why_of_work_that_does_not_compete_for_resources() -> None:
    """Held, blocked and impossible jobs say so."""
    state, _sink, scheduler = cluster()
    scheduler.feed(submit(1, 1))
    scheduler.feed(JobsHeld(np.array([1])))
    scheduler.feed(submit(2, 1, eligible_ms=INF))
    scheduler.feed(submit(3, 9))
    scheduler.run(0)
    reasons = [explain(state, job, 0).reason for job in (1, 2, 3)]
    assert reasons == [Reason.HELD, Reason.DEPENDENCY, Reason.IMPOSSIBLE]
    scheduler.feed(JobsReleased(np.array([1])))
    scheduler.run(0)
    assert explain(state, 1, 0).reason is Reason.NONE


def test_what_could_never_run_names_the_largest_node() -> None:
    """5 cpu: the largest is a with 4. Two nodes with the label: one has it. 4 cpu fits, also while a is down."""
    state, _sink, scheduler = cluster()
    large = fits_ever(state, ClassSpec({"cpu": 5}))
    assert large is not None
    assert (large.resource, large.largest, large.node) == ("cpu", 4, "a")
    labelled = fits_ever(state, ClassSpec({"cpu": 1}, nodes=2, constraints=(Requirement("rack", Match.EXISTS),)))
    assert labelled is not None
    assert labelled.nodes_that_fit == 1
    scheduler.feed(NodesChanged((NodeSpec("a", {"cpu": 4}, health=Health.DOWN),)))
    assert fits_ever(state, ClassSpec({"cpu": 4})) is None


def test_slots_are_used_again() -> None:
    """2,000 jobs one after the other through one cpu leave tables as small as ten did."""
    state, sink, scheduler = cluster()
    sizes = []
    for job in range(1, 2_001):
        scheduler.feed(submit(job, 1))
        scheduler.run(job)
        scheduler.feed(ended(job))
        if job in (10, 2_000):
            sizes.append(
                [
                    len(t)
                    for t in (
                        state.work.entries,
                        state.work.runs,
                        state.work.pieces,
                        state.work.buckets,
                        state.work.job_index,
                    )
                ]
            )
    assert sizes[0] == sizes[1]
    assert len(sink.jobs()) == 2_000


def test_a_change_of_policy_keeps_all_work() -> None:
    """From EASY to conservative with shortest first: everything still waits, in the new order."""
    state, sink, scheduler = cluster()
    scheduler.feed(submit(1, 4, walltime_ms=10_000))
    scheduler.run(0)
    scheduler.feed(submit(2, 4, walltime_ms=9_000))
    scheduler.feed(submit(3, 4, walltime_ms=1_000))
    scheduler.run(1)
    scheduler.feed(ConfigChanged(EngineConfig(order="sjf", backfill=Backfill.CONSERVATIVE)))
    scheduler.run(2)
    check_invariants(state)
    scheduler.feed(ended(1))
    scheduler.run(3)
    assert sink.jobs() == [(1, 0), (3, 0)]
