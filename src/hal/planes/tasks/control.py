"""What people do to jobs and tasks that they submitted: cancel, hold, release, update, requeue.

Pure. Each call is about one job or one task of it, and is done in slices (an array may be in very many ranges); errors
are values of the caller's own (`ConflictError` when the thing named is in no state for it) and leave everything as it
was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from hal.core.engine.events import INF
from hal.core.lifecycle import TASK, TaskEvent, transition
from hal.core.model import (
    AttemptState,
    ConflictError,
    DeniedError,
    Duration,
    EventKind,
    Failed,
    JobSpec,
    NotFoundError,
    OnNodeLost,
    SpecError,
    TaskState,
    check_spec,
    format_duration,
)
from hal.core.model.job import MAX_TASKS
from hal.planes.tasks import awaiting
from hal.planes.tasks.admission import (
    admitted,
    check_priority,
    check_signal,
    check_walltime,
    longest_walltime,
    owner_of,
    with_defaults,
)
from hal.planes.tasks.attempts import stop
from hal.planes.tasks.credit import recall
from hal.planes.tasks.engine_view import EngineView
from hal.planes.tasks.live import CANCELLED, REQUEUED, Attempt, LiveJob
from hal.planes.tasks.prologs import HELD_BY_PROLOG
from hal.planes.tasks.runs import removed
from hal.planes.tasks.site_rules import refuse_changed, ruled
from hal.planes.tasks.slices import A_SLICE, Pace, Work
from hal.planes.tasks.spans import Span, pieces, put, slices, summed, take
from hal.planes.tasks.submission import Submitter
from hal.planes.tasks.table import JobTable
from hal.planes.tasks.waiting import Ask, owner_of_live
from hal.store.views import JobFilter


class JobPatch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What may be changed of a job that has not ended; only what is set."""

    name: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    account: str | UnsetType = UNSET
    qos: str | UnsetType = UNSET
    """Empty: the queue's default."""
    priority: int | UnsetType = UNSET
    walltime: Duration | UnsetType | None = UNSET
    """None: the queue's default."""
    max_running: Annotated[int, Meta(ge=0, le=MAX_TASKS)] | UnsetType = UNSET
    """Tasks of the array that run at once; 0: no limit. What runs already goes on."""
    on_dependency_failed: Failed | UnsetType = UNSET
    begin_at_ms: int | UnsetType = UNSET
    deadline_ms: int | UnsetType = UNSET
    """0: none."""
    hold: bool | UnsetType = UNSET


class EndedTask(Struct, frozen=True):
    """A task that ended through an attempt, as its rows say."""

    task: int
    attempt: int
    state: TaskState
    exit_code: int | None = None


class EndedTasks:
    """Tasks of one job that ended through an attempt; one of them is found in O(1)."""

    def __init__(self, tasks: Iterable[EndedTask] = ()) -> None:
        self._by_task = {one.task: one for one in tasks}

    def __len__(self) -> int:
        return len(self._by_task)

    def __iter__(self) -> Iterator[EndedTask]:
        return iter(self._by_task.values())

    def of(self, task: int) -> tuple[EndedTask, ...]:
        """That task, if it is one of them."""
        found = self._by_task.get(task)
        return () if found is None else (found,)


# ── cancel ────────────────────────────────────────────────────────────────────────────────────────────────────────


def cancel(table: JobTable, job_id: int, task: int | None, by: Submitter, now_ms: int) -> Work[TaskState]:
    """End it: what waits is cancelled at once, what runs is stopped and cancelled when it has ended.

    Returns: the state of the job or task now.
    Raises:
        NotFoundError: no live job of this id, or no such task.
        ConflictError: the task has ended.
    """
    job = table.touch(job_id)
    first, count = _range(job, task)
    if task is not None:
        _refuse_ended(job, task, "cancelled")
    reason = f"cancelled by {by.user}"
    done = yield from table.restating(job, first, count, TaskEvent.CANCEL, reason)
    for attempt in _active(job, task):
        if attempt.stopping != CANCELLED:
            stop(table, job, attempt, CANCELLED)
            done += 1
    if task is None:
        job.reason = reason
    table.draft.note(EventKind.JOBS_CANCELLED, by.cause, by.trace_id, job.id, tasks=done, reason=reason)
    table.settle(job, now_ms, by.cause)
    yield from table.settling()
    return _state_now(job, task)


