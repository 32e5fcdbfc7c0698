"""Everything that can be asked about periodic jobs: make, change, hold, resume, remove, run now, read.

What changes something returns when it is durable; what reads shows what is durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from hal.core.model import ConflictError, NotFoundError, SpecError, TaskState, from_json, to_json
from hal.core.model.periodic import MAX_PERIODIC_BYTES, PeriodicSpec, RunOutcome, check_periodic
from hal.daemons.controller.cycle.plane_group import PlanePort
from hal.daemons.controller.service.access.secrets import Secrets
from hal.daemons.controller.service.idempotency import Idempotency, Key
from hal.daemons.controller.service.jobs.jobs import Jobs
from hal.daemons.controller.service.jobs.records import batched
from hal.daemons.controller.service.parts import Parts
from hal.daemons.controller.service.periodic.submission import PeriodicSubmission, job_of, run_of
from hal.daemons.controller.service.periodic.views import (
    CronHistory,
    CronList,
    CronRunView,
    CronView,
    cron_view,
    run_view,
)
from hal.planes.periodic import MAX_LIVE, PeriodicPlane, check_schedule, next_due_ms
from hal.planes.tasks import Submitter, Work
from hal.rest.answers import page_cursor
from hal.runtime.interface import Lane
from hal.runtime.step_users import account_exists
from hal.store import PeriodicRow, PeriodicRun, RememberIdempotent, Store


class PeriodicJobs:
    """Of one controller."""

    def __init__(self, parts: Parts, jobs: Jobs, secrets: Secrets) -> None:
        self._parts = parts
        self._port: PlanePort[PeriodicPlane] = parts.periodic
        self._jobs = jobs
        self._idempotency = Idempotency(parts.committer)
        self.submission = PeriodicSubmission(parts, self._port, jobs, secrets)

    # ── change ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def add(
        self, user: str, name: str, asked: PeriodicSpec, by: Submitter, *, replaces: bool = False, dry_run: bool = False
    ) -> CronView:
        """Make a periodic job, or change one; a dry run only checks it.

        Args:
            user: in whose name its jobs are submitted.
            replaces: there may be one of this name: it keeps its history, and is no longer held.
        Raises:
            SpecError, ConflictError, DeniedError: its schedule or its job cannot be accepted, or there is one.
            OverloadedError: there are too many.
        """
        spec = check_periodic(name, asked)
        if (size := len(to_json(spec))) > MAX_PERIODIC_BYTES:
            raise SpecError(
                f"job: {size} bytes; at most {MAX_PERIODIC_BYTES} are allowed", hint="let it start a script in a file"
            )
        now_ms, runtime = self._parts.clock.now_ms(), self._parts.runtime
        first_ms = await runtime.run_blocking(partial(check_schedule, spec.schedule, spec.zone, now_ms), Lane.DECODE)
        on_system = await runtime.run_blocking(partial(account_exists, user), Lane.NAMES)
        new = PeriodicRow(
            id=0,
            user=user,
            name=name,
            spec=spec,
            created_ms=now_ms,
            created_by=by.user,
            changed_ms=now_ms,
            on_system=on_system,
            next_ms=first_ms,
        )
        await self._jobs.submit([job_of(new, first_ms)], Submitter(user, by.trace_id, lengthens=False), dry_run=True)
        if dry_run:
            return cron_view(new, (), None, job=True)

        def work(now_ms: int) -> PeriodicRow:
            plane = self._port.use()
            known = plane.find(user, name)
            if known is None:
                row = replace(new, id=plane.new_id)
            else:
                row = replace(known, spec=spec, changed_ms=now_ms, on_system=on_system, held_by="", next_ms=first_ms)
            plane.add(row, replace=replaces)
            return row

        return await self._changed(await self._parts.loop.inbox.call(work))

    async def hold(self, user: str, name: str, by: Submitter) -> CronView:
        """Submit nothing of it until it is resumed; what was submitted goes on.

        Raises:
            NotFoundError: there is none.
        """

        def work(now_ms: int) -> PeriodicRow:
            plane = self._port.use()
            row = plane.named(user, name)
            if not row.held_by:
                row = replace(row, held_by=by.user, next_ms=None, changed_ms=now_ms)
                plane.change(row)
            return row

        return await self._changed(await self._parts.loop.inbox.call(work))

    async def resume(self, user: str, name: str, by: Submitter) -> CronView:
        """Submit it again, from the next due time on.

        Raises:
            NotFoundError: there is none.
        """
        spec, now_ms = self._row(user, name).spec, self._parts.clock.now_ms()
        find = partial(next_due_ms, spec.schedule, spec.zone, now_ms)
        next_ms = await self._parts.runtime.run_blocking(find, Lane.DECODE)

        def work(now_ms: int) -> PeriodicRow:
            plane = self._port.use()
            row = plane.named(user, name)
            if row.spec is not spec:
                raise ConflictError(f"periodic job '{name}' was changed meanwhile", hint="try again")
            if row.held_by or row.next_ms is None:
                row = replace(row, held_by="", next_ms=next_ms, changed_ms=now_ms)
                plane.change(row)
            return row

        return await self._changed(await self._parts.loop.inbox.call(work))

    async def remove(self, user: str, name: str) -> CronView:
        """Remove it with its history; jobs that it submitted go on.

        Raises:
            NotFoundError: there is none.
        """

        def work(now_ms: int) -> PeriodicRow:
            plane = self._port.use()
            row = plane.named(user, name)
            plane.remove(row)
            return row

        return cron_view(await self._parts.loop.inbox.call(work), (), None)

    async def run_now(self, user: str, name: str, key: Key | None) -> CronRunView:
        """Submit its job at once, whatever the schedule and the overlap policy say.

        Args:
            key: asked again with the same one, the job of the first time is returned.
        Raises:
            NotFoundError: there is none.
            ConflictError: too many of its jobs live.
            SpecError, ConflictError, DeniedError: the job is refused; nothing is recorded.
        """

        def work(now_ms: int) -> Work[PeriodicRun]:
            plane = self._port.use()
            row = plane.named(user, name)
            live = self.submission.live(row)
            if len(live) >= MAX_LIVE:
                raise ConflictError(f"{len(live)} jobs of periodic job '{name}' have not ended", hint="cancel some")
            job = yield from self.submission.submitting(row, now_ms, now_ms)
            run = run_of(row, now_ms, now_ms, RunOutcome.SUBMITTED, job=job, manual=True)
            plane.change(replace(row, runs=run.number, live=(*live, job)), (run,))
            if key is not None:
                answer = RememberIdempotent(key.name, key.fingerprint, to_json(run))
                self._parts.plane.add_operations(answer)
            return run

        async def make() -> bytes:
            return to_json(await self._parts.loop.inbox.call_in_slices(work))

        made = await make() if key is None else await self._idempotency.once(key, make)
        return (await self._run_views([from_json(made, PeriodicRun)]))[0]

    async def _changed(self, row: PeriodicRow) -> CronView:
        self.submission.changed.set()
        return (await self._views([row], job=True))[0]

    # ── read ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _row(self, user: str, name: str) -> PeriodicRow:
        """As committed.

        Raises:
            NotFoundError: there is none.
        """
        found = self._port.plane.find(user, name)
        row = None if found is None else self._port.plane.committed.get(found.id)
        if row is None:
            raise NotFoundError(f"user '{user}' has no periodic job '{name}'", hint="`hal cron list` lists them")
        return row

    async def page(self, user: str, after: int | None, limit: int) -> CronList:
        """A page of those of a user, or ('') of all users, in the order in which they were made."""
        committed = self._port.plane.committed
        found = (one for one in sorted(committed) if after is None or one > after)
        rows = [committed[one] for one in found if not user or committed[one].user == user][:limit]
        return CronList(periodic=await self._views(rows), cursor=page_cursor([row.id for row in rows], limit))

    async def get(self, user: str, name: str) -> CronView:
        """One, with the job that it submits.

        Raises:
            NotFoundError: there is none.
        """
        return (await self._views([self._row(user, name)], job=True))[0]

    async def history(self, user: str, name: str, before: int | None, limit: int) -> CronHistory:
        """A page of its history, newest first.

        Args:
            before: number of the last entry of the previous page.
        Raises:
            NotFoundError: there is none.
        """
        read = partial(Store.periodic_runs, periodic=self._row(user, name).id, before=before, limit=limit)
        runs = await self._parts.committer.read(read)
        return CronHistory(runs=await self._run_views(runs), cursor=page_cursor([run.number for run in runs], limit))

    async def _views(self, rows: Sequence[PeriodicRow], *, job: bool = False) -> list[CronView]:
        last = await self._parts.committer.read(partial(Store.last_runs, periodic=[row.id for row in rows]))
        numbers = [row.id for row in rows if row.id in last]
        shown = dict(zip(numbers, await self._run_views([last[one] for one in numbers]), strict=True))
        return [cron_view(row, self.submission.live(row), shown.get(row.id), job=job) for row in rows]

    async def _run_views(self, runs: Sequence[PeriodicRun]) -> list[CronRunView]:
        states: dict[int, TaskState] = {}
        for some in batched([run.job for run in runs if run.job is not None]):
            states |= await self._parts.committer.read(partial(_states_of, jobs=some))
        return [run_view(run, states) for run in runs]


def _states_of(store: Store, jobs: Sequence[int]) -> dict[int, TaskState]:
    rows = (store.job(job) for job in jobs)
    return {row.id: row.state for row in rows if row is not None}
