"""The half of the API that changes something: submit, cancel, hold, release, update, requeue, fence.

Every method returns when what was asked is durable, and raises when nothing of it has happened.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import StrEnum
from functools import partial

import msgspec
from msgspec import Struct

from hal.core.model import (
    ConflictError,
    DeniedError,
    HALError,
    InternalError,
    JobSpec,
    NotFoundError,
    OverloadedError,
    SpecError,
    TaskState,
    parse_task_ref,
    shown,
)
from hal.daemons.controller.parts import Parts
from hal.daemons.controller.views import JobView, OutcomeView, job_view, outcome_view
from hal.planes.tasks import (
    CHEAP_A_SLICE,
    EndedJob,
    EndedTask,
    EndedTasks,
    JobPatch,
    Pace,
    Submitter,
    UnknownJobs,
    Work,
    emptied,
    job_row,
)
from hal.runtime import root_steps
from hal.store import MAX_PAGE, JobFilter, JobRow, RememberIdempotent, Span, Store

MAX_IDS = 10_000
"""Jobs or tasks named in one request."""
ROWS_AT_ONCE = 200
"""Jobs that one call reads from the store."""
MAX_LOOKUPS = 5
"""How often a request is tried again because what it was read from has changed since."""
REFS_A_SLICE = 64
"""Jobs or tasks of one request that are changed in one turn of the loop."""
MAX_REQUEUED_TASKS = 100_000
"""Ended tasks of one job that one request may run again."""
MAX_KEYS_IN_FLIGHT = 10_000


_ENDED_WORDS = {
    TaskState.SUCCEEDED: "succeeded",
    TaskState.FAILED: "failed",
    TaskState.TIMED_OUT: "was timed out",
    TaskState.CANCELLED: "was cancelled",
}
_ENDS = tuple(_ENDED_WORDS)


class Action(StrEnum):
    """What may be done to several jobs at once."""

    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"
    REQUEUE = "requeue"


class Key(Struct, frozen=True):
    """A caller's idempotency key, and a digest of what it asked for."""

    text: str
    fingerprint: str
    space: str = ""
    """Whose key: equal keys of different people have nothing to do with one another."""

    @property
    def name(self) -> str:
        """Under which it is remembered; the separator is in no key."""
        return f"{self.space}\x1f{self.text}" if self.space else self.text


class Submitted(Struct, frozen=True, kw_only=True):
    """What became of a submission."""

    ids: list[str]
    jobs: list[JobView]
    dry_run: bool = False
    warnings: list[str] = []


class Outcomes(Struct, frozen=True, kw_only=True):
    """What became of each job or task named."""

    results: list[OutcomeView]


class _History(Struct, frozen=True):
    """What rows say of a job that is to be run again."""

    row: JobRow
    spans: list[Span]
    ended: EndedTasks
    succeeded: tuple[tuple[int, int], ...]
    """Runs of tasks."""


