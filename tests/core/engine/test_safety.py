"""Safety of the engine under any sequence of events: what the contract promises, seen by a judge that decides nothing.

Four engines live side by side on the same events: as configured, with parking switched off, with passes cut into small
slices, and a record that is replayed from nothing at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hal.core.engine import State, apply, cycle, new_state
from hal.core.engine.checks.digest import state_digest
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, Match, OwnerSpec, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    ADOPT,
    END,
    INF,
    KEEP,
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
    submit_rows,
    update_rows,
)
from tests.core.engine.model_cluster import Cluster, Node, Task
from tests.core.engine.promise_judge import Promised, PromiseJudge, could_start_beside, promised_now
from tests.examples import examples

SECOND = 1_000
MAX_SLICES = 10_000
MANY = 1 << 20

REQUESTS = [
    {"cpu": 1000},
    {"cpu": 2000},
    {"cpu": 4000, "gpu": 1000},
    {"cpu": 500, "memory": 4},
    {"memory": 8, "cpu": 1000},
    {"cpu": 8000},
]
CONSTRAINTS = [
    (),
    (),
    (Requirement("rack", Match.IN, ("a",)),),
    (Requirement("rack", Match.NOT_IN, ("a",)),),
    (Requirement("ssd", Match.EXISTS),),
]
CAPACITIES = [
    {"cpu": 4000, "memory": 16},
    {"cpu": 8000, "memory": 16, "gpu": 2000},
    {"cpu": 1000},
    {"cpu": 2000, "memory": 8},
]
LABELS = [{"rack": "a"}, {"rack": "b", "ssd": "yes"}, {}]
LEVELS = ("zone", "rack")
DOMAINS = [("z1", "r1"), ("z1", "r1"), ("z1", "r2"), ("z2", "r1"), ("", "r1"), ("z2",), ()]
WALLTIMES = [1, 2, 3, 5, 10, 40, None]
JOBS = st.fixed_dictionaries(
    {
        "request": st.sampled_from(REQUESTS),
        "gang": st.sampled_from([1, 1, 1, 2, 3]),
        "constraints": st.sampled_from(CONSTRAINTS),
        "tasks": st.sampled_from([1, 1, 1, 2, 7]),
        "priority": st.sampled_from([0, 0, 0, 5, -5]),
        "walltime": st.sampled_from(WALLTIMES),
        "planned": st.sampled_from([None, None, 1, 4]),
        "delay": st.sampled_from([0, 0, 0, 0, 3, None]),
        "held": st.sampled_from([False, False, False, False, True]),
        "account": st.sampled_from(["x", "y"]),
        "within": st.sampled_from(["", "", "zone", "rack", "rack", "row"]),
    }
)


class EngineSafety(RuleBasedStateMachine):
    """Any interleaving of submits, ends, holds, cancels, refusals, node changes and changes of policy."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.next_job = 1
        self.judge = Cluster()
        self.log: list[Any] = []
        self.health: dict[str, Health] = {}
        self.promises: dict[str, PromiseJudge] = {}
        self.max_reservations = MANY

    @initialize(
        backfill=st.sampled_from(list(Backfill)),
        max_reservations=st.sampled_from([MANY, MANY, 1, 2]),
        order=st.sampled_from(["fcfs", "sjf"]),
        placement=st.sampled_from(["first-fit", "best-fit"]),
        slice_work=st.integers(1, 60),
        count=st.integers(1, 5),
        levels=st.sampled_from([(), LEVELS, LEVELS]),
        data=st.data(),
    )
    def begin(
        self,
        backfill: Backfill,
        max_reservations: int,
        order: str,
        placement: str,
        slice_work: int,
        count: int,
        levels: tuple[str, ...],
        data: Any,
    ) -> None:
        self.judge.levels = levels
        self.slice_work = slice_work
        self.max_reservations = max_reservations
        configs = self.configs(backfill, order, placement)
        self.config = self.first_config = configs["as configured"]
        self.states = {name: new_state(config) for name, config in configs.items()}
        self.promises = {name: PromiseJudge() for name in configs}
        for number in range(count):
            self.node_joins(
                f"n{number}",
                *(data.draw(st.sampled_from(some)) for some in (CAPACITIES, LABELS, DOMAINS)),
            )

    def configs(self, backfill: Backfill, order: str, placement: str) -> dict[str, EngineConfig]:
        """The same policy for each of the engines."""
        common: dict[str, Any] = {
            "backfill": backfill,
            "order": order,
            "placement": placement,
            "max_reservations": self.max_reservations,
            "levels": self.judge.levels,
        }
        return {
            "as configured": EngineConfig(**common),
            "without parking": EngineConfig(**common, parking=False),
            "in slices": EngineConfig(**common, slice_work=self.slice_work),
        }

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────

    def happen(self, event: Any) -> None:
        self.log.append(event)
        for state in self.states.values():
            apply(state, event)

    def another_world(self) -> None:
        """What was promised so far was promised on other nodes, plans or rules."""
        for judge in self.promises.values():
            judge.forget()

    def node_joins(self, name: str, capacity: dict[str, int], labels: dict[str, str], domains: tuple[str, ...]) -> None:
        self.happen(NodesChanged(nodes=(NodeSpec(name, dict(capacity), dict(labels), domains=domains),)))
        self.judge.nodes[name] = Node(dict(capacity), dict(labels), domains=domains)
        self.health[name] = Health.UP

    @rule(jobs=st.lists(JOBS, min_size=1, max_size=6), decide=st.booleans())
    def submit(self, jobs: list[dict[str, Any]], decide: bool) -> None:
        for job in jobs:
            self.submit_one(**job)
        if decide:
            self.decide(refuse=False)

    def submit_one(
        self,
        request: dict[str, int],
        gang: int,
        constraints: tuple[Requirement, ...],
        tasks: int,
        priority: int,
        walltime: int | None,
        planned: int | None,
        delay: int | None,
        held: bool,
        account: str,
        within: str,
    ) -> None:
        rows = submit_rows(1)
        row = rows[0]
        row["job"], row["tasks"], row["priority"], row["held"] = self.next_job, tasks, priority, held
        row["submit_ms"] = self.now
        row["eligible_ms"] = INF if delay is None else self.now + delay * SECOND
        row["walltime_ms"] = INF if walltime is None else walltime * SECOND
        row["planned_ms"] = -1 if planned is None else planned * SECOND
        kind = ClassSpec(dict(request), gang, constraints, within=within)
        self.happen(JobsSubmitted(rows, (kind,), (OwnerSpec(account=account),)))
        for task in range(tasks):
            self.judge.tasks[(self.next_job, task)] = Task(
                job=self.next_job,
                task=task,
                attempt=1,
                request=dict(request),
                gang=gang,
                constraints=constraints,
                priority=priority,
                planned_ms=int(row["walltime_ms"]) if planned is None else planned * SECOND,
                eligible_ms=int(row["eligible_ms"]),
                held=held,
                within=within,
            )
        self.next_job += 1

    @precondition(lambda self: self.judge.running())
    @rule(count=st.integers(1, 3))
    def work_goes_on(self, count: int) -> None:
        """The next attempts to reach their planned end do so, and each time there is a pass."""
        for _ in range(count):
            timed = [t for t in self.judge.running() if t.planned_ms < INF]
            if not timed:
                return
            task = min(timed, key=lambda t: (t.start_ms + t.planned_ms, t.job, t.task))
            self.now = max(self.now, task.start_ms + task.planned_ms)
            rows = np.zeros(1, END)
            rows[0] = (task.job, task.task, task.attempt, 0, 0, 0, 0)
            self.happen(AttemptsEnded(rows))
            task.state, task.nodes = "ended", ()
            self.decide(refuse=False)

    @rule(seconds=st.integers(0, 12))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * SECOND
        self.happen(ClockAdvanced(self.now))

    @precondition(lambda self: self.judge.running())
    @rule(pick=st.integers(0, 1 << 20), requeue=st.sampled_from([False, False, True]), delay=st.sampled_from([0, 4]))
    def attempt_ends(self, pick: int, requeue: bool, delay: int) -> None:
        running = self.judge.running()
        task = running[pick % len(running)]
        rows = np.zeros(1, END)
        rows[0] = (task.job, task.task, task.attempt, int(requeue), self.now + delay * SECOND if requeue else 0, 0, 0)
        self.happen(AttemptsEnded(rows))
        task.state, task.nodes = ("pending" if requeue else "ended"), ()
        if requeue:
            task.attempt, task.eligible_ms, task.held = task.attempt + 1, self.now + delay * SECOND, False

    @precondition(lambda self: self.next_job > 1)
    @rule(pick=st.integers(0, 1 << 20), hold=st.booleans())
    def hold_or_release(self, pick: int, hold: bool) -> None:
        job = 1 + pick % (self.next_job - 1)
        ids = np.array([job], np.int64)
        self.happen(JobsHeld(ids) if hold else JobsReleased(ids))
        for task in self.judge.tasks.values():
            if task.job == job and task.state == "pending":
                task.held = hold

    @precondition(lambda self: self.next_job > 1)
    @rule(pick=st.integers(0, 1 << 20))
    def dependency_met(self, pick: int) -> None:
        job = 1 + pick % (self.next_job - 1)
        waiting = [t for t in self.judge.tasks.values() if t.job == job and t.state == "pending"]
        if any(t.eligible_ms >= INF for t in waiting):
            self.happen(JobsEligible(np.array([job], np.int64), np.array([self.now], np.int64)))
            for task in self.judge.tasks.values():
                if task.job == job and task.state == "pending":
                    task.eligible_ms = self.now

    @precondition(lambda self: self.next_job > 1)
    @rule(pick=st.integers(0, 1 << 20), whole=st.booleans(), first=st.integers(0, 3))
    def cancel(self, pick: int, whole: bool, first: int) -> None:
        job = 1 + pick % (self.next_job - 1)
        mine = [t for t in self.judge.tasks.values() if t.job == job and t.state == "pending"]
        if not whole:
            mine = [t for t in mine if first <= t.task < first + 2]
        ids = np.array([job], np.int64)
        if whole:
            self.happen(JobsCancelled(ids))
        else:
            self.happen(JobsCancelled(ids, np.array([first], np.int64), np.array([2], np.int64)))
        for task in mine:
            task.state = "ended"

    @precondition(lambda self: self.next_job > 1)
    @rule(pick=st.integers(0, 1 << 20), priority=st.sampled_from([0, 9, -9]), walltime=st.sampled_from([None, 2, 20]))
    def edit(self, pick: int, priority: int, walltime: int | None) -> None:
        job = 1 + pick % (self.next_job - 1)
        rows = update_rows(1)
        rows[0]["job"], rows[0]["priority"] = job, priority
        if walltime is not None:
            rows[0]["walltime_ms"] = rows[0]["planned_ms"] = walltime * SECOND
        assert rows[0]["walltime_ms"] == KEEP or walltime is not None
        self.another_world()
        self.happen(JobsUpdated(rows))
        for task in self.judge.tasks.values():
            if task.job == job and task.state in ("pending", "running"):
                task.priority = priority
                if walltime is not None:
                    task.planned_ms = walltime * SECOND

    @precondition(lambda self: any(not node.gone for node in self.judge.nodes.values()))
    @rule(
        pick=st.integers(0, 9),
        request=st.sampled_from(REQUESTS),
        walltime=st.sampled_from(WALLTIMES),
        gang=st.booleans(),
    )
    def attempt_is_adopted(self, pick: int, request: dict[str, int], walltime: int | None, gang: bool) -> None:
        """What another controller had started, as far as there is room for it."""
        names = [
            name
            for name, node in self.judge.nodes.items()
            if not node.gone and all(self.judge.free(name).get(r, 0) >= n for r, n in request.items())
        ]
        chosen = tuple((names[pick % len(names) :] + names)[: 2 if gang else 1]) if names else ()
        if not chosen or len(set(chosen)) < len(chosen):
            return
        self.another_world()
        row = np.zeros(1, ADOPT)
        row["job"], row["attempt"], row["row_count"] = self.next_job, 2, len(chosen)
        row["submit_ms"], row["start_ms"] = self.now, self.now
        row["walltime_ms"], row["planned_ms"] = INF if walltime is None else walltime * SECOND, -1
        kind = ClassSpec(dict(request), len(chosen))
        self.happen(AllocationsAdopted(row, np.arange(len(chosen)), chosen, (kind,), (OwnerSpec(),)))
        self.judge.tasks[(self.next_job, 0)] = Task(
            job=self.next_job,
            task=0,
            attempt=2,
            request=dict(request),
            gang=len(chosen),
            constraints=(),
            priority=0,
            planned_ms=int(row["walltime_ms"][0]),
            eligible_ms=self.now,
            held=False,
            state="running",
            nodes=chosen,
            start_ms=self.now,
        )
        self.next_job += 1

    @rule(
        pick=st.integers(0, 9),
        health=st.sampled_from(list(Health)),
        domains=st.sampled_from([None, None, *DOMAINS]),
    )
    def node_changes(self, pick: int, health: Health, domains: tuple[str, ...] | None) -> None:
        names = list(self.judge.nodes)
        name = names[pick % len(names)]
        node = self.judge.nodes[name]
        if node.gone:
            return
        self.another_world()
        node.domains = node.domains if domains is None else domains
        spec = NodeSpec(name, dict(node.capacity), dict(node.labels), health, domains=node.domains)
        self.happen(NodesChanged(nodes=(spec,)))
        node.up = health is Health.UP
        self.health[name] = health

    @precondition(lambda self: len(self.judge.nodes) < 8)
    @rule(capacity=st.sampled_from(CAPACITIES), labels=st.sampled_from(LABELS), domains=st.sampled_from(DOMAINS))
    def another_node(self, capacity: dict[str, int], labels: dict[str, str], domains: tuple[str, ...]) -> None:
        self.node_joins(f"n{len(self.judge.nodes)}", capacity, labels, domains)

    @precondition(lambda self: any(not node.gone for node in self.judge.nodes.values()))
    @rule(pick=st.integers(0, 9))
    def node_leaves(self, pick: int) -> None:
        """Its attempts go on holding it until they are reported ended."""
        self.another_world()
        names = [name for name, node in self.judge.nodes.items() if not node.gone]
        name = names[pick % len(names)]
        self.happen(NodesChanged(removed=(name,)))
        self.judge.nodes[name].gone = True

    @rule(
        backfill=st.sampled_from(list(Backfill)),
        order=st.sampled_from(["fcfs", "sjf"]),
        placement=st.sampled_from(["first-fit", "best-fit"]),
    )
    def policy_changes(self, backfill: Backfill, order: str, placement: str) -> None:
        self.another_world()
        configs = self.configs(backfill, order, placement)
        self.config = configs["as configured"]
        self.log.append(ConfigChanged(self.config))
        for name, state in self.states.items():
            apply(state, ConfigChanged(configs[name]))

    # ── a pass ────────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(refuse=st.sampled_from([False, False, False, True]))
    def decide(self, refuse: bool) -> None:
        # Every cycle sees the clock that the scheduler would have shown it.
        self.happen(ClockAdvanced(self.now))
        waiting = {
            (task.job, task.task): self.rank(task) for task in self.judge.waiting(self.now) if self.judge.possible(task)
        }
        promised = promised_now(self.states["as configured"], self.judge)
        passes = {name: self.whole_pass(state, name) for name, state in self.states.items()}
        starts = passes["as configured"]
        for name, others in passes.items():
            assert others == starts, f"{name}: {others} instead of {starts}"
        self.judge_starts(starts, promised)
        for name, judge in self.promises.items():
            judge.after_pass(self.states[name], self.judge, waiting, self.now, self.config.backfill)
        if refuse and starts:
            self.refuse_last(starts)

    def judge_starts(self, starts: list[tuple[int, int, int, tuple[str, ...]]], promised: list[Promised]) -> None:
        """Every start is lawful, and none behind the first waiting job made that job wait longer.

        Where all or many hold promises (`promised`: before the pass), the first one moves nobody else's back.
        """
        started = {(job, task) for job, task, _, _ in starts}
        left = [t for t in self.judge.waiting(self.now) if (t.job, t.task) not in started and self.judge.possible(t)]
        head = min(left, key=self.rank) if left else None
        behind = []
        for start in starts:
            if head is None or self.rank(self.judge.tasks[start[:2]]) < self.rank(head):
                self.judge.start(*start, self.now)
            else:
                behind.append(start)
        planned = self.config.backfill in (Backfill.CONSERVATIVE, Backfill.TOP_K)
        earliest = INF if head is None else self.judge.earliest(head, self.now)
        if head is not None and planned:
            others = [one for one in promised if one.task is not head and one.task.state == "pending"]
            room = could_start_beside(self.judge, head, others, self.now)
            assert not room, f"{head.job}.{head.task} could have started beside all promises"
        for start in behind:
            self.judge.start(*start, self.now)
        if head is not None and earliest < INF and not planned:
            assert earliest > self.now, f"{head.job}.{head.task} could have started"
            later = self.judge.earliest(head, self.now)
            assert later <= earliest, f"{head.job}.{head.task} could start at {earliest} and now waits until {later}"

    def rank(self, task: Task) -> tuple[int, ...]:
        """Who is first, as the order of this engine says."""
        shortest = (task.planned_ms,) if self.config.order == "sjf" else ()
        return (-task.priority, *shortest, task.job, task.task)

    def whole_pass(self, state: State, name: str) -> list[tuple[int, int, int, tuple[str, ...]]]:
        starts = []
        cursor = None
        for _ in range(MAX_SLICES):
            plan = cycle(state, self.now, cursor=cursor)
            again = cycle(state, self.now, cursor=cursor)
            for column in ("starts", "rows", "reservations", "reservation_rows"):
                assert np.array_equal(getattr(plan, column), getattr(again, column)), f"{name}: unequal plans"
            for s in plan.starts:
                rows = plan.rows[s["row_offset"] : s["row_offset"] + s["row_count"]]
                names = tuple(state.node_name(int(r)) for r in rows)
                starts.append((int(s["job"]), int(s["task"]), int(s["attempt"]), names))
            if plan.changes:
                if name == "as configured":
                    self.log.append(PlanAssumed(plan))
                apply(state, PlanAssumed(plan))
            if plan.cursor is None:
                return starts
            cursor = plan.cursor
        raise AssertionError(f"{name}: the pass did not end within {MAX_SLICES} slices")

    def refuse_last(self, starts: list[Any]) -> None:
        job, task, attempt, _ = starts[-1]
        for state in self.states.values():
            block = np.zeros(1, cycle(state, self.now).starts.dtype)
            block[0]["job"], block[0]["task"], block[0]["attempt"], block[0]["entry"] = job, task, attempt, -1
        event = StartsRefused(block)
        self.happen(event)
        refused = self.judge.tasks[(job, task)]
        refused.state, refused.nodes, refused.start_ms = "pending", (), -1

    # ── what always holds ─────────────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def state_is_sound(self) -> None:
        for state in getattr(self, "states", {}).values():
            check_invariants(state)

    def teardown(self) -> None:
        if hasattr(self, "config"):
            replayed = new_state(self.first_config)
            for event in self.log:
                apply(replayed, event)
            assert state_digest(replayed) == state_digest(self.states["as configured"])


TestSafety = EngineSafety.TestCase
TestSafety.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
