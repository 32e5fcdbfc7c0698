"""What REST shows of periodic jobs: values with their JSON form.

Pure. Times are milliseconds since 1970, null where there is none; ids of jobs are text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from hal.core.model import TaskState, to_json
from hal.core.model.periodic import DEFAULT_KEEP, CatchUp, Overlap, RunOutcome
from hal.core.model.policy_hours import UTC_ZONE
from hal.store import PeriodicRow, PeriodicRun


class CronBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A periodic job: its schedule, and the job that is submitted at each due time."""

    schedule: str
    """Minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly, @monthly, @yearly."""
    job: dict[str, Any]
    """As in a submission, without dependencies, begin, deadline, hold and interactive."""
    zone: str = UTC_ZONE
    """The time zone of the schedule."""
    overlap: Overlap = Overlap.SKIP
    """While an earlier job has not ended: `skip` the due time, `queue` the new job, `replace` the earlier one, `allow`
    both."""
    catch_up: CatchUp = CatchUp.NONE
    """Due times that passed while HAL was down: `none` are made up for, or `one` job is submitted for all of them."""
    keep: int = DEFAULT_KEEP
    """Entries of its history, at most 1000."""


class CronRunView(Struct, frozen=True, kw_only=True):
    """What became of a due time."""

    number: int
    """Ascending from 1."""
    due_ms: int
    at_ms: int
    """When that was decided."""
    outcome: RunOutcome
    manual: bool
    """A person asked for it at that time."""
    job: str
    """The job that was submitted; empty: none was."""
    state: TaskState | None
    """Of that job now; null: it was removed, or none was submitted."""
    times: int
    """Of due times that were missed together: how many; `due_ms` is the last."""
    reason: str


class CronView(Struct, frozen=True, kw_only=True):
    """A periodic job."""

    name: str
    user: str
    schedule: str
    zone: str
    overlap: Overlap
    catch_up: CatchUp
    keep: int
    queue: str
    account: str
    held_by: str
    """Who holds it; empty: nobody."""
    next_ms: int | None
    """The next due time; null: it is held, or there is none."""
    created_ms: int
    created_by: str
    changed_ms: int
    live: tuple[str, ...]
    """Its jobs that have not ended."""
    last: CronRunView | None
    """The newest entry of its history."""
    job: Raw | UnsetType = UNSET
    """The job that it submits, in canonical JSON; only where one periodic job is asked for."""


class CronList(Struct, frozen=True, kw_only=True):
    """A page of periodic jobs, oldest first; pass `cursor` for the next page, null at the end."""

    periodic: list[CronView]
    cursor: str | None


class CronHistory(Struct, frozen=True, kw_only=True):
    """A page of a history, newest first; pass `cursor` for the next page, null at the end."""

    runs: list[CronRunView]
    cursor: str | None


def run_view(run: PeriodicRun, states: Mapping[int, TaskState]) -> CronRunView:
    """An entry of a history.

    Args:
        states: of jobs; those that were removed are missing.
    """
    return CronRunView(
        number=run.number,
        due_ms=run.due_ms,
        at_ms=run.at_ms,
        outcome=run.outcome,
        manual=run.manual,
        job="" if run.job is None else str(run.job),
        state=None if run.job is None else states.get(run.job),
        times=run.times,
        reason=run.reason,
    )


def cron_view(row: PeriodicRow, live: tuple[int, ...], last: CronRunView | None, *, job: bool = False) -> CronView:
    """A periodic job; `job`: with what it submits."""
    spec = row.spec
    return CronView(
        name=row.name,
        user=row.user,
        schedule=spec.schedule,
        zone=spec.zone,
        overlap=spec.overlap,
        catch_up=spec.catch_up,
        keep=spec.keep,
        queue=spec.job.queue,
        account=spec.job.account,
        held_by=row.held_by,
        next_ms=row.next_ms,
        created_ms=row.created_ms,
        created_by=row.created_by,
        changed_ms=row.changed_ms,
        live=tuple(map(str, live)),
        last=last,
        job=Raw(to_json(spec.job)) if job else UNSET,
    )
