"""Removing ended jobs, or parts of them, as people ask (`hal rm`) and as retention says.

A group marks them and lists what their nodes must delete; the rows themselves are deleted afterwards, between groups
(`cycle.retention`). Of a job that ran on very many nodes it only marks the job; its nodes are listed in groups of their
own, before its rows are deleted, also by the next controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from hal.core.model import HALError, SpecError, TaskState, parse_tasks_ref
from hal.daemons.controller.service.jobs.records import MAX_IDS, PART_COST, matching_jobs, rows_of
from hal.daemons.controller.service.jobs.refusals import no_job
from hal.daemons.controller.service.jobs.task_removal import NamedTasks, TaskRemoval
from hal.daemons.controller.service.outcomes import Outcomes, OutcomeView, outcome_view
from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import CHEAP_A_SLICE, Pace, Selection, Submitter
from hal.store import DropForgets, ForgetRow, JobFilter, OldAttempt, PutForgets, Removed, Store
from hal.store.operations import EACH_NODE

MARKED_AT_ONCE: Final = 200
"""Jobs that one group marks: their rows take a few milliseconds of its commit."""
FORGETS_A_GROUP: Final = 1_000
"""Rows of what nodes must delete in one group: so do they."""
FORGETS_PAUSE_MS: Final = 5
"""Between two such groups, for what else waits for a commit."""
_ENDS: Final = tuple(state for state in TaskState if state.ended)


class JobRemoval:
    """Marks jobs as removed."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.marked = asyncio.Event()
        """Set when something was marked; whoever deletes the rows clears it."""
        self._tasks = TaskRemoval(parts, self.mark, self.marked)

    async def remove(
        self, ids: Sequence[str], wanted: JobFilter | None, by: Submitter, states: tuple[TaskState, ...] = ()
    ) -> Outcomes:
        """Remove each ended job or task that is named, and the oldest `MAX_IDS` ended jobs that match; one outcome for
        each.

        Args:
            states: of what is named by id, only tasks that ended so.
        Raises:
            SpecError: an id is malformed, none is named, or live jobs are asked for; nothing was done.
            StoreError: it could not be made durable; some may have been removed.
        """
        if wanted == JobFilter():
            raise SpecError("filter: has no condition", hint='all ended jobs are {"state": "ended"}')
        if not ids and wanted is None:
            raise SpecError("no job is named", hint="name ids, or a filter")
        if len(ids) > MAX_IDS:
            raise SpecError(f"{len(ids)} ids in one request; at most {MAX_IDS} are allowed")
        if any(not state.ended for state in (*states, *(wanted.states if wanted is not None else ()))):
            raise SpecError("only ended jobs and tasks can be removed", hint='ask for the state "ended"')
        refs, pace = [], Pace(CHEAP_A_SLICE)
        for text in ids:
            refs.append(ref := parse_tasks_ref(text))
            if pace.over(1 + PART_COST * len(ref.ranges)):
                await self._parts.runtime.sleep(0)
        some = [
            NamedTasks(str(ref), ref.job, Selection(ref.ranges, ref.by_index, states))
            for ref in dict.fromkeys(refs)
            if ref.ranges or states
        ]
        done = await self._tasks.remove(some, by)
        jobs = [ref.job for ref in refs if str(ref) not in done]
        if wanted is not None:
            wanted = replace(wanted, states=wanted.states or _ENDS)
            jobs += await self._parts.committer.read(partial(matching_jobs, wanted=wanted))
        jobs = list(dict.fromkeys(jobs))
        for at in range(0, len(jobs), MARKED_AT_ONCE):
            done |= {one.id: one for one in await self._remove_some(jobs[at : at + MARKED_AT_ONCE], by)}
        named = [str(ref) for ref in refs]
        known = set(named)
        matched = [one for one in map(str, jobs) if one not in known]
        return Outcomes(results=[done[one] for one in [*named, *matched]])

    async def _remove_some(self, jobs: Sequence[int], by: Submitter) -> list[OutcomeView]:
        rows = await self._parts.committer.read(partial(rows_of, jobs=jobs))
        known = [row.id for row in rows if row is not None]
        refused = await self.mark(known, Removed.JOB, by) if known else {}
        refused |= {job: no_job(job) for job in set(jobs) - set(known)}
        return [
            outcome_view(str(job), refused[job])
            if job in refused
            else OutcomeView(id=str(job), ok=True, state="removed")
            for job in jobs
        ]

    async def mark(
        self, jobs: Sequence[int], removed: Removed, by: Submitter | None, rule: str = ""
    ) -> dict[int, HALError]:
        """Mark that much of these jobs as removed, as far as that may be; returns why others were not.

        Args:
            jobs: ended when they were read; at most `MARKED_AT_ONCE`.
            by: None: retention.
            rule: of retention, by which they are removed, for people.
        Raises:
            StoreError: it could not be made durable; nothing was done.
        """
        read = partial(_forgets, jobs=jobs, whole=removed is not Removed.OUTPUTS)
        refused: dict[int, HALError] = {}
        for some in await self._parts.committer.read(read):
            refused |= await self._mark_some(some, removed, by, rule)
        return refused

    async def name_left(self) -> None:
        """List what nodes must delete of jobs whose own group had no room for that.

        Raises:
            StoreError: it could not be made durable; the rest is listed when this is called again.
        """
        for job in await self._parts.committer.read(Store.forgets_left):
            rows = await self._parts.committer.read(partial(Store.forgets_for, jobs=[job], whole=True))
            for at in range(0, len(rows) or 1, FORGETS_A_GROUP):
                named = [ForgetRow(EACH_NODE, job)] if at + FORGETS_A_GROUP >= len(rows) else []
                await self._put_forgets(rows[at : at + FORGETS_A_GROUP], named)
                await self._parts.runtime.sleep(FORGETS_PAUSE_MS)

    async def _mark_some(
        self, forgets: Mapping[int, Sequence[ForgetRow]], removed: Removed, by: Submitter | None, rule: str
    ) -> dict[int, HALError]:
        """Mark jobs in one group; `forgets`: what nodes must delete of each."""
        parts, forgetting = self._parts, self._parts.agents.forgetting
        large = {job for job, rows in forgets.items() if len(rows) > FORGETS_A_GROUP}

        def work(now_ms: int) -> dict[int, HALError]:
            done, refused = parts.plane.remove(list(forgets), removed, by, rule)
            rows = forgetting.bounded(row for job in done if job not in large for row in forgets[job])
            if rows := rows + [ForgetRow(EACH_NODE, job) for job in done if job in large]:
                parts.plane.add_operations(PutForgets(rows))
            return refused

        refused = await parts.loop.inbox.call(work)
        try:
            await parts.collected.remove(job for job in forgets if job not in refused)
        except HALError as error:
            # Its job is gone: `Files.keep` removes it later.
            parts.runtime.log.warning("what was collected of removed jobs is still there", reason=str(error))
        forgetting.wake({row.node for job, rows in forgets.items() if job not in large for row in rows})
        self.marked.set()
        return refused

    async def forget_outputs(self, attempts: Sequence[OldAttempt]) -> None:
        """Let nodes delete the outputs of these ended attempts, whose jobs may live.

        Raises:
            StoreError: it could not be made durable; of some it may have been.
        """
        rows = iter(_pieces(attempts))
        while some := list(islice(rows, FORGETS_A_GROUP)):
            await self._put_forgets(some)
        for one in attempts:
            await self._parts.collected.remove_attempt(one.job, one.task, one.attempt)

    async def _put_forgets(self, rows: Sequence[ForgetRow], named: Sequence[ForgetRow] = ()) -> None:
        parts, forgetting = self._parts, self._parts.agents.forgetting

        def work(now_ms: int) -> None:
            if forgets := forgetting.bounded(rows):
                parts.plane.add_operations(PutForgets(forgets))
            if named:
                parts.plane.add_operations(DropForgets(list(named)))

        await parts.loop.inbox.call(work)
        forgetting.wake({row.node for row in rows})


