"""A month of a mixed cluster under virtual time, from one seed; the engine decides.

People, failures of nodes, limits, bookings, licences, work that is taken back or moved, elastic jobs, racks, taints,
GPUs and parts of them. The engine runs behind its production `Scheduler`, and production's book binds GPUs. What is
decided is played here, written to a log that must be equal byte for byte whenever the seed is, and judged by books of
its own: amounts on each node, the parts of each GPU, what each limit has in use, whose time it is on which node, who is
in one rack, whether the base of an extension runs, whether what is moved may be.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from hal.core.engine import new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, Match, OwnerSpec, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    AttemptsEnded,
    BookingsChanged,
    ConfigChanged,
    JobsCancelled,
    JobsHeld,
    JobsReleased,
    JobsSubmitted,
    JobsUpdated,
    NodesChanged,
    NodeSpec,
    StartsRefused,
    submit_rows,
    update_rows,
)
from hal.core.engine.plan import MOVED, Plan
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.tables.bookings import BookingSpec
from hal.core.engine.tables.qos import MODE_NAMES
from hal.core.model import NodeState
from hal.core.model.devices import GPU, GPU_ISLAND, WHOLE, HeldGpus, beside, is_counted_beside
from hal.core.model.facts import Facts, GpuFacts
from hal.core.model.gpu_reserves import GpuReserves
from hal.core.model.policy import (
    Account,
    Discipline,
    FairShare,
    Limit,
    Policy,
    PreemptMode,
    Qos,
    Queue,
    Weights,
)
from hal.core.model.resources import Resources
from hal.core.model.topology.tree import Domain, Topology
from hal.core.model.units import Duration
from hal.planes.tasks import GpuBook, node_spec
from hal.store.operations import NodeAbout, NodeRow

SECOND_MS: Final = 1_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
EPOCH_MS: Final = 1_767_225_600_000
"""Where the virtual clock begins: 2026-01-01."""
MAX_SLICES: Final = 10_000
"""Slices in a row at one instant; beyond it the engine spins."""
DRAIN_DAYS: Final = 60
"""What was submitted has ended so long after the last submission."""

MEAN_PAUSE_S: Final = 160_000
"""Between two submissions by day, for each node of the cluster."""
RUNNING_OF_A_USER: Final = 120
GPUS_OF_ML: Final = 200
GPUS_OF_A_NODE: Final = 8
MILLI_OF_ML: Final = (300, 500, 1_000, 1_000, 2_000, 4_000, 8_000, 8_000)
"""What its jobs ask for of each node, thousandths of GPUs."""
NODES_OF_A_RACK: Final = 8
RACKS_OF_A_ROW: Final = 5
LEVELS: Final = ("row", "rack")
KEPT_FOR_GPUS: Final = {"gpu": ""}
"""Taint of every third node with GPUs: only work that wants some tolerates it."""
UPKEEP: Final = {"upkeep": "disk"}
"""Taint of nodes that somebody looks after for some hours: what runs there stays, and a little work tolerates it."""
CPUS_OF_A_LAB: Final = 3_000
"""Of the limits `bio` and `phys`, which lend each other what they do not use."""
LICENCES: Final = 12
"""Of `solver`, over the whole cluster."""
MAINTENANCE_H: Final = 4
"""Each seventh day, from eight in the morning, on an eighth of the nodes."""
COURSE_H: Final = 3
"""Each day, from one in the afternoon: so long a tenth of the nodes are for a course; which, the engine chooses."""
GUEST_GPU_HOURS: Final = 400
PERIOD_MS: Final = 7 * DAY_MS

MOVED_FOR: Final = 2
"""Work that may be moved is moved for jobs of so many nodes."""

ACCOUNTS: Final = {"ml": ("nlp", "vision"), "labs": ("bio", "phys", "chem"), "guests": ("guest",)}


def policy_of(half_life_h: int = 24) -> Policy:
    """Queues, accounts, limits: everything that this cluster has."""
    accounts = {parent: Account(name=parent, weight=2.0) for parent in ACCOUNTS}
    for parent, projects in ACCOUNTS.items():
        accounts |= {name: Account(name=name, parent=parent) for name in projects}
    return Policy(
        queues={
            "default": Queue(),
            "short": Queue(name="short", priority=2, max_walltime=Duration(2 * HOUR_MS)),
            "night": Queue(name="night", hours=("mon-sun 20:00-06:00",)),
            "turns": Queue(name="turns", order=Discipline.ROUND_ROBIN),
        },
        accounts=accounts,
        qos={
            "normal": Qos(name="normal"),
            "high": Qos(name="high", priority=50, preempts=("spot", "saved", "idle")),
            "spot": Qos(name="spot", preempt_mode=PreemptMode.REQUEUE, grace=Duration(30 * SECOND_MS)),
            "saved": Qos(name="saved", preempt_mode=PreemptMode.CHECKPOINT, grace=Duration(120 * SECOND_MS)),
            "idle": Qos(name="idle", preempt_mode=PreemptMode.SUSPEND),
        },
        licences={"solver": LICENCES},
        limits={
            "user": Limit(name="user", user="*", running=RUNNING_OF_A_USER),
            "ml": Limit(name="ml", account="ml", resources=Resources({"gpu": GPUS_OF_ML * WHOLE})),
            "bio": Limit(name="bio", account="bio", resources=Resources({"cpu": CPUS_OF_A_LAB}), cohort="labs"),
            "phys": Limit(name="phys", account="phys", resources=Resources({"cpu": CPUS_OF_A_LAB}), cohort="labs"),
            "guest": Limit(
                name="guest",
                account="guest",
                hours=Resources({"gpu": GUEST_GPU_HOURS * WHOLE}),
                period=Duration(PERIOD_MS),
            ),
        },
        weights=Weights(age=50.0, fairshare=10_000.0, size=1.0),
        fairshare=FairShare(half_life=Duration(half_life_h * HOUR_MS)),
    )


@dataclass(slots=True)
class Task:
    """One task, as the outside world sees it."""

    spec: ClassSpec
    owner: OwnerSpec
    walltime_ms: int
    run_ms: int
    attempt: int = 1
    nodes: tuple[str, ...] = ()
    gpus: tuple[HeldGpus, ...] = ()
    """Of each of its nodes."""
    since_ms: int = -1
    left_ms: int = 0
    """What is to be done after the last suspension."""
    begun_ms: int = 0
    """When that began."""
    suspended: bool = False
    turn: int = 0
    """Counts changes of what it does, so that an end planned before one of them is not believed."""
    over: bool = False


@dataclass(slots=True)
class Books:
    """What is in use, by this side's own arithmetic."""

    free: dict[str, dict[str, int]]
    cards: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Thousandths held, by node and GPU."""
    users: Counter[str] = field(default_factory=Counter)
    ml_gpus: int = 0
    lab_cpus: Counter[str] = field(default_factory=Counter)
    licences: int = 0
    guest_ms: Counter[int] = field(default_factory=Counter)
    """Thousandths of GPUs times milliseconds of guests, by the period in which they started."""

    def move(self, task: Task, sign: int) -> None:
        """A task takes (1) or gives back (-1) what it asks for."""
        for name, amount in task.spec.request.items():
            if not is_counted_beside(name) and (name != "cpu" or not task.suspended):
                self.hold(task, name, sign * amount)
        for node, gpus in zip(task.nodes, task.gpus, strict=False):
            assert sum(one.milli for one in gpus) == task.spec.request[GPU], f"{node}: GPUs of another number"
            for one in gpus:
                self.cards[node, one.id] += sign * one.milli
                assert self.cards[node, one.id] <= WHOLE, f"{one.id} of {node} is given more than once over"
        self.licences += sign * task.spec.licences.get("solver", 0)
        assert self.licences <= LICENCES, "more licences are used than there are"
        width = task.spec.nodes
        self.users[task.owner.user] += sign
        assert self.users[task.owner.user] <= RUNNING_OF_A_USER, f"{task.owner.user} runs too much"
        if task.owner.account in ACCOUNTS["ml"]:
            self.ml_gpus += sign * width * task.spec.request.get("gpu", 0)
            assert self.ml_gpus <= GPUS_OF_ML * WHOLE, "ml holds too many GPUs"
        if task.owner.account in ("bio", "phys"):
            self.lab_cpus[task.owner.account] += sign * width * task.spec.request.get("cpu", 0)
            assert self.lab_cpus.total() <= 2 * CPUS_OF_A_LAB, "the labs hold more than they have together"

    def hold(self, task: Task, name: str, amount: int) -> None:
        """So much more of a resource on each of the task's nodes."""
        for node in task.nodes:
            free = self.free[node]
            free[name] = free.get(name, 0) - amount
            assert free[name] >= 0, f"{node} has too little {name}"

    def ran(self, task: Task, now_ms: int) -> None:
        """A guest's GPU hours count for the period in which they were begun."""
        gpus = task.spec.nodes * task.spec.request.get("gpu", 0)
        if task.owner.account == "guest" and gpus:
            period = task.since_ms // PERIOD_MS
            self.guest_ms[period] += gpus * (now_ms - task.since_ms)
            assert self.guest_ms[period] <= GUEST_GPU_HOURS * WHOLE * HOUR_MS, "guests used more hours than they have"


