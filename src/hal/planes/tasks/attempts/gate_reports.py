"""What nodes report of their gates: whose prolog or epilog runs, and which of them failed.

Pure. An attempt is preparing while a prolog of its runs, and finalising once all that is left of it are epilogs. What
is not active any more changes nothing, but a node is closed whoever's script failed there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from hal.core.lifecycle import ATTEMPT, AttemptEvent, GateState, transition
from hal.core.model import AttemptId, AttemptState, EventKind, one_line
from hal.planes.tasks.attempts.reports import active_attempt
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.node import EPILOG, PROLOG
from hal.planes.tasks.nodes.closures import MAX_REASON
from hal.planes.tasks.nodes.failed_gates import record_failed_epilog, record_failed_prolog
from hal.planes.tasks.table.attempt_changes import mark_attempt
from hal.planes.tasks.table.table import JobTable
from hal.wire.frames.controller_agent import StepGate


def record_gates(table: JobTable, node: str, gates: Sequence[StepGate], now_ms: int) -> Collection[LiveJob]:
    """How these steps stand at the gates of that node; the jobs that changed, which must be settled."""
    changed: dict[int, LiveJob] = {}
    for report in gates:
        found = None if table.is_foreign(node, report.step) else active_attempt(table, node, report.step)
        reason = one_line(report.reason, MAX_REASON)
        if report.state is GateState.FAILED:
            if report.gate == PROLOG:
                # Whose step was never there cannot be held for it.
                record_failed_prolog(table, node, report.step, reason, now_ms, hold=found is not None)
            elif report.gate == EPILOG:
                record_failed_epilog(table, node, report.step, reason, now_ms)
            else:
                continue
            if found is None or not _is_news(table, *found, report):
                continue
        elif found is None or not _waits(table, *found, report):
            continue
        if found is not None:
            job, attempt = table.touch(report.step.job), found[1]
            changed[job.id] = job
            item = {"id": str(AttemptId(job.id, attempt.task, attempt.attempt)), "node": node, "gate": report.gate}
            item["state"] = report.state.value
            if reason:
                item["reason"] = reason
            table.draft.note(EventKind.ATTEMPTS_GATED, f"node:{node}", job.trace_id, job.id, item)
    return changed.values()


def _is_news(table: JobTable, job: LiveJob, attempt: Attempt, report: StepGate) -> bool:
    """Whether that this script failed for this rank was not reported before."""
    failed = table.failed_gates.setdefault((job.id, attempt.task, attempt.attempt), set())
    news = (report.step.rank, report.gate) not in failed
    failed.add((report.step.rank, report.gate))
    return news


def _waits(table: JobTable, job: LiveJob, attempt: Attempt, report: StepGate) -> bool:
    """The attempt in the state that follows; whether it was another one."""
    if report.state is not GateState.WAITING or attempt.stopping:
        return False
    if report.gate == PROLOG:
        if attempt.state is not AttemptState.ALLOCATED:
            return False
        event = AttemptEvent.PREPARE
    else:
        # Where nothing ran, finalising is skipped; of a gang others may still run.
        key = (job.id, attempt.task, attempt.attempt)
        there = table.at_epilog.setdefault(key, set())
        there.add(report.step.rank)
        over = there | {end.rank for end in attempt.steps}
        if attempt.started_ms is None or len(over) < len(attempt.nodes) or attempt.state is AttemptState.FINALISING:
            return False
        event = AttemptEvent.FINALISE
    job = table.touch(job.id)
    mark_attempt(table, job, attempt, replace(attempt, state=transition(ATTEMPT, attempt.state, event)))
    return True
