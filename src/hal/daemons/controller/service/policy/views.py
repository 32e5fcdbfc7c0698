"""What REST shows of the policy: versions, changes, licences, queues.

Values only.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from hal.core.model import Duration
from hal.core.model.policy_change import Difference
from hal.planes.tasks import Effects


class PolicyVersion(Struct, frozen=True, kw_only=True):
    """One version, without its contents."""

    version: int
    at_ms: int
    user: str
    """Who changed it; empty: it was taken in from hal.toml."""
    note: str


class PolicyView(PolicyVersion, frozen=True, kw_only=True):
    """One version of the policy."""

    policy: dict[str, Any]
    """As in hal.toml; defaults are left out."""


class PolicyVersions(Struct, frozen=True, kw_only=True):
    """A page of versions, newest first."""

    versions: list[PolicyVersion]
    cursor: str | None


class PolicyChanged(Struct, frozen=True, kw_only=True):
    """The changes, or (dry run) the changes that would be made."""

    version: int
    """That holds now."""
    changes: tuple[Difference, ...]
    """None: it was so already, and no new version was made."""
    dry_run: bool = False
    effects: Effects | None = None
    """On live jobs; of a dry run only."""


class LicenceView(Struct, frozen=True, kw_only=True):
    """One licence or other amount of the whole cluster."""

    name: str
    total: int
    used: int
    """Held by tasks that have started."""
    booked: int
    """Set aside by bookings that hold now."""
    free: int
    """Neither used nor booked; what runs inside a booking uses what is booked."""


class LicencesList(Struct, frozen=True, kw_only=True):
    """All licences by name."""

    licences: list[LicenceView]


class QueueView(Struct, frozen=True, kw_only=True):
    """One queue; tasks of live jobs by state."""

    name: str
    open: bool
    """It accepts jobs."""
    starts: bool
    """Its jobs may start."""
    default_walltime: Duration | None
    max_walltime: Duration | None
    description: str
    jobs: int
    pending: int
    held: int
    running: int
    oldest_ms: int | None
    """Since when the job that has waited longest could have started, of those of which nothing runs; null: none waits.
    A job that is retried keeps its first instant, and one that is to begin later has that of its begin."""
