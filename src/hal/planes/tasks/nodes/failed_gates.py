"""What follows from a prolog or an epilog that failed: its node is closed; a job that closes several of them is held.

Pure. One failing prolog says that the node is not fit, or that the job is not. The node is closed, and the task goes
elsewhere. Where it fails on `MAX_CLOSED` nodes, the job is to be looked at: it is held, and closes no more of them.
O(nodes) a failure.
"""

from __future__ import annotations

from typing import Final

from hal.core.lifecycle import TaskEvent
from hal.core.model import EventKind, StepId
from hal.core.model.eviction import MAX_REASON
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.node import EPILOG, PROLOG, job_name
from hal.planes.tasks.nodes.closures import close
from hal.planes.tasks.table.table import JobTable
from hal.store.operations import Closure

MAX_CLOSED: Final = 3
"""Nodes that the prolog of one job may close before somebody has looked (and uncordoned them)."""
HELD_BY_PROLOG: Final = "its prolog failed on "
"""How the reason of a job begins that is held for that."""


def record_failed_prolog(
    table: JobTable, node: str, step: StepId, reason: str, now_ms: int, *, hold: bool = True
) -> None:
    """The prolog of that step failed there. A repeated report changes nothing. The caller settles the job.

    Args:
        hold: the job may be at fault; False where the step is none that the node has now.
    """
    if not hold:
        _close(table, node, PROLOG, step, reason, now_ms, by="")
        return
    closed = _closed_by(table, step.job)
    if node not in closed and len(closed) < MAX_CLOSED and _close(table, node, PROLOG, step, reason, now_ms):
        closed.append(node)
    job = table.jobs.get(step.job)
    if job is not None and not job.hold and len(closed) >= MAX_CLOSED:
        _hold(table, table.touch(step.job), node, closed, reason)


def record_failed_epilog(table: JobTable, node: str, step: StepId, reason: str, now_ms: int) -> None:
    """The epilog of that step failed there; how the step ended is not touched."""
    _close(table, node, EPILOG, step, reason, now_ms)


def _close(
    table: JobTable, node: str, source: str, step: StepId, reason: str, now_ms: int, by: str | None = None
) -> bool:
    """Whether it was open in that respect."""
    row = table.nodes.get(node)
    if row is None or any(one.source == source for one in row.about.closures):
        return False
    # Everybody may read why a node is closed: only operators are told for whose job.
    by = job_name(step.job) if by is None else by
    close(table, row, Closure(source=source, reason=reason[:MAX_REASON], by=by, since_ms=now_ms, drain=True))
    return True


def _closed_by(table: JobTable, job: int) -> list[str]:
    by = job_name(job)
    return [
        name
        for name, row in sorted(table.nodes.items())
        if any(one.source == PROLOG and one.by == by for one in row.about.closures)
    ]


def _hold(table: JobTable, job: LiveJob, node: str, closed: list[str], reason: str) -> None:
    job.hold = True
    job.reason = f"{HELD_BY_PROLOG}{', '.join(closed)}; on {node}: {reason}"
    table.draft.edited.add(job.id)
    held = table.apply_event(job, 0, job.spec.tasks, TaskEvent.HOLD, "its prolog failed")
    table.recall_credit(job)
    table.draft.note(EventKind.JOBS_HELD, f"node:{node}", job.trace_id, job.id, tasks=held, reason=job.reason)