# ── hold and release ──────────────────────────────────────────────────────────────────────────────────────────────


def hold(table: JobTable, job_id: int, task: int | None, by: Submitter, now_ms: int) -> Work[TaskState]:
    """Nothing of it starts until it is released; what runs goes on.

    Raises:
        NotFoundError: as `cancel`.
        ConflictError: the task runs or has ended.
    """
    job = table.touch(job_id)
    first, count = _range(job, task)
    if task is not None and job.task_state(task) not in (TaskState.PENDING, TaskState.HELD):
        _refuse_ended(job, task, "held")
        raise ConflictError(
            f"task {job.id}.{task} is {job.task_state(task)} and cannot be held",
            hint="hold keeps waiting tasks from starting; cancel or requeue ends a running one",
        )
    held = yield from table.restating(job, first, count, TaskEvent.HOLD, f"held by {by.user}")
    if task is None and not job.hold:
        job.hold = True
        table.draft.edited.add(job.id)
        recall(table, job)
    table.draft.note(EventKind.JOBS_HELD, by.cause, by.trace_id, job.id, tasks=held)
    table.settle(job, now_ms, by.cause)
    yield from table.settling()
    return _state_now(job, task)


def release(table: JobTable, job_id: int, task: int | None, by: Submitter, now_ms: int) -> Work[TaskState]:
    """Held tasks wait for resources again, at their old place.

    Raises:
        NotFoundError, ConflictError: as `hold`; releasing what is not held changes nothing.
    """
    job = table.touch(job_id)
    first, count = _range(job, task)
    if task is not None:
        _refuse_ended(job, task, "released")
        if awaiting.held_by_rule(job):
            raise ConflictError(
                f"task {job.id}.{task} cannot be released alone: {job.reason}",
                hint=f"`hal release {job.id}` lets the job go on without this dependency",
            )
    waived = not job.hold and awaiting.held_by_rule(job)
    released = 0
    if waived:
        released = job.counts.held
        yield from awaiting.waive(table, job, now_ms)
    elif not job.hold:
        released = yield from awaiting.waive_tasks(table, job, first, count)
    released += yield from table.restating(job, first, count, TaskEvent.RELEASE)
    if task is None and job.hold:
        job.hold = False
        if job.reason.startswith(HELD_BY_PROLOG):
            job.reason = ""
        table.draft.edited.add(job.id)
    if not waived:
        # What a person held may still be held because of a dependency.
        yield from awaiting.decide(table, job, now_ms)
    table.draft.note(EventKind.JOBS_RELEASED, by.cause, by.trace_id, job.id, tasks=released)
    table.settle(job, now_ms, by.cause)
    yield from table.settling()
    return _state_now(job, task)


# ── update ────────────────────────────────────────────────────────────────────────────────────────────────────────


