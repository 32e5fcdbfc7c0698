"""A whole site in small, drawn by chance: its policy, its work and all that happens to them, played to engines.

A script is a list of happenings; each draws what it needs from a seed of its own and from what there is, so any part
of a script is a script (`shrink` uses that). The world keeps its own books in plain Python and judges what engines do:
no node and no licence is held twice, no limit of a job meets a booking, no limit of a user is exceeded, engines know
who waits and runs where, several engines decide alike, each comes to an end at every instant, asks for few wake-ups
while nothing happens, none of them too late, and leaves nothing pending that could start.
"""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from hal.core.engine import State, cycle, new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, Match, OwnerSpec, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    INF,
    AttemptsEnded,
    BookingsChanged,
    ClockAdvanced,
    ConfigChanged,
    Event,
    Health,
    JobsCancelled,
    JobsEligible,
    JobsHeld,
    JobsReleased,
    JobsSubmitted,
    JobsUpdated,
    NodesChanged,
    NodeSpec,
    RuntimesPredicted,
    StartsRefused,
    submit_rows,
    update_rows,
)
from hal.core.engine.plan import START, Plan
from hal.core.engine.scheduler import MOST_IDLE, Scheduler, Step
from hal.core.engine.tables.bookings import BookingSpec
from hal.core.engine.views import pending, reservations, reserved_rows, rows_of_run, running
from hal.core.kernels.structures import layout as L
from hal.core.model import Duration
from hal.core.model.policy import (
    Account,
    Discipline,
    Limit,
    Policy,
    PreemptMode,
    Qos,
    Queue,
    Reclaim,
)
from hal.core.model.resources import Resources

ALARM_S: Final = 60
"""Decisions of one instant may take so long; then the process ends with a traceback: a kernel cannot be interrupted."""
MOST_STEPS: Final = 20_000
"""Steps at one instant until an engine says that nothing is left to do."""
QUIET_WAKES: Final = 40
QUIET_WAKES_EACH: Final = 12
"""Wake-ups while nothing happens and none of them changes anything: so many, and so many for each task and booking."""
KINDS: Final = (Backfill.NONE, Backfill.EASY, Backfill.EASY_SJBF, Backfill.TOP_K, Backfill.CONSERVATIVE)
"""Of backfill, among which a site chooses. A new one is not added: each seed would be another site, those that found
something would no longer show it, and no record of decisions could be compared with one of before. It has sites of its
own."""
MODES: Final = (PreemptMode.REQUEUE, PreemptMode.SUSPEND, PreemptMode.CANCEL, PreemptMode.CHECKPOINT)


