"""The policy for people: the one in force, earlier ones, changing it, and what a change would mean.

A change is one commit: the next version, an event, the events for the engine. It is refused unless it is based on the
version in force, so two operators never overwrite one another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from msgspec import Struct, convert
from msgspec.structs import asdict, replace

from hal.core.engine.errors import EngineError
from hal.core.model import ConflictError, HALError, NotFoundError, from_json
from hal.core.model.occurrences import current_occurrence
from hal.core.model.policy import Policy
from hal.core.model.policy_change import Difference, Operation, apply_operations, differences
from hal.core.model.policy_check import zones_of
from hal.core.model.policy_text import policy_to_plain
from hal.daemons.controller.service.parts import Parts
from hal.daemons.controller.service.policy.share_views import (
    LedgersList,
    PriorityView,
    SharesList,
    ledger_view,
    share_view,
)
from hal.daemons.controller.service.policy.views import LicenceView, PolicyChanged, PolicyVersion, PolicyView, QueueView
from hal.daemons.controller.startup.policy_start import TAKEN_IN
from hal.planes.tasks import Effects, Judge, Submitter
from hal.runtime.interface import Lane
from hal.runtime.time_zones import offsets_of, zone_offsets
from hal.store import PolicyRow, PutMeta

MAX_EXAMINED = 200_000
"""Live jobs that a dry run looks at."""
EXAMINED_AT_ONCE = 2_000
"""Between two looks at what else is to be done."""


class Asked(Struct, frozen=True, kw_only=True):
    """One change of the policy, and what it is meant for."""

    change: Callable[[Policy], Policy]
    """From what holds to what is to hold, checked; raises HALError."""
    version: int | None = None
    """Only when this version holds; None: whichever does."""
    note: str = ""


class Policies:
    """Read and change the policy, and what it makes of jobs."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @property
    def current(self) -> Policy:
        """The policy in force."""
        return self._parts.plane.policy

    async def get(self, version: int | None = None) -> PolicyView:
        """Return the policy in force, or that version.

        Raises:
            NotFoundError: it is not kept, or never was.
        """
        row = await self._parts.committer.read(lambda store: store.policy(version))
        if row is None:
            raise NotFoundError(f"version {version} of the policy is not there", hint="`hal policy history` lists them")
        policy = policy_to_plain(from_json(row.document, Policy))
        return PolicyView(version=row.version, at_ms=row.at_ms, user=row.user, note=row.note, policy=policy)

    async def versions(self, before: int | None, limit: int) -> list[PolicyVersion]:
        """Versions, newest first."""
        rows = await self._parts.committer.read(lambda store: store.policies(before=before, limit=limit))
        return [_version(row) for row in rows]

    async def change(self, asked: Asked, by: Submitter) -> PolicyChanged:
        """Put it in force; it is durable when this returns.

        Raises:
            ConflictError: another version holds, or an entry is there already.
            NotFoundError, SpecError: it cannot be made of what holds; nothing was changed.
        """
        plane = self._parts.plane
        await self._learn_zones(asked)

        def work(now_ms: int) -> tuple[int, list[Difference]]:
            different = plane.change_policy(_made(asked, plane.staged_policy), by, now_ms, asked.note)
            digest = self._parts.policy_file.taken_in(plane.staged_policy)
            if digest:
                plane.add_operations(PutMeta({TAKEN_IN: digest}))
            return plane.staged_policy.version, different

        version, different = await self._parts.loop.inbox.call(work)
        return PolicyChanged(version=version, changes=tuple(different))

    async def preview(self, asked: Asked) -> PolicyChanged:
        """What `change` would change, and what that would mean for live jobs; nothing is changed.

        Raises: as `change`.
        """
        await self._learn_zones(asked)
        before = self._parts.plane.policy
        after = _made(asked, before)
        zone_offsets(after)
        effects = await self._effects(before, after)
        different = tuple(differences(before, after))
        return PolicyChanged(version=before.version, dry_run=True, changes=different, effects=effects)

    async def _learn_zones(self, asked: Asked) -> None:
        """Expand the time zones of its hours, off the loop: a name that there is not is looked for among all zones.

        Raises:
            SpecError: there is no such zone.
        """
        try:
            zones = zones_of(asked.change(self._parts.plane.policy))
        except HALError:  # reported by the change
            return
        for zone in sorted(zones):
            await self._parts.runtime.run_blocking(partial(offsets_of, zone), Lane.READER)

    async def _effects(self, before: Policy, after: Policy) -> Effects:
        """Looks at live jobs in slices; what changes meanwhile may be seen before or after it."""
        judge = Judge(before, after, self._parts.clock.now_ms())
        ids = list(islice(self._parts.plane.live_jobs(), MAX_EXAMINED))
        for start in range(0, len(ids), EXAMINED_AT_ONCE):
            some: Sequence[int] = ids[start : start + EXAMINED_AT_ONCE]
            judge.look_at(job for one in some if (job := self._parts.plane.job(one)) is not None)
            await self._parts.runtime.sleep(0)
        return judge.effects()

    def shares(self) -> SharesList:
        """The tree of shares: what each account and user should get, and what each has used."""
        half_life = int(self._parts.plane.policy.fairshare.half_life)
        return SharesList(half_life_ms=half_life, shares=[share_view(row) for row in self._parts.engine.shares()])

    def ledgers(self) -> LedgersList:
        """What limits have in use."""
        policy = self._parts.plane.policy
        return LedgersList(ledgers=[ledger_view(row, policy) for row in self._parts.engine.ledgers()])

    def priority(self, job_id: int) -> PriorityView:
        """A waiting job's priority, factor by factor.

        Raises:
            NotFoundError: there is no live job of this id.
            ConflictError: nothing of it waits for resources.
        """
        job = self._parts.plane.job(job_id)
        if job is None:
            raise NotFoundError(f"job {job_id} is not waiting or running", hint="`hal show` shows how it ended")
        try:
            parts = self._parts.engine.priority(job_id, self._parts.clock.now_ms())
        except EngineError:
            raise ConflictError(
                f"job {job_id} does not wait for resources: only such jobs have a priority",
                hint=f"`hal why {job_id}` shows what it waits for",
            ) from None
        return convert(asdict(parts), PriorityView)

    def queues(self) -> list[QueueView]:
        """All queues by name. O(live jobs)."""
        tallies, declared = self._parts.plane.tally_queues(), self._parts.plane.policy.queues
        out = []
        for name, tally in sorted(tallies.items()):
            queue = declared.get(name)
            out.append(
                QueueView(
                    name=name,
                    open=queue.open if queue else False,
                    starts=queue.starts if queue else True,
                    default_walltime=queue.default_walltime if queue else None,
                    max_walltime=queue.max_walltime if queue else None,
                    description=queue.description if queue else "not declared any more",
                    jobs=tally.jobs,
                    pending=tally.pending,
                    held=tally.held,
                    running=tally.active,
                    oldest_ms=tally.oldest_ms,
                )
            )
        return out

    def licences(self) -> list[LicenceView]:
        """All licences by name: how many there are, are held by running tasks, and are booked now. O(running tasks)"""
        plane, now_ms = self._parts.plane, self._parts.clock.now_ms()
        policy = plane.policy
        used: dict[str, int] = {}
        inside: dict[str, int] = {}
        for job in plane.running_jobs():
            for name, amount in job.spec.licences.items():
                used[name] = used.get(name, 0) + amount * len(job.active)
                if job.spec.booking:
                    inside[name] = inside.get(name, 0) + amount * len(job.active)
        booked: dict[str, int] = {}
        for booking in policy.bookings.values():
            now = current_occurrence(booking, now_ms)
            for name, amount in booking.licences.items() if now is not None and now.start_ms <= now_ms else ():
                booked[name] = booked.get(name, 0) + amount
        return [
            LicenceView(
                name=name,
                total=total,
                used=used.get(name, 0),
                booked=booked.get(name, 0),
                free=max(0, total - used.get(name, 0) - max(0, booked.get(name, 0) - inside.get(name, 0))),
            )
            for name, total in sorted(policy.licences.items())
        ]


def _made(asked: Asked, policy: Policy) -> Policy:
    if asked.version is not None and asked.version != policy.version:
        raise ConflictError(
            f"the current policy is version {policy.version}, not {asked.version}",
            hint="check what was changed (`hal policy history`), then change that version",
        )
    return asked.change(policy)


def by_operations(operations: Sequence[Operation]) -> Callable[[Policy], Policy]:
    """The change that these operations make."""
    return lambda policy: apply_operations(policy, operations)


def whole(policy: Policy) -> Callable[[Policy], Policy]:
    """The change to this policy, whatever held."""
    return lambda before: replace(policy, version=before.version)


def _version(row: PolicyRow) -> PolicyVersion:
    return PolicyVersion(version=row.version, at_ms=row.at_ms, user=row.user, note=row.note)
