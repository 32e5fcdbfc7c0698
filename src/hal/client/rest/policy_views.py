"""What the controller reports about the policy, as typed frozen values. Pure."""

from __future__ import annotations

from typing import Any

from hal.client.rest.views import View
from hal.core.model.policy import Policy
from hal.core.model.policy_text import policy_from_plain


class PolicyVersion(View, frozen=True, kw_only=True):
    """One version of the policy: when, by whom, why."""

    version: int
    at_ms: int
    user: str = ""
    """Empty: it was read from hal.toml."""
    note: str = ""


class PolicyInfo(PolicyVersion, frozen=True, kw_only=True):
    """One version of the policy, and its content as plain data (as in hal.toml)."""

    policy: dict[str, Any]

    @property
    def value(self) -> Policy:
        """Its content, as a value of the model.

        Raises:
            SpecError: the controller has settings that this version does not know.
        """
        return policy_from_plain(self.policy)


class PolicyDifference(View, frozen=True, kw_only=True):
    """One field that differs; None: it is absent, or has its default."""

    entry: str
    field: str = ""
    """Empty: the whole entry was added or removed."""
    before: Any = None
    after: Any = None


class RefusedJob(View, frozen=True, kw_only=True):
    """A pending job that would be refused if it were submitted now."""

    job: str
    reason: str


class OverLimit(View, frozen=True, kw_only=True):
    """A limit that the live jobs exceed already."""

    limit: str
    whose: str
    what: str
    now: str
    allowed: str


class PolicyEffects(View, frozen=True, kw_only=True):
    """What a policy would mean for live jobs; the lists hold the first hundred."""

    examined: int = 0
    refused_jobs: int = 0
    refused: tuple[RefusedJob, ...] = ()
    over_limits: int = 0
    over: tuple[OverLimit, ...] = ()


class PolicyChange(View, frozen=True, kw_only=True):
    """What a change has changed, or in a dry run would change."""

    version: int
    """The active one."""
    changes: tuple[PolicyDifference, ...] = ()
    dry_run: bool = False
    effects: PolicyEffects | None = None


class LicenceInfo(View, frozen=True, kw_only=True):
    """One licence: an amount of the whole cluster."""

    name: str
    total: int
    used: int = 0
    booked: int = 0
    free: int = 0
