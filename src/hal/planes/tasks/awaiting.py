"""Jobs that wait for other jobs: who is told what, when they may go on, and what becomes of them when they never can.

Pure. A job that changes tells each of its dependants once, O(1) each; an array tells the runs of tasks that ended. When
a dependency can no longer be met, the job's own rule decides (`on_dependency_failed`): its tasks are cancelled, or held
until somebody releases them or the other job runs again, or the dependency counts as met.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hal.core.engine.events import INF
from hal.core.lifecycle import TASK, TaskEvent, transition
from hal.core.model import Dependency, DependencyKind, Failed, TaskState
from hal.planes.tasks.by_task import Stretch, stretches
from hal.planes.tasks.dependencies import (
    NAMESAKES,
    Mentions,
    Phase,
    Standing,
    Waits,
    any_of,
    mentions_of,
    standing,
    told,
    waits_of,
)
from hal.planes.tasks.live import LiveJob
from hal.planes.tasks.slices import A_SLICE, Pace, Work
from hal.planes.tasks.spans import Span, change, pieces, slices, summed

if TYPE_CHECKING:
    from hal.planes.tasks.table import JobTable

BY_DEPENDENCY = "dependency"
"""Reason of tasks held or cancelled because a dependency cannot be met; the job's own reason begins with it."""


# ── beginning ─────────────────────────────────────────────────────────────────────────────────────────────────────


def begin(table: JobTable, job: LiveJob, mentions: Mentions | None = None) -> None:
    """It waits for what its spec says, as that stands now; `decide` must follow once all of its group have begun."""
    job.waits = standings(table, job, mentions)
    table.link(job)


def standings(table: JobTable, job: LiveJob, mentions: Mentions | None = None) -> Waits:
    """How its dependencies stand, from what is true now.

    Args:
        mentions: of its spec, where they are known.
    """
    if mentions is None:
        mentions = mentions_of(job.spec.dependencies)
    alone = NAMESAKES not in mentions or table.names.is_first(job.key, job.id)
    waits = waits_of(job.spec.dependencies, mentions, table.phase, alone=alone)
    return waits if job.eligible_ms >= INF else waits.settled()


def stop(table: JobTable, job: LiveJob) -> None:
    """It waits for nobody any more."""
    table.unlink(job)
    job.waits = None


def decide(table: JobTable, job: LiveJob, now_ms: int) -> Work[None]:
    """Do what follows from how its dependencies stand now, in slices. `settle` must follow."""
    waits = job.waits
    if waits is None:
        return
    if job.eligible_ms >= INF:
        if waits.never and job.if_never is not Failed.RUN:
            job.reason = never_text(table, job)
            event = TaskEvent.CANCEL if job.if_never is Failed.CANCEL else TaskEvent.HOLD
            yield from table.restating(job, 0, job.spec.tasks, event, BY_DEPENDENCY)
            return
        if job.reason.startswith(BY_DEPENDENCY):
            job.reason = ""
            yield from _let_go(table, job)
        if waits.open == 0:
            job.eligible_ms = max(job.spec.begin_at_ms, now_ms)
            job.waits = waits.settled()
            yield from _enter(table, job)
    yield from weigh(table, job, 0, job.spec.tasks)


def _enter(table: JobTable, job: LiveJob) -> Work[None]:
    """All of its tasks begin to wait for resources."""
    pace = Pace()
    for span in job.spans:
        table.enter(job, span)
        if pace.over():
            yield


def weigh(table: JobTable, job: LiveJob, first: int, count: int) -> Work[None]:
    """Decide about the tasks in that range that wait for tasks of other arrays; drop the waiting when none is left."""
    waits = job.waits
    if waits is None:
        return
    if waits.by_task:
        pace = Pace()
        for low, tasks in slices(job.spans, first, count, A_SLICE) if count else ():
            for span in pieces(job.spans, low, tasks):
                if span.eligible_ms >= INF and not span.state.ended:
                    for begin_at, end, how in _stretches(table, job, waits, span):
                        _apply(table, job, replace(span, first=begin_at, count=end - begin_at), how)
                        if pace.over():
                            yield
    stop_if_decided(table, job)


def stop_if_decided(table: JobTable, job: LiveJob) -> None:
    """Drop the waiting when none of its tasks waits for a task of another array any more, nor the job for a job."""
    if job.eligible_ms < INF and not summed(job.spans).undecided:
        stop(table, job)