def update(
    table: JobTable, engine: EngineView, job_id: int, patch: JobPatch, by: Submitter, now_ms: int
) -> Work[LiveJob]:
    """Change what is set in the patch. A new walltime holds for running tasks too, from their start.

    Raises:
        NotFoundError: no live job of this id.
        SpecError, ConflictError: a value cannot be accepted; nothing was changed.
        DeniedError: a user lengthens what runs.
    """
    job = table.jobs.get(job_id) or table.touch(job_id)
    final = as_changed(table, job, patch, by, now_ms)
    _check_bookings(engine, job, final)
    _check_lengthening(job, final, by)
    moving = (patch.queue, patch.account, patch.qos, patch.begin_at_ms, patch.max_running)
    moved = any(value is not UNSET for value in moving)
    if moved:
        table.waiting.moved(job, owner_of(final), table.jobs.get)
    job = table.touch(job_id)
    waiting, pace = job.spans if moved else (), Pace()
    for span in waiting:
        table.leave(job, span)
        if pace.over():
            yield
    limits_before = (job.priority, job.walltime_ms)
    table.rename(job, final.name, now_ms)
    job.queue, job.account, job.priority = final.queue, final.account, final.priority
    job.walltime_ms = None if final.walltime is None else int(final.walltime)
    _respecify(table, job, final)
    if patch.begin_at_ms is not UNSET and job.eligible_ms < INF:
        job.eligible_ms = max(final.begin_at_ms, job.submit_ms)
    table.draft.edited.add(job.id)
    for span in waiting:
        table.enter(job, span)
        if pace.over():
            yield
    if (job.priority, job.walltime_ms) != limits_before:
        _update_limits(table, job, limits_before[1], moved=moved)
    if patch.on_dependency_failed is not UNSET:
        yield from awaiting.decide(table, job, now_ms)
    changed = {f: v for f in JobPatch.__struct_fields__ if (v := getattr(patch, f)) is not UNSET}
    if "walltime" in changed:
        changed["walltime"] = None if job.walltime_ms is None else str(Duration(job.walltime_ms))
    table.draft.note(EventKind.JOBS_CHANGED, by.cause, by.trace_id, job.id, fields=changed)
    table.settle(job, now_ms, by.cause)
    yield from table.settling()
    if patch.hold is not UNSET and patch.hold != job.hold:
        yield from (hold if patch.hold else release)(table, job_id, None, by, now_ms)
    return job


_ONLY_IN_SPEC = ("begin_at_ms", "qos", "deadline_ms", "array", "on_dependency_failed")


_RULED = ("queue", "account", "qos", "priority", "walltime", "deadline_ms")
"""Changes that the rules of the site are asked about."""


def _respecify(table: JobTable, job: LiveJob, final: JobSpec) -> None:
    """What of a change only the spec says; what rows of their own say (name, queue …) stays there as submitted."""
    fields = {name: getattr(final, name) for name in _ONLY_IN_SPEC}
    if any(getattr(job.spec, field) != value for field, value in fields.items()):
        job.spec = replace(job.spec, **fields)
    job.request = table.class_of(job.spec, job.queue)
    job.owner = table.interning.owner_of(owner_of(final))


def as_changed(table: JobTable, job: LiveJob, patch: JobPatch, by: Submitter, now_ms: int) -> JobSpec:
    """All of the patch against the rules of a submission, before anything is changed; the spec as it would then be."""
    walltime: Duration | None
    if patch.walltime is not UNSET:
        walltime = patch.walltime
    else:
        walltime = None if job.walltime_ms is None else Duration(job.walltime_ms)
    if walltime is not None and walltime <= 0:
        raise SpecError("walltime: must be longer than nothing", hint="leave it out for the queue's default")
    if patch.begin_at_ms is not UNSET and patch.begin_at_ms < 0:
        raise SpecError("begin_at_ms: is before 1970")
    if patch.deadline_ms is not UNSET and patch.deadline_ms < 0:
        raise SpecError("deadline_ms: is before 1970")
    if patch.max_running is not UNSET and job.spec.array is None:
        raise SpecError(f"max_running: job {job.id} is no array", hint="it limits how many tasks of an array run")
    asked = replace(
        job.spec,
        name=job.name if patch.name is UNSET else patch.name,
        queue=job.queue if patch.queue is UNSET else patch.queue,
        account=job.account if patch.account is UNSET else patch.account,
        user=job.user,
        qos=job.spec.qos if patch.qos is UNSET else patch.qos,
        priority=job.priority if patch.priority is UNSET else check_priority(patch.priority),
        walltime=walltime,
        begin_at_ms=job.spec.begin_at_ms if patch.begin_at_ms is UNSET else patch.begin_at_ms,
        deadline_ms=job.spec.deadline_ms if patch.deadline_ms is UNSET else patch.deadline_ms,
        # Never that of another queue: what runs of it was started with or without a guard.
        on_node_lost=job.spec.on_node_lost if patch.queue is UNSET else job.spec.on_node_lost or OnNodeLost.WAIT,
    )
    if patch.max_running is not UNSET and asked.array is not None:
        asked = replace(asked, array=replace(asked.array, max_running=patch.max_running))
    if patch.on_dependency_failed is not UNSET:
        asked = replace(asked, on_dependency_failed=patch.on_dependency_failed)
    check_spec(asked)
    if table.rules and any(getattr(patch, name) is not UNSET for name in _RULED):
        after = ruled(asked, table.rules, partial(with_defaults, policy=table.policy))
        refuse_changed(asked, after, table.rules)
    if all(value is UNSET for value in (patch.queue, patch.account, patch.qos, patch.deadline_ms)):
        # Its queue may have been closed or narrowed since: that does not concern what stays as it was.
        if patch.walltime is UNSET:
            return asked
        queue = table.policy.queues.get(asked.queue)
        default = queue.default_walltime if queue is not None else None
        limit = check_walltime(walltime, longest_walltime(asked, table.policy), default)
        check_signal(asked.signal, limit)
        return replace(asked, walltime=limit)
    return admitted(asked, table.policy, user=by.user, now_ms=now_ms)


