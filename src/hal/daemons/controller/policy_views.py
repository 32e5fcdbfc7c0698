"""What the API tells about the policy: versions, changes, licences.

Values only.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from hal.core.model.policy_change import Difference
from hal.planes.tasks import Effects


class PolicyVersion(Struct, frozen=True, kw_only=True):
    """One version, without what it says."""

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
    """Some versions, newest first."""

    versions: list[PolicyVersion]
    cursor: str | None


class PolicyChanged(Struct, frozen=True, kw_only=True):
    """What was changed, or (dry run) would be."""

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
    """All of them by name."""

    licences: list[LicenceView]
