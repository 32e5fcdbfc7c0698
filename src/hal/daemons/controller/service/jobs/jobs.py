"""Everything that can be asked about jobs: submit, control, change and read them.

What changes something returns when it is durable, and raises when nothing of it has happened. What reads shows what is
durable, never what is being committed: live jobs come from memory, everything else from the store, on the readers'
thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hal.core.model import (
    JobSpec,
    NotFoundError,
    OverloadedError,
    Reason,
    SpecError,
    TaskState,
    Verdict,
)
from hal.daemons.controller.service.access.secrets import Secrets
from hal.daemons.controller.service.idempotency import Idempotency, Key
from hal.daemons.controller.service.jobs.control import MAX_LOOKUPS, JobControl
from hal.daemons.controller.service.jobs.owners import Owned, owned_of, parent_of
from hal.daemons.controller.service.jobs.records import (
    batched,
    ended_jobs,
    rows_of,
)
from hal.daemons.controller.service.jobs.refusals import has_ended, no_job, no_task
from hal.daemons.controller.service.jobs.removal import JobRemoval
from hal.daemons.controller.service.jobs.views import JobView, TaskView, WhyView, job_view, task_view, why_view
from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import (
    EndedJob,
    JobPatch,
    Pace,
    Submitter,
    UnknownJobs,
    Work,
    emptied,
    job_row,
)
from hal.runtime.step_users import Serving
from hal.store import JobFilter, JobRow, RememberIdempotent
from hal.store.operations import AttemptRow
from hal.store.views import TaskRow

Attempted = TypeVar("Attempted", TaskRow, AttemptRow)
MAX_WAIT_S = 600.0
"""Longest long poll."""
MAX_ATTEMPTS_SHOWN = 1_000


class Submitted(Struct, frozen=True, kw_only=True):
    """The result of a submission."""

    ids: list[str]
    jobs: list[JobView]
    dry_run: bool = False
    warnings: list[str] = []


class Jobs:
    """Submit, control and read them."""

    def __init__(self, parts: Parts, secrets: Secrets) -> None:
        self._parts = parts
        self._secrets = secrets
        self._idempotency = Idempotency(parts.committer)
        self.control = JobControl(parts, self._idempotency).control
        self.removal = JobRemoval(parts)

    # ── submit ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def submit(
        self, specs: Sequence[JobSpec], by: Submitter, *, dry_run: bool = False, key: Key | None = None
    ) -> Submitted:
        """Accept all jobs, or none.

        Raises:
            SpecError, ConflictError: one cannot be accepted.
            OverloadedError: too much waits.
            StoreError: it could not be made durable.
            DeniedError: it uses secrets in another user's name.
        """
        await self._secrets.check(specs, by)
        if dry_run or key is None:
            return await self._submit(specs, by, dry_run=dry_run, key=None)
        made: list[Submitted] = []

        async def make() -> bytes:
            made.append(await self._submit(specs, by, dry_run=False, key=key))
            return msgspec.json.encode(made[0].ids)

        answer = await self._idempotency.once(key, make)
        return made[0] if made else await self._read_submission(msgspec.json.decode(answer, type=list[str]))

    async def _submit(self, specs: Sequence[JobSpec], by: Submitter, *, dry_run: bool, key: Key | None) -> Submitted:
        plane, ended = self._parts.plane, dict[int, EndedJob]()

        def work(now_ms: int) -> Work[Submitted | UnknownJobs]:
            try:
                jobs = yield from plane.submitting(specs, by, now_ms, ended=ended, dry_run=dry_run)
            except UnknownJobs as unknown:
                return unknown
            ids = [str(job.id) for job in jobs]
            if key is not None:
                plane.add_operations(RememberIdempotent(key.name, key.fingerprint, msgspec.json.encode(ids)))
            views, pace = [], Pace()
            for job in jobs:
                views.append(job_view(job_row(job), spec=len(jobs) == 1))
                if pace.over():
                    yield
            if dry_run:
                yield from emptied(jobs)
            return Submitted(ids=[] if dry_run else ids, jobs=views, dry_run=dry_run, warnings=self._warnings())

        with ExitStack() as pins:
            for _ in range(MAX_LOOKUPS):
                answer = await self._parts.loop.inbox.call_in_slices(work)
                if not isinstance(answer, UnknownJobs):
                    return answer
                going = pins.enter_context(plane.pinned(answer.jobs))
                for some in batched(answer.jobs):
                    ended.update(await self._parts.committer.read(partial(ended_jobs, ids=some, going=going)))
        raise OverloadedError("the jobs that this one depends on change too fast", hint="try again")

    async def _read_submission(self, ids: list[str]) -> Submitted:
        views: list[JobView] = []
        for some in batched([int(job) for job in ids]):
            rows = await self._parts.committer.read(partial(rows_of, jobs=some))
            views.extend(job_view(row, spec=len(ids) == 1) for row in rows if row is not None)
        return Submitted(ids=ids, jobs=views)

    @property
    def serving(self) -> Serving:
        """Whose steps run, and as whom."""
        return self._parts.serving

    @property
    def owner(self) -> str:
        """Who started this HAL; '': not known."""
        return self._parts.runs_as

    def _warnings(self) -> list[str]:
        if self._parts.plane.nodes:
            return []
        return ["no node has joined yet: what is asked for was not checked against any"]

    # ── one ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def update(self, job: int, patch: JobPatch, by: Submitter) -> JobView:
        """Change a job that has not ended.

        Raises:
            NotFoundError: there is no such job.
            ConflictError: it has ended.
            SpecError: a value cannot be accepted.
        """
        plane = self._parts.plane

        def work(now_ms: int) -> Work[JobView]:
            return job_view(job_row((yield from plane.updating(job, patch, by, now_ms))), spec=True)

        try:
            return await self._parts.loop.inbox.call_in_slices(work)
        except NotFoundError:
            row = await self._parts.committer.read(lambda store: store.job(job))
            raise (no_job(job) if row is None else has_ended(row)) from None

    # ── read ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def row(self, job: int) -> JobRow:
        """The job's row, as it was last committed.

        Raises:
            NotFoundError: there is no such job.
        """
        live = self._parts.plane.job(job)
        row = job_row(live) if live is not None else await self._parts.committer.read(lambda store: store.job(job))
        if row is None:
            raise no_job(job)
        return row

    async def owners(self, jobs: Iterable[int]) -> dict[int, Owned]:
        """Whose they are; those that do not exist are left out. A job's user never changes."""
        found: dict[int, Owned] = {}
        missing: list[int] = []
        pace = Pace()
        for job in dict.fromkeys(jobs):
            live = self._parts.plane.job(job)
            if live is None:
                missing.append(job)
            else:
                found[job] = Owned(live.user, live.account, live.queue, parent_of(live.spec))
            if pace.over():
                await self._parts.runtime.sleep(0)
        for some in batched(missing):
            rows = await self._parts.committer.read(partial(rows_of, jobs=some))
            found.update((row.id, owned_of(row)) for row in rows if row is not None)
        return found

    async def get(self, job: int) -> JobView:
        """The job, with its spec."""
        view = job_view(await self.row(job), spec=True)
        return replace(view, dependants=tuple(str(other) for other in self._parts.plane.dependants(job)))

    async def page(self, wanted: JobFilter, after: int | None, limit: int) -> list[JobView]:
        """Jobs that match, newest first, after the one with id `after`."""
        rows = await self._parts.committer.read(lambda store: store.jobs(wanted, after=after, limit=limit))
        return [job_view(row) for row in rows]

    async def wait(self, job: int, timeout_s: float) -> JobView:
        """The job when it has ended, or as it is after `timeout_s`."""
        if not 0 <= timeout_s <= MAX_WAIT_S:
            raise SpecError(f"timeout_s: {timeout_s} is out of range", hint=f"between 0 and {MAX_WAIT_S:.0f}")
        row = await self.row(job)
        if row.end_ms is None and timeout_s > 0:
            row = await self._parts.waiters.wait(job, timeout_s) or await self.row(job)
        if row.end_ms is not None:
            await self._parts.flusher.caught_up()
        return job_view(row, spec=True)

    async def why(self, job: int) -> WhyView:
        """Explain why it does not start, its state, or how it ended."""
        live = self._parts.plane.job(job)
        if live is None:
            row = await self.row(job)
            message = f"has ended: {row.state}" + (f" ({row.reason})" if row.reason else "")
            return why_view(Verdict(job=job, reason=Reason.NONE, message=message), row.state)
        return why_view(self._parts.plane.why(live, self._parts.clock.now_ms()), live.state)

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def tasks(self, job: int, states: tuple[TaskState, ...], after: int | None, limit: int) -> list[TaskView]:
        """Tasks in ascending order, after task number `after`."""
        await self.row(job)
        rows = await self._parts.committer.read(lambda store: store.tasks(job, states, after=after, limit=limit))
        return [task_view(self._at_gates(row)) for row in rows]

    async def task(self, job: int, task: int) -> TaskView:
        """One task with all its attempts.

        Raises:
            NotFoundError: there is no such job or task.
        """
        row = await self.row(job)
        found = await self._parts.committer.read(lambda store: store.task(job, task))
        if found is None:
            raise no_task(row, task)
        attempts = await self._parts.committer.read(
            lambda store: store.attempts(job, task=task, limit=MAX_ATTEMPTS_SHOWN)
        )
        return task_view(self._at_gates(found), [self._at_gates(attempt) for attempt in attempts])

    def _at_gates(self, row: Attempted) -> Attempted:
        """The row; if its attempt waits for gates, with these as its message, which is not stored."""
        text = "" if row.message else self._parts.plane.gates_text(row.job, row.task, row.attempt)
        return replace(row, message=text) if text else row
