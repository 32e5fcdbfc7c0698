"""A pass over a small site, whatever its policy, decides what the definition in plain Python says, task by task.

A site is drawn from a seed: nodes, attempts that run, work that waits, limits, licences, a strict queue, bookings. Its
first pass is compared; then the pass after more work has come behind all that waits, with the reservations that stand.
Of the policies that plan with timelines, the passes after other events are compared too: which reservations move then,
and where to.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from hal.core.engine import State, apply, cycle, new_state
from hal.core.engine.checks.digest import state_digest
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, Match, OwnerSpec, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    ADOPT,
    END,
    INF,
    SUBMIT,
    AllocationsAdopted,
    AttemptsEnded,
    BookingsChanged,
    ClockAdvanced,
    Health,
    JobsCancelled,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    PlanAssumed,
)
from hal.core.engine.plan import Plan
from hal.core.engine.tables.bookings import BookingSpec
from hal.core.engine.views import pending
from hal.core.kernels.structures import layout as L
from hal.core.kernels.timelines.lines import FEW_NODES
from hal.core.model.policy import Limit, Policy, Queue
from hal.core.model.resources import Resources
from tests.core.kernels import engine_reading as reading
from tests.core.kernels.reference_pass import Decision, Happened, decide
from tests.core.kernels.reference_state import Promise, ReferenceState, Task, Work
from tests.core.kernels.reference_tastes import TASTES
from tests.core.kernels.reference_topology import in_order
from tests.examples import examples

NOW = 100
AMOUNTS = ({"cpu": 1}, {"cpu": 2}, {"cpu": 4}, {"cpu": 1, "memory": 3}, {"cpu": 3}, {"memory": 4})
CAPACITIES = ({"cpu": 4, "memory": 8}, {"cpu": 8, "memory": 4}, {"cpu": 2, "memory": 4}, {"cpu": 4})
ON_RACK = ((), (), (), (Requirement("rack", Match.IN, ("a",)),), (Requirement("rack", Match.IN, ("b",)),))
WALLS = (1, 5, 10, 10, 20, 50, 200, INF)
LICENCES = {"matlab": 3, "idl": 1}
SLICES = 2_000

Starts = list[tuple[Task, list[int]]]


def draw_policy(r: Random) -> Policy:
    """Limits, licences and a strict queue, each or none."""
    limits = {
        "tasks": Limit(name="tasks", account="x", running=r.randint(0, 3)),
        "cpu": Limit(name="cpu", account="y", resources=Resources({"cpu": r.randint(1, 8)})),
        "each": Limit(name="each", user="*", running=r.randint(1, 3)),
    }
    return Policy(
        queues={"default": Queue(), "strict": Queue(name="strict", strict=True)},
        limits={name: limit for name, limit in limits.items() if r.random() < 0.3},
        licences=LICENCES,
    )


@dataclass
class Site:
    """Engines on the same events, and the reference."""

    r: Random
    config: EngineConfig
    bookings: bool
    sizes: tuple[int, ...] = (1, 2, 3, 3, 5)
    parking: bool = False
    """Of the engine that passes in slices."""
    now: int = NOW
    jobs: int = 0
    states: dict[str, State] = field(default_factory=dict)
    promised: dict[Task, Promise] = field(default_factory=dict)
    """By the definition, after the last pass."""

    def __post_init__(self) -> None:
        self.states = {
            "whole": new_state(self.config),
            "in slices": new_state(msgspec.structs.replace(self.config, parking=self.parking)),
        }
        self.reference = ReferenceState(self.config)
        r = self.r
        self.names = tuple(f"n{k}" for k in range(r.choice(self.sizes)))
        racks: tuple[dict[str, str], ...] = ({"rack": "a"}, {"rack": "b"}, {})
        self.happen(
            NodesChanged(
                tuple(
                    NodeSpec(n, dict(r.choice(CAPACITIES)), r.choice(racks), domains=self.domains()) for n in self.names
                )
            )
        )
        for node in self.reference.nodes:
            node.row = self.states["whole"].node_index(node.name)
        self.happen(ClockAdvanced(self.now))
        for _ in range(r.randint(0, 3)):
            self.adopt()
        if self.bookings:
            self.book()

    def domains(self) -> tuple[str, ...]:
        """Where a node is, if there is a topology."""
        if not self.config.levels:
            return ()
        return self.r.choice((("z1", "r1"), ("z1", "r2"), ("z1", "r10"), ("z2", "r1"), ("z2",), ("", "r1"), ()))

    def happen(self, event: Any) -> None:
        for state in self.states.values():
            apply(state, event)
        self.reference.apply(event)

    def kind(self) -> ClassSpec:
        r = self.r
        licences = r.choice(({}, {"matlab": 1}, {"matlab": 2}, {"idl": 1}, {"idl": 1, "matlab": 1}))
        licences = licences if self.config.policy is not None and r.random() < 0.5 else {}
        request, nodes, rack = dict(r.choice(AMOUNTS)), r.choice((1, 1, 1, 2, 3)), r.choice(ON_RACK)
        within = r.choice(("", "zone", "rack", "rack", "row")) if self.config.levels else ""
        return ClassSpec(request, nodes, rack, licences=dict(licences), within=within)

    def owner(self) -> OwnerSpec:
        r = self.r
        queue = "strict" if self.config.policy is not None and r.random() < 0.3 else "default"
        return OwnerSpec(queue=queue, account=r.choice("xyz"), user=r.choice(("ann", "bob")))

    def adopt(self) -> None:
        """One attempt that runs, where there is room for it and its licences."""
        r, kind = self.r, self.kind()
        free = {node.name: self.reference.free(node) for node in self.reference.nodes}
        rooms = [n for n in self.names if all(free[n].get(what, 0) >= much for what, much in kind.request.items())]
        if len(rooms) < kind.nodes or any(work.kind.licences for work in self.reference.running.values()):
            return
        names = tuple(r.sample(rooms, kind.nodes))
        self.jobs += 1
        wall, begun = r.choice((8, 20, 60, INF)), self.now - r.choice((0, 5, 10))
        planned = r.choice((-1, -1, 4))
        row = (self.jobs, 0, 1, 0, 0, 0, begun, begun, wall, planned, 0, len(names), 0, 0, 0, 0)
        rows = np.arange(len(names), dtype=np.int64)
        self.happen(AllocationsAdopted(np.array([row], ADOPT), rows, names, (kind,), (self.owner(),)))

    def book(self) -> None:
        """Bookings of others, of nodes where nothing runs."""
        r = self.r
        busy = {node.name for work in self.reference.running.values() for node in work.nodes}
        for k in range(r.randint(1, 2)):
            idle = [name for name in self.names if name not in busy]
            if idle:
                begin = self.now + r.choice((0, 5, 10, 30))
                booked = tuple(r.sample(idle, min(len(idle), r.randint(1, 2))))
                busy |= set(booked)
                spec = BookingSpec(f"b{k}", begin, begin + r.choice((5, 40)), booked, maintenance=True)
                self.happen(BookingsChanged((*self.reference.bookings, spec)))

    def submit(self, priorities: tuple[int, ...]) -> None:
        """A few jobs, most of them of kinds that others have."""
        r = self.r
        kinds = [self.kind() for _ in range(3)]
        for _ in range(r.randint(1, 5)):
            self.jobs += 1
            wall = r.choice(WALLS)
            planned = r.choice((-1, -1, 3)) if wall > 3 else -1
            tasks = r.choice((1, 1, 2, 4))
            row = (self.jobs, 0, tasks, 1, 0, 0, r.choice(priorities), self.now, self.now, 0, wall, planned, 0)
            self.happen(JobsSubmitted(np.array([row], SUBMIT), (r.choice(kinds),), (self.owner(),)))

    def wait_a_little(self) -> None:
        """Nothing that is planned comes due meanwhile."""
        self.now = min(self.now + 3, self.next_due() - 1)
        self.happen(ClockAdvanced(self.now))

    def next_due(self) -> int:
        """When the next attempt is to end, booking to begin or end, or promise to be kept."""
        due = [work.end_ms for work in self.reference.running.values()]
        due += [edge for booking in self.reference.bookings for edge in (booking.start_ms, booking.end_ms)]
        due += [promise.start_ms for promise in reading.promises(self.states["whole"]).values()]
        return min([at for at in due if self.now < at < INF], default=self.now + 4)

    # ── what happens to a site that has promised something ────────────────────────────────────────────────────────

    def end(self, works: list[Work]) -> Happened:
        """Attempts end, whatever was planned."""
        rows = np.zeros(len(works), END)
        for row, work in zip(rows, works, strict=True):
            row["job"], row["task"], row["attempt"] = work.job, work.task, work.attempt
        self.happen(AttemptsEnded(rows))
        return Happened(frozenset(node.row for work in works for node in work.nodes))

    def end_early(self) -> Happened:
        """One of the attempts that run ends before its planned end."""
        self.wait_a_little()
        running = list(self.reference.running.values())
        return self.end([self.r.choice(running)] if running else [])

    def end_as_planned(self) -> Happened:
        """All that is planned for an instant comes so: attempts end, and promises are to be kept."""
        self.now = self.next_due()
        self.happen(ClockAdvanced(self.now))
        return self.end([work for work in self.reference.running.values() if work.end_ms <= self.now])

    def end_late(self) -> Happened:
        """No attempt ends where it was planned to."""
        self.now = self.next_due()
        self.happen(ClockAdvanced(self.now))
        return Happened()

    def lose_a_node(self) -> Happened:
        """What runs there goes on."""
        self.wait_a_little()
        node = self.r.choice([node for node in self.reference.nodes if node.here])
        down = NodeSpec(node.name, node.capacity, node.labels, Health.DOWN, domains=node.domains)
        self.happen(NodesChanged((down,)))
        return Happened()

    def cancel_a_job(self) -> Happened:
        """One that waits; what it was promised is free."""
        self.wait_a_little()
        jobs = sorted({work.job for work in self.reference.waiting.values()})
        if not jobs:
            return Happened()
        gone = self.r.choice(jobs)
        promised = [promise for task, promise in self.promised.items() if task[0] == gone]
        self.happen(JobsCancelled(np.array([gone])))
        return Happened(frozenset(row for promise in promised for row in promise.rows if row >= 0))

    def submit_better(self) -> Happened:
        """Work that ranks before some that waits."""
        self.wait_a_little()
        before = set(self.reference.waiting)
        self.submit((9, 0, -5))
        return Happened(came=tuple(task for task in self.reference.waiting if task not in before))

    # ── a pass ────────────────────────────────────────────────────────────────────────────────────────────────────

    def compare_pass(self, kept: dict[Task, Promise], happened: Happened | None = None) -> None:
        """What each engine starts and promises is what the definition says; then it is true."""
        runs = [
            [(int(entry["job"]), int(entry["first_task"]) + k) for k in range(int(entry["tasks"]))]
            for entry in pending(self.states["whole"])
        ]
        expected = decide(self.reference, self.now, runs, kept, happened)
        self.expect_pure(self.states["whole"])
        self.expect_verdicts(cycle(self.states["whole"], self.now), expected)
        for name, state in self.states.items():
            starts = self.passed(state, None if name == "whole" else 1)
            promises = reading.promises(state)
            self.expect_ranks(starts)
            if self.config.backfill in (Backfill.CONSERVATIVE, Backfill.TOP_K):
                starts = [(task, sorted(rows)) for task, rows in starts]
                expected.starts = [(task, sorted(rows)) for task, rows in expected.starts]
                promises = {task: replace(promise, rows=sorted(promise.rows)) for task, promise in promises.items()}
                expected.promises = {
                    task: replace(promise, rows=sorted(promise.rows)) for task, promise in expected.promises.items()
                }
            assert starts == expected.starts, f"{name}: {starts} instead of {expected.starts}"
            assert promises == expected.promises, f"{name}: {promises} instead of {expected.promises}"
            check_invariants(state)
            self.expect_rest(state, name)
        for task, rows in expected.starts:
            work = self.reference.waiting.pop(task)
            work.nodes = [node for row in rows for node in self.reference.nodes if node.row == row]
            work.start_ms, work.where = self.now, "running"
            self.reference.running[task] = work
        self.promised = expected.promises

    def expect_ranks(self, starts: Starts) -> None:
        """Ranks of a gang that is placed by domain follow the topology."""
        nodes, levels = self.reference.nodes, len(self.config.levels)
        order = {node.row: in_order(node, levels) for node in nodes}
        if self.config.compact and any(any(node.domains) for node in nodes):
            assert all(rows == sorted(rows, key=order.__getitem__) for _task, rows in starts)

    def expect_pure(self, state: State) -> None:
        """A plan that nobody assumes leaves the state as it was, and the same call gives it again."""
        before = state_digest(state), reading.fits(state)
        one, other = (cycle(state, self.now) for _ in range(2))
        assert (state_digest(state), reading.fits(state)) == before
        assert one.starts.tolist() == other.starts.tolist()
        assert one.wake_ms == other.wake_ms

    def expect_verdicts(self, plan: Plan, expected: Decision) -> None:
        """Who is promised something is told why it does not start; who is told of a limit has none left."""
        said = {(row["job"], row["task"]): (row["reason"], row["short_rows"]) for row in plan.verdicts}
        assert len(said) == len(plan.verdicts)
        for task, (reason, short) in expected.reasons.items():
            licensed = self.reference.waiting[task].kind.licences
            either = {reason, L.REASON_LICENCE} if licensed else {reason}  # where both lack
            if licensed and reason == L.REASON_LICENCE:
                either.add(L.REASON_BOOKED)
            assert said.get(task) in {(one, short) for one in either}, f"{task}: {said.get(task)}"
        full = [work.name for work in expected.full]
        assert all(task in full for task, (reason, _short) in said.items() if reason == L.REASON_LEDGER)

    def expect_rest(self, state: State, name: str) -> None:
        """After the pass nothing is left to do, and where it may park what waits, nothing to look at.

        Behind a job of a strict queue that no node could hold, reservations are made again in each pass, as they were.
        """
        again = cycle(state, self.now)
        assert (len(again.starts), again.cursor) == (0, None)
        if self.config.policy is None:
            assert not again.changes
            assert again.work == 0 or name != "whole"

    def passed(self, state: State, budget: int | None) -> Starts:
        """The starts of a whole pass, with their nodes."""
        starts: Starts = []
        cursor = None
        for _ in range(SLICES):
            plan = cycle(state, self.now, budget=budget, cursor=cursor)
            for start in plan.starts:
                first = int(start["row_offset"])
                rows = plan.rows[first : first + int(start["row_count"])].tolist()
                starts.append(((int(start["job"]), int(start["task"])), rows))
            if plan.changes:
                apply(state, PlanAssumed(plan))
            cursor = plan.cursor
            if cursor is None:
                return starts
        raise AssertionError(f"a pass of more than {SLICES} slices")


def draw_site(
    seed: int, backfill: Backfill, *, plain: bool, bookings: bool, wide: bool = False, topology: bool = False
) -> Site:
    """Everything but the work that waits. `wide`: so many nodes that it is kept when each comes to hold a shape."""
    r = Random(seed)
    levels = ("zone", "rack") if topology else ()
    config = EngineConfig(
        backfill=backfill,
        order=r.choice(("fcfs", "fcfs", "sjf")),
        placement=r.choice(("first-fit", "best-fit")),
        claim_after_ms=INF,
        reservations=r.choice((1, 2, 10)),
        policy=None if plain else draw_policy(r),
        levels=levels,
        domains=r.choice(("smallest", "smallest", *TASTES)) if topology else "smallest",
        compact=seed % 4 != 3,
    )
    sizes = (FEW_NODES + 2, FEW_NODES + 9) if wide else (5, 6, 7) if topology else (1, 2, 3, 3, 5)
    return Site(r, config, bookings, sizes, parking=wide or seed % 3 == 1)


@pytest.mark.parametrize("topology", [False, True], ids=["flat", "in domains"])
@pytest.mark.parametrize("backfill", list(Backfill))
def test_a_pass_decides_what_its_definition_says(backfill: Backfill, topology: bool) -> None:
    """The first one, and the next one when more work has come behind, before anything is due."""
    # 49: work that could never start has a reservation without an instant, and its user's limit is full afterwards.
    for seed in (*range(examples(36)), 49):
        site = draw_site(seed, backfill, plain=seed % 3 == 0, bookings=seed % 3 != 1, topology=topology)
        try:
            site.submit((0, 0, 5, -5))
            site.compare_pass({})
            site.wait_a_little()
            site.submit((-9,))
            site.compare_pass(reading.promises(site.states["whole"]))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("topology", [False, True], ids=["flat", "in domains"])
@pytest.mark.parametrize("backfill", [Backfill.CONSERVATIVE, Backfill.TOP_K])
def test_after_an_event_only_those_promises_move_that_its_definition_says(backfill: Backfill, topology: bool) -> None:
    """Three events, one after the other, on sites without rules: what ends early or late, is lost, cancelled or better.

    What comes free makes nobody's promise later, unless an array started a task.
    """
    for seed in range(examples(36)):
        site = draw_site(seed, backfill, plain=True, bookings=seed % 4 == 0, wide=seed % 3 == 0, topology=topology)
        happenings = (
            *(site.end_early, site.end_as_planned, site.end_late),
            *(site.lose_a_node, site.cancel_a_job, site.submit_better),
        )
        told = []
        try:
            for _ in range(1 + len(site.names) // 4):
                site.submit((0, 0, 5, -5))
            site.submit((0, -5))
            site.compare_pass({})
            for _ in range(3):
                happening = site.r.choice(happenings)
                told.append(happening.__name__)
                happened = happening()
                kept = {task: promise for task, promise in site.promised.items() if task in site.reference.waiting}
                waited = list(site.reference.waiting)
                site.compare_pass(kept, happened)
                started = {job for job, task in waited if (job, task) not in site.reference.waiting}
                arrays = [job for job in started if sum(job == other for other, _task in waited) > 1]
                if happened.freed and not arrays:
                    now = {task: promise.start_ms for task, promise in site.promised.items()}
                    assert all(now.get(task, 0) <= promise.start_ms for task, promise in kept.items())
        except Exception as error:
            raise AssertionError(f"seed {seed}, {told}: {error}") from error
