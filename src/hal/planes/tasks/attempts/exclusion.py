"""What follows from a node that sends a task elsewhere, by a gate or because it does not serve its user: its job does
not use that node any more.

Pure. The node is added to what the job excludes, so a restart knows it, and everybody sees it. A job that has excluded
as many nodes as it may is held, so that it does not go through all nodes of a cluster again and again.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from hal.core.lifecycle import TaskEvent
from hal.core.model import EventKind, one_line
from hal.core.model.eviction import MAX_REASON
from hal.core.model.job import MAX_EXCLUDED
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.table.table import JobTable

HELD_BY_GATE: Final = "it was sent away from as many nodes as a job may exclude"
"""How the reason of a job begins that is held for that."""


def exclude_node(table: JobTable, job: LiveJob, node: str, reason: str) -> None:
    """Let the job, which the caller has touched and settles, run on other nodes only."""
    if node in job.spec.exclude:
        table.draft.reclassed.add(job.id)  # this task began there before, and waits again as it was asked for then
        return
    if len(job.spec.exclude) >= MAX_EXCLUDED:
        _hold(table, job, node, reason)
        return
    job.spec = replace(job.spec, exclude=(*job.spec.exclude, node))
    table.draft.edited.add(job.id)
    table.draft.reclassed.add(job.id)


def _hold(table: JobTable, job: LiveJob, node: str, reason: str) -> None:
    if job.hold:
        return
    job.hold = True
    job.reason = f"{HELD_BY_GATE} ({MAX_EXCLUDED}); on {node}: {one_line(reason, MAX_REASON)}"
    table.draft.edited.add(job.id)
    held = table.apply_event(job, 0, job.spec.tasks, TaskEvent.HOLD, "nodes sent it away")
    table.recall_credit(job)
    table.draft.note(EventKind.JOBS_HELD, f"node:{node}", job.trace_id, job.id, tasks=held, reason=job.reason)
