"""Nodes as they come, fall silent, return and go, and what that means for the attempts on them.

Pure. On return the database and the keeper compare: what the keeper has started and the database does not know to run
is noted, what was allocated and the keeper has not is started again (a repeated start is harmless), what should run and
the keeper does not hold is lost, what the keeper holds and the database does not know is stopped. A silent node keeps
its attempts (`on_node_lost: wait`) or, once its lease is over (see `daemons.controller.node_leases`), has lost those of
jobs that say `requeue`; a node of another boot id, or one that a person declared gone, has lost all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from hal.core.lifecycle import NODE, NodeEvent, transition
from hal.core.model import ConflictError, EventKind, NodeState, OnNodeLost, StepId, format_duration
from hal.core.model.facts import Facts
from hal.planes.tasks.attempts import attempts_on, lost, order_as_it_is, order_stop, started
from hal.planes.tasks.closing import HEARD, node_named, node_spec, put, state_after, unchecked
from hal.planes.tasks.live import Attempt, LiveJob
from hal.planes.tasks.starting import order_start
from hal.planes.tasks.submission import Submitter
from hal.planes.tasks.table import JobTable
from hal.store.operations import NodeAbout, NodeRow
from hal.wire.frames import HeldStep, StepStarted, StopReason


class Arrival(Struct, frozen=True, kw_only=True):
    """A node as its agent told it at hello."""

    name: str
    capacity: dict[str, int]
    labels: dict[str, str] = {}
    boot_id: str = ""
    notes: tuple[str, ...] = ()
    held: Sequence[HeldStep] = ()
    facts: Facts = Facts()
    credit: bool = False
    """Its keeper takes starts on credit."""
    checked: bool = False
    """Its agent will tell which health checks fail; until then those that failed before do."""


def joined(table: JobTable, arrival: Arrival, now_ms: int) -> NodeRow:
    """A node dialled: new, or back again."""
    before = table.nodes.get(arrival.name)
    state, about = NodeState.UP, NodeAbout()
    if before is not None:
        state, about = before.state, before.about if arrival.checked else unchecked(before.about)
    row = NodeRow(
        name=arrival.name,
        capacity=arrival.capacity,
        labels=arrival.labels,
        state=state,
        boot_id=arrival.boot_id,
        last_seen_ms=now_ms,
        notes=arrival.notes,
        about=replace(about, facts=replace(arrival.facts, node_id=arrival.facts.node_id or about.facts.node_id)),
    )
    if state not in HEARD or (before is not None and about.closures != before.about.closures):
        row = replace(row, state=state_after(table, row))
    table.put_node(row)
    (table.credit_nodes.add if arrival.credit else table.credit_nodes.discard)(row.name)
    table.draft.feed.node(node_spec(row))
    cause = f"node:{row.name}"
    table.draft.note(EventKind.NODE_JOINED, cause, "", node=row.name, boot_id=row.boot_id, capacity=row.capacity)
    if row.state is not NodeState.UP:
        put(table, row, cause)
    if before is not None and before.boot_id and before.boot_id != arrival.boot_id:
        message = f"node {row.name} was started again while it ran"
        table.draft.note(EventKind.NODE_LOST, cause, "", node=row.name, reason="it came back with another boot id")
        _lose_all(table, row.name, message, now_ms)
    _compare(table, arrival, now_ms)
    return row


def silent(table: JobTable, name: str, reason: str, now_ms: int, last_seen_ms: int) -> None:
    """Its agent is not heard: nothing new starts there, what runs is left alone."""
    row = table.nodes.get(name)
    if row is None or not NODE.allows(row.state, NodeEvent.SILENT):
        return
    state = transition(NODE, row.state, NodeEvent.SILENT)
    put(table, replace(row, state=state, reason=reason, last_seen_ms=last_seen_ms), f"node:{name}")


def heard(table: JobTable, name: str, now_ms: int) -> None:
    """Its agent is heard again on the connection that had fallen silent."""
    row = table.nodes.get(name)
    if row is not None and row.state is NodeState.UNREACHABLE:
        put(table, replace(row, state=state_after(table, row), reason="", last_seen_ms=now_ms), f"node:{name}")


def lease_over(table: JobTable, name: str, silent_ms: int, now_ms: int) -> None:
    """It has had no lease for so long that nothing guarded runs there: that is lost, and its tasks wait again."""
    table.draft.lost_nodes.append(name)
    guarded = [
        (job, attempt) for job, attempt in attempts_on(table, name) if job.spec.on_node_lost is OnNodeLost.REQUEUE
    ]
    if not guarded:
        return
    reason = f"not heard for {format_duration(silent_ms)}, and its lease is over"
    table.draft.note(EventKind.NODE_LOST, f"node:{name}", "", node=name, reason=reason)
    for job, attempt in guarded:
        _order_lost(table, name, job, attempt)
        lost(table, table.touch(job.id), attempt, name, f"node {name} was {reason}", now_ms)
        table.settle(job, now_ms, f"node:{name}")


def fence(table: JobTable, name: str, by: Submitter, now_ms: int) -> NodeRow:
    """A person declares that the node is gone and nothing runs there: its attempts are lost, their tasks wait again.

    Raises:
        NotFoundError: no such node.
        ConflictError: it is gone already, or it is heard (its processes may well run).
    """
    row = node_named(table, name)
    if row.state is not NodeState.UNREACHABLE:
        raise ConflictError(
            f"node '{name}' is {row.state}", hint="only a node that is unreachable can be declared gone"
        )
    reason = f"declared gone by {by.user}"
    fenced = replace(row, state=transition(NODE, row.state, NodeEvent.FENCE), reason=reason)
    changed = put(table, fenced, by.cause, by)
    table.draft.note(EventKind.NODE_LOST, by.cause, by.trace_id, node=name, reason=reason)
    for job, attempt in attempts_on(table, name):
        _order_lost(table, name, job, attempt)
    _lose_all(table, name, f"node {name} was {reason}", now_ms)
    return changed


def _order_lost(table: JobTable, name: str, job: LiveJob, attempt: Attempt) -> None:
    """Its start may still wait in this process for the node's next stamp, which would give it a new lease."""
    table.draft.order(name).lost.extend(step for node, step in attempt.steps_left(job.id) if node == name)


