"""Policy: who goes first, who may use how much, what is booked. One frozen value, versioned as a whole.

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
from hal.core.model.job import Constraint, OnNodeLost
from hal.core.model.resources import Resources
from hal.core.model.units import Duration

DEFAULT_QUEUE: Final = "default"
EACH: Final = "*"
"""In a limit's scope: one ledger for each name."""
WEEK_MS: Final = 7 * 86_400_000


class Discipline(StrEnum):
    """How the jobs of one queue stand to each other; between queues, priority points decide.

    PRIORITY: all factors. FIFO: order of submission. ROUND_ROBIN: users in turn. DEADLINE: earliest deadline first.
    """

    PRIORITY = "priority"
    FIFO = "fifo"
    ROUND_ROBIN = "round-robin"
    DEADLINE = "deadline"


class PreemptMode(StrEnum):
    """What happens to a running task when somebody it may not hold up needs its resources."""

    OFF = "off"
    REQUEUE = "requeue"
    SUSPEND = "suspend"
    CHECKPOINT = "checkpoint"
    CANCEL = "cancel"


class Weights(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Priority points: each factor times its weight, summed. Higher goes first.

    age: points an hour of waiting, never capped, so nothing starves. fairshare: points at factor 1 (0..1). qos, queue,
    priority: points for each unit of the QOS's, queue's, job's priority. size: points a cpu asked for (may be
    negative). deadline: points for a job whose latest start is now, halved for each hour it is later at eligibility.
    """

    age: float = 1.0
    fairshare: float = 100_000.0
    qos: float = 1_000.0
    queue: float = 1_000.0
    priority: float = 1_000.0
    size: float = 0.0
    deadline: float = 0.0


class Queue(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What holds for the jobs of one queue."""

    name: str = DEFAULT_QUEUE
    description: str = ""
    priority: int = 0
    order: Discipline = Discipline.PRIORITY
    strict: bool = False
    """True: nothing of this queue overtakes its first job that waits for resources."""
    weights: Weights | None = None
    """Instead of the site's."""
    default_walltime: Duration | None = None
    max_walltime: Duration | None = None
    max_tasks: int | None = None
    default_qos: str = ""
    qos: tuple[str, ...] = ()
    """The only QOS that may be used in it; empty: all."""
    accounts: tuple[str, ...] = ()
    """The only accounts (with all below them) that may use it; empty: all."""
    users: tuple[str, ...] = ()
    nodes: tuple[Constraint, ...] = ()
    """The node pool: labels that a node must (not) have; added to every job's constraints."""
    hours: tuple[str, ...] = ()
    """When its jobs may start, in UTC, like `mon-fri 18:00-08:00`; empty: always."""
    open: bool = True
    """False: nothing new is accepted; what was accepted still runs."""
    on_node_lost: OnNodeLost = OnNodeLost.WAIT
    on_dependency_failed: Failed = Failed.CANCEL
    preempts: tuple[str, ...] = ()
    """Queues whose running tasks may be taken back for its jobs."""
    preempt_mode: PreemptMode = PreemptMode.OFF
    """How its own running tasks are taken back, where their QOS does not say."""
    grace: Duration = Duration(30_000)
    """Time between the signal and the end when one is taken back as the queue says."""


class Qos(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A quality of service: a rank, what it may take from whom, and what it costs."""

    name: str = ""
    description: str = ""
    priority: int = 0
    preempts: tuple[str, ...] = ()
    """QOS whose running tasks may be taken back for its jobs."""
    preempt_mode: PreemptMode = PreemptMode.OFF
    """How its own running tasks are taken back."""
    grace: Duration = Duration(30_000)
    """Time between the signal and the end when it is taken back."""
    usage_factor: Annotated[float, Meta(ge=0.0, le=1000.0)] = 1.0
    """Multiplies what its jobs are charged."""
    max_walltime: Duration | None = None
    accounts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


def taking_part(entries: Mapping[str, Queue] | Mapping[str, Qos]) -> set[str]:
    """Which of these take part in preemption: who takes, is named by who takes, or says how its own is taken back (how
    long it has to leave matters to reclaim, too)."""
    part = {other for entry in entries.values() for other in entry.preempts} & entries.keys()
    for name, entry in entries.items():
        if entry.preempts or entry.preempt_mode is not PreemptMode.OFF or entry.grace != Qos().grace:
            part.add(name)
    return part


class Account(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A node of the tree of shares: organisation, project, …; users are leaves below it."""

    name: str = ""
    description: str = ""
    parent: str = ""
    weight: Annotated[float, Meta(ge=0.0, le=1e9)] = 1.0
    """Its share among its siblings."""
    users: dict[str, float] = {}
    """Users with a weight of their own (others: 1); where `closed`, the only users."""
    closed: bool = False


class Reclaim(StrEnum):
    """How what a limit has lent to its cohort comes back when it has work."""

    WAIT = "wait"
    """As tasks end."""
    PREEMPT = "preempt"
    """Running tasks of those who borrow are taken back."""


class Limit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An upper bound for everything within a scope. A job is within when it matches all named parts of the scope.

    Scope: "" = any, a name, or "*" = a bound of this size for each name. An account's scope holds all below it; "*"
    means each account that jobs name.
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
    """In use at once, over all nodes."""
    hours: Resources | None = None
    """Resource-hours in each period: amounts that may be held for one hour."""
    period: Duration = Duration(30 * 86_400_000)
    max_job: Resources | None = None
    """Most that one task may ask for, over all its nodes."""
    max_nodes: Annotated[int, Meta(ge=1)] | None = None
    max_walltime: Duration | None = None
    cohort: str = ""
    """Limits of one cohort lend each other the `resources` that they do not use."""
    borrow: Resources | None = None
    """The most that is borrowed; None: all that is unused in the cohort."""
    reclaim: Reclaim = Reclaim.WAIT
    """How what it has lent comes back when it has work."""


class Repeat(StrEnum):
    """How often a booking comes again."""

    ONCE = "once"
    DAILY = "daily"
    WEEKLY = "weekly"


class Booking(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Resources set aside for a time, for somebody or (maintenance) nobody."""

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
    """Its users' jobs may use its nodes before it starts, as far as nothing else is there."""
    overlap: bool = False
    """It may share nodes with other bookings."""


class FairShare(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How use is weighed and forgotten.

    charge: units for each cpu, GPU, GiB of memory and whole other resource held for a second.
    dominant: charge the largest of the parts (each over what the cluster has) instead of their sum.
    """

    half_life: Duration = Duration(WEEK_MS)
    charge: dict[str, float] = field(default_factory=lambda: {"cpu": 1.0, "gpu": 16.0, "memory": 0.0625})
    dominant: bool = False


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """All of it. Every table is by name."""

    version: int = 0
    queues: dict[str, Queue] = field(default_factory=lambda: {DEFAULT_QUEUE: Queue()})
    accounts: dict[str, Account] = {}
    """Once one is declared, no other may be named."""
    users: tuple[str, ...] = ()
    """The users there are; empty: any name."""
    qos: dict[str, Qos] = {}
    limits: dict[str, Limit] = {}
    bookings: dict[str, Booking] = {}
    licences: dict[str, int] = {}
    """Amounts of the whole cluster, by name."""
    weights: Weights = Weights()
    fairshare: FairShare = FairShare()
