"""What the controller reports: jobs, tasks, attempts, nodes, queues, events, as typed frozen values.

Pure. Times are milliseconds since 1970 (`*_ms`), None where it has not happened; amounts are in base units (millicores,
bytes, milli-devices). Fields of a newer controller that this version does not know are ignored.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from hal.core.model import AttemptState, Duration, Findings, NodeState, Resources, TaskState
from hal.core.model.facts import Facts


class View(Struct, frozen=True, kw_only=True):
    """Base of what is read from the controller."""


class WaitingInfo(View, frozen=True, kw_only=True):
    """Why a job waits, in a few words; `hal why` has the numbers."""

    reason: str
    """A `Reason`; a newer HAL may use one that a client does not know."""
    short: str = ""
    starts_at_ms: int | None = None
    """When that ends, where it is known without a forecast."""


class PlacementInfo(View, frozen=True, kw_only=True):
    """Where a job runs."""

    nodes: tuple[str, ...] = ()
    """By name, the first 64."""
    more: bool = False
    """There may be more nodes than are named."""
    ends_by_ms: int | None = None
    """When all that runs will have reached its walltime."""


class JobInfo(View, frozen=True, kw_only=True):
    """A job as it was when it was read."""

    id: str
    state: TaskState
    name: str = ""
    queue: str = ""
    account: str = ""
    user: str = ""
    priority: int = 0
    tasks: int = 1
    """How many tasks its array has; 1 without one."""
    counts: dict[str, int] = {}
    """Tasks by state, where there are any; `allocated` are those that hold resources and have no processes yet or any
    more."""
    nodes: int = 1
    """Distinct nodes that each task holds at once."""
    request: Resources = Resources()
    """Per node."""
    walltime: Duration | None = None
    submit_ms: int = 0
    eligible_ms: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    exit_code: int | None = None
    """Of its task; the largest over the tasks of an array."""
    reason: str = ""
    """Why it waits, or why it ended as it did."""
    restarts: int = 0
    """Attempts beyond the first of each task."""
    held: bool = False
    labels: dict[str, str] = {}
    trace_id: str = ""
    spec: dict[str, Any] | None = None
    """What was submitted, as plain data; not in listings."""
    dependants: tuple[str, ...] = ()
    """Jobs that wait and name this one, on request also those that did, the first 1,000; not in listings."""
    waiting: WaitingInfo | None = None
    """Why its next task waits; only in listings with `reasons=True`."""
    placement: PlacementInfo | None = None
    """Where it runs now; only in listings with `placed=True`."""
    present_nodes: tuple[str, ...] = ()
    """Of an elastic job whose base runs: the nodes of its tasks that run and were not told to leave, the base's first;
    not in listings."""
    ready: int | None = None
    """Of a service that runs: how many of its tasks are ready."""
    removed: str = ""
    """What retention has removed of an ended job: `outputs`, `attempts` (and outputs), or nothing."""
    tasks_removed: int = 0
    """Tasks that were removed of a job that stays; they are not among the counts."""

    def __post_init__(self) -> None:
        # REST tells `active` (all that hold resources) beside `running`, which is a part of it: here each counts once.
        active = self.counts.pop("active", 0)
        if idle := active - self.counts.get("running", 0):
            self.counts["allocated"] = max(0, idle)
        for state in [state for state, count in self.counts.items() if not count]:
            del self.counts[state]

    @property
    def ended(self) -> bool:
        """No state follows."""
        return self.state.ended


class AttemptInfo(View, frozen=True, kw_only=True):
    """One try at running a task; tries count from 1."""

    attempt: int
    state: AttemptState
    nodes: tuple[str, ...] = ()
    token: str = ""
    allocated_ms: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    cause: str = ""
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    usage: dict[str, Any] = {}
    gpus: tuple[tuple[str, ...], ...] = ()
    """What it was given of the GPUs of each node: `GPU-5b1e`, or `GPU-5b1e:0.5`; empty: none, or they are only
    counted."""


class TaskInfo(View, frozen=True, kw_only=True):
    """One element of a job's array, by position from 0."""

    job: str
    task: int
    state: TaskState
    attempt: int | None = None
    """Its latest try, from 1; None or 0 before the first."""
    retries: int = 0
    """How many of its tries were retries after a failure."""
    nodes: tuple[str, ...] = ()
    """Where that try runs or ran, in rank order."""
    start_ms: int | None = None
    end_ms: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    cause: str = ""
    message: str = ""
    reason: str = ""
    """Why it waits."""
    usage: dict[str, Any] = {}
    ready: bool | None = None
    """Of a running task of a service: whether it is ready; None while it is starting."""
    cpus: dict[str, str] = {}
    """Of a task that has run for some seconds on nodes that bind: by node, its CPUs there (`0-3,8`); only when one task
    is asked for."""
    attempts: tuple[AttemptInfo, ...] = ()
    """All its tries; only when one task is asked for."""

    @property
    def id(self) -> str:
        """`42.7`"""
        return f"{self.job}.{self.task}"

    @property
    def ended(self) -> bool:
        """No state follows."""
        return self.state.ended