def _stretches(table: JobTable, job: LiveJob, waits: Waits, span: Span) -> list[Stretch]:
    def phase(other: int) -> Phase:
        if other == NAMESAKES:
            return Phase.SUCCEEDED if table.names.is_first(job.key, job.id) else Phase.WAITS
        return table.phase(other)

    return stretches(waits, job.spec.dependencies, span.first, span.end, table.either, phase)


def _apply(table: JobTable, job: LiveJob, span: Span, how: Standing) -> None:
    """What becomes of tasks that have not been decided yet and all stand so."""
    by_rule = span.state is TaskState.HELD and span.reason == BY_DEPENDENCY and not held_by_rule(job)
    after = span
    if how is Standing.NEVER and job.if_never is not Failed.RUN:
        if job.if_never is Failed.CANCEL:
            after = replace(span, state=transition(TASK, span.state, TaskEvent.CANCEL), reason=BY_DEPENDENCY)
        elif span.state is TaskState.PENDING:
            after = replace(span, state=transition(TASK, span.state, TaskEvent.HOLD), reason=BY_DEPENDENCY)
        job.reason = _task_text(job, span)
    else:
        if by_rule and not job.hold:
            after = replace(span, state=transition(TASK, span.state, TaskEvent.RELEASE), reason="")
        if how is not Standing.WAITING:
            after = replace(after, eligible_ms=0)
    if after is not span:
        put(table, job, span, after)


def put(table: JobTable, job: LiveJob, span: Span, after: Span) -> None:
    """`after` instead of `span`, the same tasks of the job, which the engine does not know."""
    if after.state is not span.state:
        job.counts.move(span.state, after.state, span.count)
        table.note_tasks(job, span.first, span.count, span.state, after.state)
    job.spans = change(job.spans, span.first, span.count, partial(_redone, after))
    table.enter(job, after)


def _redone(after: Span, piece: Span) -> Span:
    return replace(after, first=piece.first, count=piece.count)


def _let_go(table: JobTable, job: LiveJob) -> Work[None]:
    """What was held because of a dependency waits for it again, unless a person holds the job."""
    if job.hold:
        return
    pace = Pace()
    for span in job.spans:
        if span.state is TaskState.HELD and span.reason == BY_DEPENDENCY:
            table.restate(job, span.first, span.count, TaskEvent.RELEASE)
        if pace.over():
            yield


# ── being told ────────────────────────────────────────────────────────────────────────────────────────────────────


def tell_first(table: JobTable, job: LiveJob, *, alone: bool, now_ms: int) -> Work[bool]:
    """A singleton is now, or is no longer, the first of its name; whether that changed it."""
    before, after = (Phase.WAITS, Phase.SUCCEEDED) if alone else (Phase.SUCCEEDED, Phase.WAITS)
    return tell(table, job, NAMESAKES, before, after, now_ms, alone=alone)


def tell(
    table: JobTable, job: LiveJob, other: int, before: Phase, after: Phase, now_ms: int, *, alone: bool | None = None
) -> Work[bool]:
    """`other`, which it waits for, went from one phase to another; whether that changed it: it must be settled."""
    waits = job.waits
    assert waits is not None
    by_task = bool(waits.by_task) and any(
        place in waits.by_task and kind is not DependencyKind.AFTERCORR for place, kind in waits.mentions[other]
    )
    now = told(waits, other, before, after) if job.eligible_ms >= INF else waits
    if now is waits and not by_task:
        return False
    table.touch(job.id)
    if alone is not None and job.eligible_ms >= INF:
        now = replace(now, alone=alone)
    job.waits = now
    yield from decide(table, job, now_ms)
    return True


# ── people ────────────────────────────────────────────────────────────────────────────────────────────────────────


def held_by_rule(job: LiveJob) -> bool:
    """Whether the job as a whole is held because a dependency cannot be met."""
    return job.waits is not None and job.eligible_ms >= INF and job.waits.never > 0 and job.if_never is Failed.HOLD


def waive(table: JobTable, job: LiveJob, now_ms: int) -> Work[None]:
    """A person lets it go on without the dependencies that cannot be met; `settle` must follow."""
    waits = job.waits
    assert waits is not None
    job.reason = ""
    yield from _let_go(table, job)
    kept = tuple(
        entry
        for place, entry in enumerate(job.spec.dependencies)
        if place in waits.by_task or standing_of(waits, entry, table.phase) is not Standing.NEVER
    )
    yield from _wait_for(table, job, kept, now_ms)
    yield from decide(table, job, now_ms)