def _pieces(attempts: Sequence[OldAttempt]) -> list[ForgetRow]:
    """What nodes must delete of these; one row for neighbouring tasks that ran on the same node."""
    last: dict[tuple[str, int, int], ForgetRow] = {}
    found: list[ForgetRow] = []
    for one in sorted(attempts, key=attrgetter("job", "attempt", "task")):
        for node in one.nodes:
            key = (node, one.job, one.attempt)
            row = last.get(key)
            if row is not None and row.first + row.count == one.task:
                last[key] = replace(row, count=row.count + 1)
                continue
            if row is not None:
                found.append(row)
            last[key] = ForgetRow(node, one.job, one.attempt, one.task, 1)
    return found + list(last.values())


def _forgets(store: Store, jobs: Sequence[int], whole: bool) -> list[dict[int, list[ForgetRow]]]:
    """What nodes must delete of each of these jobs, parted into groups."""
    of_job: dict[int, list[ForgetRow]] = {job: [] for job in jobs}
    for row in store.forgets_for(jobs, whole=whole, most=FORGETS_A_GROUP + 1):
        of_job[row.job].append(row)
    groups: list[dict[int, list[ForgetRow]]] = [{}]
    size = 0
    for job, rows in of_job.items():
        named = len(rows) if len(rows) <= FORGETS_A_GROUP else 0
        if groups[-1] and size + named > FORGETS_A_GROUP:
            groups.append({})
            size = 0
        groups[-1][job] = rows
        size += named
    return groups