def _check_lengthening(job: LiveJob, final: JobSpec, by: Submitter) -> None:
    """
    Raises:
        DeniedError: what was placed by its walltime would run longer, which its user does not decide.
    """
    before_ms, after_ms = (INF if one is None else int(one) for one in (job.walltime_ms, final.walltime))
    if job.active and after_ms > before_ms and not by.lengthens:
        raise DeniedError(
            f"walltime: job {job.id} runs, and only operators give it longer",
            hint="ask one, or let it be requeued: hal requeue, then hal update before it starts again",
        )


def _check_bookings(engine: EngineView, job: LiveJob, final: JobSpec) -> None:
    wall_ms = INF if final.walltime is None else int(final.walltime)
    if job.active and wall_ms > (INF if job.walltime_ms is None else job.walltime_ms):
        booking = engine.met_by(job.id, wall_ms)
        if booking:
            raise ConflictError(
                f"walltime: job {job.id} runs on a node of booking '{booking}' and would run into it",
                hint=f"`hal booking list` says when it begins; what runs now may run for {_walltime(job)}",
            )


def _walltime(job: LiveJob) -> str:
    return "any time" if job.walltime_ms is None else format_duration(job.walltime_ms)


def _update_limits(table: JobTable, job: LiveJob, walltime_before: int | None, *, moved: bool) -> None:
    if job.active or not moved:
        table.draft.feed.update(job.id, job.priority, INF if job.walltime_ms is None else job.walltime_ms)
    if job.walltime_ms == walltime_before:
        return
    for attempt in job.active.values():
        for node, step in attempt.steps_left(job.id):
            table.draft.order(node).walltimes.setdefault(job.walltime_ms or INF, []).append(step)


# ── requeue ───────────────────────────────────────────────────────────────────────────────────────────────────────


def requeue(
    table: JobTable, job_id: int, task: int | None, ended: EndedTasks, by: Submitter, now_ms: int
) -> Work[TaskState]:
    """Run it again: what runs is stopped and waits again, what ended waits again, a back-off is cut short.

    A whole job: all its tasks that did not succeed; all tasks when every one did. Retries are counted anew.

    Args:
        ended: of the tasks named, those that ended through an attempt.
    Raises:
        NotFoundError: no live job of this id (see `revive`), or no such task.
    """
    job = table.touch(job_id)
    first, count = _range(job, task)
    reason = f"requeued by {by.user}"
    inside = ended if task is None else ended.of(task)
    again = [e for e in inside if job.task_state(e.task) is None]
    everything = task is not None or job.counts.succeeded == job.spec.tasks
    again = [e for e in again if everything or e.state is not TaskState.SUCCEEDED]
    _check_waiting(table, job, len(again), task)
    yield from awaiting.begin_again(table, job, now_ms)
    done = yield from _restart_ended(table, job, again, reason)
    for low, tasks in slices(job.spans, first, count, A_SLICE):
        done += _restart_waiting(table, job, pieces(job.spans, low, tasks), now_ms, reason)
        yield
    for attempt in _active(job, task):
        if not attempt.stopping:
            stop(table, job, attempt, REQUEUED)
            done += 1
    if task is None:
        left = [e.exit_code for e in ended if job.task_state(e.task) is None and e.exit_code is not None]
        job.exit_code = max(left, default=None)
        job.reason = ""
    if job.waits is not None:
        awaiting.stop_if_decided(table, job)
    table.draft.note(EventKind.JOBS_REQUEUED, by.cause, by.trace_id, job.id, tasks=done, reason=reason)
    table.settle(job, now_ms, by.cause)
    yield from table.settling()
    return _state_now(job, task)


