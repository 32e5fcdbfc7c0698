"""What another policy would mean for present jobs: which it would refuse today, and which limits they exceed.

Pure; nothing is changed. Jobs continue whatever the policy says: what is listed here is what an operator should know
before the change. O(jobs looked at); equal jobs are judged once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hal.core.model import Duration, HALError, JobSpec, Resources, format_amount
from hal.core.model.groups import total_request
from hal.core.model.policy import Limit, Policy
from hal.core.model.policy_scope import Ledger, Owner, ledger, ledger_text
from hal.planes.tasks.admission.policy_rules import LimitsByOwner, admitted
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.table.pending_limits import owner_of_live, wanted_tasks

MAX_LISTED: Final = 100
"""Jobs and ledgers that are named."""


class RefusedJob(Struct, frozen=True, kw_only=True):
    """A live job that would not be accepted if it were submitted now."""

    job: str
    reason: str


class OverLimit(Struct, frozen=True, kw_only=True):
    """A limit that the live jobs already exceed: it admits and starts nothing more until enough have ended."""

    limit: str
    whose: str
    what: str
    """`running`, `pending`, or a resource."""
    now: str
    allowed: str


class Effects(Struct, frozen=True, kw_only=True):
    """The effect of a policy on live jobs."""

    examined: int
    """Live jobs looked at; at most so many are, the oldest first."""
    refused_jobs: int
    refused: tuple[RefusedJob, ...] = ()
    over_limits: int
    over: tuple[OverLimit, ...] = ()


class _Use:
    __slots__ = ("pending", "resources", "running")

    def __init__(self) -> None:
        self.running = 0
        self.pending = 0
        self.resources: dict[str, int] = {}


class Judge:
    """Looks at jobs a slice at a time."""

    def __init__(self, before: Policy, after: Policy, now_ms: int) -> None:
        self._policies = (before, after)
        self._limits: tuple[LimitsByOwner, LimitsByOwner] = ({}, {})
        self._now_ms = now_ms
        self._bounds = [
            limit
            for limit in after.limits.values()
            if (limit.running, limit.pending, limit.resources) != (None, None, None)
        ]
        self._ledgers: dict[Owner, list[tuple[str, Ledger]]] = {}
        self._use: dict[tuple[str, Ledger], _Use] = {}
        self._answers: dict[tuple[object, ...], str] = {}
        self._examined = 0
        self._refused: list[RefusedJob] = []
        self._refused_jobs = 0

    def look_at(self, jobs: Iterable[LiveJob]) -> None:
        """Judge these jobs, too."""
        for job in jobs:
            self._examined += 1
            waits = job.counts.pending + job.counts.held
            if waits:
                reason = self._reason(job)
                if reason:
                    self._refused_jobs += 1
                    if len(self._refused) < MAX_LISTED:
                        self._refused.append(RefusedJob(job=str(job.id), reason=reason))
            if self._bounds:
                self._charge(job, waits)

    def effects(self) -> Effects:
        """Return the effects on all jobs that were judged."""
        over = [one for key, use in sorted(self._use.items()) for one in self._over(key, use)]
        return Effects(
            examined=self._examined,
            refused_jobs=self._refused_jobs,
            refused=tuple(self._refused),
            over_limits=len(over),
            over=tuple(over[:MAX_LISTED]),
        )

    def _reason(self, job: LiveJob) -> str:
        """Why it would be refused by the new policy and not by the old one; '' otherwise."""
        walltime = None if job.walltime_ms is None else Duration(job.walltime_ms)
        key = (id(job.spec), job.queue, job.account, job.user, walltime)
        found = self._answers.get(key)
        if found is None:
            spec = replace(
                job.spec, queue=job.queue, account=job.account, user=job.user, priority=job.priority, walltime=walltime
            )
            found = self._refusal(spec, 1)
            if found and self._refusal(spec, 0):
                found = ""
            self._answers[key] = found
        return found

    def _refusal(self, spec: JobSpec, which: int) -> str:
        try:
            admitted(spec, self._policies[which], user=spec.user, now_ms=self._now_ms, known=self._limits[which])
        except HALError as error:
            return error.message
        return ""

    def _charge(self, job: LiveJob, waits: int) -> None:
        owner = owner_of_live(job)
        keys = self._ledgers.get(owner)
        if keys is None:
            accounts = self._policies[1].accounts
            found = ((limit.name, ledger(limit, owner, accounts)) for limit in self._bounds)
            keys = self._ledgers[owner] = [(name, one) for name, one in found if one is not None]
        active, extensions = job.counts.active, sum(job.spec.is_extension(task) for task in job.active)
        nodes = job.spec.nodes * (active - extensions) + extensions
        for key in keys:
            use = self._use.setdefault(key, _Use())
            use.running += active
            use.pending += wanted_tasks(job.spec, waits, len(job.active))
            if active:
                each, times = job.spec.request, nodes
                if job.spec.groups:
                    each, times = total_request(job.spec), active
                for name, amount in each.items():
                    use.resources[name] = use.resources.get(name, 0) + amount * times

    def _over(self, key: tuple[str, Ledger], use: _Use) -> Iterable[OverLimit]:
        limit: Limit = self._policies[1].limits[key[0]]
        whose = ledger_text(limit, key[1])
        for what, now, allowed in (("running", use.running, limit.running), ("pending", use.pending, limit.pending)):
            if allowed is not None and now > allowed:
                yield OverLimit(limit=limit.name, whose=whose, what=what, now=str(now), allowed=str(allowed))
        for name, most in (limit.resources or Resources()).items():
            held = use.resources.get(name, 0)
            if held > most:
                yield OverLimit(
                    limit=limit.name,
                    whose=whose,
                    what=name,
                    now=format_amount(name, held),
                    allowed=format_amount(name, most),
                )
