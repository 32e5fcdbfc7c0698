"""What the arrival, the loss and the end of the lease of a node mean for the attempts on it.

Pure. On return the database and the keeper compare: what the keeper has started and the database does not know to run
is noted, what was allocated and the keeper has not is started again (a repeated start is harmless), what should run and
the keeper does not hold is lost, what the keeper holds and the database does not know is stopped. A silent node keeps
its attempts (`on_node_lost: wait`) or, once its lease has lapsed, has lost those of jobs that say `requeue`; a node of
another boot id, or one that a person declared gone, has lost all of them.
"""

from __future__ import annotations

from typing import Final

from hal.core.model import EventKind, OnNodeLost, StepId, format_duration
from hal.planes.tasks.attempts.allocation import order_start
from hal.planes.tasks.attempts.reports import attempts_on, record_loss, record_starts
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.nodes.arrivals import Arrival
from hal.planes.tasks.slices import Pace, Work
from hal.planes.tasks.table.extensions import BASE, order_nodes
from hal.planes.tasks.table.propagation import settle, settling
from hal.planes.tasks.table.stops import order_stop, order_suspension
from hal.planes.tasks.table.table import JobTable
from hal.wire.frames.agent_keeper import StepStarted, StopReason
from hal.wire.frames.hello import HeldStep

ATTEMPTS_A_SLICE: Final = 64
"""Attempts that are looked at, and lost, in one slice."""


def lose_all(table: JobTable, name: str, reason: str, now_ms: int) -> None:
    """All that ran on the node is lost: its tasks wait again."""
    for job, attempt in list(attempts_on(table, name)):
        record_loss(table, table.touch(job.id), attempt, name, f"node {name} was {reason}", now_ms)
        settle(table, job, now_ms, f"node:{name}")


def lose_fenced(table: JobTable, name: str, reason: str, now_ms: int) -> Work[None]:
    """As `lose_all`, in slices, of a node that has said nothing: no start of these may leave any more."""
    pace = Pace(ATTEMPTS_A_SLICE)
    for job_id in sorted(table.busy):
        job = table.jobs[job_id]
        lost = 0
        for attempt in list(job.active.values()):
            if pace.over():
                yield
            if any(node == name for node, _ in attempt.steps_left(job_id) if name in attempt.nodes):
                _order_lost(table, name, job, attempt)
                record_loss(table, table.touch(job_id), attempt, name, f"node {name} was {reason}", now_ms)
                lost += 1
        if lost:
            settle(table, job, now_ms, f"node:{name}")
            yield from settling(table)


def end_lease(table: JobTable, name: str, silent_ms: int, now_ms: int) -> None:
    """The node had no lease for so long that no guarded step runs there: these are lost, and their tasks wait again."""
    table.draft.lost_nodes.append(name)
    guarded = [
        (job, attempt) for job, attempt in attempts_on(table, name) if job.spec.on_node_lost is OnNodeLost.REQUEUE
    ]
    if not guarded:
        return
    reason = f"silent for {format_duration(silent_ms)}, and its lease has expired"
    table.draft.note(EventKind.NODE_LOST, f"node:{name}", "", node=name, reason=reason)
    for job, attempt in guarded:
        _order_lost(table, name, job, attempt)
        record_loss(table, table.touch(job.id), attempt, name, f"node {name} was {reason}", now_ms)
        settle(table, job, now_ms, f"node:{name}")


def reconcile(table: JobTable, arrival: Arrival, now_ms: int) -> None:
    """Compare what the node holds with what it was given."""
    cause = f"node:{arrival.name}"
    held = _own_steps(table, arrival)
    table.foreign[arrival.name] = frozenset(one.step for one in arrival.held if one.allocated_ms) - held.keys()
    # A start is reported once: the agent or the keeper may have died with the report.
    begun = [StepStarted(step.step, step.pid, step.started_ms) for step in held.values() if step.started_ms]
    for job in record_starts(table, arrival.name, begun, now_ms):
        settle(table, job, now_ms, cause)
    known: set[StepId] = set()
    for job, attempt in list(attempts_on(table, arrival.name)):
        here = [step for node, step in attempt.steps_left(job.id) if node == arrival.name]
        known.update(step for step in here if step in held)
        missing = [step for step in here if step not in held]
        if attempt.started_ms is not None and missing and len(attempt.nodes) == 1:
            record_loss(table, table.touch(job.id), attempt, arrival.name, "the node no longer holds it", now_ms)
            settle(table, job, now_ms, cause)
        elif attempt.stopping:
            order_stop(table, job, attempt, now_ms, missing)
        else:
            if missing:
                order_start(table, job, attempt, missing)
            order_suspension(table, job, attempt)
            if attempt.task == BASE and arrival.name == attempt.nodes[0]:
                order_nodes(table, job)
    unknown = [one.step for one in arrival.held if one.step not in known and one.running]
    if unknown:
        table.draft.order(arrival.name).stops.setdefault(StopReason.UNKNOWN, []).extend(sorted(unknown))


def _own_steps(table: JobTable, arrival: Arrival) -> dict[StepId, HeldStep]:
    """What it holds of attempts of this store: an attempt of the same id that was allocated at another time is another
    one (the store was restored, and the node knows more than it)."""
    allocated = {
        step: attempt.allocated_ms
        for job, attempt in attempts_on(table, arrival.name)
        for node, step in attempt.steps_left(job.id)
        if node == arrival.name
    }
    return {
        one.step: one for one in arrival.held if one.step in allocated and one.allocated_ms in (0, allocated[one.step])
    }


def _order_lost(table: JobTable, name: str, job: LiveJob, attempt: Attempt) -> None:
    """Its start may still wait in this process for the node's next stamp, which would give it a new lease."""
    table.draft.order(name).lost.extend(step for node, step in attempt.steps_left(job.id) if node == name)