def _lose_all(table: JobTable, name: str, message: str, now_ms: int) -> None:
    for job, attempt in list(attempts_on(table, name)):
        lost(table, table.touch(job.id), attempt, name, message, now_ms)
        table.settle(job, now_ms, f"node:{name}")


def _compare(table: JobTable, arrival: Arrival, now_ms: int) -> None:
    held = _own(table, arrival)
    table.foreign[arrival.name] = frozenset(one.step for one in arrival.held if one.allocated_ms) - held.keys()
    # The report of a start is told once: the agent or the keeper may have died with it.
    begun = [StepStarted(step.step, step.pid, step.started_ms) for step in held.values() if step.started_ms]
    started(table, arrival.name, begun, now_ms)
    known: set[StepId] = set()
    for job, attempt in list(attempts_on(table, arrival.name)):
        here = [step for node, step in attempt.steps_left(job.id) if node == arrival.name]
        known.update(step for step in here if step in held)
        missing = [step for step in here if step not in held]
        if attempt.started_ms is not None and missing and len(attempt.nodes) == 1:
            lost(table, table.touch(job.id), attempt, arrival.name, "the node does not hold it any more", now_ms)
            table.settle(job, now_ms, f"node:{arrival.name}")
        elif attempt.stopping:
            order_stop(table, job, attempt, missing)
        else:
            if missing:
                order_start(table, job, attempt, missing)
            order_as_it_is(table, job, attempt)
    unknown = [one.step for one in arrival.held if one.step not in known and one.running]
    if unknown:
        table.draft.order(arrival.name).stops.setdefault(StopReason.UNKNOWN, []).extend(sorted(unknown))


def _own(table: JobTable, arrival: Arrival) -> dict[StepId, HeldStep]:
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
