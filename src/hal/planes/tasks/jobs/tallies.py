"""How many live jobs and tasks there are, by state, queue and node.

Pure. O(live jobs) by state and queue, where jobs in columns cost one look at their columns; O(active attempts) by node.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from hal.core.engine.events import INF
from hal.core.model import TaskState
from hal.planes.tasks.table.table import JobTable


class QueueTally(Struct):
    """Live jobs of one queue, and their tasks."""

    jobs: int = 0
    pending: int = 0
    held: int = 0
    active: int = 0
    oldest_ms: int | None = None
    """Since when the one that has waited longest could have started, of those of which nothing runs."""

    def waits_since(self, eligible_ms: int) -> None:
        """Count one that waits."""
        if self.oldest_ms is None or eligible_ms < self.oldest_ms:
            self.oldest_ms = eligible_ms


def tally_states(table: JobTable) -> dict[TaskState, int]:
    """Live jobs by state; states without a job are missing."""
    found: dict[TaskState, int] = {}
    if waiting := table.jobs.count_in_columns:
        found[TaskState.PENDING] = waiting
    for job in table.jobs.objects():
        found[job.state] = found.get(job.state, 0) + 1
    return found


def tally_queues(table: JobTable) -> dict[str, QueueTally]:
    """By name, for every declared queue and every other that a live job is in."""
    found = {name: QueueTally() for name in table.committed_policy.queues}
    for queue, jobs, eligible_ms in table.jobs.queues_in_columns():
        tally = found.setdefault(queue, QueueTally())
        tally.jobs += jobs
        tally.pending += jobs
        tally.waits_since(eligible_ms)
    for job in table.jobs.objects():
        tally = found.setdefault(job.queue, QueueTally())
        tally.jobs += 1
        tally.pending += job.counts.pending
        tally.held += job.counts.held
        tally.active += job.counts.active
        if job.counts.pending and not job.counts.active and job.eligible_ms < INF:
            tally.waits_since(job.eligible_ms)
    return found


def tally_nodes(table: JobTable) -> dict[str, int]:
    """Active attempts by node; nodes without one are missing."""
    return Counter(
        node for job_id in table.busy for attempt in table.jobs[job_id].active.values() for node in attempt.nodes
    )
