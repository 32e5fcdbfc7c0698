"""What the API shows of shares, limits in use and priorities. Values only."""

from __future__ import annotations

from msgspec import Struct

from hal.core.engine.views import LedgerRow, ShareRow
from hal.core.kernels.structures.layout import INF
from hal.core.model.policy import Policy
from hal.core.model.policy_scope import ledger_text


class ShareView(Struct, frozen=True, kw_only=True):
    """An account in the tree of shares, or a user below one."""

    path: tuple[str, ...]
    """Accounts from the top; empty: the whole cluster, or a user without an account."""
    user: str | None
    """None: an account."""
    weight: float
    target: float
    """Part of its siblings' use that is meant for it, 0..1."""
    used: float
    """Part of its siblings' use that it has had, 0..1, old use counting less; for the whole cluster 1, or 0 of 0."""
    units: float
    """Weighted resource-seconds, decayed to now."""
    factor: float
    """What its jobs get, 0..1; 0 for accounts."""


class SharesList(Struct, frozen=True, kw_only=True):
    """The tree, parents before children."""

    half_life_ms: int
    shares: list[ShareView]


class LedgerView(Struct, frozen=True, kw_only=True):
    """The use of a limit, for one of the names that it counts separately."""

    limit: str
    """Its name; empty: a cohort's limits together."""
    cohort: str
    scope: str
    """Whom it counts, in words."""
    what: str
    """`running`, `resources` or `hours`."""
    resource: str
    used: int
    """Base units; for hours base-unit-seconds."""
    limit_amount: int
    own: int
    """What is its own; above it, it borrows."""
    ends_ms: int | None
    """When the period ends."""


class LedgersList(Struct, frozen=True, kw_only=True):
    """All that were charged since the controller started."""

    ledgers: list[LedgerView]


class PriorityView(Struct, frozen=True, kw_only=True):
    """A waiting job's priority in points, factor by factor; the sum decides who goes first."""

    job: int
    discipline: str
    """How its queue orders its jobs."""
    total: float
    age: float
    fairshare: float
    fair_factor: float
    """0..1: 1 = nothing used, 1/2 = just what its share is."""
    qos: float
    queue: float
    priority: float
    size: float
    deadline: float


def share_view(row: ShareRow) -> ShareView:
    """Return the view of it."""
    return ShareView(
        path=row.path, user=row.user, weight=row.weight, target=row.target, used=row.used,
        units=row.units, factor=row.factor,
    )  # fmt: skip


def ledger_view(row: LedgerRow, policy: Policy) -> LedgerView:
    """Return the view of it."""
    name = row.name
    limit = policy.limits.get(name.limit)
    scope = (
        f"cohort {name.cohort}"
        if limit is None
        else ledger_text(limit, (name.queue, name.account, name.user, name.qos))
    )
    return LedgerView(
        limit=name.limit, cohort=name.cohort, scope=scope, what=name.what, resource=name.resource, used=row.used,
        limit_amount=row.limit, own=row.nominal, ends_ms=row.ends_ms if row.ends_ms < INF else None,
    )  # fmt: skip