class ClosureInfo(View, frozen=True, kw_only=True):
    """One thing that keeps new work away from a node."""

    source: str
    """`person`, or what closed it."""
    reason: str = ""
    by: str = ""
    """The person, where one did it."""
    since_ms: int = 0
    drain: bool = False
    """It is to become empty."""
    evict: str = ""
    """How what is left at `evict_at_ms` is evicted; empty: nothing is."""
    evict_at_ms: int = 0
    grace_ms: int = 0
    """How long evicted work has to end."""
    evicted: bool = False
    """What was left has been evicted."""


class NodeInfo(View, frozen=True, kw_only=True):
    """One machine, or the share of a machine that one agent offers."""

    name: str
    state: NodeState
    capacity: dict[str, int] = {}
    free: dict[str, int] = {}
    labels: dict[str, str] = {}
    reason: str = ""
    last_seen_ms: int | None = None
    running: int = 0
    """Steps on it now."""
    notes: tuple[str, ...] = ()
    """What it cannot do, in words."""
    connected: bool = True
    """Its agent is connected now."""
    boot_id: str = ""
    closures: tuple[ClosureInfo, ...] = ()
    """What keeps new work away from it."""
    taints: dict[str, str] = {}
    """What keeps work away that does not tolerate it, by key; a value may be empty."""
    facts: Facts = Facts()
    """What it is made of; only when one node is asked for."""
    domains: dict[str, str] = {}
    """The domain of each level of the topology that it is in, widest first; only when one node is asked for."""

    @property
    def drains(self) -> bool:
        """It is to become empty and is not yet."""
        return self.running > 0 and any(one.drain for one in self.closures)


class QueueInfo(View, frozen=True, kw_only=True):
    """One queue; numbers of tasks of jobs that have not ended."""

    name: str
    open: bool = True
    """It accepts jobs."""
    starts: bool = True
    """Its jobs may start."""
    description: str = ""
    jobs: int = 0
    pending: int = 0
    running: int = 0
    held: int = 0
    oldest_ms: int | None = None
    """Since when the job that has waited longest could have started, of those of which nothing runs."""
    default_walltime: Duration | None = None
    max_walltime: Duration | None = None


class EventInfo(View, frozen=True, kw_only=True):
    """One entry of the durable feed (docs/events.md lists kinds and payloads)."""

    sequence: int
    at_ms: int
    kind: str
    cause: str = ""
    trace_id: str = ""
    jobs: tuple[str | int, ...] = ()
    payload: dict[str, Any] = {}


class ChangeInfo(View, frozen=True, kw_only=True):
    """A field of a job that changed, as its spec shows it."""

    field: str
    before: Any = None
    after: Any = None


class UpdatedInfo(JobInfo, frozen=True, kw_only=True):
    """A job after a change; in a dry run as it is, with what would change."""

    changes: tuple[ChangeInfo, ...] = ()
    dry_run: bool = False
    starts_now: bool | None = None
    """In a dry run: whether its next task would then start at once; None where that was not tried."""
    never: str = ""
    """Why it could not start even if nothing else ran; only of a job with `wait_for_change`."""


class WhyInfo(Findings, frozen=True, kw_only=True):
    """Why a job has not started, or what became of it."""

    job: str
    state: str = ""


class NodeScoreInfo(View, frozen=True, kw_only=True):
    """A node that has room for a task of the job now."""

    node: str
    score: float = 0.0
    """From 0 to 1, by the placement in force, 0 where that is first-fit; and what the job's preferences add."""
    terms: dict[str, float] = {}
    """The scores that built-in placements would give it, by their names."""
    parts: dict[str, float] = {}
    """What the score is the sum of, where preferences add to it."""
    held: int | None = None
    """Of a job that is spread: how many nodes it has in the domain of this one; None: it is in no domain."""


class DomainScoreInfo(View, frozen=True, kw_only=True):
    """A domain that has room for all nodes of the job now, with its score from 0 to 1."""

    domain: str
    level: str = ""
    score: float = 0.0
    fits: int = 0
    """Nodes of it that have room for a part of the job now."""


class ScoresInfo(View, frozen=True, kw_only=True):
    """The best nodes for a job now, as its placement scores them."""

    job: str
    placement: str = ""
    """In force; what `auto` means now."""
    fits: int = 0
    """Nodes that have room for a task now; reservations and bookings are not looked at."""
    spread: str = ""
    """The level over which the job is spread; its domains with fewest nodes of the job come first."""
    nodes: list[NodeScoreInfo] = []
    domains: list[DomainScoreInfo] = []
    """Where a policy scores domains and the job is one of several nodes: the best of these."""
    group: str = ""
    """Of a job with several groups of nodes the one that this is about, the first; else empty."""


