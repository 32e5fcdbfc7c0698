"""Everything that can be asked about jobs: submit, control, change and read them.

What changes something returns when it is durable, and raises when nothing of it has happened. What reads shows what is
durable, never what is being committed: live jobs come from memory, everything else from the store, on the readers'
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from hal.core.engine.errors import EngineError, PolicyFault
from hal.core.model import (
    ConflictError,
    Forecast,
    JobSpec,
    NotFoundError,
    OverloadedError,
    Reason,
    SpecError,
    TaskState,
    Verdict,
)
from hal.daemons.controller.service.access.secrets import Secrets
from hal.daemons.controller.service.files import Files
from hal.daemons.controller.service.idempotency import Idempotency, Key
from hal.daemons.controller.service.jobs.control import MAX_LOOKUPS, JobControl
from hal.daemons.controller.service.jobs.graph import read_graph
from hal.daemons.controller.service.jobs.owners import Owned, owned_of, parent_of
from hal.daemons.controller.service.jobs.records import (
    batched,
    ended_jobs,
    rows_of,
    tasks_within,
)
from hal.daemons.controller.service.jobs.refusals import has_ended, no_job, no_task
from hal.daemons.controller.service.jobs.removal import JobRemoval
from hal.daemons.controller.service.jobs.views import (
    JobView,
    ScoresView,
    TaskStatesView,
    TaskView,
    UpdatedView,
    WhyView,
    job_view,
    placement_view,
    scores_view,
    task_view,
    updated_view,
    waiting_view,
    why_view,
)
from hal.daemons.controller.service.notices.rules import check_notify
from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import (
    EndedJob,
    JobPatch,
    LiveJob,
    Pace,
    Selection,
    Submitter,
    UnknownJobs,
    Work,
    emptied,
    finished,
    job_row,
    named_pieces,
)
from hal.runtime.step_users import ROOT, Serving
from hal.store import JobFilter, JobRow, RememberIdempotent, Store
from hal.store.operations import AttemptRow
from hal.store.views import TaskRow

T = TypeVar("T")
Attempted = TypeVar("Attempted", TaskRow, AttemptRow)
MAX_WAIT_S = 600.0
"""Longest long poll."""
MAX_STATE_ATTEMPTS = 20_000
"""Attempts that are read at once for the states of all tasks."""
MAX_ATTEMPTS_SHOWN = 1_000
MAX_DEPENDANTS = 1_000
"""Jobs that are named as dependants of one."""
ACTIVE_A_WEIGHT = 64
"""Attempts that count like one job more where the ready ones are counted."""
PLACED_A_SLICE = 32
"""Jobs whose nodes are gathered in one turn of the loop."""


MAX_WARNINGS = 20
"""Most warnings about one submission."""


def _dependants(store: Store, job: int, user: str) -> list[int]:
    return store.dependants(job, user, most=MAX_DEPENDANTS)


class Submitted(Struct, frozen=True, kw_only=True):
    """The result of a submission."""

    ids: list[str]
    jobs: list[JobView]
    dry_run: bool = False
    warnings: list[str] = []
    forecasts: list[Forecast] = []
    """Of a dry run of few jobs: when each would start."""


def _state_runs(store: Store, job: int, start: int, end: int) -> tuple[list[tuple[TaskState | None, int]], int]:
    """A page of the states of all tasks."""
    return store.state_runs(job, start, end, MAX_STATE_ATTEMPTS)


class Jobs:
    """Submit, control and read them."""

    def __init__(self, parts: Parts, secrets: Secrets, files: Files) -> None:
        self._parts = parts
        self._files = files
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
            DeniedError: it uses secrets, or ships files, in another user's name.
            BundleMissingError: it ships what its user has not sent, or what is not kept any more.
        """
        await self._secrets.check(specs, by)
        await self._files.check(specs, by)
        await self._check_notify(specs)
        if dry_run or key is None:
            return await self._submit(specs, by, dry_run=dry_run, key=None)
        made: list[Submitted] = []

        async def make() -> bytes:
            made.append(await self._submit(specs, by, dry_run=False, key=key))
            return msgspec.json.encode(made[0].ids)

        answer = await self._idempotency.once(key, make)
        return made[0] if made else await self._read_submission(msgspec.json.decode(answer, type=list[str]))

    async def _check_notify(self, specs: Sequence[JobSpec]) -> None:
        pace, seen = Pace(), set[int]()
        for spec in specs:
            if spec.notify and id(spec) not in seen:
                seen.add(id(spec))
                check_notify(spec, self._parts.notifications)
            if pace.over():
                await self._parts.runtime.sleep(0)

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
            warnings = yield from self._warnings(jobs, now_ms)
            if not dry_run:
                return Submitted(ids=ids, jobs=views, warnings=warnings)
            forecasts = plane.foresee(jobs, now_ms)
            yield from emptied(jobs)
            return Submitted(ids=[], jobs=views, dry_run=True, warnings=warnings, forecasts=forecasts)

        return await self._answer_knowing(work, ended)

    async def _answer_knowing(self, work: Callable[[int], Work[T | UnknownJobs]], ended: dict[int, EndedJob]) -> T:
        """Do it, and again each time it names jobs that it does not know: `ended` has those that have ended then.

        Raises:
            OverloadedError: it names others again and again.
        """
        with ExitStack() as pins:
            for _ in range(MAX_LOOKUPS):
                answer = await self._parts.loop.inbox.call_in_slices(work)
                if not isinstance(answer, UnknownJobs):
                    return answer
                going = pins.enter_context(self._parts.plane.pinned(answer.jobs))
                for some in batched(answer.jobs):
                    ended.update(await self._parts.committer.read(partial(ended_jobs, ids=some, going=going)))
        raise OverloadedError("the jobs that this one depends on change too fast", hint="try again")

    async def _read_submission(self, ids: list[str]) -> Submitted:
        views: list[JobView] = []
        for some in batched([int(job) for job in ids]):
            rows = await self._parts.committer.read(partial(rows_of, jobs=some))
            views.extend(job_view(row, spec=len(ids) == 1) for row in rows if row is not None)
        return Submitted(ids=ids, jobs=views)

    def serving(self) -> tuple[Serving, str]:
        """Whose steps run, and as whom; and the account that none but its own user may name ('': not known).

        A controller that lends its account may have nodes of root, where each step runs as its user. O(nodes), if it
        lends it.
        """
        serving, owner = self._parts.serving, self._parts.runs_as
        if serving is Serving.ALL_AS_OWNER and owner != ROOT:
            nodes = self._parts.plane.nodes.values()
            if any(row.about.facts.steps == Serving.EACH_AS_ITSELF for row in nodes):
                return Serving.EACH_AS_ITSELF, ROOT
        return serving, owner

    def _warnings(self, jobs: Sequence[LiveJob], now_ms: int) -> Work[list[str]]:
        """What those who submit should know, though it is accepted."""
        plane = self._parts.plane
        found = [] if plane.nodes else ["no node has joined yet: what is asked for was not checked against any"]
        pace = Pace()
        for at, job in enumerate(jobs):
            never = plane.never(job, now_ms) if job.spec.wait_for_change else None
            if never is not None:
                found.append(never.text if len(jobs) == 1 else f"job {at + 1} of {len(jobs)}: {never.text}")
                if len(found) == MAX_WARNINGS:
                    break
            if pace.over():
                yield
        return found

    # ── one ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def update(self, job: int, patch: JobPatch, by: Submitter, *, dry_run: bool = False) -> UpdatedView:
        """Change a job that has not ended; a dry run does everything but that.

        Raises:
            NotFoundError: there is no such job.
            ConflictError: it has ended, or is past the point where this can be changed.
            SpecError: a value cannot be accepted.
            DeniedError: only operators do that.
        """
        plane, ended = self._parts.plane, dict[int, EndedJob]()

        def work(now_ms: int) -> Work[UpdatedView | UnknownJobs]:
            try:
                if dry_run:
                    would, starts = yield from plane.previewing(job, patch, by, now_ms, ended)
                    return updated_view(would, dry_run=True, starts_now=starts)
                return updated_view((yield from plane.updating(job, patch, by, now_ms, ended)))
            except UnknownJobs as unknown:
                return unknown

        try:
            return await self._answer_knowing(work, ended)
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

    async def get(
        self, job: int, *, reasons: bool = False, placed: bool = False, all_dependants: bool = False
    ) -> JobView:
        """The job, with its spec; as in `page`.

        Args:
            all_dependants: also those that no longer wait, of the same user.
        """
        row = await self.row(job)
        (view,) = await self._with_details([row], [job_view(row, spec=True)], reasons=reasons, placed=placed)
        dependants = set(self._parts.plane.dependants(job))
        if all_dependants:
            read = partial(_dependants, job=job, user=row.user)
            dependants.update(await self._parts.committer.read(read))
        nodes = self._parts.plane.present_nodes(job)
        return replace(
            view,
            dependants=tuple(map(str, sorted(dependants)[:MAX_DEPENDANTS])),
            present_nodes=UNSET if nodes is None else nodes,
        )

    async def graph(self, job: int) -> bytes:
        """The jobs before and after it, of the same user: a `JobGraph` as JSON.

        Raises:
            NotFoundError: there is no such job.
        """
        return await read_graph(self._parts, job, (await self.row(job)).user)

    async def page(
        self, wanted: JobFilter, after: int | None, limit: int, *, reasons: bool = False, placed: bool = False
    ) -> list[JobView]:
        """Jobs that match, newest first, after the one with id `after`.

        Args:
            reasons: with why each that waits does. O(page), in slices.
            placed: with where each runs. O(page), in slices.
        """
        rows = await self._parts.committer.read(lambda store: store.jobs(wanted, after=after, limit=limit))
        return await self._with_details(rows, [job_view(row) for row in rows], reasons=reasons, placed=placed)

    async def _with_details(
        self, rows: Sequence[JobRow], views: list[JobView], *, reasons: bool, placed: bool
    ) -> list[JobView]:
        if reasons:
            waiting = await self._brief_reasons([row.id for row in rows if row.pending or row.held])
            views = [
                replace(view, waiting=waiting_view(waiting[row.id])) if row.id in waiting else view
                for row, view in zip(rows, views, strict=True)
            ]
        if placed:
            views = await self._placed(rows, views)
        if any(row.spec.service is not None for row in rows):
            await self._count_ready(rows, views)
        return views

    async def _count_ready(self, rows: Sequence[JobRow], views: list[JobView]) -> None:
        pace = Pace(PLACED_A_SLICE)
        for at, row in enumerate(rows):
            ready = self._parts.plane.ready_count(row.id) if row.spec.service is not None and row.active else None
            if ready is not None:
                views[at] = replace(views[at], ready=ready)
                if pace.over(1 + row.active // ACTIVE_A_WEIGHT):
                    await self._parts.runtime.sleep(0)

    async def _brief_reasons(self, jobs: Sequence[int]) -> dict[int, Verdict]:
        return await self._parts.sliced(self._parts.plane.brief_reasons(jobs, self._parts.clock.now_ms()))

    async def _placed(self, rows: Sequence[JobRow], views: list[JobView]) -> list[JobView]:
        pace = Pace(PLACED_A_SLICE)
        for at, row in enumerate(rows):
            where = self._parts.plane.placement(row.id) if row.active else None
            if where is not None:
                views[at] = replace(views[at], placement=placement_view(where))
            if pace.over():
                await self._parts.runtime.sleep(0)
        return views

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

    async def scores(self, job: int, limit: int) -> ScoresView:
        """The best nodes for its next task, of those that have room now.

        Raises:
            NotFoundError: there is no such job.
            ConflictError: none of its tasks waits for nodes or its turn.
        """
        await self.row(job)
        try:
            return scores_view(job, self._parts.engine.scores(job, limit))
        except PolicyFault as fault:
            raise ConflictError(f"its nodes cannot be scored: {fault.message}") from fault
        except EngineError:
            raise ConflictError(
                f"job {job} has no task that waits for nodes or its turn: nodes are scored for such jobs only",
                hint=f"`hal why {job}` shows what it waits for",
            ) from None

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def tasks(self, job: int, named: Selection, after: int | None, limit: int) -> list[TaskView]:
        """Tasks in ascending order, after task number `after`; of those that are named, by number, index or state.

        Raises:
            NotFoundError: there is no such job or task.
        """
        row = await self.row(job)
        pieces = await self._parts.committer.read(lambda _: finished(named_pieces(job, row.spec, named))[1])
        rows = await self._parts.committer.read(
            lambda store: tasks_within(store, job, pieces, named.states, after, limit)
        )
        return [self._task_view(row) for row in rows]

    async def task_states(self, job: int) -> TaskStatesView:
        """In which state all tasks are, read in pages, between which others have the store.

        Raises:
            NotFoundError: there is no such job.
        """
        row = await self.row(job)
        codes: dict[str, int] = {}
        runs: list[tuple[int, int]] = []
        at, end = 0, row.tasks
        while at < end:
            read = partial(_state_runs, job=job, start=at, end=end)
            found, at = await self._parts.committer.read(read)
            for state, count in found:
                code = codes.setdefault(state.value if state is not None else "removed", len(codes))
                if runs and runs[-1][0] == code:
                    runs[-1] = (code, runs[-1][1] + count)
                else:
                    runs.append((code, count))
        return TaskStatesView(job=str(job), tasks=row.tasks, states=list(codes), runs=runs)

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
        view = self._task_view(found, [self._at_gates(attempt) for attempt in attempts])
        cpus = self._cpus_of(found)
        return replace(view, cpus=cpus) if cpus else view

    def _cpus_of(self, row: TaskRow) -> dict[str, str]:
        """By node: the CPUs on which a running task is bound."""
        if row.state is not TaskState.RUNNING or not row.attempt:
            return {}
        found = {
            node: self._parts.agents.cpus_of(node, row.job, row.task, row.attempt, rank)
            for rank, node in enumerate(row.nodes)
        }
        return {node: cpus for node, cpus in found.items() if cpus}

    def _task_view(self, row: TaskRow, attempts: list[AttemptRow] | None = None) -> TaskView:
        """The task with what is not stored: the gates that it waits for, whether it is ready, and why not."""
        standing = self._parts.plane.readiness(row.job, row.task)
        if standing is None:
            return task_view(self._at_gates(row), attempts)
        row = row if standing.ready or row.message else replace(row, message=f"not ready: {standing.reason}")
        return task_view(row, attempts, standing.ready)

    def _at_gates(self, row: Attempted) -> Attempted:
        """The row; if its attempt waits for gates, with these as its message, which is not stored."""
        text = "" if row.message else self._parts.plane.gates_text(row.job, row.task, row.attempt)
        return replace(row, message=text) if text else row
