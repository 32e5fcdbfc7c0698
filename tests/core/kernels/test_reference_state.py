"""After every event the engine's tables mean what a plain-Python state means, and a pass decides what it decides.

This is the property test of the kernels that change the state (submit, change, advance, rebuild, assume, end, refuse,
adopt, retime) and of those that a cycle is made of (window, choose, compete, the promises of EASY, the timelines of
conservative): through `apply`, `cycle` and the tables' meaning, whatever the kernels' signatures.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from numpy.typing import NDArray

from hal.core.engine import apply, cycle, new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, Match, OwnerSpec, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    ADOPT,
    END,
    INF,
    KEEP,
    START,
    SUBMIT,
    AllocationsAdopted,
    AttemptsEnded,
    ClockAdvanced,
    ConfigChanged,
    Health,
    JobsCancelled,
    JobsEligible,
    JobsHeld,
    JobsReleased,
    JobsSubmitted,
    JobsUpdated,
    NodesChanged,
    NodeSpec,
    PlanAssumed,
    StartsRefused,
    update_rows,
)
from hal.core.engine.policies import register
from hal.core.engine.views import pending
from hal.core.interfaces import BucketView, ClusterView, JobView, PolicyInfo
from tests.core.kernels import engine_reading as reading
from tests.core.kernels.reference_pass import decide
from tests.core.kernels.reference_state import IN_LINE, LONGEST_IN_KEY, ReferenceState, Task, Work
from tests.examples import examples

REQUIREMENTS = (
    (),
    (Requirement("rack", Match.IN, ("a",)),),
    (Requirement("rack", Match.NOT_IN, ("a",)),),
    (Requirement("ssd", Match.EXISTS),),
)
CLASSES = tuple(
    ClassSpec(request, nodes, constraints)
    for request, nodes, constraints in (
        ({"cpu": 1}, 1, REQUIREMENTS[0]),
        ({"cpu": 2}, 1, REQUIREMENTS[1]),
        ({"cpu": 4, "gpu": 1}, 1, REQUIREMENTS[0]),
        ({"cpu": 1, "memory": 4}, 2, REQUIREMENTS[0]),
        ({"memory": 8, "cpu": 1}, 1, REQUIREMENTS[2]),
        ({"cpu": 2}, 2, REQUIREMENTS[0]),
        ({"cpu": 3}, 3, REQUIREMENTS[0]),
        ({"cpu": 1}, 2, REQUIREMENTS[3]),
        ({"cpu": 8}, 1, REQUIREMENTS[0]),
        ({"licence": 1}, 1, REQUIREMENTS[0]),
    )
)
OWNERS = (OwnerSpec(account="x"), OwnerSpec(account="y"))
CAPACITIES = ({"cpu": 4, "memory": 16}, {"cpu": 8, "memory": 16, "gpu": 2}, {"cpu": 1}, {"cpu": 2, "memory": 8})
LABELS: tuple[dict[str, str], ...] = ({"rack": "a"}, {"rack": "b", "ssd": "yes"}, {})
PIECES = st.tuples(  # of a job: tasks left out before it, tasks, attempt, delay
    st.sampled_from([0, 0, 3]),
    st.sampled_from([1, 1, 2, 5]),
    st.sampled_from([1, 1, 2]),
    st.sampled_from([0, 0, 0, 3, INF]),
)
JOBS = st.lists(
    st.tuples(  # pieces, walltime, planned, class, owner, priority, held
        st.lists(PIECES, min_size=1, max_size=3),
        st.sampled_from([1, 2, 2, 4, 4, 8, 40, INF]),
        st.sampled_from([-1, -1, 1, 4]),
        st.integers(0, len(CLASSES) - 1),
        st.integers(0, 1),
        st.sampled_from([0, 0, 5, -5]),
        st.sampled_from([0, 0, 0, 1]),
    ),
    min_size=1,
    max_size=4,
)
POLICIES: dict[str, Any] = {
    "backfill": st.sampled_from(list(Backfill)),
    "order": st.sampled_from(["fcfs", "sjf", "test-longest-first"]),
    "placement": st.sampled_from(["first-fit", "best-fit"]),
    "reservations": st.sampled_from([1, 2, 10]),
}
MANY = 1 << 20


class LongestFirst:
    """An order of somebody else's: longer planned time first."""

    info = PolicyInfo("test-longest-first", "order/2")

    def key(self, jobs: JobView, view: ClusterView) -> NDArray[np.int64]:
        return -np.minimum(jobs.planned_ms, LONGEST_IN_KEY)

    def offset(self, buckets: BucketView, view: ClusterView, now_ms: int) -> NDArray[np.int64]:
        return np.zeros(len(buckets.class_id), np.int64)