class Outcome(View, frozen=True, kw_only=True):
    """What became of one id in a request that named several."""

    id: str
    ok: bool = True
    state: str = ""
    tasks: int = 0
    """How many tasks it changed; in a dry run, how many it would."""
    code: str = ""
    """Of the error when not `ok`."""
    detail: str = ""
    hint: str = ""


class LogPart(View, frozen=True, kw_only=True):
    """A piece of an output file."""

    data: bytes
    offset: int
    """Of the first byte of `data`, counted over everything that was ever written."""
    size: int
    """Bytes written so far."""
    ended: bool
    """Nothing more will be written."""
    path: str = ""
    """The file that the job has named for this output, on `node`: HAL keeps none of it; empty: it has named none."""
    node: str = ""


class TaskOutput(View, frozen=True, kw_only=True):
    """The output of one task: of its latest attempt."""

    task: int
    attempt: int = 0
    """0: it has not run."""
    node: str = ""
    data: bytes = b""
    offset: int = 0
    """Of the first byte of `data`, counted over everything that was ever written."""
    size: int = 0
    """Bytes written when it was read."""
    path: str = ""
    """The file that the job has named for this output, on `node`: HAL keeps none of it; empty: it has named none."""
    error: str = ""
    """Why it could not be read (its node is away, it was deleted); empty: it was."""

    @property
    def text(self) -> str:
        """As text; what is not UTF-8 is replaced."""
        return self.data.decode(errors="replace")

    @property
    def complete(self) -> bool:
        """Whether it is all that was written."""
        return not self.error and not self.path and len(self.data) == self.size


class NotificationsInfo(View, frozen=True, kw_only=True):
    """What a HAL sends of jobs that notify somebody; counts are since its controller was started."""

    mail: bool = False
    """It sends mail."""
    webhooks: bool = False
    """It posts to webhooks of some hosts."""
    sent: int = 0
    waiting: int = 0
    dropped: int = 0
    last_error: str = ""
    """Why the last one was dropped or is sent again; for operators, else empty."""


class HealthInfo(View, frozen=True, kw_only=True):
    """How the controller is."""

    status: str
    version: str = ""
    now_ms: int = 0
    """The controller's time."""
    jobs: dict[str, int] = {}
    """Live jobs by state."""
    nodes: dict[str, int] = {}
    """Nodes by state."""
    lost_after_ms: int = 0
    """How long after a node was last heard its tasks with `on_node_lost: requeue` run elsewhere."""
    warnings: tuple[str, ...] = ()
    rest: str = ""
    """Where people reach this controller from elsewhere; empty: nowhere."""
    wire: str = ""
    """Where agents of other machines dial, `HOST:PORT`; empty: nowhere."""
    store: str = ""
    """Where its state is kept; without a password."""
    policy_kept: tuple[str, ...] = ()
    """Entries of the policy that a changed hal.toml would remove, and that are kept until somebody accepts that."""
    leader: str = ""
    """The leader, reported by a controller that follows (`status` is `following`)."""


class ControllerInfo(View, frozen=True, kw_only=True):
    """One of the controllers that share a database."""

    name: str
    """Its host and HAL_HOME."""
    state: str
    """`leads`, `follows`, or `silent`: not heard for a while."""
    version: str = ""
    rest: str = ""
    """Where people reach it: its socket, and its URL."""
    wire: str = ""
    pid: int = 0
    since_ms: int = 0
    """Since when it leads, or follows."""
    silent_ms: int = 0
    """How long ago it last reported."""


class ControllersInfo(View, frozen=True, kw_only=True):
    """All controllers, and what is to be known of the database that they share."""

    controllers: tuple[ControllerInfo, ...] = ()
    warnings: tuple[str, ...] = ()


class ShareInfo(View, frozen=True, kw_only=True):
    """A node of the tree of shares: an account, or (`user` not None) a user below one. Parts are 0..1."""

    path: tuple[str, ...] = ()
    user: str | None = None
    weight: float = 1.0
    target: float = 0.0
    used: float = 0.0
    units: float = 0.0
    factor: float = 0.0


class LedgerInfo(View, frozen=True, kw_only=True):
    """How much of a limit is used; base units, for `hours` base-unit-seconds."""

    limit: str = ""
    cohort: str = ""
    scope: str = ""
    what: str = ""
    resource: str = ""
    used: int = 0
    limit_amount: int = 0
    own: int = 0
    ends_ms: int | None = None


class PriorityInfo(View, frozen=True, kw_only=True):
    """A waiting job's priority in points, factor by factor."""

    job: int = 0
    discipline: str = ""
    total: float = 0.0
    age: float = 0.0
    fairshare: float = 0.0
    fair_factor: float = 0.0
    qos: float = 0.0
    queue: float = 0.0
    priority: float = 0.0
    size: float = 0.0
    deadline: float = 0.0
