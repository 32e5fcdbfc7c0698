"""How many tasks wait within the scope of each limit, counted from the live jobs, exactly, as submissions come and go.

Pure. A task waits from its submission until its start is confirmed (held ones, and those allocated on a node that may
still refuse them, included): so a refused start never takes a place that was given to others meanwhile. The count is a
sum over rows that are committed, so a restart counts the same. What comes back by itself (a retry, a lost node,
preemption) waits again even beyond a limit; what a person submits, moves or runs again is refused.

O(1) for each job that changed since the last look, times the limits it is within; nothing while no limit asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from hal.core.model import ConflictError, JobSpec
from hal.core.model.policy import Limit, Policy
from hal.core.model.policy_scope import Ledger, Owner, ledger, ledger_text
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.slices import Pace, Work

Key = tuple[str, Ledger]
"""Name of a limit, and which of its ledgers."""


class Ask(Struct, frozen=True):
    """More tasks that would wait."""

    owner: Owner
    tasks: int


class PendingLimits:
    """Counts of waiting tasks by ledger. `touched` before a job changes, `refuse` before something is added."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._limits: list[Limit] = []
        self._counts: dict[Key, int] = {}
        self._counted: dict[int, tuple[Owner, int]] = {}
        """What of each job is in the counts."""
        self._stale: set[int] = set()
        self._keys_of: dict[Owner, tuple[Key, ...]] = {}
        self.set_policy(policy, ())

    def set_policy(self, policy: Policy, jobs: Iterable[LiveJob], in_columns: Iterable[tuple[Owner, int]] = ()) -> None:
        """Count again under these limits. O(live jobs) if any of them counts tasks.

        Args:
            in_columns: whose jobs in columns there are, and how many; each is one task that waits (see `left_columns`).
        """
        self._policy = policy
        self._limits = [limit for limit in policy.limits.values() if limit.pending is not None]
        self._counts.clear()
        self._counted.clear()
        self._stale.clear()
        self._keys_of.clear()
        if self._limits:
            for job in jobs:
                self._count(job.id, job)
            for owner, tasks in in_columns:
                self._add(owner, tasks)

    def left_columns(self, job: LiveJob) -> None:
        """A job in columns, which is counted, is an object from now on."""
        if self._limits:
            self._counted[job.id] = (owner_of_live(job), waiting_tasks(job))

    def entered_columns(self, job: LiveJob) -> None:
        """A job is in columns from now on, and stays counted."""
        self._counted.pop(job.id, None)

    def touched(self, job_id: int) -> None:
        """Call before a job is added, changed or removed."""
        if self._limits:
            self._stale.add(job_id)

    @property
    def limited(self) -> bool:
        """Whether any limit counts waiting tasks."""
        return bool(self._limits)

    def settling(self, live: Callable[[int], LiveJob | None]) -> Work[None]:
        """`settle`, in slices; a job that changes meanwhile is counted again."""
        pace = Pace()
        while self._stale:
            job_id = self._stale.pop()
            self._count(job_id, live(job_id))
            if pace.over():
                yield

    def settle(self, live: Callable[[int], LiveJob | None]) -> None:
        """Count what has changed."""
        stale, self._stale = self._stale, set()
        for job_id in stale:
            self._count(job_id, live(job_id))

    def refuse(self, asks: Iterable[Ask], live: Callable[[int], LiveJob | None]) -> None:
        """Return if all of these may wait, too.

        Args:
            asks: what would be added.
            live: the job of that id as it now is.
        Raises:
            ConflictError: beyond a limit; names it, whose it is, how many wait and how many may be added.
        """
        if not self._limits:
            return
        self.settle(live)
        added: dict[Key, int] = {}
        for ask in asks:
            for key in self._keys(ask.owner):
                added[key] = added.get(key, 0) + ask.tasks
        for key, tasks in added.items():
            self._refuse_one(key, tasks)

    def moved(self, job: LiveJob, owner: Owner, live: Callable[[int], LiveJob | None]) -> None:
        """Return if the job's waiting tasks may wait as that owner's.

        Raises:
            ConflictError: as `refuse`.
        """
        if not self._limits:
            return
        self.settle(live)
        tasks = waiting_tasks(job)
        for key in self._keys(owner):
            if key not in self._keys(owner_of_live(job)):
                self._refuse_one(key, tasks)

    def count(self, limit: str, found: Ledger, live: Callable[[int], LiveJob | None]) -> int:
        """How many tasks wait in that ledger."""
        self.settle(live)
        return self._counts.get((limit, found), 0)

    def _refuse_one(self, key: Key, tasks: int) -> None:
        limit = self._policy.limits[key[0]]
        most, wait = limit.pending or 0, self._counts.get(key, 0)
        if not tasks or wait + tasks <= most:
            return
        left = max(0, most - wait)
        raise ConflictError(
            f"limit '{limit.name}' allows {ledger_text(limit, key[1])} {most} waiting tasks; {wait} wait already, and "
            f"this "
            f"would add {tasks}",
            hint=f"add at most {left} now, or wait until some have started" if left else "wait until some have started",
        )

    def _count(self, job_id: int, job: LiveJob | None) -> None:
        before = self._counted.pop(job_id, None)
        if before is not None:
            self._add(before[0], -before[1])
        tasks = waiting_tasks(job) if job is not None else 0
        if job is not None and tasks:
            owner = owner_of_live(job)
            self._counted[job_id] = (owner, tasks)
            self._add(owner, tasks)

    def _add(self, owner: Owner, tasks: int) -> None:
        for key in self._keys(owner):
            left = self._counts.get(key, 0) + tasks
            if left:
                self._counts[key] = left
            else:
                del self._counts[key]

    def _keys(self, owner: Owner) -> tuple[Key, ...]:
        found = self._keys_of.get(owner)
        if found is None:
            if len(self._keys_of) >= MAX_OWNERS:
                self._keys_of.clear()
            ledgers = ((limit.name, ledger(limit, owner, self._policy.accounts)) for limit in self._limits)
            found = self._keys_of[owner] = tuple((name, one) for name, one in ledgers if one is not None)
        return found


MAX_OWNERS = 10_000
"""Owners whose ledgers are remembered."""


def waiting_tasks(job: LiveJob) -> int:
    """Tasks that wait, or whose start is not confirmed yet; of workers only those that are wanted now."""
    waiting = job.counts.pending + job.counts.held
    return wanted_tasks(job.spec, waiting, len(job.active)) + job.counts.allocated


def wanted_tasks(spec: JobSpec, waiting: int, active: int = 0) -> int:
    """How many of its waiting tasks count: of workers no more than may begin now beside the active ones."""
    if not spec.workers or spec.array is None or not spec.array.max_running:
        return waiting
    return min(waiting, max(spec.array.max_running - active, 0))


def owner_of_live(job: LiveJob) -> Owner:
    """Whose waiting work it is."""
    return Owner(job.queue, job.account, job.user, job.spec.qos)
