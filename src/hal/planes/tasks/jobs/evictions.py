"""Evictions: people, and programs in their name, make running work leave: by job, by task, or all of some nodes.

Pure. An evicted attempt is ended like one that is preempted in that mode: its task waits again without a retry
(requeue, checkpoint), or is cancelled. What is being ended already keeps the reason for that, and ends no later than an
eviction says. In slices.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msgspec.structs import replace

from hal.core.engine.events import INF
from hal.core.model import ConflictError
from hal.core.model.eviction import Evict, EvictMode
from hal.planes.tasks.jobs.selection import Done, Named, active_attempts, choose, counted, done, refuse_ended, state_now
from hal.planes.tasks.live.attempt import EVICTED, PREEMPTED, Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.nodes.closures import put_node
from hal.planes.tasks.slices import Pace, Work
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table.propagation import settle, settling
from hal.planes.tasks.table.stops import hasten_stop, note_eviction, stop_attempt
from hal.planes.tasks.table.table import JobTable
from hal.store.operations import Preemption

ATTEMPTS_A_SLICE: Final = 256
"""Attempts that are looked at in one slice."""


def evict(table: JobTable, job_id: int, named: Named, asked: Evict, by: Submitter, now_ms: int) -> Work[Done]:
    """Evict what runs of a job, or of some of its tasks.

    Raises:
        NotFoundError: no live job of this id, or no such task.
        ConflictError: nothing of it runs.
    """
    job = table.jobs.peek(job_id) or table.touch(job_id)
    chosen = yield from choose(job, named)
    refuse_ended(job, chosen, "evicted")
    attempts = active_attempts(job, chosen)
    if not attempts:
        several = not chosen.whole and chosen.single is None
        raise ConflictError(
            f"no task of {chosen.name} runs that could be evicted"
            if several
            else f"{chosen.noun} {chosen.name} is {state_now(job, chosen)}: nothing of it runs that could be evicted",
            hint=f"`hal hold {chosen.name}` keeps waiting tasks from starting",
        )
    leaving = sum(not attempt.stopping for attempt in attempts)
    yield from _evict_attempts(table, table.touch(job_id), attempts, asked, by, now_ms)
    return done(job, chosen, leaving, counted(leaving, "evicted"))


def evict_from(
    table: JobTable, names: Collection[str], asked: Evict, by: Submitter, now_ms: int
) -> Work[dict[str, int]]:
    """Evict all that runs on these nodes; a gang that has a part there leaves as a whole.

    Returns: how many attempts each node holds that are leaving now; 0 for one that holds none.
    """
    found: dict[str, int] = dict.fromkeys(names, 0)
    pace = Pace(ATTEMPTS_A_SLICE)
    for job_id in sorted(table.busy):
        there: list[Attempt] = []
        for attempt in list(table.jobs[job_id].active.values()):
            held = found.keys() & set(attempt.nodes)
            for name in held:
                found[name] += 1
            if held:
                there.append(attempt)
            if pace.over():
                yield
        if there:
            yield from _evict_attempts(table, table.touch(job_id), there, asked, by, now_ms)
    return found


def next_eviction_ms(table: JobTable) -> int:
    """When the next node that is being drained evicts what is left there; the engine's infinity for never."""
    return min(table.evictions.values(), default=INF)


def evict_overdue(table: JobTable, now_ms: int) -> Work[None]:
    """Evict what is left on nodes that are drained and have waited long enough."""
    alike: dict[tuple[Evict, Submitter], list[str]] = {}
    for name in [name for name, at_ms in table.evictions.items() if at_ms <= now_ms]:
        row = table.nodes[name]
        closure = next(one for one in row.about.closures if one.evict and not one.evicted)
        asked = Evict(mode=EvictMode(closure.evict), reason=closure.reason, grace_ms=closure.grace_ms)
        by = Submitter(closure.by)
        alike.setdefault((asked, by), []).append(name)
        done = replace(closure, evicted=True)
        closures = tuple(done if one is closure else one for one in row.about.closures)
        put_node(table, replace(row, about=replace(row.about, closures=closures)), by.cause, by)
    for (asked, by), names in alike.items():
        yield from evict_from(table, names, asked, by, now_ms)


def _evict_attempts(
    table: JobTable, job: LiveJob, attempts: Collection[Attempt], asked: Evict, by: Submitter, now_ms: int
) -> Work[None]:
    why = EVICTED if asked.mode is EvictMode.CANCEL else PREEMPTED
    pace = Pace(ATTEMPTS_A_SLICE)
    for attempt in attempts:
        if attempt.stopping:
            hasten_stop(table, job, attempt, now_ms + asked.grace_ms, now_ms)
            if pace.over():
                yield
            continue
        preemption = replace(
            attempt.preemption or Preemption(), mode=asked.mode.value, for_job=0, qos="", lent_by="", nodes=0,
            alone_ms=0, at_ms=now_ms, due_ms=now_ms + asked.grace_ms, by=by.user, reason=asked.reason,
        )  # fmt: skip
        stopping = stop_attempt(table, job, replace(attempt, preemption=preemption), why, now_ms)
        note_eviction(table, job, stopping, by.cause, by.trace_id or job.trace_id)
        if pace.over():
            yield
    settle(table, job, now_ms, by.cause)
    yield from settling(table)
