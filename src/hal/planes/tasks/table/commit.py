"""The draft of the table as one group to commit, and the table afterwards: as staged, or as it was before.

Pure. O(what changed), in slices.
"""

from __future__ import annotations

from hal.planes.tasks.live.figures import no_figures
from hal.planes.tasks.slices import Pace, Work
from hal.planes.tasks.table.draft import Change, Draft
from hal.planes.tasks.table.group_figures import figures_of
from hal.planes.tasks.table.propagation import settling
from hal.planes.tasks.table.rows import operations
from hal.planes.tasks.table.table import JobTable


def sealing(table: JobTable, now_ms: int) -> Work[Change]:
    """What is to be committed now. `keep` or `undoing` must follow before anything else is staged."""
    yield from settling(table)
    table.refill_all()
    yield from table.pending_limits.settling(table.jobs.peek)
    table.feed_shared_gpus()
    draft = table.draft
    changed = [table.jobs.get(job_id) or draft.ended_jobs[job_id] for job_id in draft.jobs_before]
    draft.figures = yield from figures_of(draft, changed, now_ms)
    made = yield from operations(draft, changed, table.nodes, now_ms)
    ended, touched = list(draft.ended_jobs.values()), list(draft.jobs_before)
    return Change(made, draft.feed.take(), draft.orders, ended, touched, draft.lost_nodes, draft.figures)


def keep(table: JobTable) -> None:
    """The sealed change was committed."""
    table.pending_limits.settle(table.jobs.peek)
    table.tally.keep(table.draft.figures)
    table.jobs.came(table.draft.new_jobs)
    table.gates.keep()
    table.readiness.keep()
    table.packs.keep()
    table.discarded.add(table.draft.jobs_before.values())
    table.draft = Draft(table.interning, table.next_id)
    table.jobs.move_some_to_columns(table.pending_limits.entered_columns)


def undoing(table: JobTable) -> Work[None]:
    """Nothing of what was staged since the last commit has happened; readers see what is committed meanwhile."""
    table.worklist.clear()
    draft, pace = table.draft, Pace()
    for job_id, before in draft.jobs_before.items():
        if pace.over():
            yield
        now = table.jobs.pop(job_id)
        table.busy.discard(job_id)
        if now is not None:
            table.unlink(now)
            table.gpus.give_all(now.active.values())
            table.ports.give_all(job_id, now.active.values())
            if now.name:
                table.singletons.remove(now.key, job_id)
        if before is not None:
            table.jobs[job_id] = before
            table.file_name(before)
            table.link(before)
            if before.active:
                table.busy.add(job_id)
                table.gpus.take_all(before.active.values())
                for attempt in before.active.values():
                    if attempt.port:
                        table.take_port(job_id, attempt)
        table.pending_limits.touched(job_id)
    for job_id, ended in draft.ended_before.items():
        if ended is not None:
            table.ended[job_id] = ended
        else:
            table.ended.pop(job_id, None)
    if draft.policy_before is not None:
        table.policy = draft.policy_before
        table.count_waiting()
    if draft.offers_before is not None:
        table.offers = draft.offers_before
    for name, row in draft.nodes_before.items():
        table.set_node(name, row)
    table.gates.undo()
    table.readiness.undo()
    table.packs.undo()
    table.next_id = draft.next_id_before
    draft.feed.take()
    draft.figures = no_figures()
    yield from table.pending_limits.settling(table.jobs.peek)
    keep(table)
