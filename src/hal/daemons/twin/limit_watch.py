"""Limits checked independently of the engine: the usage of each, counted from starts and ends alone.

Pure. It shares the meaning of scopes with the engine (`hal.core.model.policy_scope`) and none of its tables, so that
`--check` finds what the engine's own ledgers could hide. Also counts waiting jobs, for the limits on these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.model import InternalError, format_amount
from hal.core.model.policy import Limit, Policy
from hal.core.model.policy_hours import UTC_OFFSETS, ZoneOffsets, is_open
from hal.core.model.policy_scope import Ledger, ledger, ledger_text
from hal.daemons.twin.site_admission import owner_of

Key = tuple[str, Ledger]
"""Name of a limit, and one of its ledgers."""


class WaitingCount:
    """The number of jobs waiting within each limit on `pending`."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._limits = [limit for limit in policy.limits.values() if limit.pending is not None]
        self._keys: dict[OwnerSpec, tuple[Key, ...]] = {}
        self._counts: dict[Key, int] = {}

    @property
    def asks(self) -> bool:
        """Whether any limit applies to waiting jobs."""
        return bool(self._limits)

    def refuses(self, owner: OwnerSpec) -> str:
        """Return which limit is full for one more job of the owner, in words; if it is '', the job may wait, and is
        counted."""
        keys = self._keys_of(owner)
        for name, found in keys:
            limit = self._policy.limits[name]
            if self._counts.get((name, found), 0) >= (limit.pending or 0):
                return f"limit '{name}': {ledger_text(limit, found)} may have {limit.pending} waiting"
        self._add(keys, 1)
        return ""

    def started(self, owner: OwnerSpec) -> None:
        """Record that one of the owner's jobs no longer waits."""
        self._add(self._keys_of(owner), -1)

    def returns(self, owner: OwnerSpec) -> None:
        """Record that one of the owner's jobs waits again by itself, even beyond a limit."""
        self._add(self._keys_of(owner), 1)

    def _add(self, keys: Iterable[Key], jobs: int) -> None:
        for key in keys:
            self._counts[key] = self._counts.get(key, 0) + jobs

    def _keys_of(self, owner: OwnerSpec) -> tuple[Key, ...]:
        found = self._keys.get(owner)
        if found is None:
            found = self._keys[owner] = _keys(owner, self._limits, self._policy)
        return found


class LimitWatch:
    """The usage of each limit by running jobs; a start beyond a limit is an InternalError that names it."""

    def __init__(self, policy: Policy, zones: Mapping[str, ZoneOffsets] = MappingProxyType({})) -> None:
        self._policy = policy
        self._zones = zones
        self._limits = [limit for limit in policy.limits.values() if limit.running is not None or limit.resources]
        self._keys: dict[OwnerSpec, tuple[Key, ...]] = {}
        self._running: dict[Key, int] = {}
        self._used: dict[tuple[Key, str], int] = {}
        self._cohorts: dict[tuple[str, str], int] = {}

    def started(self, owner: OwnerSpec, request: ClassSpec, now_ms: int) -> None:
        """Count a start.

        Raises:
            InternalError: it exceeds a limit, or its queue is closed.
        """
        queue = self._policy.queues.get(owner.queue)
        if queue is not None and not queue.starts:
            raise InternalError(f"queue '{owner.queue}' started a job while it is closed, at {now_ms} ms")
        zone = UTC_OFFSETS if queue is None else self._zones.get(queue.zone, UTC_OFFSETS)
        if queue is not None and queue.hours and not is_open(queue.hours, now_ms, zone):
            raise InternalError(f"queue '{owner.queue}' started a job outside of its hours, at {now_ms} ms")
        self._count(owner, request, 1)
        for key in self._keys_of(owner):
            self._judge(key, request)

    def resumed(self, owner: OwnerSpec, request: ClassSpec) -> None:
        """Count a resumed job: resuming is never refused, even if its slot was given away."""
        self._count(owner, request, 1)

    def ended(self, owner: OwnerSpec, request: ClassSpec) -> None:
        """Count an end, or a suspension."""
        self._count(owner, request, -1)

    def _count(self, owner: OwnerSpec, request: ClassSpec, sign: int) -> None:
        for key in self._keys_of(owner):
            limit = self._policy.limits[key[0]]
            self._running[key] = self._running.get(key, 0) + sign
            for resource in limit.resources or ():
                amount = sign * _asked(request, resource)
                self._used[key, resource] = self._used.get((key, resource), 0) + amount
                if limit.cohort:
                    shared = (limit.cohort, resource)
                    self._cohorts[shared] = self._cohorts.get(shared, 0) + amount

    def _judge(self, key: Key, request: ClassSpec) -> None:
        limit = self._policy.limits[key[0]]
        if limit.running is not None and self._running[key] > limit.running:
            raise InternalError(f"limit '{key[0]}' ({ledger_text(limit, key[1])}): {self._running[key]} run at once")
        for resource, amount in (limit.resources or {}).items():
            # A job that requests none of a resource may start however much of it is in use.
            if not _asked(request, resource):
                continue
            used, most = self._used[key, resource], _most(limit, resource, amount)
            if most is not None and used > most:
                raise InternalError(
                    f"limit '{key[0]}' ({ledger_text(limit, key[1])}): {format_amount(resource, used)} {resource} "
                    "in use"
                )
            if limit.cohort and self._cohorts[limit.cohort, resource] > self._of_cohort(limit.cohort, resource):
                raise InternalError(f"cohort '{limit.cohort}' uses more {resource} than its limits together")

    def _of_cohort(self, cohort: str, resource: str) -> int:
        members = [limit for limit in self._policy.limits.values() if limit.cohort == cohort]
        return sum(limit.resources.get(resource, 0) for limit in members if limit.resources is not None)

    def _keys_of(self, owner: OwnerSpec) -> tuple[Key, ...]:
        found = self._keys.get(owner)
        if found is None:
            found = self._keys[owner] = _keys(owner, self._limits, self._policy)
        return found


def _asked(request: ClassSpec, resource: str) -> int:
    """What a job holds of a resource, all of its nodes together."""
    return sum(part.request.get(resource, 0) * part.nodes for part in (request, *request.groups))


def _most(limit: Limit, resource: str, amount: int) -> int | None:
    """Return the most of a resource that one ledger may use; None if it may borrow without limit."""
    if not limit.cohort:
        return amount
    return None if limit.borrow is None else amount + limit.borrow.get(resource, 0)


def _keys(owner: OwnerSpec, limits: Iterable[Limit], policy: Policy) -> tuple[Key, ...]:
    found = ((limit.name, ledger(limit, owner_of(owner), policy.accounts)) for limit in limits)
    return tuple((name, one) for name, one in found if one is not None)
