"""What nodes report of their gates: which are not satisfied yet, and which have failed.

Pure. An attempt is preparing while a gate of that phase waits on one of its nodes, and finalising once all that is left
of it are gates of that one. What is not active any more changes nothing, but a node is closed whoever's script failed
there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from msgspec.structs import replace

from hal.core.lifecycle import ATTEMPT, AttemptEvent, GateState, transition
from hal.core.model import AttemptId, AttemptState, EventKind, one_line
from hal.core.model.eviction import MAX_REASON
from hal.core.model.gate import EPILOG, PROLOG, GatePhase
from hal.planes.tasks.attempts.reports import active_attempt
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.gate_standing import GateStanding
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.nodes.failed_gates import record_failed_epilog, record_failed_prolog
from hal.planes.tasks.table.attempt_changes import mark_attempt
from hal.planes.tasks.table.table import JobTable
from hal.wire.frames.controller_agent import StepGate

_SITE_PHASES: Final = {PROLOG: GatePhase.PREPARING, EPILOG: GatePhase.FINALISING}


def record_gates(table: JobTable, node: str, gates: Sequence[StepGate], now_ms: int) -> Collection[LiveJob]:
    """How these steps stand at the gates of that node; the jobs that changed, which must be settled."""
    changed: dict[int, LiveJob] = {}
    for report in gates:
        found = None if table.is_foreign(node, report.step) else active_attempt(table, node, report.step)
        reason = one_line(report.reason, MAX_REASON)
        if report.state is GateState.FAILED and report.gate == PROLOG:
            # Whose step was never there cannot be held for it.
            record_failed_prolog(table, node, report.step, reason, now_ms, hold=found is not None)
            if found is not None:
                changed[report.step.job] = table.touch(report.step.job)
        elif report.state is GateState.FAILED and report.gate == EPILOG:
            record_failed_epilog(table, node, report.step, reason, now_ms)
        phase = None if found is None else _phase_of(found[0], report)
        if found is None or phase is None or (report.state is not GateState.FAILED and found[1].stopping):
            continue
        job, attempt = found
        standing = GateStanding(report.gate, phase, report.state, node, reason)
        if not table.gates.put((job.id, attempt.task, attempt.attempt), report.step.rank, standing):
            continue
        job = changed[job.id] = table.touch(job.id)
        if report.state is GateState.WAITING:
            _enter(table, job, attempt, phase)
        item = {"id": str(AttemptId(job.id, attempt.task, attempt.attempt)), "node": node, "gate": report.gate}
        item["state"] = report.state.value
        if reason:
            item["reason"] = reason
        table.draft.note(EventKind.ATTEMPTS_GATED, f"node:{node}", job.trace_id, job.id, item)
    return changed.values()


def _phase_of(job: LiveJob, report: StepGate) -> GatePhase | None:
    """The phase of that gate; None for one that the job does not have: a node cannot invent any."""
    if report.gate in _SITE_PHASES:
        return _SITE_PHASES[report.gate]
    named = any((gate.name, gate.phase) == (report.gate, report.phase) for gate in job.spec.gates)
    return report.phase if named else None


def _enter(table: JobTable, job: LiveJob, attempt: Attempt, phase: GatePhase) -> None:
    """The attempt in the state that follows from a gate of that phase that waits on one of its nodes."""
    if phase is GatePhase.PREPARING:
        if attempt.state is not AttemptState.ALLOCATED:
            return
        event = AttemptEvent.PREPARE
    else:
        # Where nothing ran, finalising is skipped; of a gang others may still run.
        over = table.gates.ranks_finalising((job.id, attempt.task, attempt.attempt))
        over |= {end.rank for end in attempt.steps}
        if attempt.started_ms is None or len(over) < len(attempt.nodes) or attempt.state is AttemptState.FINALISING:
            return
        event = AttemptEvent.FINALISE
    mark_attempt(table, job, attempt, replace(attempt, state=transition(ATTEMPT, attempt.state, event)))
