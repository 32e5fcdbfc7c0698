"""Removing ended jobs, or parts of them, as people ask (`hal rm`) and as retention says.

A group marks them and lists what their nodes must delete; the rows themselves are deleted afterwards, between groups
(`cycle.retention`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from hal.core.model import HALError, SpecError, TaskState, parse_task_ref
from hal.daemons.controller.service.jobs.records import MAX_IDS, matching_jobs, rows_of
from hal.daemons.controller.service.jobs.refusals import no_job
from hal.daemons.controller.service.outcomes import Outcomes, OutcomeView, outcome_view
from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import Submitter
from hal.store import ForgetRow, JobFilter, OldAttempt, PutForgets, Removed, Store

MARKED_AT_ONCE: Final = 200
"""Jobs that one group marks: their rows take a few milliseconds of its commit."""
FORGETS_A_GROUP: Final = 1_000
"""Rows of what nodes must delete in one group, or those of one job where these are more: so do they."""
_ENDS: Final = tuple(state for state in TaskState if state.ended)


class JobRemoval:
    """Marks jobs as removed."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.marked = asyncio.Event()
        """Set when something was marked; whoever deletes the rows clears it."""

    async def remove(self, ids: Sequence[str], wanted: JobFilter | None, by: Submitter) -> Outcomes:
        """Remove each ended job that is named, and the oldest `MAX_IDS` ended ones that match; one outcome for each.

        Raises:
            SpecError: an id is malformed, none is named, or the filter asks for live jobs; nothing was done.
            StoreError: it could not be made durable; some may have been removed.
        """
        if wanted == JobFilter():
            raise SpecError("filter: has no condition", hint='all ended jobs are {"state": "ended"}')
        if not ids and wanted is None:
            raise SpecError("no job is named", hint="name ids, or a filter")
        if len(ids) > MAX_IDS:
            raise SpecError(f"{len(ids)} ids in one request; at most {MAX_IDS} are allowed")
        if wanted is not None and any(not state.ended for state in wanted.states):
            raise SpecError("filter: only ended jobs can be removed", hint='ask for {"state": "ended"}')
        jobs = [_whole_job(text) for text in ids]
        if wanted is not None:
            wanted = replace(wanted, states=wanted.states or _ENDS)
            jobs += await self._parts.committer.read(partial(matching_jobs, wanted=wanted))
        jobs = list(dict.fromkeys(jobs))
        results: list[OutcomeView] = []
        for at in range(0, len(jobs), MARKED_AT_ONCE):
            results += await self._remove_some(jobs[at : at + MARKED_AT_ONCE], by)
        return Outcomes(results=results)

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

    async def _mark_some(
        self, forgets: Mapping[int, Sequence[ForgetRow]], removed: Removed, by: Submitter | None, rule: str
    ) -> dict[int, HALError]:
        """Mark jobs in one group; `forgets`: what nodes must delete of each."""
        parts, forgetting = self._parts, self._parts.agents.forgetting

        def work(now_ms: int) -> dict[int, HALError]:
            done, refused = parts.plane.remove(list(forgets), removed, by, rule)
            rows = forgetting.bounded(row for job in done for row in forgets[job])
            if rows:
                parts.plane.add_operations(PutForgets(rows))
            return refused

        refused = await parts.loop.inbox.call(work)
        forgetting.wake({row.node for rows in forgets.values() for row in rows})
        self.marked.set()
        return refused

    async def forget_outputs(self, attempts: Sequence[OldAttempt]) -> None:
        """Let nodes delete the outputs of these ended attempts, whose jobs may live.

        Raises:
            StoreError: it could not be made durable; of some it may have been.
        """
        rows = [ForgetRow(node, one.job, one.attempt, one.task, 1) for one in attempts for node in one.nodes]
        for at in range(0, len(rows), FORGETS_A_GROUP):
            await self._put_forgets(rows[at : at + FORGETS_A_GROUP])

    async def _put_forgets(self, rows: Sequence[ForgetRow]) -> None:
        parts, forgetting = self._parts, self._parts.agents.forgetting

        def work(now_ms: int) -> None:
            if forgets := forgetting.bounded(rows):
                parts.plane.add_operations(PutForgets(forgets))

        await parts.loop.inbox.call(work)
        forgetting.wake({row.node for row in rows})


def _forgets(store: Store, jobs: Sequence[int], whole: bool) -> list[dict[int, list[ForgetRow]]]:
    """What nodes must delete of each of these jobs, parted into groups."""
    of_job: dict[int, list[ForgetRow]] = {job: [] for job in jobs}
    for row in store.forgets_for(jobs, whole=whole):
        of_job[row.job].append(row)
    groups: list[dict[int, list[ForgetRow]]] = [{}]
    size = 0
    for job, rows in of_job.items():
        if groups[-1] and size + len(rows) > FORGETS_A_GROUP:
            groups.append({})
            size = 0
        groups[-1][job] = rows
        size += len(rows)
    return groups


def _whole_job(text: str) -> int:
    job, task = parse_task_ref(text)
    if task is not None:
        raise SpecError(f"'{text}' names a task; only whole jobs can be removed", hint=f"write {job}")
    return job
