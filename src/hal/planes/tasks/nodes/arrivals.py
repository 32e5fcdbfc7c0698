"""Nodes as they come, fall silent, return and are declared gone: their rows, and what the engine hears of them.

Pure. What that means for the attempts on them is decided by `attempts.reconciliation`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from hal.core.engine.events import INF
from hal.core.lifecycle import NODE, NodeEvent, transition
from hal.core.model import ConflictError, EventKind, NodeState
from hal.core.model.errors import shown
from hal.core.model.eviction import check_reason
from hal.core.model.facts import Facts
from hal.core.model.states import AWAY_NODE_STATES
from hal.planes.interface import FalseReportError
from hal.planes.tasks.live.node import FENCED, HEARD
from hal.planes.tasks.nodes.closures import feed_node, node_named, put_node, state_after, unchecked
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table.table import JobTable
from hal.store.operations import Closure, NodeAbout, NodeRow
from hal.wire.frames.hello import HeldStep

UNTIL_RESTART = "closed until its machine has started again, or the node is removed"


class Arrival(Struct, frozen=True, kw_only=True):
    """A node as its agent described it at hello."""

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
    """Its agent will report which health checks fail; until then those that failed before do."""


def record_arrival(table: JobTable, arrival: Arrival, now_ms: int) -> tuple[NodeRow, bool]:
    """Record that a node dialled; returns its row, and whether the host was started again since it was last there.

    Raises:
        FalseReportError: no node can have what it offers.
    """
    for name, amount in arrival.capacity.items():
        if not 0 <= amount < INF:
            raise FalseReportError(f"node '{arrival.name}' offers {amount} {shown(name)}")
    before = table.nodes.get(arrival.name)
    state, about = NodeState.UP, NodeAbout()
    if before is not None:
        state, about = before.state, before.about if arrival.checked else unchecked(before.about)
        if before.boot_id != arrival.boot_id:
            about = replace(about, closures=tuple(one for one in about.closures if one.source != FENCED))
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
    feed_node(table, before, row)
    cause = f"node:{row.name}"
    table.draft.order(row.name).arrival = arrival
    table.draft.note(EventKind.NODE_JOINED, cause, "", node=row.name, boot_id=row.boot_id, capacity=row.capacity)
    if row.state is not NodeState.UP:
        put_node(table, row, cause)
    restarted = before is not None and bool(before.boot_id) and before.boot_id != arrival.boot_id
    if restarted:
        table.draft.note(EventKind.NODE_LOST, cause, "", node=row.name, reason="it returned with another boot id")
    return row, restarted


def record_silence(
    table: JobTable, name: str, reason: str, now_ms: int, last_seen_ms: int, *, stopped: bool = False
) -> None:
    """Record that the node's agent is not heard: nothing new starts there, what runs is left alone.

    Args:
        stopped: it said that it stops.
    """
    row, event = table.nodes.get(name), NodeEvent.STOP if stopped else NodeEvent.SILENT
    if row is None or not NODE.allows(row.state, event):
        return
    state = transition(NODE, row.state, event)
    put_node(table, replace(row, state=state, reason=reason, last_seen_ms=last_seen_ms), f"node:{name}")


def record_return(table: JobTable, name: str, now_ms: int) -> None:
    """Record that the node's agent is heard again on the connection that was silent."""
    row = table.nodes.get(name)
    if row is not None and row.state in AWAY_NODE_STATES:
        put_node(table, replace(row, state=state_after(table, row), reason="", last_seen_ms=now_ms), f"node:{name}")


def fence_node(
    table: JobTable, name: str, by: Submitter, now_ms: int, *, machine_gone: bool = False, reason: str = ""
) -> NodeRow:
    """Somebody declares that the node is gone and nothing runs there.

    Args:
        machine_gone: the machine itself is, as whoever rents it knows: the node may still be heard, and what says that
            it is the same boot of this machine gets no work any more. Said again, nothing changes.
        reason: in words.
    Raises:
        NotFoundError: no such node.
        SpecError: the reason is too long, or not one line.
        ConflictError: it is gone already, or (unless the machine is) it is heard: its processes may well run.
    """
    row = node_named(table, name)
    check_reason(reason)
    if machine_gone:
        return _fence_machine(table, row, by, now_ms, reason)
    if row.state not in AWAY_NODE_STATES:
        raise ConflictError(
            f"node '{name}' is {row.state}",
            hint="only a node that is unreachable or stopped can be declared gone, or one whose machine is (--gone)",
        )
    return _gone(table, row, by, reason)


def _fence_machine(table: JobTable, row: NodeRow, by: Submitter, now_ms: int, reason: str) -> NodeRow:
    if any(one.source == FENCED for one in row.about.closures):
        return row
    closure = Closure(source=FENCED, reason=UNTIL_RESTART, by=by.user, since_ms=now_ms)
    row = replace(row, about=replace(row.about, closures=(*row.about.closures, closure)))
    return _gone(table, row, by, reason)


def _gone(table: JobTable, row: NodeRow, by: Submitter, why: str) -> NodeRow:
    name, reason = row.name, f"declared gone by {by.user}" + (f": {why}" if why else "")
    state = row.state if row.state is NodeState.DOWN else transition(NODE, row.state, NodeEvent.FENCE)
    changed = put_node(table, replace(row, state=state, reason=reason), by.cause, by)
    table.draft.note(EventKind.NODE_LOST, by.cause, by.trace_id, node=name, reason=reason)
    return changed
