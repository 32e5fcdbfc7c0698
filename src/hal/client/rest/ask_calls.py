"""The calls of REST /v1 about waiting work and reservations; apart from `calls`: few programs need them."""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from hal.client.rest.calls import Call, get, reader
from hal.client.rest.views import View

SHORT_OF_NODES: Final = "nodes"
SHORT_OF_RESOURCES: Final = "resources"


class ConstraintInfo(Struct, frozen=True):
    """A condition on a node's labels."""

    label: str
    op: str = ""
    values: tuple[str, ...] = ()


class WantInfo(View, frozen=True, kw_only=True):
    """Waiting work of one class: alike in what each start takes."""

    request: dict[str, int] = field(default_factory=dict)
    """Of each node, in base units."""
    nodes: int = 1
    """Distinct nodes that each start takes."""
    constraints: tuple[ConstraintInfo, ...] = ()
    within: str = ""
    """The level of the topology of which one domain has them; empty: anywhere."""
    booking: str = ""
    licences: dict[str, int] = field(default_factory=dict)
    jobs: int = 0
    tasks: int = 0
    """That wait: as many starts."""
    queues: dict[str, int] = field(default_factory=dict)
    """Jobs by queue; the ten with the most."""
    more_queues: int = 0
    users: dict[str, int] = field(default_factory=dict)
    more_users: int = 0
    head: str = ""
    """The job that is first in order."""
    head_since_ms: int = 0
    """Since when it could have started."""
    short: str = ""
    """`nodes`, `resources`, `turn`, or the rule that keeps the first job waiting."""
    resource: str = ""
    """The resource of which no node has enough; empty: each is there, but not together on enough nodes."""
    short_by: int = 0
    """Of that resource on a node, in base units; without one, nodes."""
    fits_now: int = 0
    """Nodes on which it would fit now."""
    fits_ever: int = 0
    """Nodes that are up and could hold it when they are empty."""


class WantsInfo(View, frozen=True, kw_only=True):
    """Waiting work by class, in the order of the first jobs."""

    version: str = ""
    now_ms: int = 0
    classes: tuple[WantInfo, ...] = ()


class ReservationInfo(View, frozen=True, kw_only=True):
    """Nodes that are set aside for a waiting task."""

    job: str
    task: int = 0
    """Counted from the job's first waiting task."""
    start_ms: int | None = None
    end_ms: int | None = None
    """By its planned time; None: it has none."""
    nodes: tuple[str, ...] = ()
    claimed: bool = False
    """Nothing else starts on these nodes before it."""


class ReleasableInfo(View, frozen=True, kw_only=True):
    """A rented node that could be emptied now: all that runs there may be moved, and has room elsewhere."""

    node: str
    price: float = 0.0
    """As advised."""
    tasks: int = 0
    """Running tasks that would be moved."""
    lost_node_s: float = 0.0
    """What they would lose: seconds of a whole node."""
    empty_ms: int | None = None
    """When it will be empty by itself; None: not known."""
    pays: bool = False
    """Whether what is gained is at least `compaction` times what is lost."""


class PlanInfo(View, frozen=True, kw_only=True):
    """Reservations of waiting work, in order of rank."""

    now_ms: int = 0
    reservations: tuple[ReservationInfo, ...] = ()
    truncated: bool = False
    """There are more."""
    releasable: tuple[ReleasableInfo, ...] = ()
    """Nodes with advice of the kind `price`, the dearest first; for operators, where `compaction` is on."""


def wants() -> Call[WantsInfo]:
    """GET /v1/wants"""
    return Call(get("/v1/wants"), reader(WantsInfo))


def plan() -> Call[PlanInfo]:
    """GET /v1/plan"""
    return Call(get("/v1/plan"), reader(PlanInfo))
