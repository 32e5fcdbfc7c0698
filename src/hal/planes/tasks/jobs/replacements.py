"""Rolling replacement of a service: a new job takes the place of an old one, task by task, or is given up.

Pure. What is stored is the new job's spec, which names the old one, and the old job's hold: its tasks that leave wait
held until the new job is ready, which cancels them, or has failed to become so, which releases them. So a controller
that starts again goes on from the rows; only the time of the last progress begins anew.

The rules: while fewer tasks of the new job are ready than it has, old ones leave as long as `needed - max_unavailable`
tasks of both jobs are ready without them; old ones that are known not to be ready leave at once. When all new ones are
ready, the old job is cancelled. When no further one became ready within the deadline, or the new job has ended, the old
job goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hal.core.engine.events import INF
from hal.core.lifecycle import TaskEvent
from hal.core.model import ConflictError, EventKind, JobSpec, NotFoundError, SpecError, shown
from hal.core.model.service import Replacement
from hal.planes.tasks.jobs.commands import cancel
from hal.planes.tasks.live.attempt import REQUEUED, Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.ready_standing import ReadyStandings, can_serve
from hal.planes.tasks.live.replacing import Replacing, held_by, replacement_of, replaces_text
from hal.planes.tasks.slices import CHEAP_A_SLICE, Pace, Work
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table.propagation import settle, settling
from hal.planes.tasks.table.stops import stop_attempt
from hal.planes.tasks.table.table import JobTable

LOOK_MS: Final = 1_000
"""A replacement is looked at this often, beside each report of readiness."""
MAX_REPLACEMENTS: Final = 1_000
"""At once."""
ATTEMPTS_A_SLICE: Final = 256
CAUSE: Final = "replacement"


def check(table: JobTable, specs: Sequence[JobSpec], by: Submitter) -> None:
    """Whether the jobs that these are to replace may be replaced by them now.

    Raises:
        NotFoundError: there is no such live job of that user.
        ConflictError, SpecError: it cannot be replaced, or not by this one.
    """
    named: set[int] = set()
    for spec in specs:
        asked = replacement_of(spec)
        if asked is None:
            continue
        job = table.jobs.get(asked.job)
        if job is None or job.user != (spec.user or by.user):
            raise NotFoundError(f"service.replaces: there is no live job {asked.job}", hint="hal jobs")
        if job.spec.service is None:
            raise ConflictError(f"service.replaces: job {job.id} is no service", hint="cancel it, and submit another")
        if spec.name != job.name:
            raise SpecError(
                f"service.replaces: job {job.id} is named '{shown(job.name)}', and this one '{shown(spec.name)}'",
                hint="a service keeps its name, by which it is looked up",
            )
        if job.hold or job.counts.held:
            raise ConflictError(f"service.replaces: job {job.id} is held", hint=f"hal release {job.id}")
        busy = next((new for new, one in table.replacements.items() if job.id in (new, one.old)), None)
        if job.id in named or (busy is not None and _under_way(table, busy)):
            raise ConflictError(
                f"service.replaces: job {job.id} is being replaced, or replaces another one",
                hint="wait until that is over, or cancel the newer of the two",
            )
        if len(table.replacements) + len(named) >= MAX_REPLACEMENTS:
            raise ConflictError(f"service.replaces: {MAX_REPLACEMENTS} replacements are under way", hint="try later")
        named.add(job.id)


def _under_way(table: JobTable, new: int) -> bool:
    return new in table.jobs and table.replacements[new].old in table.jobs


def begin_all(table: JobTable, jobs: Sequence[LiveJob], now_ms: int, cause: str) -> Work[None]:
    """These jobs were submitted: those that take the place of others begin to. O(jobs), in slices."""
    pace = Pace(CHEAP_A_SLICE)
    for job in jobs:
        if replacement_of(job.spec) is not None:
            yield from begin(table, job, now_ms, cause)
        if pace.over():
            yield


def begin(table: JobTable, new: LiveJob, now_ms: int, cause: str) -> Work[None]:
    """The job was submitted: the one that it replaces starts nothing any more."""
    asked = replacement_of(new.spec)
    if asked is None or asked.job not in table.jobs:
        return
    old = table.touch(asked.job)
    table.replacements[new.id] = Replacing(old.id, now_ms, now_ms)
    yield from table.applying_event(old, 0, old.spec.tasks, TaskEvent.HOLD, held_by(new.id))
    old.hold, old.reason = True, held_by(new.id)
    new.reason = replaces_text(old.id)
    table.draft.edited.add(old.id)
    _note(table, old, new.id, "begun", cause)
    settle(table, old, now_ms, cause)
    yield from settling(table)


def next_look_ms(table: JobTable) -> int:
    """When a replacement is looked at next; the engine's infinity for never."""
    return min((one.look_ms for one in table.replacements.values()), default=INF)


def look_at(table: JobTable, job: LiveJob, now_ms: int) -> None:
    """Readiness of the job has changed: its replacement is looked at now."""
    for new, one in table.replacements.items():
        if job.id in (new, one.old):
            one.look_ms = min(one.look_ms, now_ms)