def _topology(names: list[str]) -> Topology:
    """Racks of neighbours, in rows."""
    racks = -(-len(names) // NODES_OF_A_RACK)
    rows = -(-racks // RACKS_OF_A_ROW)
    return Topology(
        levels=LEVELS,
        domains=(
            *(Domain(f"row{row}", 0, -1) for row in range(rows)),
            *(Domain(f"row{rack // RACKS_OF_A_ROW}/rack{rack}", 1, rack // RACKS_OF_A_ROW) for rack in range(racks)),
        ),
        places={name: rows + at // NODES_OF_A_RACK for at, name in enumerate(names)},
    )


class Month:
    """The whole of it.

    Args:
        seed: everything that happens follows from it.
        nodes: about a fifth of them with GPUs, a tenth large.
        days: so long people submit; then all that waits is run out.
        check_every: verify the engine's tables after every so many cycles that changed them; 0: never.
        elastic: a third of the jobs of one task have extensions.
        moving: half of the other jobs of one task may be moved for wide ones.
        pause_s: between two submissions by day, for each node.
    """

    def __init__(
        self,
        seed: int,
        *,
        nodes: int = 500,
        days: int = 30,
        check_every: int = 1,
        elastic: bool = False,
        moving: bool = False,
        pause_s: int = MEAN_PAUSE_S,
    ) -> None:
        self.rng = random.Random(seed)
        self.moving = random.Random(seed) if moving else None
        self.pause_s = pause_s
        self.elastic = random.Random(seed) if elastic else None
        self.extensions: dict[int, int] = {}
        """How many each elastic job has: its tasks from 1 on."""
        self.let: set[tuple[int, int]] = set()
        """Extensions that wait."""
        self.leaving: set[tuple[int, int]] = set()
        """Bases that were told to leave."""
        self.until_ms = EPOCH_MS + days * DAY_MS
        self.check_every = check_every
        self.checked = -1
        self.unchecked = 0
        self.widest = nodes // 8
        self.rows = {row.name: row for row in (self._node(number, nodes) for number in range(nodes))}
        self.topology = _topology(list(self.rows))
        self.gpus = GpuBook(parts=True, islands=True)
        self.linked = random.Random(seed)
        """Decides who asks for GPUs of one island."""
        self.books = Books({row.name: dict(row.capacity) for row in self.rows.values()})
        self.down: set[str] = set()
        self.tasks: dict[tuple[int, int], Task] = {}
        self.running: dict[str, set[tuple[int, int]]] = {name: set() for name in self.rows}
        self.waiting: Counter[int] = Counter()
        self.log: list[str] = []
        self.counts: Counter[str] = Counter()
        self.last_job = 0
        self.now_ms = EPOCH_MS
        self.plans: list[Plan] = []
        config = EngineConfig(
            order="priority", placement="best-fit", backfill=Backfill.EASY, slice_work=400_000, policy=policy_of(),
            levels=LEVELS, gpu_parts=True, gpu_islands=True, compaction=1.0 if moving else 0.0,
            compaction_nodes=MOVED_FOR,
        )  # fmt: skip
        self.state = new_state(config)
        self.scheduler = Scheduler(self.state, self)
        self.scheduler.feed(NodesChanged(tuple(self._spec(row) for row in self.rows.values())))
        self.queue: list[tuple[int, int, str, object]] = []
        self.order = 0
        self._at(EPOCH_MS, "submit")
        self._at(EPOCH_MS + HOUR_MS, "fail")
        self._at(EPOCH_MS + HOUR_MS, "person")
        self._at(EPOCH_MS + HOUR_MS, "upkeep")
        self._at(EPOCH_MS + days * DAY_MS // 2, "policy")
        self.bookings = self._bookings(days)
        self._at(EPOCH_MS, "bookings")
        self._at(self.until_ms + DAY_MS, "over")
        for booking in self.bookings:
            if booking.booking == "course":
                self._at(booking.start_ms - self.rng.randrange(8) * HOUR_MS, "course", booking)

    @staticmethod
    def _node(number: int, nodes: int) -> NodeRow:
        name = f"n{number:03d}"
        if number < nodes // 5:
            half = GPUS_OF_A_NODE // 2
            gpus = tuple(
                GpuFacts(
                    index=at,
                    uuid=f"{name}-gpu{at}",
                    numa=at // half,
                    links=tuple("NV4" if at != to and at // half == to // half else "" for to in range(2 * half)),
                )
                for at in range(GPUS_OF_A_NODE)
            )
            facts = Facts(gpus=gpus, bound_gpus=tuple(range(GPUS_OF_A_NODE)))
            about = NodeAbout(facts=facts, taints=KEPT_FOR_GPUS if number % 3 == 2 else {})
            capacity = {"cpu": 64, "memory": 512, GPU: GPUS_OF_A_NODE * WHOLE}
            return NodeRow(name, capacity, {"kind": "gpu"}, about=about)
        if number < nodes * 3 // 10:
            return NodeRow(name, {"cpu": 64, "memory": 2_048}, {"kind": "fat"})
        return NodeRow(name, {"cpu": 32, "memory": 128}, {"kind": "plain"})

    def _spec(self, row: NodeRow) -> NodeSpec:
        """The node as a controller tells the engine of it."""
        return node_spec(row, self.gpus, self.topology, GpuReserves())

    def _tell(self, name: str, **changes: Any) -> None:
        """A node is otherwise from now on."""
        row = self.rows[name] = replace(self.rows[name], **changes)
        self.scheduler.feed(NodesChanged((self._spec(row),)))

    def _bookings(self, days: int) -> list[BookingSpec]:
        found = []
        for day in range(days):
            noon = EPOCH_MS + day * DAY_MS
            count = max(len(self.rows) // 10, 1)
            start = noon + 13 * HOUR_MS
            found.append(BookingSpec(f"course-{day}", start, start + COURSE_H * HOUR_MS, count=count, booking="course"))
            if day % 7 == 6:
                first = self.rng.randrange(len(self.rows))
                nodes = tuple((2 * list(self.rows))[first : first + len(self.rows) // 8])
                start = noon + 8 * HOUR_MS
                end = start + MAINTENANCE_H * HOUR_MS
                found.append(BookingSpec(f"maintenance-{day}", start, end, nodes=nodes, maintenance=True, overlap=True))
        return found

    def accept(self, plan: Plan) -> None:
        """See `hal.core.engine.scheduler.Sink`."""
        self.plans.append(plan)

    # ── the loop ──────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> bytes:
        """All of it; the log of every start and end."""
        wake_ms = EPOCH_MS
        limit_ms = self.until_ms + DRAIN_DAYS * DAY_MS
        while self.queue or self.waiting:
            assert self.now_ms < limit_ms, f"{sum(self.waiting.values())} tasks wait for ever"
            self.now_ms = max(self.now_ms, min(wake_ms, self.queue[0][0] if self.queue else wake_ms))
            while self.queue and self.queue[0][0] <= self.now_ms:
                _, _, what, argument = heapq.heappop(self.queue)
                getattr(self, f"_do_{what}")(argument)
            wake_ms = self._decide()
        assert all(task.over for task in self.tasks.values())
        assert not any(self.running.values())
        return "\n".join(self.log).encode()

    def _at(self, at_ms: int, what: str, argument: object = None) -> None:
        self.order += 1
        heapq.heappush(self.queue, (at_ms, self.order, what, argument))

    def _decide(self) -> int:
        for _ in range(MAX_SLICES):
            step = self.scheduler.step(self.now_ms)
            if self.check_every and self.state.version != self.checked:
                self.checked = self.state.version
                self.unchecked += 1
                if self.unchecked == self.check_every:
                    check_invariants(self.state)
                    self.unchecked = 0
            plans, self.plans = self.plans, []
            for plan in plans:
                self._play(plan)
            self._tell_gpus()
            if not step.more and not plans:
                return step.wake_ms
        raise AssertionError("the engine plans without end")

    def _play(self, plan: Plan) -> None:
        for move in plan.preemptions:
            self._take_back(move)
        for move in plan.resumes:
            key = (int(move["job"]), int(move["task"]))
            task = self.tasks[key]
            assert task.suspended, f"{key} goes on and was not suspended"
            self.books.hold(task, "cpu", task.spec.request.get("cpu", 0))
            task.suspended = False
            self._write("resume", key, task)
            self._go_on(key, task, task.left_ms)
            self._let_wait(key[0])
        refused = []
        for start in plan.starts:
            key = (int(start["job"]), int(start["task"]))
            task = self.tasks[key]
            assert not task.over, f"{key} runs after its end"
            assert not task.nodes, f"{key} runs twice"
            assert int(start["attempt"]) == task.attempt, f"{key} has another attempt"
            if self.rng.random() < 0.01:
                refused.append(start)
                continue
            first, count = int(start["row_offset"]), int(start["row_count"])
            task.nodes = tuple(self.state.node_name(row) for row in plan.rows[first : first + count].tolist())
            if not self._bind(task):
                task.nodes = ()
                refused.append(start)
                self.counts["unbound"] += 1
                continue
            self.let.discard(key)
            if task.owner.extension:
                assert self._base_runs(key[0]), f"{key} starts without its base"
            self._check_place(key, task)
            assert len(set(task.nodes)) == task.spec.nodes
            assert not self.down.intersection(task.nodes), f"{key} starts on a node that is down"
            self._check_bookings(key, task)
            task.since_ms = self.now_ms
            self.books.move(task, 1)
            self._waits_no_more(key[0])
            for node in task.nodes:
                self.running[node].add(key)
            self._write("start", key, task, ",".join(task.nodes))
            self.counts["course"] += bool(task.spec.booking)
            self._go_on(key, task, min(task.run_ms, self._longest(task)))
            if not task.owner.extension:
                self._let_wait(key[0])
        if refused:
            self.counts["refused"] += len(refused)
            self.scheduler.feed(StartsRefused(np.array(refused, plan.starts.dtype)))

    def _bind(self, task: Task) -> bool:
        """Choose its GPUs on each of its nodes; False: another start of the plan has taken the part that it needs."""
        milli = task.spec.request.get(GPU, 0)
        if not milli:
            return True
        chosen = [self.gpus.bind(self.rows[node], task.spec.request) for node in task.nodes]
        found = tuple(one for one in chosen if one is not None)
        if len(found) < len(chosen):
            return False
        task.gpus = found
        self.gpus.take(task.nodes, found)
        self.counts["shared"] += milli % WHOLE > 0
        if GPU_ISLAND in task.spec.request:
            halves = {(int(one.id[-1]) // (GPUS_OF_A_NODE // 2)) for of_node in found for one in of_node}
            assert len(halves) == 1, "GPUs of one island are of two"
            self.counts["linked"] += 1
        return True

    def _tell_gpus(self) -> None:
        """Tell the engine what is left of GPUs that are shared."""
        for row in self.gpus.take_untold(self.rows):
            self.scheduler.feed(NodesChanged((self._spec(row),)))

    def _check_place(self, key: tuple[int, int], task: Task) -> None:
        """Its nodes are in one domain if it asks for that, and have no taint that it does not tolerate."""
        level = task.spec.within
        if level:
            domains = {self.topology.domains_of(node, {})[LEVELS.index(level)] for node in task.nodes}
            assert len(domains) == 1, f"{key} is in several domains of {level}"
            assert "" not in domains, f"{key} is in no {level}"
            self.counts["within"] += 1
        for node in task.nodes:
            taints = self.rows[node].about.taints
            missing = set(taints) - {text.partition("=")[0] for text in task.spec.tolerates}
            assert not missing, f"{key} starts on {node} and does not tolerate {missing}"
            self.counts["tolerated"] += bool(taints)

    def _longest(self, task: Task) -> int:
        """What runs in a booking ends with it."""
        ends = (
            booking.end_ms - self.now_ms
            for booking in self.bookings
            if task.spec.booking and booking.booking == task.spec.booking and booking.start_ms <= self.now_ms
        )
        return min((left for left in ends if left > 0), default=task.walltime_ms)

    def _go_on(self, key: tuple[int, int], task: Task, left_ms: int) -> None:
        task.left_ms, task.begun_ms = left_ms, self.now_ms
        task.turn += 1
        self._at(self.now_ms + left_ms, "end", (key, task.turn))

    def _take_back(self, move: np.void) -> None:
        key = (int(move["job"]), int(move["task"]))
        task, mode = self.tasks[key], MODE_NAMES[int(move["mode"])]
        moved = int(move["lent"]) == MOVED
        assert task.nodes, f"{key} is taken back and does not run"
        assert task.attempt == int(move["attempt"])
        wants = self.tasks[int(move["for_job"]), int(move["for_task"])]
        taker = wants.owner
        assert task.owner.extension == (mode == "shrink")
        assert not taker.extension, f"{key} is taken back for an extension"
        if moved:
            assert task.spec.movable, f"{key} is moved and may not be"
            assert mode in ("requeue", "checkpoint")
            assert wants.spec.nodes >= MOVED_FOR, f"{key} is moved for a narrow job"
            self.counts["moved"] += 1
        elif not task.owner.extension:
            assert task.owner.qos in ("spot", "saved", "idle"), f"{key} of {task.owner.qos} is taken back"
            assert taker.qos == "high"
        self._write(mode, key, task)
        if mode == "suspend":
            task.left_ms -= self.now_ms - task.begun_ms
            task.suspended = True
            task.turn += 1
            self.books.hold(task, "cpu", -task.spec.request.get("cpu", 0))
        else:
            leaves_ms = self.now_ms + self.rng.randint(0, int(move["grace_ms"]))
            self._at(leaves_ms, "leave", (key, task.turn))
            self.leaving.add(key)
        if not task.owner.extension:
            self._send_away(key[0])

    # ── extensions ────────────────────────────────────────────────────────────────────────────────────────────────

    def _base_runs(self, job: int) -> bool:
        base = self.tasks[job, 0]
        return bool(base.nodes) and not base.suspended and (job, 0) not in self.leaving

    def _let_wait(self, job: int) -> None:
        """The base runs: its extensions wait that do not run and have not ended."""
        if not self._base_runs(job):
            return
        for number in range(1, self.extensions.get(job, 0) + 1):
            key, task = (job, number), self.tasks[job, number]
            if task.over or task.nodes or key in self.let:
                continue
            rows = submit_rows(1)
            rows["job"], rows["first_task"], rows["attempt"], rows["submit_ms"], rows["walltime_ms"] = (
                job, number, task.attempt, self.now_ms, task.walltime_ms,
            )  # fmt: skip
            rows["eligible_ms"] = self.now_ms
            self.let.add(key)
            self.waiting[job] += 1
            self.scheduler.feed(JobsSubmitted(rows, (task.spec,), (task.owner,)))

    def _send_away(self, job: int) -> None:
        """The base does not run: none of its extensions waits, and those that run leave; for good where it is over."""
        over = self.tasks[job, 0].over
        for number in range(1, self.extensions.get(job, 0) + 1):
            key, task = (job, number), self.tasks[job, number]
            if key in self.let:
                self.let.discard(key)
                one = np.array([number], np.int64)
                self.scheduler.feed(JobsCancelled(np.array([job], np.int64), one, np.ones(1, np.int64)))
                self._waits_no_more(job)
            if task.nodes:
                task.turn += 1
                self.leaving.add(key)
                self._at(self.now_ms + self.rng.randint(0, 30 * SECOND_MS), "leave", (key, task.turn))
            task.over = task.over or (over and not task.nodes)

    def _waits_no_more(self, job: int) -> None:
        self.waiting[job] -= 1
        if not self.waiting[job]:
            del self.waiting[job]

    def _check_bookings(self, key: tuple[int, int], task: Task) -> None:
        """Whatever it does, it is off the nodes before they are somebody else's; in a booking it stays inside."""
        end_ms = self.now_ms + task.walltime_ms
        known = {booked.spec.name: booked for booked in self.state.bookings.all}
        for booking in self.bookings:
            if booking.end_ms <= self.now_ms or booking.start_ms >= end_ms:
                continue
            nodes = booking.nodes
            if not nodes and booking.name in known:
                nodes = tuple(self.state.node_name(row) for row in known[booking.name].rows)
            if task.spec.booking and task.spec.booking == booking.booking:
                assert booking.start_ms <= self.now_ms, f"{key} starts before its booking"
                assert set(task.nodes) <= set(nodes), f"{key} runs outside its booking"
            elif booking.start_ms > self.now_ms or booking.maintenance:
                assert not set(nodes).intersection(task.nodes), f"{key} would run into {booking.name}"

    def _write(self, what: str, key: tuple[int, int], task: Task, rest: str = "") -> None:
        self.counts[what] += 1
        self.log.append(f"{self.now_ms - EPOCH_MS} {what} {key[0]}.{key[1]}.{task.attempt} {rest}")

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────

    def _do_end(self, argument: tuple[tuple[int, int], int]) -> None:
        key, turn = argument
        task = self.tasks[key]
        if task.turn == turn and task.nodes:
            self._leave(key, task, "end", requeue=False)

    def _do_leave(self, argument: tuple[tuple[int, int], int]) -> None:
        key, turn = argument
        task = self.tasks[key]
        if task.turn == turn and task.nodes:
            self._leave(key, task, "left", requeue=True)

    def _do_bookings(self, _: object) -> None:
        """The bookings of the next four days are told, once a day, as a controller expands a policy."""
        if self.now_ms < self.until_ms:
            self._at(self.now_ms + DAY_MS, "bookings")
        soon = tuple(
            booking
            for booking in self.bookings
            if booking.end_ms > self.now_ms and booking.start_ms < self.now_ms + 4 * DAY_MS
        )
        self.scheduler.feed(BookingsChanged(soon))

    def _do_over(self, _: object) -> None:
        """There are no courses any more: who waits for one leaves."""
        for job in sorted(self.waiting):
            if self.tasks[job, 0].spec.booking:
                self._cancel(job)

    def _do_course(self, booking: BookingSpec) -> None:
        """Participants hand in what they want to run in their course."""
        for _ in range(self.rng.randrange(1, 6)):
            spec = ClassSpec({"cpu": 8, "memory": 16}, self.rng.choice((1, 2)), booking="course")
            self._submit(spec, 1, OwnerSpec("default", "guest", "course", "normal"), HOUR_MS)

    def _leave(self, key: tuple[int, int], task: Task, how: str, *, requeue: bool) -> None:
        rows = np.zeros(1, END)
        rows["job"], rows["task"], rows["attempt"], rows["ended_ms"] = *key, task.attempt, self.now_ms
        alone = task.owner.extension and not self._base_runs(key[0])
        waits = requeue and not alone
        if waits:
            rows["requeue"], rows["eligible_ms"] = 1, self.now_ms + SECOND_MS
        self.scheduler.feed(AttemptsEnded(rows))
        self._write(how, key, task)
        self.books.ran(task, self.now_ms)
        self.books.move(task, -1)
        for node in task.nodes:
            self.running[node].discard(key)
        self.gpus.give(task.nodes, task.gpus)
        task.nodes, task.gpus, task.suspended = (), (), False
        task.turn += 1
        self.leaving.discard(key)
        task.attempt += 1
        if waits:
            self.waiting[key[0]] += 1
            if task.owner.extension:
                self.let.add(key)
        task.over = not requeue or (alone and self.tasks[key[0], 0].over)
        if task.owner.extension:
            self._let_wait(key[0])
        else:
            self._send_away(key[0])

    def _do_submit(self, _: object) -> None:
        rng = self.rng
        hour = (self.now_ms // HOUR_MS) % 24
        if self.now_ms < self.until_ms:
            # Twice as much by day as by night.
            pause_s = (1 if 8 <= hour < 20 else 2) * self.pause_s / len(self.rows)
            self._at(self.now_ms + int(rng.expovariate(1 / pause_s) * SECOND_MS), "submit")
        account = rng.choice([name for projects in ACCOUNTS.values() for name in projects])
        user = f"{account}{int(rng.paretovariate(0.8)) % 8}"
        spec, tasks = self._work(account)
        walltime_ms = rng.choice((1, 2, 4) if account == "guest" else (2, 8, 24, 48, 48)) * HOUR_MS
        queue = rng.choice(("default", "default", "night", "turns"))
        if walltime_ms <= 2 * HOUR_MS and rng.random() < 0.5:
            queue = "short"
        qos = "normal"
        if account != "guest":
            qos = rng.choices(("normal", "high", "spot", "saved", "idle"), (50, 10, 16, 12, 12))[0]
        later_ms = rng.randrange(12 * HOUR_MS) if rng.random() < 0.03 else 0
        self._submit(spec, tasks, OwnerSpec(queue, account, user, qos), walltime_ms, later_ms)

    def _submit(self, spec: ClassSpec, tasks: int, owner: OwnerSpec, walltime_ms: int, later_ms: int = 0) -> None:
        self.last_job += 1
        rows = submit_rows(1)
        rows["job"], rows["tasks"], rows["submit_ms"], rows["walltime_ms"] = (
            self.last_job, tasks, self.now_ms, walltime_ms,
        )  # fmt: skip
        rows["eligible_ms"] = self.now_ms + later_ms
        for number in range(tasks):
            run_ms = max(SECOND_MS, int(walltime_ms * self.rng.betavariate(1.2, 2.0)))
            self.tasks[self.last_job, number] = Task(spec, owner, walltime_ms, run_ms)
        if self.elastic is not None and tasks == 1 and not spec.booking and self.elastic.random() < 1 / 3:
            self.extensions[self.last_job] = self.elastic.randint(1, 6)
            for number in range(1, self.extensions[self.last_job] + 1):
                one = Task(replace(spec, nodes=1), replace(owner, extension=True), walltime_ms, walltime_ms)
                self.tasks[self.last_job, number] = one
        elif self.moving is not None and tasks == 1 and not spec.booking and self.moving.random() < 1 / 2:
            spec = self.tasks[self.last_job, 0].spec = replace(spec, movable=True)
        self.waiting[self.last_job] = tasks
        self.counts["submitted"] += tasks
        self.scheduler.feed(JobsSubmitted(rows, (spec,), (owner,)))

    def _work(self, account: str) -> tuple[ClassSpec, int]:
        rng = self.rng
        if account in ("nlp", "vision", "guest") and rng.random() < 0.6:
            milli = rng.choice((250, 500, 1_000, 2_000) if account == "guest" else MILLI_OF_ML)
            gpus = max(milli // WHOLE, 1)
            nodes = rng.choice((1, 2, 4)) if gpus == 8 else 1
            within = rng.choice(("", "row", "rack")) if nodes > 1 else ""
            request = {"cpu": gpus * 6, "memory": gpus * 32, GPU: milli, **beside(milli)}
            if gpus in (2, 4) and self.linked.random() < 1 / 2:
                request[GPU_ISLAND] = gpus
            return ClassSpec(request, nodes, within=within, tolerates=("gpu",)), 1
        kind = rng.random()
        if kind < 0.45:
            width = min(rng.choice((2, 8, 16, 32, 64, 64)), self.widest)
            within = rng.choice(("", "", "rack")) if 1 < width <= NODES_OF_A_RACK // 2 else ""
            tolerates = rng.choice(((), (), (), ("upkeep=disk",)))
            return ClassSpec({"cpu": 32, "memory": 64}, width, within=within, tolerates=tolerates), 1
        if kind < 0.55:
            fat = (Requirement("kind", Match.IN, ("fat",)),)
            return ClassSpec({"cpu": rng.choice((8, 32)), "memory": rng.choice((256, 1_024))}, 1, fat), 1
        if kind < 0.6:
            return ClassSpec({"cpu": 16, "memory": 32}, 1, licences={"solver": rng.choice((1, 2, 4))}), 1
        if kind < 0.75:
            return ClassSpec({"cpu": rng.choice((1, 2, 4)), "memory": 8}), rng.randrange(2, 16)
        return ClassSpec({"cpu": rng.choice((1, 4, 8, 16)), "memory": rng.choice((4, 16))}), 1

    def _do_fail(self, _: object) -> None:
        """A node dies with all that runs on it, and comes back hours later."""
        if self.now_ms >= self.until_ms:
            return
        self._at(self.now_ms + int(self.rng.expovariate(1 / 90) * 60 * SECOND_MS), "fail")
        name = self.rng.choice(list(self.rows))
        if name in self.down:
            return
        self.down.add(name)
        self.counts["failures"] += 1
        self._tell(name, state=NodeState.DOWN)
        for key in sorted(self.running[name]):
            self._leave(key, self.tasks[key], "lost", requeue=True)
        self._at(self.now_ms + self.rng.randrange(HOUR_MS, 12 * HOUR_MS), "return", name)

    def _do_return(self, name: str) -> None:
        self.down.discard(name)
        self._tell(name, state=NodeState.UP)

    def _do_upkeep(self, _: object) -> None:
        """Somebody looks after a node: for some hours only work that tolerates that begins there."""
        if self.now_ms >= self.until_ms:
            return
        self._at(self.now_ms + int(self.rng.expovariate(1 / 60) * 60 * SECOND_MS), "upkeep")
        name = self.rng.choice(list(self.rows))
        about = self.rows[name].about
        if UPKEEP.items() <= about.taints.items():
            return
        self._tell(name, about=replace(about, taints=about.taints | UPKEEP))
        self._at(self.now_ms + self.rng.randrange(HOUR_MS, 8 * HOUR_MS), "fit", name)

    def _do_fit(self, name: str) -> None:
        about = self.rows[name].about
        taints = {key: value for key, value in about.taints.items() if key not in UPKEEP}
        self._tell(name, about=replace(about, taints=taints))

    def _do_person(self, _: object) -> None:
        """Somebody changes their mind about a job that waits."""
        if self.now_ms < self.until_ms:
            self._at(self.now_ms + int(self.rng.expovariate(1 / 30) * 60 * SECOND_MS), "person")
        if not self.waiting:
            return
        job = self.rng.choice(sorted(self.waiting))
        action = self.rng.choice(("cancel", "hold", "raise"))
        jobs = np.array([job], np.int64)
        self.counts[action] += 1
        if action == "hold":
            self.scheduler.feed(JobsHeld(jobs))
            self._at(self.now_ms + self.rng.randrange(HOUR_MS), "release", job)
        elif action == "raise":
            edit = update_rows(1)
            edit["job"], edit["priority"] = job, self.rng.randrange(-5, 6)
            self.scheduler.feed(JobsUpdated(edit))
        else:
            self._cancel(job)

    def _cancel(self, job: int) -> None:
        self.scheduler.feed(JobsCancelled(np.array([job], np.int64)))
        del self.waiting[job]
        number = 0
        while (task := self.tasks.get((job, number))) is not None:
            task.over = task.over or not task.nodes
            self.let.discard((job, number))
            number += 1

    def _do_release(self, job: int) -> None:
        self.scheduler.feed(JobsReleased(np.array([job], np.int64)))

    def _do_policy(self, _: object) -> None:
        """An operator forgets use faster from now on, and takes another backfill."""
        config = self.state.config
        self.scheduler.feed(
            ConfigChanged(
                EngineConfig(
                    order=config.order,
                    placement="first-fit",
                    backfill=Backfill.EASY_SJBF,
                    slice_work=config.slice_work,
                    levels=config.levels,
                    gpu_parts=config.gpu_parts,
                    gpu_islands=config.gpu_islands,
                    compaction=config.compaction,
                    compaction_nodes=config.compaction_nodes,
                    policy=policy_of(half_life_h=6),
                )
            )
        )
