"""Policy: who goes first, how much each may use, what is booked. One frozen value, versioned as a whole.

Pure. The store keeps every version; the plane admits by it; the engine decides by it (`EngineConfig.policy`). Names of
people's own tree: an account has a parent (organisation, project, …); users are the leaves below the account that
their job names. `check_policy` says whether the parts fit together.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct, field

from hal.core.model.dependency import Failed
from hal.core.model.gate import LONGEST_DEADLINE_MS
from hal.core.model.job import Constraint, OnNodeLost
from hal.core.model.resources import Resources
from hal.core.model.units import Duration

DEFAULT_QUEUE: Final = "default"
EACH: Final = "*"
"""In a limit's scope: one ledger for each name."""
WEEK_MS: Final = 7 * 86_400_000


class Discipline(StrEnum):
    """The order of the jobs of one queue; between queues, priority points decide.

    PRIORITY: all factors. FIFO: order of submission. ROUND_ROBIN: users in turn. DEADLINE: earliest deadline first.
    """

    PRIORITY = "priority"
    FIFO = "fifo"
    ROUND_ROBIN = "round-robin"
    DEADLINE = "deadline"


class PreemptMode(StrEnum):
    """What happens to a running task that is preempted."""

    OFF = "off"
    REQUEUE = "requeue"
    SUSPEND = "suspend"
    CHECKPOINT = "checkpoint"
    CANCEL = "cancel"