def _check_waiting(table: JobTable, job: LiveJob, ended: int, task: int | None) -> None:
    """Refuse what would wait again beyond a limit: what has ended, and what runs now."""
    spans = summed(job.spans if task is None else tuple(pieces(job.spans, task, 1))).ended
    running = sum(not a.stopping and a.state is not AttemptState.ALLOCATED for a in _active(job, task))
    try:
        table.waiting.refuse([Ask(owner_of_live(job), ended + spans + running)], table.jobs.get)
    except ConflictError:
        if job.state.ended:
            table.drop_revived(job.id)
        raise


def _restart_ended(table: JobTable, job: LiveJob, again: Sequence[EndedTask], reason: str) -> Work[int]:
    spans, pace = [], Pace()
    for one in again:
        after = _waiting_again(one.state, job)
        job.counts.move(one.state, after)
        job.succeeded = removed(job.succeeded, one.task, one.task + 1)
        table.note_tasks(job, one.task, 1, one.state, after)
        spans.append(Span(one.task, 1, after, one.attempt + 1, reason=reason))
        if pace.over():
            yield
    job.spans = put(job.spans, sorted(spans, key=_first_task))
    job.restarts += len(spans)
    for span in spans:
        table.enter(job, span)
        if pace.over():
            yield
    return len(spans)


def _restart_waiting(table: JobTable, job: LiveJob, those: Sequence[Span], now_ms: int, reason: str) -> int:
    done = 0
    for span in those:
        backing_off = now_ms < span.eligible_ms < INF
        if span.state is TaskState.HELD or (span.state is TaskState.PENDING and not backing_off):
            continue
        table.leave(job, span)
        after = span.state if span.state is TaskState.PENDING else _waiting_again(span.state, job)
        job.counts.move(span.state, after, span.count)
        table.note_tasks(job, span.first, span.count, span.state, after)
        moved = [replace(part, state=after, retries=0, reason=reason) for part in awaiting.parts_of(table, job, span)]
        job.spans = put(take(job.spans, span.first, span.count), moved)
        for part in moved:
            table.enter(job, part)
        done += span.count
    return done


def _waiting_again(state: TaskState, job: LiveJob) -> TaskState:
    after = transition(TASK, state, TaskEvent.REQUEUE)
    return transition(TASK, after, TaskEvent.HOLD) if job.hold else after


# ── what is named ─────────────────────────────────────────────────────────────────────────────────────────────────


def matching(table: JobTable, wanted: JobFilter) -> Work[list[int]]:
    """Live jobs that match everything that the filter sets, by ascending id. O(live jobs), in slices."""
    return table.jobs.matching(wanted)


def _range(job: LiveJob, task: int | None) -> tuple[int, int]:
    if task is None:
        return 0, job.spec.tasks
    if not 0 <= task < job.spec.tasks:
        raise NotFoundError(f"job {job.id} has no task {task}", hint=f"its tasks are 0 to {job.spec.tasks - 1}")
    return task, 1


def _first_task(span: Span) -> int:
    return span.first


def _active(job: LiveJob, task: int | None) -> list[Attempt]:
    """The active attempts of that task, or of all."""
    if task is None:
        return list(job.active.values())
    return [job.active[task]] if task in job.active else []


def _refuse_ended(job: LiveJob, task: int, what: str) -> None:
    state = job.task_state(task)
    if state is None or state.ended:
        ended = "has ended" if state is None else f"is {state}"
        raise ConflictError(
            f"task {job.id}.{task} {ended} and cannot be {what}", hint=f"see `hal show {job.id}.{task}`"
        )


def _state_now(job: LiveJob, task: int | None) -> TaskState:
    return job.state if task is None else job.task_state(task) or job.state