class Changing:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._in_flight: dict[str, tuple[str, asyncio.Future[bytes]]] = {}

    # ── submit ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def submit(
        self, specs: Sequence[JobSpec], by: Submitter, *, dry_run: bool = False, key: Key | None = None
    ) -> Submitted:
        """Accept all jobs, or none.

        Raises:
            SpecError, ConflictError: one cannot be accepted.
            OverloadedError: too much waits.
            StoreError: it could not be made durable.
            DeniedError: steps run as root here, and only root's are.
        """
        self._refuse_others(specs, by)
        if dry_run or key is None:
            return await self._submit(specs, by, dry_run=dry_run, key=None)
        made: list[Submitted] = []

        async def make() -> bytes:
            made.append(await self._submit(specs, by, dry_run=False, key=key))
            return msgspec.json.encode(made[0].ids)

        answer = await self._once(key, make)
        return made[0] if made else await self._submitted_before(msgspec.json.decode(answer, type=list[str]))

    async def _submit(self, specs: Sequence[JobSpec], by: Submitter, *, dry_run: bool, key: Key | None) -> Submitted:
        plane, ended = self._parts.plane, dict[int, EndedJob]()

        def work(now_ms: int) -> Work[Submitted | UnknownJobs]:
            try:
                jobs = yield from plane.submitting(specs, by, now_ms, ended=ended, dry_run=dry_run)
            except UnknownJobs as unknown:
                return unknown
            ids = [str(job.id) for job in jobs]
            if key is not None:
                plane.also(RememberIdempotent(key.name, key.fingerprint, msgspec.json.encode(ids)))
            views, pace = [], Pace()
            for job in jobs:
                views.append(job_view(job_row(job), spec=len(jobs) == 1))
                if pace.over():
                    yield
            if dry_run:
                yield from emptied(jobs)
            return Submitted(ids=[] if dry_run else ids, jobs=views, dry_run=dry_run, warnings=self._warnings())

        for _ in range(MAX_LOOKUPS):
            answer = await self._parts.loop.inbox.call_in_slices(work)
            if not isinstance(answer, UnknownJobs):
                return answer
            for some in batched(answer.jobs):
                ended.update(await self._parts.committer.read(partial(_ended_jobs, ids=some)))
        raise OverloadedError("the jobs that this one depends on change too fast", hint="try again")

    async def _submitted_before(self, ids: list[str]) -> Submitted:
        views: list[JobView] = []
        for some in batched([int(job) for job in ids]):
            rows = await self._parts.committer.read(partial(rows_of, jobs=some))
            views.extend(job_view(row, spec=len(ids) == 1) for row in rows if row is not None)
        return Submitted(ids=ids, jobs=views)

    def _refuse_others(self, specs: Sequence[JobSpec], by: Submitter) -> None:
        """
        Raises:
            DeniedError: a job's user would be root.
        """
        only = self._parts.steps_of
        # Also of whoever submits for somebody else: an operator is not root by saying so.
        for user in {by.user, *(spec.user or by.user for spec in specs)} if only else ():
            if user != only:
                raise DeniedError(root_steps.refusal(user), hint=root_steps.HINT)

    def _warnings(self) -> list[str]:
        if self._parts.plane.table.nodes:
            return []
        return ["no node has joined yet: what is asked for was not checked against any"]

    # ── one or many ───────────────────────────────────────────────────────────────────────────────────────────────

    async def control(
        self,
        action: Action,
        ids: Sequence[str],
        wanted: JobFilter | None,
        by: Submitter,
        *,
        key: Key | None = None,
    ) -> Outcomes:
        """Do it to each job or task named and each live job that matches; one outcome for each.

        A requeue takes ended jobs too when the filter's states name ends.

        Raises:
            SpecError: an id is malformed, or none is named (a filter without any condition would mean all); nothing was
                done.
            OverloadedError, StoreError: as `submit`.
        """
        if wanted == JobFilter():
            raise SpecError("filter: no condition in it", hint='all live jobs are {"state": "live"}')
        if not ids and wanted is None:
            raise SpecError("no job is named", hint="name ids, or a filter")
        if len(ids) > MAX_IDS:
            raise SpecError(f"{len(ids)} ids in one request; at most {MAX_IDS} are allowed")
        refs, pace = [], Pace(CHEAP_A_SLICE)
        for text in ids:
            refs.append(parse_task_ref(text))
            if pace.over():
                await self._parts.runtime.sleep(0)
        if key is None:
            return await self._control(action, refs, wanted, by)

        async def make() -> bytes:
            return msgspec.json.encode(await self._control(action, refs, wanted, by, key))

        return msgspec.json.decode(await self._once(key, make), type=Outcomes)

    async def _control(
        self,
        action: Action,
        refs: list[tuple[int, int | None]],
        wanted: JobFilter | None,
        by: Submitter,
        key: Key | None = None,
    ) -> Outcomes:
        plane = self._parts.plane
        histories: dict[int, _History | None] = {}
        ends = [state for state in wanted.states if state.ended] if wanted is not None else []
        if wanted is not None and ends and action is Action.REQUEUE:
            these = msgspec.structs.replace(wanted, states=tuple(ends))
            found = await self._parts.committer.read(partial(_matching_rows, wanted=these))
            refs = refs + [(job, None) for job in found]

        def work(now_ms: int) -> Work[Outcomes | list[int]]:
            named = refs
            if wanted is not None:
                found = yield from plane.matching(wanted)
                named = [*refs, *((job, None) for job in found[:MAX_IDS])][:MAX_IDS]
            if action is Action.REQUEUE:
                asked = dict.fromkeys(job for job, _ in named)
                stale = [job for job in asked if job not in histories or self._stale(job, histories[job])]
                if stale:
                    return stale
            results, pace = [], Pace(REFS_A_SLICE)
            for job, task in named:
                results.append((yield from self._one(action, job, task, histories.get(job), by, now_ms)))
                if pace.over():
                    yield
            outcomes = Outcomes(results=results)
            if key is not None and all(result.ok for result in results):
                plane.also(RememberIdempotent(key.name, key.fingerprint, msgspec.json.encode(outcomes)))
            return outcomes

        for _ in range(MAX_LOOKUPS):
            answer = await self._parts.loop.inbox.call_in_slices(work)
            if isinstance(answer, Outcomes):
                return await self._told_of_ended(answer)
            histories.update(dict.fromkeys(answer))
            for some in batched(answer):
                histories.update(await self._parts.committer.read(partial(_histories, jobs=some)))
        raise OverloadedError("the jobs change too fast to be run again", hint="try again")

    def _stale(self, job: int, history: _History | None) -> bool:
        """Whether what was read of the job does not agree with what is true now."""
        live = self._parts.plane.table.jobs.peek(job)
        if history is None:
            return live is not None
        if live is None:
            return history.row.end_ms is None
        counts = live.counts
        ended = counts.total - counts.live - live.ended_in_spans
        return ended != len(history.ended) or history.row.end_ms is not None

    def _one(
        self, action: Action, job: int, task: int | None, history: _History | None, by: Submitter, now_ms: int
    ) -> Work[OutcomeView]:
        plane, name = self._parts.plane, str(job) if task is None else f"{job}.{task}"
        try:
            if action is Action.CANCEL:
                state = yield from plane.cancelling(job, task, by, now_ms)
            elif action is Action.HOLD:
                state = yield from plane.holding(job, task, by, now_ms)
            elif action is Action.RELEASE:
                state = yield from plane.releasing(job, task, by, now_ms)
            else:
                state = yield from self._requeue(job, task, history, by, now_ms)
        except InternalError:
            raise
        except HALError as error:
            return outcome_view(name, error)
        return OutcomeView(id=name, ok=True, state=state.value)

    def _requeue(
        self, job: int, task: int | None, history: _History | None, by: Submitter, now_ms: int
    ) -> Work[TaskState]:
        plane = self._parts.plane
        if history is None:
            raise no_job(job)
        if task is not None and task >= history.row.tasks:
            raise _no_task(history.row, task)
        if len(history.ended) > MAX_REQUEUED_TASKS:
            raise SpecError(
                f"job {job} has {len(history.ended)} ended tasks; at most {MAX_REQUEUED_TASKS} can run again"
            )
        if job not in plane.table.jobs:
            plane.revive(history.row, history.spans, history.succeeded)
        return (yield from plane.requeueing(job, task, history.ended, by, now_ms))

    async def _told_of_ended(self, outcomes: Outcomes) -> Outcomes:
        """Jobs that are not live have ended, or never were: say which."""
        unclear = {parse_task_ref(r.id)[0] for r in outcomes.results if r.code == NotFoundError.code}
        if not unclear:
            return outcomes
        rows: dict[int, JobRow | None] = {}
        for some in batched(sorted(unclear)):
            found = await self._parts.committer.read(partial(rows_of, jobs=some))
            rows.update(zip(some, found, strict=True))
        return Outcomes(
            results=[
                _explained(result, rows) if result.code == NotFoundError.code else result for result in outcomes.results
            ]
        )

    # ── one ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def update(self, job: int, patch: JobPatch, by: Submitter) -> JobView:
        """Change what may be changed of a job that has not ended.

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
            raise (no_job(job) if row is None else _has_ended(row)) from None

    async def fence(self, node: str, by: Submitter) -> None:
        """Declare that an unreachable node is gone for good; its attempts are lost.

        Raises:
            NotFoundError, ConflictError: see `TaskPlane.node_gone`.
        """
        await self._parts.loop.inbox.call(lambda now_ms: self._parts.plane.node_gone(node, by, now_ms))

    # ── once ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _once(self, key: Key, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """The answer to a request with this key: made now, being made, or remembered.

        Raises:
            ConflictError: the key was used for another request.
        """
        flying = self._in_flight.get(key.name)
        if flying is not None:
            _same(key, flying[0])
            return await asyncio.shield(flying[1])
        if len(self._in_flight) >= MAX_KEYS_IN_FLIGHT:
            raise OverloadedError("too many requests with idempotency keys are under way", hint="try again in a second")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._in_flight[key.name] = (key.fingerprint, answer)
        try:
            before = await self._parts.committer.read(lambda store: store.idempotent(key.name))
            if before is not None:
                _same(key, before.fingerprint)
            made = before.response if before is not None else await make()
            answer.set_result(made)
            return made
        except BaseException as error:
            answer.set_exception(error if isinstance(error, HALError) else UnfinishedRequest())
            answer.exception()  # those who wait for it raise it themselves; nobody may
            raise
        finally:
            del self._in_flight[key.name]


class UnfinishedRequest(HALError):
    """The request of the same key was broken off before it had an answer."""

    code = "overloaded"

    def __init__(self) -> None:
        super().__init__("the request of the same key was broken off", hint="send it again")


def _same(key: Key, fingerprint: str) -> None:
    if key.fingerprint != fingerprint:
        raise ConflictError(
            f"the idempotency key '{shown(key.text)}' was used for another request",
            hint="use a fresh key for each request; the same key is for sending the same request again",
        )


def batched(jobs: Sequence[int]) -> Iterator[Sequence[int]]:
    """So many of them as one call to the store asks for: others have their turn in between."""
    return (jobs[at : at + ROWS_AT_ONCE] for at in range(0, len(jobs), ROWS_AT_ONCE))


def rows_of(store: Store, jobs: Sequence[int]) -> list[JobRow | None]:
    """The row of each."""
    return [store.job(job) for job in jobs]


def _ended_jobs(store: Store, ids: Sequence[int]) -> dict[int, EndedJob]:
    found = {}
    for job in ids:
        row = store.job(job)
        if row is None:
            raise SpecError(f"dependencies: there is no job {job}", hint="`hal jobs --all` lists the jobs there are")
        in_part = row.spec.array is not None and row.state is not TaskState.SUCCEEDED and row.succeeded > 0
        succeeded = store.succeeded(job) if in_part else ()
        found[job] = EndedJob(row.id, row.name or row.spec.title, row.state, row.spec.tasks, succeeded)
    return found


def _matching_rows(store: Store, wanted: JobFilter) -> list[int]:
    """The oldest `MAX_IDS` jobs that match."""
    found: list[int] = []
    while len(found) < MAX_IDS:
        rows = store.jobs(wanted, after=found[-1] if found else None, limit=MAX_PAGE, newest_first=False)
        found.extend(row.id for row in rows)
        if len(rows) < MAX_PAGE:
            break
    return found[:MAX_IDS]


def _histories(store: Store, jobs: Sequence[int]) -> dict[int, _History]:
    found = {}
    for job in dict.fromkeys(jobs):
        row = store.job(job)
        if row is None:
            continue
        ended: list[EndedTask] = []
        after: int | None = None
        spans = store.spans(job)
        firsts = [span.first for span in spans]
        while len(ended) <= MAX_REQUEUED_TASKS:
            page = store.tasks(job, _ENDS, after=after, limit=MAX_PAGE)
            ended.extend(
                EndedTask(t.task, t.attempt, t.state, t.exit_code) for t in page if not _within(spans, firsts, t.task)
            )
            if len(page) < MAX_PAGE:
                break
            after = page[-1].task
        succeeded = store.succeeded(job) if row.spec.array is not None else ()
        found[job] = _History(row, spans, EndedTasks(ended), succeeded)
    return found


def _within(spans: list[Span], firsts: list[int], task: int) -> bool:
    at = bisect_right(firsts, task) - 1
    return at >= 0 and task < spans[at].first + spans[at].count


def no_job(job: int) -> NotFoundError:
    """What is said of a job that is not there, or that the caller is not to know of."""
    return NotFoundError(f"there is no job {job}", hint="`hal jobs --all` lists the jobs there are")


def _has_ended(row: JobRow) -> ConflictError:
    return ConflictError(f"job {row.id} has ended: it {_ENDED_WORDS[row.state]}", hint=f"see `hal show {row.id}`")


def _no_task(row: JobRow, task: int) -> NotFoundError:
    return NotFoundError(f"job {row.id} has no task {task}", hint=f"its tasks are 0 to {row.tasks - 1}")


def _explained(result: OutcomeView, rows: dict[int, JobRow | None]) -> OutcomeView:
    """An outcome of what was not found among the live jobs, from the rows of all jobs."""
    job, task = parse_task_ref(result.id)
    row = rows[job]
    if row is None:
        return outcome_view(result.id, no_job(job))
    if task is not None and task >= row.tasks:
        return outcome_view(result.id, _no_task(row, task))
    return outcome_view(result.id, _has_ended(row)) if row.end_ms else result