def advance_due(table: JobTable, now_ms: int) -> Work[None]:
    """Do what is due of all replacements, in slices."""
    for new_id in [new for new, one in table.replacements.items() if one.look_ms <= now_ms]:
        yield from _advance(table, new_id, now_ms)
        yield


def _advance(table: JobTable, new_id: int, now_ms: int) -> Work[None]:
    one = table.replacements[new_id]
    one.look_ms = now_ms + LOOK_MS
    old, new = table.jobs.get(one.old), table.jobs.get(new_id)
    if old is None or not old.hold or old.reason != held_by(new_id):
        # It is over: done, given up, or released by a person; or its submission was undone, and the hold with it.
        del table.replacements[new_id]
        if new is not None and new.reason == replaces_text(one.old):
            table.touch(new_id).reason = ""
        return
    if new is None:
        yield from _restore(table, old, new_id, f"job {new_id}, which was to replace it, has ended", now_ms)
        return
    asked = replacement_of(new.spec)
    assert asked is not None  # no update changes it
    ready = yield from _count(_ready(table.readiness, new))
    if ready > one.best:
        one.best, one.progress_ms = ready, now_ms
    one.look_ms = min(one.look_ms, one.progress_ms + asked.give_up_after)
    if ready >= new.spec.tasks:
        yield from _finish(table, old, new, now_ms)
        return
    if now_ms - one.progress_ms >= asked.give_up_after:
        yield from _give_up(table, old, new, ready, now_ms)
        return
    yield from _let_leave(table, old, new, ready, asked, now_ms)


def _let_leave(table: JobTable, old: LiveJob, new: LiveJob, ready: int, asked: Replacement, now_ms: int) -> Work[None]:
    serving: list[Attempt] = []
    broken: list[Attempt] = []
    pace = Pace(ATTEMPTS_A_SLICE)
    for attempt in list(old.active.values()):
        known = table.readiness.of((old.id, attempt.task, attempt.attempt))
        if can_serve(attempt) and known is not None:
            (serving if known.ready else broken).append(attempt)
        if pace.over():
            yield
    needed = min(new.spec.tasks, old.counts.live)
    may_leave = ready + len(serving) - max(needed - asked.max_unavailable, 0)
    leaving = [*broken, *serving[: max(may_leave, 0)]]
    if not leaving:
        return
    table.touch(old.id)
    for attempt in leaving:
        stop_attempt(table, old, attempt, REQUEUED, now_ms)
        if pace.over():
            yield
    settle(table, old, now_ms, CAUSE)
    yield from settling(table)


def _finish(table: JobTable, old: LiveJob, new: LiveJob, now_ms: int) -> Work[None]:
    table.touch(old.id)
    yield from cancel(table, old.id, None, Submitter(old.user), now_ms)
    old.reason = f"replaced by job {new.id}"
    table.touch(new.id).reason = ""
    _note(table, old, new.id, "done", CAUSE)
    settle(table, new, now_ms, CAUSE)
    yield from settling(table)


def _give_up(table: JobTable, old: LiveJob, new: LiveJob, ready: int, now_ms: int) -> Work[None]:
    asked = replacement_of(new.spec)
    assert asked is not None
    why = f"{ready} of {new.spec.tasks} tasks were ready, and no more became so within {asked.give_up_after}"
    table.touch(new.id)
    yield from cancel(table, new.id, None, Submitter(new.user), now_ms)
    new.reason = f"rolled back to job {old.id}: {why}"
    yield from _restore(table, old, new.id, f"job {new.id} did not replace it: {why}", now_ms)


def _restore(table: JobTable, old: LiveJob, new: int, why: str, now_ms: int) -> Work[None]:
    """The old job goes on: what has left waits for its place again."""
    table.touch(old.id)
    old.hold, old.reason = False, why
    table.draft.edited.add(old.id)
    yield from table.applying_event(old, 0, old.spec.tasks, TaskEvent.RELEASE)
    _note(table, old, new, "rolled-back", CAUSE, why)
    settle(table, old, now_ms, CAUSE)
    yield from settling(table)


def _ready(standings: ReadyStandings, job: LiveJob) -> Iterator[bool]:
    for attempt in list(job.active.values()):
        yield _is_ready(standings, job, attempt)


def _is_ready(standings: ReadyStandings, job: LiveJob, attempt: Attempt) -> bool:
    known = standings.of((job.id, attempt.task, attempt.attempt)) if can_serve(attempt) else None
    return known is not None and known.ready


def _count(found: Iterator[bool]) -> Work[int]:
    pace, count = Pace(ATTEMPTS_A_SLICE), 0
    for one in found:
        count += one
        if pace.over():
            yield
    return count


def _note(table: JobTable, old: LiveJob, new: int, state: str, cause: str, reason: str = "") -> None:
    item = {"job": old.id, "by": new, "state": state} | ({"reason": reason} if reason else {})
    table.draft.note(EventKind.JOBS_REPLACED, cause, old.trace_id, old.id, item)