class Weights(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Priority points: each factor times its weight, summed. Higher goes first.

    age: points for each hour of waiting, never capped, so nothing starves. fairshare: points at factor 1 (0..1). qos,
    queue, priority: points for each unit of the QOS's, queue's, job's priority. size: points for each cpu requested
    (may be negative). deadline: points of a job whose latest start is now, halved for each hour between its
    eligibility and its latest start.
    """

    age: float = 1.0
    fairshare: float = 100_000.0
    qos: float = 1_000.0
    queue: float = 1_000.0
    priority: float = 1_000.0
    size: float = 0.0
    deadline: float = 0.0


QUEUE_PLACEMENTS: Final = ("first-fit", "best-fit", "worst-fit", "least-loaded", "dot-product", "gpu-packing")
"""What a queue may have instead of the site's placement."""
COMPACTNESS: Final = "compactness"
"""Among preferences, beside kinds of advice: 1 (the default) places gangs on few domains, 0 by score alone."""


class Queue(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The rules for the jobs of one queue."""

    name: str = DEFAULT_QUEUE
    description: str = ""
    priority: int = 0
    order: Discipline = Discipline.PRIORITY
    strict: bool = False
    """True: no job of this queue overtakes its first waiting job, whatever that one waits for."""
    weights: Weights | None = None
    """Used instead of the site's."""
    default_walltime: Duration | None = None
    default_request: Resources | None = None
    """Amounts per node of resources that a job does not name; of cpu, one core where the queue says nothing either."""
    max_walltime: Duration | None = None
    max_tasks: int | None = None
    max_extensions: int | None = None
    """Most extensions of one job; 0: none."""
    default_qos: str = ""
    qos: tuple[str, ...] = ()
    """The only QOS that may be used in it; empty: all."""
    accounts: tuple[str, ...] = ()
    """The only accounts (with all below them) that may use it; empty: all."""
    users: tuple[str, ...] = ()
    nodes: tuple[Constraint, ...] = ()
    """The node pool: conditions on node labels, added to every job's constraints."""
    gpu_reserve: Resources | None = None
    """Of cpu and memory what its jobs without GPUs leave for each GPU of their node, instead of the site's."""
    placement: str = ""
    """Which of the nodes that can hold its jobs they get, instead of the site's rule; one of QUEUE_PLACEMENTS."""
    preferences: dict[str, float] = {}
    """By kind of advice about nodes: what a unit of it adds to the score of a node; COMPACTNESS: 0 = gangs by score."""
    hours: tuple[str, ...] = ()
    """When its jobs may start, like `mon-fri 18:00-08:00`; empty: always."""
    zone: str = "UTC"
    """The time zone of these hours, like `Europe/Berlin`."""
    open: bool = True
    """False: nothing new is accepted; jobs accepted before still run."""
    starts: bool = True
    """False: none of its jobs starts; those that run continue."""
    operators: tuple[str, ...] = ()
    """Users who may open, drain and close it, and see, hold, release and cancel the jobs in it."""
    sandbox: tuple[str, ...] = ()
    """What its jobs are kept from on their nodes, beside what they ask for themselves."""
    on_node_lost: OnNodeLost = OnNodeLost.WAIT
    movable: bool = False
    """Whether running tasks of jobs that do not say may be started again elsewhere to make room for a gang."""
    on_dependency_failed: Failed = Failed.CANCEL
    preempts: tuple[str, ...] = ()
    """Queues whose running tasks may be preempted for its jobs."""
    preempt_mode: PreemptMode = PreemptMode.OFF
    """How its own running tasks are preempted, unless their QOS says."""
    grace: Duration = Duration(30_000)
    """Time between the signal and the end when a task is preempted in the queue's mode."""


class Qos(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A quality of service: a rank, what it may preempt, and what it costs."""

    name: str = ""
    description: str = ""
    priority: int = 0
    preempts: tuple[str, ...] = ()
    """QOS whose running tasks may be preempted for its jobs."""
    preempt_mode: PreemptMode = PreemptMode.OFF
    """How its own running tasks are preempted."""
    grace: Duration = Duration(30_000)
    """Time between the signal and the end when a task is preempted."""
    usage_factor: Annotated[float, Meta(ge=0.0, le=1000.0)] = 1.0
    """Multiplies the charge of its jobs."""
    max_walltime: Duration | None = None
    accounts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


def preempting_entries(entries: Mapping[str, Queue] | Mapping[str, Qos]) -> set[str]:
    """The entries that take part in preemption: those that preempt, those that others may preempt, and those with a
    mode or grace of their own (the grace matters to reclaim, too)."""
    part = {other for entry in entries.values() for other in entry.preempts} & entries.keys()
    for name, entry in entries.items():
        if entry.preempts or entry.preempt_mode is not PreemptMode.OFF or entry.grace != Qos().grace:
            part.add(name)
    return part


class Account(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An account in the tree of shares (organisation, project, …); users are leaves below it."""

    name: str = ""
    description: str = ""
    parent: str = ""
    weight: Annotated[float, Meta(ge=0.0, le=1e9)] = 1.0
    """Its share among its siblings."""
    users: dict[str, float] = {}
    """Users with a weight of their own (others: 1); of a `closed` account, the only users."""
    closed: bool = False
    coordinators: tuple[str, ...] = ()
    """Users who may limit what each user of it may use, and see, hold, release and cancel its jobs; of all accounts
    below it, too."""


class Reclaim(StrEnum):
    """How quota that others in the cohort have borrowed from a limit returns when it has work."""

    WAIT = "wait"
    """As tasks end."""
    PREEMPT = "preempt"
    """Running tasks of borrowers are preempted."""


class Limit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An upper bound for everything within a scope. A job is within it if it matches all named parts of the scope.

    Scope: "" = any, a name, or "*" = a bound of this size for each name. An account's scope includes everything below
    it; "*" means each account that jobs name.
    """

    name: str = ""
    queue: str = ""
    account: str = ""
    user: str = ""
    qos: str = ""
    running: Annotated[int, Meta(ge=0)] | None = None
    """Tasks that run at once."""
    pending: Annotated[int, Meta(ge=0)] | None = None
    """Tasks that wait; more are refused at submission."""
    resources: Resources | None = None
    """Amounts in use at once, over all nodes."""
    hours: Resources | None = None
    """Resource-hours in each period: amounts that may be held for one hour."""
    period: Duration = Duration(30 * 86_400_000)
    max_job: Resources | None = None
    """Most that one task may ask for, over all its nodes."""
    max_nodes: Annotated[int, Meta(ge=1)] | None = None
    max_walltime: Duration | None = None
    cohort: str = ""
    """Limits of one cohort share the `resources` that they do not use."""
    borrow: Resources | None = None
    """The most that it may borrow; None: everything that is unused in the cohort."""
    reclaim: Reclaim = Reclaim.WAIT
    """How its borrowed quota returns when it has work."""
    delegated: bool = False
    """A coordinator of the account has set it: it stays when hal.toml is imported."""


class Repeat(StrEnum):
    """How often a booking repeats."""

    ONCE = "once"
    DAILY = "daily"
    WEEKLY = "weekly"


class Booking(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Resources set aside for a time, for certain users or (maintenance) for nobody."""

    name: str = ""
    description: str = ""
    start_ms: Annotated[int, Meta(ge=0)] = 0
    duration: Duration = Duration(3_600_000)
    repeat: Repeat = Repeat.ONCE
    until_ms: Annotated[int, Meta(ge=0)] = 0
    """No occurrence starts after it; 0: no end."""
    nodes: tuple[str, ...] = ()
    """These nodes; or `count` nodes that meet `constraints`, chosen by the engine."""
    count: Annotated[int, Meta(ge=0)] = 0
    constraints: tuple[Constraint, ...] = ()
    licences: dict[str, int] = {}
    accounts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    maintenance: bool = False
    """Nobody may use it; it may overlap other bookings."""
    early: bool = False
    """Jobs of its users may use its nodes before it starts, if these are free."""
    overlap: bool = False
    """It may share nodes with other bookings."""


class GateRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A gate that jobs may name: a service that the nodes' operators run, and that is fit for arguments of users."""

    name: str = ""
    description: str = ""
    max_deadline: Duration = Duration(LONGEST_DEADLINE_MS)
    """Longest deadline that a job may give it: how long it may hold resources that it does not use yet."""
    accounts: tuple[str, ...] = ()
    """The only accounts (with all below them) that may name it; empty: all."""
    users: tuple[str, ...] = ()


class FairShare(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How use is charged, and how it decays.

    charge: units for each cpu, GPU, GiB of memory and whole other resource held for a second.
    dominant: charge the largest part instead of the sum, each as a fraction of the whole cluster.
    """

    half_life: Duration = Duration(WEEK_MS)
    charge: dict[str, float] = field(default_factory=lambda: {"cpu": 1.0, "gpu": 16.0, "memory": 0.0625})
    dominant: bool = False


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The whole policy. Every table is by name."""

    version: int = 0
    queues: dict[str, Queue] = field(default_factory=lambda: {DEFAULT_QUEUE: Queue()})
    accounts: dict[str, Account] = {}
    """Once one is declared, jobs may name declared accounts only."""
    users: tuple[str, ...] = ()
    """The known users; empty: any name."""
    qos: dict[str, Qos] = {}
    limits: dict[str, Limit] = {}
    bookings: dict[str, Booking] = {}
    licences: dict[str, int] = {}
    """Amounts of the whole cluster, by name."""
    gates: dict[str, GateRule] = {}
    """The gates that jobs may name."""
    weights: Weights = Weights()
    fairshare: FairShare = FairShare()