def waive_tasks(table: JobTable, job: LiveJob, first: int, count: int) -> Work[int]:
    """A person lets tasks go on that are held because of the same tasks of another array; how many."""
    done = 0
    for low, tasks in slices(job.spans, first, count, A_SLICE):
        for span in pieces(job.spans, low, tasks):
            if span.state is TaskState.HELD and span.reason == BY_DEPENDENCY and span.eligible_ms >= INF:
                put(table, job, span, replace(span, state=TaskState.PENDING, reason="", eligible_ms=0))
                done += span.count
        yield
    if done and job.waits is not None:
        stop_if_decided(table, job)
    return done


def begin_again(table: JobTable, job: LiveJob, now_ms: int) -> Work[None]:
    """It is to run again although its dependencies were never met: it waits again for those of them that live again."""
    if job.waits is not None or not (job.eligible_ms >= INF or summed(job.spans).endless):
        return
    kept = tuple(
        entry
        for entry in job.spec.dependencies
        if all(one.kind is DependencyKind.SINGLETON or int(one.job) in table.jobs for one in entry.alternatives)
    )
    yield from _wait_for(table, job, kept, now_ms)


def parts_of(table: JobTable, job: LiveJob, span: Span) -> list[Span]:
    """Tasks that are to wait again, cut by whether they wait for a task of another array."""
    if span.eligible_ms < INF:
        return [replace(span, eligible_ms=0)]
    waits = job.waits
    if waits is None or not waits.by_task:
        return [replace(span, eligible_ms=0)]
    return [
        replace(span, first=low, count=high - low, eligible_ms=INF if how is Standing.WAITING else 0)
        for low, high, how in _stretches(table, job, waits, span)
    ]


def _wait_for(table: JobTable, job: LiveJob, kept: tuple[Dependency, ...], now_ms: int) -> Work[None]:
    if job.waits is not None:
        stop(table, job)
    if kept != job.spec.dependencies:
        job.spec = replace(job.spec, dependencies=kept)
        table.draft.edited.add(job.id)
    if kept:
        begin(table, job)
    if job.eligible_ms >= INF and (job.waits is None or job.waits.open == 0):
        job.eligible_ms = max(job.spec.begin_at_ms, now_ms)
        if job.waits is not None:
            job.waits = job.waits.settled()
        yield from _enter(table, job)


# ── in words ──────────────────────────────────────────────────────────────────────────────────────────────────────


def standing_of(waits: Waits, entry: Dependency, phase: Callable[[int], Phase]) -> Standing:
    """How one entry of a job's dependencies stands, which must not go by task.

    Args:
        phase: the phase of the job of an id.
    """
    alone = Standing.MET if waits.alone else Standing.WAITING
    return any_of(
        alone if one.kind is DependencyKind.SINGLETON else standing(one.kind, phase(int(one.job)))
        for one in entry.alternatives
    )


def never_text(table: JobTable, job: LiveJob) -> str:
    """Which of its dependencies can never be met, and why."""
    assert job.waits is not None
    for place, entry in enumerate(job.spec.dependencies):
        if place in job.waits.by_task or standing_of(job.waits, entry, table.phase) is not Standing.NEVER:
            continue
        if not entry.any_of:
            return f"{BY_DEPENDENCY}: it waits for {entry.kind} of {ended_text(table, int(entry.job))}"
        shown = "; ".join(f"{one.kind} of {ended_text(table, int(one.job))}" for one in entry.any_of[:MAX_NAMED])
        more = f"; and {len(entry.any_of) - MAX_NAMED} more" if len(entry.any_of) > MAX_NAMED else ""
        return f"{BY_DEPENDENCY}: it waits for one of ({shown}{more}), of which none can be met any more"
    return BY_DEPENDENCY


MAX_NAMED = 5
"""Most jobs that one reason names."""


def ended_text(table: JobTable, job_id: int) -> str:
    """`job 12 (fit), which failed`"""
    other = table.either(job_id)
    title = other.name or other.spec.title if isinstance(other, LiveJob) else other.title
    return f"job {job_id} ({title}), which {_WORDS.get(other.state, f'is {other.state}')}"


_WORDS = {
    TaskState.SUCCEEDED: "succeeded",
    TaskState.FAILED: "failed",
    TaskState.TIMED_OUT: "timed out",
    TaskState.CANCELLED: "was cancelled",
}


def _task_text(job: LiveJob, span: Span) -> str:
    assert job.waits is not None
    which = " & ".join(str(job.spec.dependencies[place]) for place in sorted(job.waits.by_task))
    what = f"task {span.first} waits" if span.count == 1 else f"tasks {span.first}-{span.end - 1} wait"
    return f"{BY_DEPENDENCY}: {what} for {which}, which cannot be met any more"
