"""What nodes report of services: which steps are ready, since when, and at which ports they serve.

Pure. What is not active any more, is of no service, or of another rank than 0 changes nothing: a node speaks only for
what it was given.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hal.core.model import AttemptId, EventKind, one_line
from hal.planes.tasks.attempts.ends import instant_within
from hal.planes.tasks.attempts.reports import active_attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.ready_standing import ReadyStanding
from hal.planes.tasks.table.table import JobTable
from hal.store.operations import MAX_MESSAGE
from hal.wire.frames.controller_agent import StepReadiness


def record_readiness(table: JobTable, node: str, steps: Sequence[StepReadiness], now_ms: int) -> Collection[LiveJob]:
    """How these steps of that node stand; the jobs of which something changed."""
    changed: dict[int, LiveJob] = {}
    for report in steps:
        found = None if table.is_foreign(node, report.step) else active_attempt(table, node, report.step)
        if found is None or report.step.rank or found[0].spec.service is None:
            continue
        job, attempt = found
        if len(report.ports) != len(job.spec.service.ports if job.spec.service else ()):
            continue
        key = (job.id, attempt.task, attempt.attempt)
        since_ms = instant_within(report.since_ms, attempt.allocated_ms, now_ms)
        reason = "" if report.ready else one_line(report.reason, MAX_MESSAGE)
        before = table.readiness.of(key)
        if before is not None and before.ready == report.ready:
            since_ms = before.since_ms  # repeated: its clock may have been set since
        if not table.readiness.put(key, ReadyStanding(report.ready, since_ms, reason, report.ports)):
            continue
        changed[job.id] = job
        if report.ready == (before is not None and before.ready):
            continue  # it is not ready yet, or for another reason
        item = {"id": str(AttemptId(job.id, attempt.task, attempt.attempt)), "node": node, "ready": report.ready}
        if reason:
            item["reason"] = reason
        table.draft.note(EventKind.ATTEMPTS_PROBED, f"node:{node}", job.trace_id, job.id, item)
    return changed.values()