register(LongestFirst())


class Kernels(RuleBasedStateMachine):
    """Any sequence of events, in blocks of any size, with passes between them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.next_job = 1

    @initialize(**POLICIES, count=st.integers(1, 4), data=st.data())
    def begin(self, count: int, data: Any, **policy: Any) -> None:
        config = EngineConfig(claim_after_ms=INF, **policy)
        self.state = new_state(config)
        self.reference = ReferenceState(config)
        for _ in range(count):
            self.another_node(data.draw(st.sampled_from(CAPACITIES)), data.draw(st.sampled_from(LABELS)))

    def happen(self, event: Any) -> None:
        apply(self.state, event)
        self.reference.apply(event)
        for node in self.reference.nodes:
            if node.row < 0:
                node.row = self.state.node_index(node.name)
        self.compare()

    def pick(self, number: int, tasks: dict[Task, Work]) -> list[Work]:
        """One to three of these tasks."""
        names = sorted(tasks)
        count = 1 + number % 3
        return [tasks[name] for name in dict.fromkeys(names[(number + k * 7) % len(names)] for k in range(count))]

    # ── events ────────────────────────────────────────────────────────────────────────────────────────────────────

    @precondition(lambda self: len(self.reference.nodes) < 7)
    @rule(capacity=st.sampled_from(CAPACITIES), labels=st.sampled_from(LABELS))
    def another_node(self, capacity: dict[str, int], labels: dict[str, str]) -> None:
        here = {node.name for node in self.reference.nodes if node.here}
        name = next(name for name in (f"n{k}" for k in range(MANY)) if name not in here)
        self.happen(NodesChanged((NodeSpec(name, dict(capacity), dict(labels)),)))

    @precondition(lambda self: any(node.here for node in self.reference.nodes))
    @rule(
        pick=st.integers(0, MANY),
        health=st.sampled_from(list(Health)),
        capacity=st.sampled_from([None, None, *CAPACITIES]),
        labels=st.sampled_from([None, *LABELS]),
        leaves=st.sampled_from([False, False, True]),
    )
    def nodes_change(
        self, pick: int, health: Health, capacity: dict[str, int] | None, labels: dict[str, str] | None, leaves: bool
    ) -> None:
        """One changes and perhaps another leaves, in one event."""
        here = [node for node in self.reference.nodes if node.here]
        node = here[pick % len(here)]
        spec = NodeSpec(node.name, dict(capacity or node.capacity), dict(labels or node.labels), health)
        others = [other.name for other in here if other is not node]
        self.happen(NodesChanged((spec,), tuple(others[:1]) if leaves else ()))

    @rule(jobs=JOBS)
    def submit(self, jobs: list[tuple[list[Any], int, int, int, int, int, int]]) -> None:
        rows = []
        for pieces, wall, planned, kind, owner, priority, held in jobs:
            first = 0
            for gap, tasks, attempt, delay in pieces:
                first += gap
                when = min(self.now + delay, INF)
                rows.append(
                    (
                        self.next_job,
                        first,
                        tasks,
                        attempt,
                        kind,
                        owner,
                        priority,
                        self.now,
                        when,
                        held,
                        wall,
                        planned,
                        0,
                    )
                )
                first += tasks
            self.next_job += 1
        self.happen(JobsSubmitted(np.array(rows, SUBMIT), CLASSES, OWNERS))

    @precondition(lambda self: self.next_job > 1)
    @rule(
        pick=st.integers(0, MANY),
        what=st.sampled_from([JobsHeld, JobsReleased, JobsEligible, JobsCancelled]),
        delay=st.sampled_from([0, 0, 3, INF]),
    )
    def people_change_jobs(self, pick: int, what: Any, delay: int) -> None:
        """Two jobs, which may be unknown by now."""
        jobs = np.array(sorted({1 + pick % self.next_job, 1 + pick // 7 % self.next_job}), np.int64)
        if what is JobsEligible:
            self.happen(JobsEligible(jobs, np.full(len(jobs), min(self.now + delay, INF), np.int64)))
        else:
            self.happen(what(jobs))

    @precondition(lambda self: self.reference.waiting)
    @rule(pick=st.integers(0, MANY), count=st.integers(0, 3), twice=st.booleans())
    def cancel_some_tasks(self, pick: int, count: int, twice: bool) -> None:
        work = self.pick(pick, self.reference.waiting)[0]
        ranges = [(work.task, count), (work.task + 2, 1)] if twice else [(work.task, count)]
        jobs, first, tasks = ([work.job] * len(ranges), [a for a, _ in ranges], [n for _, n in ranges])
        self.happen(JobsCancelled(*(np.array(column, np.int64) for column in (jobs, first, tasks))))

    @precondition(lambda self: self.next_job > 1)
    @rule(
        pick=st.integers(0, MANY),
        priority=st.sampled_from([KEEP, 0, 9, -9]),
        wall=st.sampled_from([KEEP, 2, 20, INF]),
        planned=st.sampled_from([KEEP, KEEP, -1, 6]),
    )
    def edit(self, pick: int, priority: int, wall: int, planned: int) -> None:
        """Waiting and running tasks of two jobs."""
        rows = update_rows(2)
        rows["job"] = [1 + pick % self.next_job, 1 + (pick + 1) % self.next_job]
        rows["priority"], rows["walltime_ms"], rows["planned_ms"] = priority, wall, planned
        rows[1]["walltime_ms"] = KEEP
        self.happen(JobsUpdated(rows if rows[0]["job"] != rows[1]["job"] else rows[:1]))

    @precondition(lambda self: self.reference.running)
    @rule(
        pick=st.integers(0, MANY),
        requeue=st.sampled_from([0, 0, 1]),
        delay=st.sampled_from([0, 4, INF]),
        held=st.sampled_from([0, 0, 1]),
    )
    def attempts_end(self, pick: int, requeue: int, delay: int, held: int) -> None:
        """One to three at once; those that are tried again are held as their job is."""
        rows = []
        for work in self.pick(pick, self.reference.running):
            waiting = [other.held for other in self.reference.waiting.values() if other.job == work.job]
            holds = int(waiting[0]) if waiting else held
            rows.append((work.job, work.task, work.attempt, requeue, min(self.now + delay, INF), holds, 0))
        self.happen(AttemptsEnded(np.array(rows, END)))

    @precondition(lambda self: self.reference.running)
    @rule(pick=st.integers(0, MANY), new_attempt=st.booleans())
    def starts_are_refused(self, pick: int, new_attempt: bool) -> None:
        """The latest starts, or any that still run."""
        chosen = self.pick(pick, self.reference.running)
        rows = np.zeros(len(chosen), START)
        for row, work in zip(rows, sorted(chosen, key=lambda work: work.start_ms), strict=True):
            row["job"], row["task"], row["attempt"], row["entry"] = work.job, work.task, work.attempt, -1
        self.happen(StartsRefused(rows, new_attempt=new_attempt))

    @precondition(lambda self: any(node.here for node in self.reference.nodes))
    @rule(
        kinds=st.lists(st.integers(0, len(CLASSES) - 1), min_size=1, max_size=3),
        ago=st.integers(0, 3),
        wall=st.sampled_from([2, 9, INF]),
        planned=st.sampled_from([-1, 3]),
        pick=st.integers(0, MANY),
    )
    def attempts_are_adopted(self, kinds: list[int], ago: int, wall: int, planned: int, pick: int) -> None:
        """Attempts that nobody here had started, on any nodes, also on more than there is room for."""
        names = tuple(sorted(node.name for node in self.reference.nodes if node.here))
        rows = []
        index: list[int] = []
        for task, kind in enumerate(kinds):
            width = CLASSES[kind].nodes
            if width <= len(names):
                at, begun = len(index), max(0, self.now - ago)
                rows.append(
                    (self.next_job, 0, 2, kind, task % 2, 3, begun, begun, wall, planned, at, width, 0, 0, 0, 0)
                )
                index += [(pick + k) % len(names) for k in range(width)]
                self.next_job += 1
        if rows:
            event = AllocationsAdopted(np.array(rows, ADOPT), np.array(index, np.int64), names, CLASSES, OWNERS)
            self.happen(event)

    @rule(ms=st.integers(0, 8))
    def time_passes(self, ms: int) -> None:
        self.now += ms
        self.happen(ClockAdvanced(self.now))

    @rule(**POLICIES)
    def policy_changes(self, **policy: Any) -> None:
        self.happen(ConfigChanged(EngineConfig(claim_after_ms=INF, **policy)))

    # ── passes ────────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(budget=st.sampled_from([None, None, 1, 10]), slices=st.integers(1, 40))
    def a_pass(self, budget: int | None, slices: int) -> None:
        """A whole one, or the first slices of one; each start takes what was free."""
        self.happen(ClockAdvanced(self.now))
        cursor = None
        for _ in range(slices):
            plan = cycle(self.state, self.now, budget=budget, cursor=cursor)
            self.compare()
            for start in plan.starts:
                work = self.reference.waiting[int(start["job"]), int(start["task"])]
                assert self.reference.fits(work.kind)[1] >= work.kind.nodes == start["row_count"]
            if plan.changes:
                self.happen(PlanAssumed(plan))
            cursor = plan.cursor
            if cursor is None:
                break

    @rule()
    def a_pass_that_plans_anew(self) -> None:
        """Without promises from before, it starts and promises what the definitions say, on the rows that they say."""
        self.happen(ClockAdvanced(self.now))
        self.happen(ConfigChanged(self.reference.config))
        entries = pending(self.state)
        runs = [
            [(int(entry["job"]), int(entry["first_task"]) + k) for k in range(int(entry["tasks"]))] for entry in entries
        ]
        expected = decide(self.reference, self.now, runs)
        plan = cycle(self.state, self.now)
        starts = [
            (
                (int(start["job"]), int(start["task"])),
                plan.rows[start["row_offset"] : start["row_offset"] + start["row_count"]].tolist(),
            )
            for start in plan.starts
        ]
        in_order = self.reference.config.backfill not in (Backfill.TOP_K, Backfill.CONSERVATIVE)
        assert [(task, rows if in_order else sorted(rows)) for task, rows in starts] == expected.starts
        if plan.changes:
            self.happen(PlanAssumed(plan))
        promises = reading.promises(self.state)
        if not in_order:
            promises = {task: replace(promise, rows=sorted(promise.rows)) for task, promise in promises.items()}
        assert promises == expected.promises

    # ── what always holds ─────────────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def tables_agree(self) -> None:
        if hasattr(self, "state"):
            check_invariants(self.state)

    def compare(self) -> None:
        """Everything that the tables say is what the reference says."""
        state, reference = self.state, self.reference
        assert state.clock_ms == reference.clock
        agree(reading.waiting(state), {task: as_waiting(work) for task, work in reference.waiting.items()})
        agree(reading.running_tasks(state), {task: as_running(work) for task, work in reference.running.items()})
        assert (state.pending_tasks, state.running_attempts) == (len(reference.waiting), len(reference.running))
        for node in reference.nodes:
            left = {name: amount for name, amount in reference.free(node).items() if amount}
            assert reading.free(state, node.row) == left
        for kind, counts in reading.fits(state).values():
            assert counts == reference.fits(kind)
        assert reading.lines(state) == reference.lines()
        if reference.config.backfill is Backfill.EASY_SJBF:
            assert reading.lines(state, shortest_first=True) == reference.shortest_first()
        assert reading.timers(state) == reference.timers()
        assert state.next_timer_ms() == (reference.timers()[0][0] if reference.timers() else INF)
        assert reading.releases(state) == reference.releases()
        self.compare_promises()

    def compare_promises(self) -> None:
        """What was promised is promised until its job is touched."""
        there = reading.promises(self.state)
        for task, promise in there.items():
            assert promise == self.reference.promises[task]
            assert self.reference.waiting[task].where is IN_LINE
        for task in self.reference.promises.keys() - there.keys():
            assert task[0] in self.reference.doubtful, f"{task} lost its promise"
        # Of a job that was touched the engine may forget more than it must.
        self.reference.promises = there


def agree(there: dict[Task, Any], expected: dict[Task, Any]) -> None:
    """Equal; the error names the tasks that are not."""
    for task in there.keys() | expected.keys():
        assert there.get(task) == expected.get(task), f"task {task}: {there.get(task)} instead of {expected.get(task)}"


def as_waiting(work: Work) -> tuple[Any, ...]:
    """As `engine_reading.waiting` gives it."""
    numbers = (work.priority, work.submit_ms, work.eligible_ms, work.held, work.walltime_ms, work.planned_ms)
    return (work.attempt, *work.line, *numbers, work.where)


def as_running(work: Work) -> tuple[Any, ...]:
    """As `engine_reading.running_tasks` gives it."""
    numbers = (work.priority, work.submit_ms, work.walltime_ms, work.planned_ms, work.start_ms, work.end_ms)
    return (work.attempt, *work.line, *numbers, [node.row for node in work.nodes])


TestKernels = Kernels.TestCase
TestKernels.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
