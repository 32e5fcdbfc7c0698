"""What nodes tell of their gates: whose prolog or epilog runs, and which of them failed.

Pure. An attempt is preparing while a prolog of its runs, and finalising once all that is left of it are epilogs. What
is not active any more changes nothing, but a node is closed whoever's script failed there.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from hal.core.lifecycle import ATTEMPT, AttemptEvent, GateState, transition
from hal.core.model import AttemptId, AttemptState, EventKind, one_line
from hal.planes.tasks.attempts import active, mark
from hal.planes.tasks.closing import EPILOG, MAX_REASON, PROLOG
from hal.planes.tasks.live import Attempt, LiveJob
from hal.planes.tasks.prologs import epilog_failed, prolog_failed
from hal.planes.tasks.table import JobTable
from hal.wire.frames import StepGate


def gates_told(table: JobTable, node: str, gates: Sequence[StepGate], now_ms: int) -> None:
    """How these steps stand at the gates of that node."""
    touched: dict[int, LiveJob] = {}
    for told in gates:
        found = None if table.is_foreign(node, told.step) else active(table, node, told.step)
        reason = one_line(told.reason, MAX_REASON)
        if told.state is GateState.FAILED:
            if told.gate == PROLOG:
                # Whose step was never there cannot be held for it.
                prolog_failed(table, node, told.step, reason, now_ms, hold=found is not None)
            elif told.gate == EPILOG:
                epilog_failed(table, node, told.step, reason, now_ms)
            else:
                continue
            if found is None or not _is_news(table, *found, told):
                continue
        elif found is None or not _waits(table, *found, told):
            continue
        if found is not None:
            job, attempt = table.touch(told.step.job), found[1]
            touched[job.id] = job
            item = {"id": str(AttemptId(job.id, attempt.task, attempt.attempt)), "node": node, "gate": told.gate}
            item["state"] = told.state.value
            if reason:
                item["reason"] = reason
            table.draft.note(EventKind.ATTEMPTS_GATED, f"node:{node}", job.trace_id, job.id, item)
    for job in touched.values():
        table.settle(job, now_ms, f"node:{node}")


def _is_news(table: JobTable, job: LiveJob, attempt: Attempt, told: StepGate) -> bool:
    """Whether that this script failed for this rank was not told before."""
    failed = table.failed_gates.setdefault((job.id, attempt.task, attempt.attempt), set())
    news = (told.step.rank, told.gate) not in failed
    failed.add((told.step.rank, told.gate))
    return news


def _waits(table: JobTable, job: LiveJob, attempt: Attempt, told: StepGate) -> bool:
    """The attempt in the state that follows; whether it was another one."""
    if told.state is not GateState.WAITING or attempt.stopping:
        return False
    if told.gate == PROLOG:
        if attempt.state is not AttemptState.ALLOCATED:
            return False
        event = AttemptEvent.PREPARE
    else:
        # Where nothing ran, finalising is skipped; of a gang others may still run.
        key = (job.id, attempt.task, attempt.attempt)
        there = table.at_epilog.setdefault(key, set())
        there.add(told.step.rank)
        over = there | {end.rank for end in attempt.steps}
        if attempt.started_ms is None or len(over) < len(attempt.nodes) or attempt.state is AttemptState.FINALISING:
            return False
        event = AttemptEvent.FINALISE
    job = table.touch(job.id)
    mark(table, job, attempt, replace(attempt, state=transition(ATTEMPT, attempt.state, event)))
    return True
