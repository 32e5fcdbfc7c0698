"""Another policy takes effect: one more version in the store, an event; the engine gets it, and moved jobs again.

Pure. O(live jobs) only where a queue's nodes or its `gpu_reserve`, or a limit of waiting tasks changed.
"""

from __future__ import annotations

from msgspec.structs import replace

from hal.core.model import EventKind, TaskState, to_json
from hal.core.model.policy import Policy
from hal.core.model.policy_change import Difference, differences
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table.table import JobTable
from hal.runtime.time_zones import zone_offsets
from hal.store.operations import AppendPolicy, PolicyRow

MAX_TOLD = 100
"""Differences that an event lists."""


def change_policy(
    table: JobTable, policy: Policy, by: Submitter | None, now_ms: int, note: str = ""
) -> list[Difference]:
    """Let another policy hold, already checked, as the next version; what differs. No difference: no new version.

    Args:
        by: who asked for it; None: taken in from hal.toml.
    Raises:
        SpecError: hours are in a time zone that there is not; nothing was changed.
    """
    before = table.policy
    different = differences(before, policy)
    if before.version and not different:
        return []
    zone_offsets(policy)
    after = replace(policy, version=before.version + 1)
    table.put_policy(after)
    if table.reserves_of(before).rests_of != table.reserves_of(after).rests_of:
        table.feed_reserves()
    _move(table, before, after)
    row = PolicyRow(
        version=after.version,
        at_ms=now_ms,
        user=by.user if by is not None else "",
        note=note,
        document=to_json(after).decode(),
    )
    table.draft.other.append(AppendPolicy(row))
    cause = by.cause if by is not None else "hal.toml"
    table.draft.note(
        EventKind.POLICY_CHANGED,
        cause,
        by.trace_id if by is not None else "",
        version=after.version,
        note=note,
        count=len(different),
        changes=[{"entry": one.entry, "field": one.field} for one in different[:MAX_TOLD]],
    )
    return different


def _move(table: JobTable, before: Policy, after: Policy) -> None:
    """What waits in a queue whose nodes are others, or that leaves something else to GPUs, now asks for that."""
    pools = {name: queue.nodes for name, queue in before.queues.items()}
    moved = {name for name, queue in after.queues.items() if pools.get(name, ()) != queue.nodes}
    moved |= {name for name, nodes in pools.items() if nodes and name not in after.queues}
    asked, asks = table.reserves_of(before).asked_in, table.reserves_of(after).asked_in
    moved |= {name for name in before.queues.keys() | after.queues.keys() if asked(name) != asks(name)}
    if not moved:
        return
    for job_id in table.jobs.in_queues(moved):
        job = table.touch(job_id)
        waiting = [task_range for task_range in job.ranges if task_range.state is TaskState.PENDING]
        for task_range in waiting:
            table.leave(job, task_range)
        job.request = table.class_of(job.spec, job.queue)
        if job.active:
            table.reshaped.add(job.id)
        for task_range in waiting:
            table.enter(job, task_range)