@contextmanager
def alarm() -> Iterator[None]:
    """Steps that do not come back end the process and say where it was. This starts a thread, which costs as much as a
    short step does: not for each of them."""
    faulthandler.dump_traceback_later(ALARM_S, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@dataclass
class Setup:
    """What a site is like before anything happens."""

    config: EngineConfig
    nodes: list[NodeSpec]
    slice_work: int
    loose: bool
    """Things happen between the slices of a pass, and only one engine is watched: others would see other slices."""


@dataclass
class Task:
    """One task of a job, in plain fields."""

    job: int
    task: int
    kind: ClassSpec
    owner: OwnerSpec
    wall_ms: int
    run_ms: int
    state: str = "pending"
    attempt: int = 1
    held: bool = False
    eligible_ms: int = 0
    start_ms: int = 0
    nodes: tuple[str, ...] = ()
    suspended: bool = False
    since_ms: int = 0
    """Suspended since."""
    leaves_ms: int = INF


@dataclass
class Watched:
    """One engine and what it has decided since it was last looked at."""

    name: str
    state: State
    scheduler: Scheduler
    plans: list[Plan] = field(default_factory=list)
    step: Step = field(default_factory=lambda: Step(more=False, wake_ms=INF, starts=0))


class Plans:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []

    def accept(self, plan: Plan) -> None:
        self.plans.append(plan)


# ── what is drawn ───────────────────────────────────────────────────────────────────────────────────────────────────

AMOUNTS: Final = (
    {"cpu": 1},
    {"cpu": 2},
    {"cpu": 2, "memory": 2, "gpu": 1},
    {"cpu": 4},
    {"cpu": 1, "memory": 3},
    {"cpu": 8},
)
CAPACITIES: Final = ({"cpu": 8, "memory": 4, "gpu": 2}, {"cpu": 4, "memory": 8}, {"cpu": 2, "memory": 2}, {"cpu": 8})
LABELS: Final = ({"rack": "a"}, {"rack": "b"}, {})
WALLS: Final = (1, 5, 30, 100, 400, INF, INF)
HAPPENINGS: Final = (
    "submit", "submit", "submit", "submit", "end", "end", "end", "pass_time", "pass_time", "pass_time", "to_wake",
    "to_wake", "cancel", "hold", "release", "meet_dependency", "update", "change_node", "change_bookings",
    "change_policy", "predict", "refuse", "be_quiet",
)  # fmt: skip


def draw_policy(r: Random) -> Policy | None:
    """Queues, accounts, limits, QOS: nothing at all, or any mixture."""
    if r.random() < 0.25:
        return None
    qos, queues, limits, accounts = {}, {"default": Queue()}, {}, {}
    if r.random() < 0.6:
        lower = [f"q{k}" for k in range(r.randint(1, 3))]
        for name in lower:
            mode = r.choice((*MODES, PreemptMode.OFF))
            qos[name] = Qos(name=name, preempt_mode=mode, grace=Duration(r.choice((0, 1, 10, 30))))
        takes = tuple(r.sample(lower, r.randint(1, len(lower))))
        qos["urgent"] = Qos(name="urgent", priority=r.choice((0, 10)), preempts=takes)
    if r.random() < 0.3:
        queues["slow"] = Queue(name="slow", preempt_mode=r.choice(MODES), grace=Duration(r.choice((0, 5))))
        queues["fast"] = Queue(name="fast", preempts=("slow",), priority=r.choice((0, 1)))
    if r.random() < 0.3:
        queues["strict"] = Queue(name="strict", strict=True, order=r.choice(list(Discipline)))
    if r.random() < 0.5:
        reclaim = r.choice(list(Reclaim))
        for name in ("red", "blue"):
            own = Resources({"cpu": r.randint(1, 8)})
            borrow = Resources({"cpu": r.randint(0, 8)}) if r.random() < 0.3 else None
            limits[name] = Limit(
                name=name, account=name, resources=own, cohort="colours", reclaim=reclaim, borrow=borrow
            )
    if r.random() < 0.3:
        limits["each"] = Limit(name="each", user="*", running=r.randint(1, 3))
    if r.random() < 0.2:
        limits["spent"] = Limit(
            name="spent",
            account="red",
            hours=Resources({"cpu": r.randint(1, 5)}),
            period=Duration(r.choice((900, 5_000))),
        )
    if r.random() < 0.4:
        accounts = {name: Account(name=name, weight=float(r.randint(1, 3))) for name in ("red", "blue")}
    licences = {"matlab": r.randint(1, 4)} if r.random() < 0.4 else {}
    return Policy(queues=queues, accounts=accounts, qos=qos, limits=limits, licences=licences)


def draw_setup(r: Random) -> Setup:
    """A site of a few nodes."""
    policy = draw_policy(r)
    config = EngineConfig(
        backfill=r.choice((*KINDS, Backfill.CONSERVATIVE, Backfill.TOP_K, Backfill.EASY)),
        order=r.choice(("fcfs", "sjf", "priority", "priority")) if policy is None else "priority",
        placement=r.choice(("first-fit", "best-fit")),
        claim_after_ms=r.choice((0, 20, 200, 600_000)),
        reservations=r.choice((1, 2, 10)),
        max_reservations=r.choice((1 << 20, 1 << 20, 2)),
        policy=policy,
        preempt_every_ms=r.choice((1, 1, 50)),
        min_run_ms=r.choice((0, 10, 60)),
        claim_patience_ms=r.choice((5, 60)),
        most_claims=r.choice((1_000, 1_000, 1)),
    )
    count = r.choice((1, 1, 2, 3, 4, 10))
    nodes = [NodeSpec(f"n{k}", dict(r.choice(CAPACITIES)), dict(r.choice(LABELS))) for k in range(count)]
    return Setup(config, nodes, r.choice((1, 3, 8, 40, 200)), r.random() < 0.4)


def draw_script(seed: int, length: int) -> tuple[Setup, list[tuple[str, int]]]:
    """A site and what happens there."""
    r = Random(seed)
    setup = draw_setup(r)
    return setup, [(r.choice(HAPPENINGS), r.getrandbits(32)) for _ in range(length)]


# ── the world ───────────────────────────────────────────────────────────────────────────────────────────────────────


class PolicyWorld:
    """Engines on the same events, and what is true of the site."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.config = setup.config
        self.now = 0
        self.next_job = 1
        self.version = 0
        self.tasks: dict[tuple[int, int], Task] = {}
        self.nodes: dict[str, NodeSpec] = {}
        self.bookings: tuple[BookingSpec, ...] = ()
        self.engines = [self._watched(name) for name in (("in slices",) if setup.loose else self._configs(self.config))]
        self.feed(NodesChanged(tuple(setup.nodes)))
        self.nodes = {node.name: node for node in setup.nodes}

    def _configs(self, config: EngineConfig) -> dict[str, EngineConfig]:
        return {
            "as configured": config,
            "in slices": replace(config, slice_work=self.setup.slice_work, fast_work=self.setup.slice_work),
            "without parking": replace(config, parking=False),
            "with nothing kept": config,
        }

    def _watched(self, name: str) -> Watched:
        state = new_state(self._configs(self.config)[name])
        sink = Plans()
        return Watched(name, state, Scheduler(state, sink), sink.plans)

    # ── events and steps ────────────────────────────────────────────────────────────────────────────────────────────

    def feed(self, event: Event) -> None:
        """Tell every engine."""
        with alarm():
            for one in self.engines:
                config = self._configs(event.config)[one.name] if isinstance(event, ConfigChanged) else None
                one.scheduler.feed(event if config is None else ConfigChanged(config))

    def step(self, one: Watched) -> None:
        """One slice of one engine."""
        if one.name == "with nothing kept":
            one.state.renew_timelines()
            one.state.rewire()
        one.step = one.scheduler.step(self.now)
        assert one.step.more or one.step.wake_ms > self.now, f"{one.name} wants to be called at {one.step.wake_ms}"

    def settle(self) -> int:
        """Every engine decides until nothing is left to do at this instant. How many decisions it came to."""
        decided = 0
        for _ in range(MOST_STEPS):
            with alarm():  # for all of them: each is a thread
                for one in self.engines:
                    for _ in range(MOST_STEPS):
                        self.step(one)
                        if not one.step.more:
                            break
                    else:
                        raise AssertionError(f"{one.name} does not end at {self.now}")
            new = self.take_decisions()
            decided += new
            if not new or all(not one.step.more for one in self.engines):
                break
        for one in self.engines:
            check_invariants(one.state)
        self.judge_books()
        self.judge_liveness()
        self.judge_wake()
        return decided

    def take_decisions(self) -> int:
        """What engines decided since the last time, which must be the same, becomes true; how many decisions."""
        stories = [[line for plan in one.plans for line in self.story(one.state, plan)] for one in self.engines]
        for one, story in zip(self.engines, stories, strict=True):
            assert story == stories[0], f"{self.now}: {one.name}: {story} instead of {stories[0]}"
            one.plans.clear()
        for line in stories[0]:
            self.make_true(*line)
        return len(stories[0])

    @staticmethod
    def story(state: State, plan: Plan) -> list[tuple[str, int, int, int, Any]]:
        """A plan in plain words: what, job, task, attempt, nodes or mode and grace."""
        lines: list[tuple[str, int, int, int, Any]] = []
        for move in plan.preemptions:
            how = int(move["mode"]), int(move["grace_ms"])
            lines.append(("take", int(move["job"]), int(move["task"]), int(move["attempt"]), how))
        for move in plan.resumes:
            lines.append(("resume", int(move["job"]), int(move["task"]), int(move["attempt"]), None))
        for start in plan.starts:
            rows = plan.rows[start["row_offset"] : start["row_offset"] + start["row_count"]]
            names = tuple(state.node_name(int(row)) for row in rows)
            lines.append(("start", int(start["job"]), int(start["task"]), int(start["attempt"]), names))
        return lines

    def make_true(self, what: str, job: int, number: int, attempt: int, how: Any) -> None:
        """One decision, judged and noted."""
        task = self.tasks[job, number]
        if what == "start":
            assert task.state == "pending", f"{job}.{number} is {task.state} and was started"
            assert attempt == task.attempt, f"{job}.{number}: attempt {attempt} instead of {task.attempt}"
            assert not task.held, f"{job}.{number} is held"
            assert task.eligible_ms <= self.now, f"{job}.{number} is not eligible before {task.eligible_ms}"
            assert len(set(how)) == task.kind.nodes == len(how), f"{job}.{number} got {how}"
            task.state, task.nodes, task.start_ms = "running", how, self.now
            task.suspended, task.leaves_ms = False, INF
            for name in how:
                self.judge_node(name)
                self.judge_bookings(task, name)
            self.judge_licences()
            self.judge_limits(task)
            return
        assert task.state == "running", f"{job}.{number} is {task.state}: {what}"
        assert task.attempt == attempt
        if what == "resume":
            task.suspended = False
            task.start_ms += self.now - task.since_ms  # what it stood still is no part of its time
            for name in task.nodes:
                self.judge_node(name)
        elif how[0] == L.MODE_SUSPEND:
            task.suspended, task.since_ms = True, self.now
        else:
            task.leaves_ms = self.now + how[1]

    # ── judges ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def running(self) -> list[Task]:
        return [task for task in self.tasks.values() if task.state == "running"]

    def judge_node(self, name: str) -> None:
        """No more is held of a node than it has; who stands still holds no cpu."""
        held: dict[str, int] = {}
        for task in self.running():
            if name in task.nodes:
                for resource, amount in task.kind.request.items():
                    if not (task.suspended and resource == "cpu"):
                        held[resource] = held.get(resource, 0) + amount
        there = self.nodes[name].capacity
        assert all(amount <= there.get(r, 0) for r, amount in held.items()), f"{name} holds {held} of {there}"

    def judge_licences(self) -> None:
        used: dict[str, int] = {}
        for task in self.running():
            for name, amount in task.kind.licences.items():
                used[name] = used.get(name, 0) + amount
        policy = self.config.policy
        total = {} if policy is None else policy.licences
        assert all(amount <= total.get(name, 0) for name, amount in used.items()), f"licences: {used} of {total}"

    def judge_limits(self, started: Task) -> None:
        """No user runs more tasks than each may, and a cohort holds no more than its limits have together."""
        policy = self.config.policy
        limits = {} if policy is None else policy.limits
        if "each" in limits and started.owner.user:
            mine = [task for task in self.running() if task.owner.user == started.owner.user]
            assert len(mine) <= (limits["each"].running or 0), f"{started.owner.user} runs {len(mine)} tasks"
        cohort = [limit for limit in limits.values() if limit.cohort]
        if started.owner.account in {limit.account for limit in cohort}:
            lent = sum((limit.resources or {})["cpu"] for limit in cohort)
            held = [task for task in self.running() if task.owner.account in {limit.account for limit in cohort}]
            used = sum(task.kind.request["cpu"] * task.kind.nodes for task in held)
            assert used <= lent, f"a cohort of {lent} cpus holds {used}"

    def judge_books(self) -> None:
        """Who waits and who runs where is what happened, and what was decided."""
        waiting = {
            (task.job, task.task): (task.attempt, task.held, max(task.eligible_ms, self.now))
            for task in self.tasks.values()
            if task.state == "pending"
        }
        running_on = {(task.job, task.task): (task.attempt, task.start_ms, task.nodes) for task in self.running()}
        for one in self.engines:
            state = one.state
            there = {
                (int(entry["job"]), int(entry["first_task"]) + k): (
                    int(entry["attempt"]), bool(entry["held"]), max(int(entry["eligible_ms"]), self.now)
                )
                for entry in pending(state)
                for k in range(int(entry["tasks"]))
            }  # fmt: skip
            claims = {(int(run["job"]), int(run["task"])) for run in running(state) if int(run["state"]) == L.RUN_CLAIM}
            left = {task: known for task, known in waiting.items() if task not in claims}
            assert there == left, f"{one.name} has {there} waiting instead of {left}"
            on = {
                (int(run["job"]), int(run["task"])): (
                    int(run["attempt"]), int(run["start_ms"]),
                    tuple(state.nodes.names[row] for row in rows_of_run(state, int(run["run"]))),
                )
                for run in running(state)
                if int(run["state"]) != L.RUN_CLAIM
            }  # fmt: skip
            assert on == running_on, f"{one.name} has {on} running instead of {running_on}"

    def judge_wake(self) -> None:
        """Before it asks to be called again, an engine that nothing happens to would start nothing.

        Where an attempt outlives its plan what waits is planned behind it anew at each look, and may come to fit.
        """
        one = self.engines[0]
        if one.step.more or one.step.rests or one.step.wake_ms >= INF:
            return
        if any(int(run["end_ms"]) < one.step.wake_ms for run in running(one.state)):
            return
        with alarm():
            plan = cycle(one.state, one.step.wake_ms - 1)
        assert not len(plan.starts), f"woken at {one.step.wake_ms}, and could start {plan.starts} before"

    def judge_bookings(self, task: Task, name: str) -> None:
        """A walltime meets no booking of the node but its own."""
        for booking in self.bookings:
            if name in booking.nodes and booking.end_ms > self.now and booking.serves != task.kind.booking:
                late = min(self.now + task.wall_ms, INF)
                own = [b.end_ms for b in self.bookings if task.kind.booking and b.serves == task.kind.booking]
                late = min([late, *(end for end in own if end > self.now)])
                assert late <= booking.start_ms, f"{task.job}.{task.task} on {name} runs into {booking.name}"

    def judge_liveness(self) -> None:
        """Nothing that fits on nodes that nobody was promised, and that nothing forbids, is still pending.

        Where limits, strict queues or bookings have a say this does not judge.
        """
        policy = self.config.policy
        if self.config.backfill is Backfill.NONE or (
            policy is not None and (policy.limits or "strict" in policy.queues)
        ):
            return
        state = self.engines[0].state
        promises = [row for row in reservations(state) if row["entry"] >= 0]
        kept = {state.node_name(row) for row in reserved_rows(state).tolist() if row >= 0}
        free = {name: dict(node.capacity) for name, node in self.nodes.items()}
        for run in running(state):
            spec = state.catalogue.class_specs[int(run["class_id"])]
            assert spec is not None
            for row in rows_of_run(state, int(run["run"])):
                if state.nodes.names[row] in free:
                    for resource, amount in spec.request.items():
                        if not (int(run["state"]) == L.RUN_SUSPENDED and resource == "cpu"):
                            have = free[state.nodes.names[row]]
                            have[resource] = have.get(resource, 0) - amount
        booked = {name for booking in self.bookings if booking.end_ms > self.now for name in booking.nodes}
        claimed = {(int(run["job"]), int(run["task"])) for run in running(state) if int(run["state"]) == L.RUN_CLAIM}
        wanted = any(row["kind"] == L.KIND_NEVER for row in promises)
        for task in self.tasks.values():
            if task.state != "pending" or task.held or task.eligible_ms > self.now or task.kind.licences:
                continue
            if task.kind.booking or (task.job, task.task) in claimed or (wanted and task.wall_ms >= INF):
                continue
            fit = [
                name
                for name, node in self.nodes.items()
                if name not in kept
                and name not in booked
                and node.health is Health.UP
                and all(need.holds(node.labels) for need in task.kind.constraints)
                and all(amount <= free[name].get(r, 0) for r, amount in task.kind.request.items())
            ]
            assert len(fit) < task.kind.nodes, f"{self.now}: {task.job}.{task.task} fits on {fit} and still waits"

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────────────

    def play(self, script: Sequence[tuple[str, int]]) -> None:
        """All of it, each followed by decisions: all that are due, or in a loose world a few slices."""
        for what, seed in script:
            r = Random(seed)
            getattr(self, what)(r)
            if self.setup.loose and r.random() < 0.6:
                with alarm():
                    for one in self.engines:
                        for _ in range(r.randint(0, 4)):
                            self.step(one)
                self.take_decisions()
            else:
                self.settle()
        self.be_quiet(Random(0))

    def submit(self, r: Random) -> None:
        policy = self.config.policy
        for _ in range(r.choice((1, 1, 2, 4))):
            own = [booking.serves for booking in self.bookings if booking.serves]
            booking = r.choice(own) if own and r.random() < 0.5 else ""
            constraints = r.choice(((), (), (), (Requirement("rack", Match.IN, ("a",)),)))
            licences = (
                {"matlab": r.randint(1, 2)} if policy is not None and policy.licences and r.random() < 0.3 else {}
            )
            gang = r.choice((1, 1, 1, 2, 3))
            kind = ClassSpec(dict(r.choice(AMOUNTS)), gang, constraints, booking, licences)
            owner = OwnerSpec(
                queue="default" if policy is None else r.choice(list(policy.queues)),
                account=r.choice(("", "red", "blue")),
                user=r.choice(("", "ann", "bob")),
                qos="" if policy is None or not policy.qos else r.choice((*policy.qos, "", "urgent")),
            )
            rows = submit_rows(1)
            tasks = r.choice((1, 1, 1, 3, 6))
            wall = r.choice(WALLS)
            lengths = [b.end_ms - b.start_ms for b in self.bookings if b.serves == booking and booking]
            if lengths:
                wall = r.choice((*lengths, wall))
            held, delay = r.random() < 0.1, r.choice((0, 0, 0, 0, 30, None))
            rows["job"], rows["tasks"], rows["submit_ms"] = self.next_job, tasks, self.now
            rows["priority"] = r.choice((0, 0, 0, 5, -5))
            rows["walltime_ms"], rows["held"] = wall, held
            rows["planned_ms"] = r.choice((-1, -1, 3)) if wall > 3 else -1
            rows["eligible_ms"] = INF if delay is None else self.now + delay
            self.feed(JobsSubmitted(rows, (kind,), (owner,)))
            for number in range(tasks):
                self.tasks[self.next_job, number] = Task(
                    self.next_job, number, kind, owner, wall, r.randint(1, 150 if wall >= INF else wall),
                    held=held, eligible_ms=int(rows["eligible_ms"][0]),
                )  # fmt: skip
            self.next_job += 1

    def leave(self, task: Task, r: Random, *, requeue: bool, cancelled: bool = False) -> None:
        rows = np.zeros(1, END)
        rows[0] = (task.job, task.task, task.attempt, int(requeue), 0, 0, 0)
        delay = r.choice((0, 0, 20)) if requeue else 0
        if delay:
            rows["eligible_ms"] = self.now + delay
        self.feed(AttemptsEnded(rows))
        task.nodes, task.suspended, task.leaves_ms = (), False, INF
        if requeue:
            task.state, task.attempt, task.eligible_ms, task.held = "pending", task.attempt + 1, self.now + delay, False
        else:
            task.state = "ended"

    def end(self, r: Random) -> None:
        """An attempt ends by itself, or because it was told to."""
        there = self.running()
        if there:
            told = [task for task in there if task.leaves_ms < INF]
            task = r.choice(told) if told and r.random() < 0.7 else r.choice(there)
            self.leave(task, r, requeue=task.leaves_ms < INF or r.random() < 0.15)

    def pass_time(self, r: Random) -> None:
        """Time goes on; what is due to end meanwhile ends, now and then a little late."""
        self.advance(self.now + r.choice((0, 1, 5, 30, 100, 700)), r)

    def to_wake(self, r: Random) -> None:
        wake = min(one.step.wake_ms for one in self.engines)
        self.advance(min(wake, self.now + 2_000), r)

    def advance(self, until: int, r: Random) -> None:
        late = r.choice((0, 0, 3))
        for task in self.running():
            if not task.suspended and min(task.start_ms + task.run_ms, task.leaves_ms) + late <= until:
                due = max(self.now, min(task.start_ms + task.run_ms, task.leaves_ms))
                if due > self.now and r.random() < 0.5 and not self.setup.loose:
                    self.now = due
                    self.settle()
                if task.state == "running":
                    self.leave(task, r, requeue=task.leaves_ms <= self.now)
        self.now = max(self.now, until)
        for booking in self.bookings:
            if booking.end_ms <= self.now:
                for task in self.running():
                    if task.kind.booking and task.kind.booking == booking.serves:
                        self.leave(task, r, requeue=False)

    def be_quiet(self, r: Random) -> None:
        """Nothing happens for a long time: engines ask to be woken a bounded number of times, and come to rest."""
        self.settle()
        most = QUIET_WAKES + QUIET_WAKES_EACH * (len(self.tasks) + len(self.bookings))
        wakes = 0
        until = self.now + 3_000
        if any(int(run["end_ms"]) <= until for one in self.engines for run in running(one.state)):
            most += MOST_IDLE  # an attempt outlives its plan: what waits is planned behind it again and again
        while (wake := min(one.step.wake_ms for one in self.engines)) <= until:
            self.now = wake
            wakes = 0 if self.settle() else wakes + 1
            assert wakes <= most, f"woken {wakes} times for nothing until {self.now}"

    def _some_job(self, r: Random, state: str = "pending") -> int | None:
        jobs = sorted({task.job for task in self.tasks.values() if task.state == state})
        return r.choice(jobs) if jobs else None

    def _pending_of(self, job: int) -> list[Task]:
        return [task for task in self.tasks.values() if task.job == job and task.state == "pending"]

    def cancel(self, r: Random) -> None:
        job = self._some_job(r)
        if job is None:
            return
        first, count = (0, 1 << 30) if r.random() < 0.6 else (r.randint(0, 3), 2)
        ids = np.array([job])
        # A claim is a task that waits: what a person changes gives it up, and what is cancelled is gone.
        self.feed(JobsCancelled(ids, np.array([first]), np.array([count])))
        for task in self._pending_of(job):
            if first <= task.task < first + count:
                task.state = "ended"

    def hold(self, r: Random) -> None:
        job = self._some_job(r)
        if job is not None:
            self.feed(JobsHeld(np.array([job])))
            for task in self._pending_of(job):
                task.held = True

    def release(self, r: Random) -> None:
        job = self._some_job(r)
        if job is not None:
            self.feed(JobsReleased(np.array([job])))
            for task in self._pending_of(job):
                task.held = False

    def meet_dependency(self, r: Random) -> None:
        job = self._some_job(r)
        if job is not None and any(task.eligible_ms >= INF for task in self._pending_of(job)):
            self.feed(JobsEligible(np.array([job]), np.array([self.now])))
            for task in self._pending_of(job):
                task.eligible_ms = self.now

    def update(self, r: Random) -> None:
        job = self._some_job(r)
        if job is None:
            return
        rows = update_rows(1)
        rows["job"], rows["priority"] = job, r.choice((0, 9, -9))
        wall = r.choice((None, 5, 50, INF))
        if any(task.job == job and task.state == "running" for task in self.tasks.values()):
            wall = None  # it might run into a booking, which is for the controller to refuse
        if wall is not None:
            rows["walltime_ms"], rows["planned_ms"] = wall, -1
        self.feed(JobsUpdated(rows))
        for task in self._pending_of(job):
            task.wall_ms = task.wall_ms if wall is None else wall

    def change_node(self, r: Random) -> None:
        what = r.random()
        if what < 0.2 and len(self.nodes) < 12:
            node = NodeSpec(f"n{self.version}x", dict(r.choice(CAPACITIES)), dict(r.choice(LABELS)))
            self.version += 1
        elif not self.nodes:
            return
        else:
            node = self.nodes[r.choice(sorted(self.nodes))]
            if what < 0.4 and not any(node.name in task.nodes for task in self.running()):
                self.feed(NodesChanged(removed=(node.name,)))
                del self.nodes[node.name]
                return
            health = r.choice((Health.UP, Health.UP, *Health))
            node = NodeSpec(node.name, node.capacity, node.labels, health)
        self.feed(NodesChanged((node,)))
        self.nodes[node.name] = node

    def change_bookings(self, r: Random) -> None:
        keep = [b for b in self.bookings if b.end_ms > self.now and r.random() < 0.7]
        for _ in range(r.randint(0, 2)):
            if not self.nodes:
                break
            self.version += 1
            begin = self.now + r.choice((1, 20, 100, 700))
            licences = {}
            policy = self.config.policy
            if policy is not None and policy.licences and r.random() < 0.3:
                licences = {"matlab": 1}
            nodes = tuple(r.sample(sorted(self.nodes), r.randint(0 if licences else 1, min(2, len(self.nodes)))))
            keep.append(
                BookingSpec(
                    name=f"b{self.version}", start_ms=begin, end_ms=begin + r.choice((1, 30, 300, 2_000)), nodes=nodes,
                    maintenance=r.random() < 0.2, early=r.random() < 0.2, overlap=True, licences=licences,
                )
            )  # fmt: skip
        self.feed(ClockAdvanced(self.now))
        gone = {b.serves for b in self.bookings} - {b.serves for b in keep}
        for task in self.running():
            if task.kind.booking in gone and task.kind.booking:
                self.leave(task, r, requeue=False)
        self.bookings = tuple(keep)
        self.feed(BookingsChanged(self.bookings))

    def change_policy(self, r: Random) -> None:
        if r.random() < 0.5:
            backfill = r.choice(KINDS)
            config = replace(self.config, backfill=backfill, placement=r.choice(("first-fit", "best-fit")))
        else:
            config = replace(self.config, claim_after_ms=r.choice((0, 20, 200)), reservations=r.choice((1, 3)))
        self.config = config
        self.feed(ConfigChanged(config))

    def predict(self, r: Random) -> None:
        jobs = sorted({task.job for task in self.tasks.values() if task.state != "ended"})
        if jobs:
            some = sorted(r.sample(jobs, min(len(jobs), 3)))
            self.version += 1
            expected = np.array([r.choice((1, 10, 60)) for _ in some])
            self.feed(RuntimesPredicted(self.version, np.array(some), expected, self.now + r.choice((50, 5_000))))

    def refuse(self, r: Random) -> None:
        """The newest start did not happen."""
        there = [task for task in self.running() if task.start_ms == self.now and task.leaves_ms == INF]
        there = [task for task in there if not task.suspended]
        if there:
            task = there[-1]
            block = np.zeros(1, START)
            block["job"], block["task"], block["attempt"], block["entry"] = task.job, task.task, task.attempt, -1
            self.feed(StartsRefused(block))
            task.held = any(other.held for other in self._pending_of(task.job))  # what was asked of its job meanwhile
            task.state, task.nodes = "pending", ()


def play(setup: Setup, script: Sequence[tuple[str, int]]) -> None:
    """A world from its beginning."""
    PolicyWorld(setup).play(script)


def shrink(
    setup: Setup, script: list[tuple[str, int]], fails: Callable[[Setup, list[tuple[str, int]]], bool]
) -> list[tuple[str, int]]:
    """A shorter script that still fails: parts are left out as long as it does."""
    size = max(len(script) // 2, 1)
    while True:
        at = 0
        smaller = False
        while at < len(script):
            shorter = script[:at] + script[at + size :]
            if fails(setup, shorter):
                script, smaller = shorter, True
            else:
                at += size
        if size == 1 and not smaller:
            return script
        size = max(size // 2, 1)
