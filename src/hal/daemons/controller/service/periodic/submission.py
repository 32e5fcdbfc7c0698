"""Submits periodic jobs when they are due: each due time once, whatever befalls controllers.

The job, the entry in the history and the next due time are one transaction, under the leader's epoch: a controller that
takes over finds either all of it or nothing. What the owner may do is looked at again at each due time. Schedules are
evaluated and names are looked up beside the loop, before anything is staged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from hal.core.model import (
    DeniedError,
    Dependency,
    DependencyKind,
    HALError,
    InternalError,
    JobSpec,
    OverloadedError,
    StoreError,
    UnreachableError,
    one_line,
)
from hal.core.model.periodic import DUE_VARIABLE, NAME_VARIABLE, RunOutcome
from hal.daemons.controller.cycle.inbox import is_refusal
from hal.daemons.controller.cycle.plane_group import PlanePort
from hal.daemons.controller.service.access.secrets import Secrets
from hal.daemons.controller.service.jobs.jobs import Jobs
from hal.daemons.controller.service.notices.rules import check_notify
from hal.daemons.controller.service.parts import Parts
from hal.planes.periodic import Decision, DueTimes, PeriodicPlane, decide, due_times
from hal.planes.tasks import Submitter, UnknownJobs, Work
from hal.runtime.interface import Lane
from hal.runtime.step_users import account_exists, refusal
from hal.store import PeriodicRow, PeriodicRun

BATCH: Final = 16
"""Periodic jobs that are submitted in one group."""
LONGEST_WAIT_MS: Final = 60_000
"""The clock is looked at so often, however far ahead the next due time is."""
RETRY_MS: Final = 1_000
"""After the store or the loop had no room for a submission, it is tried again."""
MAX_REASON_CHARS: Final = 300
"""Of a refusal in a history."""


class _Due(NamedTuple):
    """A periodic job whose due time has come, as it was when that was looked at."""

    row: PeriodicRow
    times: DueTimes | None
    """None: they are not known, because of the fault."""
    fault: str
    """Why nothing can be submitted."""
    stranger: bool
    """The machine does not know its user any more."""


class PeriodicSubmission:
    """Of one controller."""

    def __init__(self, parts: Parts, port: PlanePort[PeriodicPlane], jobs: Jobs, secrets: Secrets) -> None:
        self._parts = parts
        self._port = port
        self._jobs = jobs
        self._secrets = secrets
        self.changed = asyncio.Event()
        """Set when a due time may have come nearer."""

    async def run(self) -> None:
        """Submit what is due, until cancelled."""
        while True:
            self.changed.clear()
            try:
                await self._submit_due()
            except HALError as error:
                self._parts.runtime.log.warning("periodic jobs are submitted later", reason=str(error))
                await self._parts.runtime.sleep(RETRY_MS)
                continue
            await self._wait()

    async def _wait(self) -> None:
        due = [row.next_ms for row in self._port.plane.committed.values() if row.next_ms is not None]
        wait_ms = min(max(min(due, default=LONGEST_WAIT_MS + self._now) - self._now, 0), LONGEST_WAIT_MS)
        timer = self._parts.runtime.call_later(wait_ms, self.changed.set)
        await self.changed.wait()
        timer.cancel()

    @property
    def _now(self) -> int:
        return self._parts.clock.now_ms()

    async def _submit_due(self) -> None:
        now_ms = self._now
        rows = [row for row in self._port.plane.committed.values() if row.next_ms is not None and row.next_ms <= now_ms]
        rows.sort(key=lambda row: (row.next_ms, row.id))
        for at in range(0, len(rows), BATCH):
            some = rows[at : at + BATCH]
            strangers = await self._strangers(some)
            runtime = self._parts.runtime
            due = await runtime.run_blocking(partial(_looked_at, some, strangers, now_ms), Lane.DECODE)
            try:
                await self._commit(due)
            except (StoreError, OverloadedError, UnreachableError):
                raise
            except HALError:
                for one in due:
                    await self._commit_alone(one)

    async def _strangers(self, rows: Sequence[PeriodicRow]) -> frozenset[str]:
        """Users whom the machine knew when they made their periodic jobs, and does not know any more."""
        users = sorted({row.user for row in rows if row.on_system})
        if not users:
            return frozenset()
        known = await self._parts.runtime.run_blocking(lambda: [account_exists(user) for user in users], Lane.NAMES)
        return frozenset(user for user, there in zip(users, known, strict=True) if not there)

    async def _commit(self, due: Sequence[_Due]) -> None:
        await self._parts.loop.inbox.call_in_slices(partial(self._staging, due))

    async def _commit_alone(self, due: _Due) -> None:
        """One whose group may have failed for it: if it does so again, that is what its history says."""
        try:
            await self._commit((due,))
        except (StoreError, OverloadedError, UnreachableError):
            raise
        except HALError as error:
            await self._commit((due._replace(fault=_reason(error)),))

    # ── staging ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _staging(self, due: Sequence[_Due], now_ms: int) -> Work[None]:
        plane = self._port.use()
        try:
            for one in due:
                if plane.rows.get(one.row.id) is one.row:  # else it was changed, and is looked at again
                    yield from self._stage(plane, one, now_ms)
                yield
        except HALError as error:
            # Others of the batch are staged: a refusal would leave them so, a fault has all of it undone.
            raise error if not is_refusal(error) else InternalError(str(error)) from error

    def _stage(self, plane: PeriodicPlane, due: _Due, now_ms: int) -> Work[None]:
        row, times = due.row, due.times
        live = self.live(row)
        if due.fault or times is None:
            due_ms = row.next_ms if times is None else times.last_ms
            assert due_ms is not None
            refused = run_of(row, due_ms, now_ms, RunOutcome.REFUSED, reason=due.fault)
            later = None if times is None else times.next_ms
            plane.change(replace(row, next_ms=later, runs=refused.number, live=live), (refused,))
            return
        decision = decide(row, times, live, now_ms)
        runs = decision.runs
        if decision.due_ms is not None:
            run = yield from self._submit(row, decision, due, now_ms)
            runs = (*runs, run)
            if run.job is not None:
                live = (*live, run.job)
        plane.change(replace(row, next_ms=times.next_ms, runs=runs[-1].number, live=live), runs)

    def _submit(self, row: PeriodicRow, decision: Decision, due: _Due, now_ms: int) -> Work[PeriodicRun]:
        """Stage the job of a due time; the entry in the history."""
        assert decision.due_ms is not None
        make = partial(run_of, row, decision.due_ms, now_ms, before=decision.runs)
        try:
            if due.stranger:
                raise DeniedError(f"this machine knows no user '{row.user}' any more")
            job = yield from self.submitting(row, decision.due_ms, now_ms, after=decision.after)
        except HALError as error:
            if not is_refusal(error):
                raise
            return make(RunOutcome.REFUSED, reason=_reason(error))
        by = Submitter(row.user, lengthens=False)
        for other in decision.cancel:
            yield from self._parts.plane.cancelling(other, None, by, now_ms)
        return make(RunOutcome.SUBMITTED, job=job)

    def submitting(
        self, row: PeriodicRow, due_ms: int, now_ms: int, *, after: Sequence[int] = (), dry_run: bool = False
    ) -> Work[int]:
        """Stage one job in its owner's name; returns its id.

        Args:
            after: live jobs for whose ends it waits.
        Raises:
            HALError: it is refused, and nothing is staged.
        """
        spec, by = job_of(row, due_ms, after), Submitter(row.user, lengthens=False)
        if text := refusal(*self._jobs.serving(), row.user):
            raise DeniedError(text)
        self._secrets.check_one(spec, by)
        check_notify(spec, self._parts.notifications)
        try:
            (job,) = yield from self._parts.plane.submitting([spec], by, now_ms, dry_run=dry_run)
        except UnknownJobs as error:
            raise InternalError(f"jobs {error.jobs} lived, and are not known") from error
        return job.id

    def live(self, row: PeriodicRow) -> tuple[int, ...]:
        """Its jobs that have not ended, as staged."""
        return tuple(job for job in row.live if self._parts.plane.is_live(job))


def job_of(row: PeriodicRow, due_ms: int, after: Sequence[int] = ()) -> JobSpec:
    """The job that is submitted for a due time."""
    due = datetime.fromtimestamp(due_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    spec = row.spec.job
    return replace(
        spec,
        user=row.user,
        env={**spec.env, NAME_VARIABLE: row.name, DUE_VARIABLE: due},
        dependencies=tuple(Dependency(str(job), DependencyKind.AFTERANY) for job in after),
    )


def _looked_at(rows: Sequence[PeriodicRow], strangers: frozenset[str], now_ms: int) -> list[_Due]:
    """Which due times have come; some milliseconds, after a long downtime some hundred."""
    found = []
    for row in rows:
        assert row.next_ms is not None
        stranger = row.on_system and row.user in strangers
        try:
            times = due_times(row.spec.schedule, row.spec.zone, row.next_ms, now_ms)
        except HALError as error:  # the table of zones lost its zone
            found.append(_Due(row, None, _reason(error), stranger))
        else:
            found.append(_Due(row, times, "", stranger))
    return found


def run_of(
    row: PeriodicRow,
    due_ms: int,
    now_ms: int,
    outcome: RunOutcome,
    *,
    before: Sequence[PeriodicRun] = (),
    job: int | None = None,
    reason: str = "",
    manual: bool = False,
) -> PeriodicRun:
    """An entry of the history, behind `before`, which are added, too."""
    return PeriodicRun(
        periodic=row.id,
        number=row.runs + len(before) + 1,
        due_ms=due_ms,
        at_ms=now_ms,
        outcome=outcome,
        manual=manual,
        job=job,
        reason=reason,
    )


def _reason(error: HALError) -> str:
    return one_line(str(error), MAX_REASON_CHARS)
