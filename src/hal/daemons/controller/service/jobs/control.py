"""Cancel, hold, release, requeue and evict: several jobs and tasks in one request, one outcome for each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from enum import StrEnum
from functools import partial
from typing import NamedTuple

import msgspec

from hal.core.model import (
    ConflictError,
    HALError,
    InternalError,
    NotFoundError,
    OverloadedError,
    SpecError,
    TaskState,
    parse_tasks_ref,
    plural,
)
from hal.core.model.eviction import Evict
from hal.daemons.controller.service.idempotency import Idempotency, Key
from hal.daemons.controller.service.jobs.records import (
    MAX_IDS,
    MAX_REQUEUED_TASKS,
    PART_COST,
    History,
    batched,
    matching_jobs,
    read_histories,
    rows_of,
)
from hal.daemons.controller.service.jobs.refusals import explained, no_job
from hal.daemons.controller.service.nodes.nodes import no_node
from hal.daemons.controller.service.outcomes import Outcomes, OutcomeView, outcome_view
from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import CHEAP_A_SLICE, WHOLE, Done, Pace, Selection, Submitter, Work
from hal.store import JobFilter, JobRow, RememberIdempotent, Removed

MAX_LOOKUPS = 5
"""How often a request is tried again because what it was read from has changed since."""
REFS_A_SLICE = 64
"""Jobs or tasks of one request that are changed in one turn of the loop."""


class Action(StrEnum):
    """What may be done to several jobs at once."""

    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"
    REQUEUE = "requeue"
    EVICT = "evict"


class Named(NamedTuple):
    """A job, and which of its tasks are meant."""

    name: str
    job: int
    tasks: Selection = WHOLE


class Asked(NamedTuple):
    """What is to be done to which jobs and tasks, and for whom."""

    action: Action
    named: list[Named]
    wanted: JobFilter | None
    by: Submitter
    key: Key | None
    eviction: Evict
    nodes: tuple[str, ...]
    """All that runs there is evicted."""
    dry_run: bool


class JobControl:
    """See `control`."""

    def __init__(self, parts: Parts, idempotency: Idempotency) -> None:
        self._parts = parts
        self._idempotency = idempotency

    async def control(
        self,
        action: Action,
        ids: Sequence[str],
        wanted: JobFilter | None,
        by: Submitter,
        *,
        key: Key | None = None,
        eviction: Evict | None = None,
        nodes: Sequence[str] = (),
        states: tuple[TaskState, ...] = (),
        dry_run: bool = False,
    ) -> Outcomes:
        """Change each job or task named and each live job that matches; one outcome for each.

        A requeue takes ended jobs too when the filter's states name ends. An eviction takes of what matches only what
        runs, and all that runs on the nodes named, with one outcome for each node.

        The states of a filter are those of tasks: of an array that matches, cancel, requeue and evict take those that
        are in one of them; hold and release take the array.

        Args:
            states: of what is named by id, only tasks in these.
            dry_run: change nothing; the outcomes say of how many tasks each is.

        Raises:
            SpecError: an id is malformed, or none is named (a filter without any condition would mean all); nothing was
                done.
            OverloadedError, StoreError: as `submit`.
        """
        if wanted == JobFilter():
            raise SpecError("filter: has no condition", hint='all live jobs are {"state": "live"}')
        if not ids and wanted is None and not nodes:
            raise SpecError("no job is named", hint="name ids, or a filter")
        if len(ids) + len(nodes) > MAX_IDS:
            raise SpecError(f"{len(ids) + len(nodes)} ids in one request; at most {MAX_IDS} are allowed")
        refs, pace = [], Pace(CHEAP_A_SLICE)
        for text in ids:
            ref = parse_tasks_ref(text)
            refs.append(Named(str(ref), ref.job, Selection(ref.ranges, ref.by_index, states)))
            if pace.over(1 + PART_COST * len(ref.ranges)):
                await self._parts.runtime.sleep(0)
        asked = Asked(action, refs, wanted, by, key, eviction or Evict(), tuple(dict.fromkeys(nodes)), dry_run)
        if key is None or dry_run:
            return await self._control(asked)

        async def make() -> bytes:
            return msgspec.json.encode(await self._control(asked))

        return msgspec.json.decode(await self._idempotency.once(key, make), type=Outcomes)

    async def _control(self, asked: Asked) -> Outcomes:
        plane, action, refs, wanted, key = self._parts.plane, asked.action, asked.named, asked.wanted, asked.key
        histories: dict[int, History | None] = {}
        ends = [state for state in wanted.states if state.ended] if wanted is not None else []
        if wanted is not None and ends and action is Action.REQUEUE:
            these = msgspec.structs.replace(wanted, states=tuple(ends))
            found = await self._parts.committer.read(partial(matching_jobs, wanted=these))
            refs = refs + [Named(str(job), job, self._of_states(action, wanted.states, job)) for job in found]

        def work(now_ms: int) -> Work[Outcomes | list[int]]:
            named = refs
            if wanted is not None:
                found = yield from plane.matching(wanted)
                if action is Action.EVICT:
                    found = [job for job in found if plane.has_active(job)]
                live = (Named(str(job), job, self._of_states(action, wanted.states, job)) for job in found[:MAX_IDS])
                named = [*refs, *live][:MAX_IDS]
            if action is Action.REQUEUE:
                jobs = dict.fromkeys(one.job for one in named)
                stale = [job for job in jobs if job not in histories or self._stale(job, histories[job])]
                if stale:
                    return stale
            results, pace = [], Pace(REFS_A_SLICE)
            for one in named:
                history = histories.get(one.job)
                if asked.dry_run:
                    results.append(self._foreseen(one, history))
                else:
                    results.append((yield from self._one(asked, one, history, now_ms)))
                if pace.over():
                    yield
            if asked.dry_run:
                return Outcomes(results=results)
            if asked.nodes:
                results += yield from self._evict_from(asked, now_ms)
            outcomes = Outcomes(results=results)
            if key is not None and all(result.ok for result in results):
                plane.add_operations(RememberIdempotent(key.name, key.fingerprint, msgspec.json.encode(outcomes)))
            return outcomes

        with ExitStack() as pins:
            for _ in range(MAX_LOOKUPS):
                answer = await self._parts.loop.inbox.call_in_slices(work)
                if isinstance(answer, Outcomes):
                    return await self._explain_missing(answer, 0 if asked.dry_run else len(asked.nodes))
                histories.update(dict.fromkeys(answer))
                going = pins.enter_context(plane.pinned(answer))
                for some in batched(answer):
                    histories.update(await self._parts.committer.read(partial(read_histories, jobs=some, going=going)))
        raise OverloadedError("the jobs change too fast to be requeued", hint="try again")

    def _stale(self, job: int, history: History | None) -> bool:
        """Whether what was read of the job does not agree with what is true now."""
        live = self._parts.plane.staged_job(job)
        if history is None:
            return live is not None
        if live is None:
            return history.row.end_ms is None
        counts = live.counts
        ended = counts.total - counts.live - live.ended_in_ranges
        return ended != len(history.ended) or history.row.end_ms is not None

    def _of_states(self, action: Action, states: tuple[TaskState, ...], job: int) -> Selection:
        """Which tasks of a job that matches these states are meant: those that are in one of them, or the whole job."""
        live = self._parts.plane.staged_job(job)
        if not states or action in (Action.HOLD, Action.RELEASE) or (live is not None and live.spec.tasks == 1):
            return WHOLE
        if live is not None and action is not Action.REQUEUE:
            counts = live.counts
            if counts.live == sum(counts.of(state) for state in states if not state.ended):
                return WHOLE
        return Selection(states=states)

    def _foreseen(self, named: Named, history: History | None) -> OutcomeView:
        """How many tasks a command would be about."""
        live = self._parts.plane.staged_job(named.job)
        if live is None and history is None:
            return outcome_view(named.name, no_job(named.job))
        states = named.tasks.states or tuple(TaskState)
        if live is not None:
            state, tasks = live.state, sum(map(live.counts.of, states))
        else:
            assert history is not None
            row = history.row
            state, tasks = row.state, sum(getattr(row, one.value.replace("-", "_"), 0) for one in states if one.ended)
        if named.tasks.ranges:
            tasks = min(tasks, sum(one.length for one in named.tasks.ranges))
        return OutcomeView(id=named.name, ok=True, state=state.value, tasks=tasks)

    def _one(self, asked: Asked, named: Named, history: History | None, now_ms: int) -> Work[OutcomeView]:
        plane, action, by, job, tasks = self._parts.plane, asked.action, asked.by, named.job, named.tasks
        try:
            if action is Action.CANCEL:
                done = yield from plane.cancelling(job, tasks, by, now_ms)
            elif action is Action.HOLD:
                done = yield from plane.holding(job, tasks, by, now_ms)
            elif action is Action.RELEASE:
                done = yield from plane.releasing(job, tasks, by, now_ms)
            elif action is Action.EVICT:
                done = yield from plane.evicting(job, tasks, asked.eviction, by, now_ms)
            else:
                done = yield from self._requeue(named, history, by, now_ms)
        except InternalError:
            raise
        except HALError as error:
            return outcome_view(named.name, error)
        return OutcomeView(id=named.name, ok=True, state=done.state.value, tasks=done.tasks, detail=done.detail)

    def _evict_from(self, asked: Asked, now_ms: int) -> Work[list[OutcomeView]]:
        """One outcome for each node."""
        plane = self._parts.plane
        known = [name for name in asked.nodes if name in plane.nodes]
        left = (yield from plane.evicting_from(known, asked.eviction, asked.by, now_ms)) if known else {}
        results: list[OutcomeView] = []
        for name in asked.nodes:
            if name not in left:
                results.append(outcome_view(name, no_node(name)))
                continue
            state, count = plane.nodes[name].state.value, left[name]
            leave = f"{plural(count, 'task')} {'leaves' if count == 1 else 'leave'}" if count else "nothing runs there"
            results.append(OutcomeView(id=name, ok=True, state=state, detail=leave))
        return results

    def _requeue(self, named: Named, history: History | None, by: Submitter, now_ms: int) -> Work[Done]:
        plane, job = self._parts.plane, named.job
        if history is None:
            raise no_job(job)
        if history.row.removed >= Removed.ATTEMPTS_GOING:
            raise ConflictError(
                f"job {job} cannot run again: its attempts were removed",
                hint=f"submit it again: hal show {job} --spec > again.yaml",
            )
        if history.row.removed_tasks:
            raise ConflictError(
                f"job {job} cannot run again: {plural(history.row.removed_tasks, 'task')} of it "
                f"{'was' if history.row.removed_tasks == 1 else 'were'} removed",
                hint=f"submit it again: hal show {job} --spec > again.yaml",
            )
        if len(history.ended) > MAX_REQUEUED_TASKS:
            raise SpecError(
                f"job {job} has {len(history.ended)} ended tasks; at most {MAX_REQUEUED_TASKS} can run again"
            )
        if not plane.is_live(job):
            plane.revive(history.row, history.ranges, history.succeeded)
        return (yield from plane.requeueing(job, named.tasks, history.ended, by, now_ms))

    async def _explain_missing(self, outcomes: Outcomes, nodes: int) -> Outcomes:
        """Jobs that are not live have ended, or never were: say which. The last `nodes` outcomes are those of nodes."""
        jobs = outcomes.results[: len(outcomes.results) - nodes]
        unclear = {parse_tasks_ref(r.id).job for r in jobs if r.code == NotFoundError.code}
        if not unclear:
            return outcomes
        rows: dict[int, JobRow | None] = {}
        for some in batched(sorted(unclear)):
            found = await self._parts.committer.read(partial(rows_of, jobs=some))
            rows.update(zip(some, found, strict=True))
        return Outcomes(
            results=[
                *(explained(result, rows) if result.code == NotFoundError.code else result for result in jobs),
                *outcomes.results[len(jobs) :],
            ]
        )
