"""What keeps new work away from a node, and the states that follow: cordoned, draining, up again, removed.

Pure. A node has closures, at most one of each source. None of them: it is up. Any: nothing new starts there. One that
drains: it is draining until no attempt is left, then cordoned. What a person closed, or a prolog or an epilog that
failed, or the node's own lies (its quarantine), is opened by a person only, and outlives whatever happens to the node,
its agent or the controller. A node that is not heard keeps its closures and returns to what they say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hal.core.lifecycle import NODE, NodeEvent, walk
from hal.core.model import (
    ConflictError,
    EventKind,
    NodeState,
    NotFoundError,
    SpecError,
    format_duration,
    one_line,
    plural,
)
from hal.core.model.eviction import (
    DEFAULT_GRACE_MS,
    MAX_REASON,
    MAX_WITHIN_MS,
    Evict,
    EvictMode,
    check_evict,
    check_reason,
)
from hal.core.model.states import AWAY_NODE_STATES
from hal.core.model.taint import check_taints, taint_text
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.node import (
    CHECK,
    GONE,
    HEARD,
    LIFTED_BY_PEOPLE,
    PERSON,
    QUARANTINE,
    is_quarantined,
    reason_of,
)
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table.table import JobTable
from hal.store.operations import Closure, NodeAbout, NodeRow
from hal.wire.frames.controller_agent import FailingCheck

MAX_CHECKS: Final = 64
"""Failing checks of one node that are kept."""
MAX_NAMED: Final = 5
"""Most nodes that an explanation names."""
MAX_NAME: Final = 63
"""Characters of the name of a check."""
_E = NodeEvent
_WAYS: Final[dict[tuple[NodeState, NodeState], tuple[NodeEvent, ...]]] = {
    (NodeState.UP, NodeState.CORDONED): (_E.CORDON,),
    (NodeState.UP, NodeState.DRAINING): (_E.DRAIN,),
    (NodeState.CORDONED, NodeState.UP): (_E.UNCORDON,),
    (NodeState.CORDONED, NodeState.DRAINING): (_E.DRAIN,),
    (NodeState.DRAINING, NodeState.UP): (_E.UNCORDON,),
    (NodeState.DRAINING, NodeState.CORDONED): (_E.DRAINED,),
    (NodeState.UNREACHABLE, NodeState.UP): (_E.RETURN,),
    (NodeState.UNREACHABLE, NodeState.CORDONED): (_E.RETURN_CORDONED,),
    (NodeState.UNREACHABLE, NodeState.DRAINING): (_E.RETURN_DRAINING,),
    (NodeState.STOPPED, NodeState.UP): (_E.RETURN,),
    (NodeState.STOPPED, NodeState.CORDONED): (_E.RETURN_CORDONED,),
    (NodeState.STOPPED, NodeState.DRAINING): (_E.RETURN_DRAINING,),
    (NodeState.DOWN, NodeState.UP): (_E.RETURN,),
    (NodeState.DOWN, NodeState.CORDONED): (_E.RETURN_CORDONED,),
    (NodeState.DOWN, NodeState.DRAINING): (_E.RETURN_CORDONED, _E.DRAIN),
}
_TO_REMOVED: Final[dict[NodeState, tuple[NodeEvent, ...]]] = {
    NodeState.CORDONED: (_E.LEAVE, _E.REMOVE),
    NodeState.UNREACHABLE: (_E.FENCE, _E.REMOVE),
    NodeState.STOPPED: (_E.FENCE, _E.REMOVE),
    NodeState.DOWN: (_E.REMOVE,),
}


# ── people ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Drain(Struct, frozen=True, kw_only=True):
    """What becomes of work that does not end by itself on a node that is drained."""

    mode: EvictMode
    within_ms: int
    """It may continue for so long; then it is evicted."""
    grace_ms: int = DEFAULT_GRACE_MS
    """How long it has to end after that."""


def cordon(
    table: JobTable,
    name: str,
    reason: str,
    by: Submitter,
    now_ms: int,
    *,
    drain: bool = False,
    evict: Drain | None = None,
) -> NodeRow:
    """Cordon it: nothing new starts there until a person uncordons it; what runs continues. Again: another reason, if
    one is given.

    Args:
        drain: it is to become empty. A node that is being drained stays so when it is only cordoned.
        evict: what is left after some time is evicted. Without it, what was said before stays.
    Raises:
        NotFoundError: no such node.
        SpecError: the reason is too long, or not one line; or a time is out of bounds.
    """
    row = node_named(table, name)
    check_reason(reason)
    before = next((one for one in row.about.closures if one.source == PERSON), None)
    since_ms = before.since_ms if before else now_ms
    who = by.user
    if before is not None and not reason:
        reason, who = before.reason, before.by  # said before, by whoever said it
    closure = Closure(source=PERSON, reason=reason, by=who, since_ms=since_ms, drain=drain)
    if evict is not None:
        _check_drain(evict)
        closure = replace(
            closure, evict=evict.mode.value, evict_at_ms=now_ms + evict.within_ms, grace_ms=evict.grace_ms
        )
    elif before is not None and before.drain:
        closure = replace(before, reason=reason, by=who)
    return close(table, row, closure, by)


def _check_drain(evict: Drain) -> None:
    check_evict(Evict(mode=evict.mode, grace_ms=evict.grace_ms), field="grace")
    if not 0 <= evict.within_ms <= MAX_WITHIN_MS:
        raise SpecError(
            f"within: {format_duration(evict.within_ms)} is out of range",
            hint=f"at most {format_duration(MAX_WITHIN_MS)}",
        )


def uncordon(table: JobTable, name: str, by: Submitter) -> NodeRow:
    """What people closed, what a prolog or an epilog did, and a quarantine, is open again; what health checks closed
    stays. Nothing closed: nothing changes.

    Raises:
        NotFoundError: no such node.
    """
    row = node_named(table, name)
    left = tuple(one for one in row.about.closures if one.source not in LIFTED_BY_PEOPLE)
    return row if left == row.about.closures else with_closures(table, row, left, by.cause, by)


def taint(table: JobTable, name: str, taints: dict[str, str], by: Submitter) -> NodeRow:
    """Give the node these taints beside those that it has; one of a key that it has already takes that one's place.

    What runs there continues.

    Raises:
        NotFoundError: no such node.
        SpecError: a taint that is none, or too many.
    """
    row = node_named(table, name)
    check_taints(taints)
    return _with_taints(table, row, {**row.about.taints, **taints}, by)


def untaint(table: JobTable, name: str, keys: Sequence[str], by: Submitter) -> NodeRow:
    """Take the taints of these keys from the node; of one that it has not, nothing changes.

    Raises:
        NotFoundError: no such node.
    """
    row = node_named(table, name)
    return _with_taints(table, row, {key: value for key, value in row.about.taints.items() if key not in keys}, by)


def _with_taints(table: JobTable, row: NodeRow, taints: dict[str, str], by: Submitter) -> NodeRow:
    if taints == row.about.taints:
        return row
    check_taints(taints)
    # What waits there for the slot of another task would start there.
    for job_id in table.busy:
        table.recall_credit(table.jobs[job_id], row.name)
    changed = replace(row, about=replace(row.about, taints=dict(sorted(taints.items()))))
    table.put_node(changed)
    if changed.state not in GONE:
        feed_node(table, row, changed)
    named = ", ".join(taint_text(key, value) for key, value in changed.about.taints.items())
    _note(table, changed, f"tainted: {named}" if named else "no taint any more", by.cause, by)
    return changed


def remove(table: JobTable, name: str, by: Submitter) -> None:
    """Forget a node that is gone, or cordoned, and holds nothing. One of that name that dials again is a new node.

    Raises:
        NotFoundError: no such node.
        ConflictError: it may still start work, or holds some.
    """
    row = node_named(table, name)
    held = holding(table, name)
    if held:
        fenced = " or, if nothing can be running there, `hal node fence`," if row.state in AWAY_NODE_STATES else ""
        raise ConflictError(
            f"node '{name}' is {row.state} and holds {plural(held, 'task')}: it was not removed",
            hint=f"`hal node drain {name}`{fenced} and then remove it",
        )
    if row.state not in _TO_REMOVED:
        raise ConflictError(
            f"node '{name}' is {row.state}: it was not removed, because work could still start there",
            hint=f"`hal node drain {name}` first",
        )
    state = walk(NODE, row.state, _TO_REMOVED[row.state])
    table.drop_node(name)
    if row.state is not NodeState.DOWN:
        table.draft.feed.gone(name)
    _note(table, replace(row, state=state), f"removed by {by.user}", by.cause, by)


# ── quarantine ────────────────────────────────────────────────────────────────────────────────────────────────────


def quarantine(table: JobTable, name: str, reason: str, now_ms: int) -> None:
    """The node reported what cannot be true: nothing new starts there until a person has looked. The first reason
    stays."""
    row = table.nodes.get(name)
    if row is not None and not is_quarantined(row):
        close(table, row, Closure(source=QUARANTINE, reason=one_line(reason, MAX_REASON), since_ms=now_ms))


# ── health checks ─────────────────────────────────────────────────────────────────────────────────────────────────


def record_checks(table: JobTable, name: str, failing: Sequence[FailingCheck], now_ms: int) -> None:
    """All health checks of the node that fail now: it is closed because of these, and no others."""
    row = table.nodes.get(name)
    if row is None:
        return
    kept = {one.source: one for one in row.about.closures}
    reported: dict[str, Closure] = {}
    for check in failing[:MAX_CHECKS]:
        source = CHECK + one_line(check.name, MAX_NAME)
        since_ms = min(check.since_ms, now_ms)
        new = Closure(source=source, reason=one_line(check.reason, MAX_REASON), since_ms=since_ms)
        reported[source] = kept.get(source, new)
    closures = (*unchecked(row.about).closures, *reported.values())
    if set(closures) != set(row.about.closures):
        with_closures(table, row, closures, f"node:{name}")


def unchecked(about: NodeAbout) -> NodeAbout:
    """The same without what health checks closed."""
    return replace(about, closures=tuple(one for one in about.closures if not one.source.startswith(CHECK)))


# ── whoever closes ────────────────────────────────────────────────────────────────────────────────────────────────


def close(table: JobTable, row: NodeRow, closure: Closure, by: Submitter | None = None) -> NodeRow:
    """Put a closure in place of what its source had put there."""
    others = tuple(one for one in row.about.closures if one.source != closure.source)
    return with_closures(table, row, (*others, closure), by.cause if by else f"node:{row.name}", by)


def with_closures(
    table: JobTable, row: NodeRow, closures: tuple[Closure, ...], cause: str, by: Submitter | None = None
) -> NodeRow:
    """The node with these closures, in the state that follows; the engine and the feed are informed."""
    changed = replace(row, about=replace(row.about, closures=closures))
    if changed.state in HEARD:
        changed = replace(changed, state=state_after(table, changed))
    if closures:
        # What waits there for the slot of another task would start there.
        for job_id in table.busy:
            table.recall_credit(table.jobs[job_id], row.name)
    return put_node(table, changed, cause, by)


def state_after(table: JobTable, row: NodeRow) -> NodeState:
    """The state of a node that is heard, or is heard again: what its closures say."""
    wanted = NodeState.UP
    if row.about.closures:
        drains = any(one.drain for one in row.about.closures)
        wanted = NodeState.DRAINING if drains and holding(table, row.name) else NodeState.CORDONED
    if wanted is row.state:
        return wanted
    if (row.state, wanted) == (NodeState.DRAINING, NodeState.CORDONED) and holding(table, row.name):
        return walk(NODE, row.state, (_E.UNCORDON, _E.CORDON))
    return walk(NODE, row.state, _WAYS[row.state, wanted])


def close_drained(table: JobTable) -> None:
    """Nodes that drain and hold nothing any more are cordoned. Call after attempts have ended."""
    for name in sorted(table.draining):
        if not _holds_still(table, name):
            row = table.nodes[name]
            put_node(table, replace(row, state=walk(NODE, row.state, (_E.DRAINED,))), f"node:{name}")


def put_node(table: JobTable, row: NodeRow, cause: str, by: Submitter | None = None) -> NodeRow:
    """A node in another state, or closed for another reason."""
    before = table.nodes.get(row.name)
    table.put_node(row)
    if row.state in GONE:
        if before is None or before.state not in GONE:
            table.draft.feed.gone(row.name)
    else:
        feed_node(table, before, row)
    _note(table, row, reason_of(row), cause, by)
    return row


def feed_node(table: JobTable, before: NodeRow | None, row: NodeRow) -> None:
    """Tell the engine of a node, unless it is to the engine what it was: everything that waits is looked at again."""
    if before is None or before.state in GONE or table.node_spec(before) != table.node_spec(row):
        table.draft.feed.node(table.node_spec(row))


def _note(table: JobTable, row: NodeRow, reason: str, cause: str, by: Submitter | None) -> None:
    trace_id = by.trace_id if by else ""
    table.draft.note(
        EventKind.NODE_CHANGED, cause, trace_id, about=row.name, node=row.name, state=row.state.value, reason=reason
    )


def node_named(table: JobTable, name: str) -> NodeRow:
    """The node.

    Raises:
        NotFoundError: there is none of that name.
    """
    row = table.nodes.get(name)
    if row is None:
        raise NotFoundError(f"there is no node '{name}'", hint="`hal nodes` lists them")
    return row


def holding(table: JobTable, name: str) -> int:
    """Active attempts that hold a part of the node. O(active attempts)."""
    return sum(name in one.nodes for job in table.busy for one in table.jobs[job].active.values())


def _holds_still(table: JobTable, name: str) -> bool:
    """Whether any attempt is left on a node that drains; the one that was found last is looked at first."""
    found = table.draining[name]
    job = table.jobs.peek(found[0]) if found is not None else None
    if job is not None and found is not None and _is_there(job, found[1], name):
        return True
    for job_id in table.busy:
        for task in table.jobs[job_id].active:
            if _is_there(table.jobs[job_id], task, name):
                table.draining[name] = (job_id, task)
                return True
    return False


def _is_there(job: LiveJob, task: int, name: str) -> bool:
    attempt = job.active.get(task)
    return attempt is not None and name in attempt.nodes


def closed_by_people(table: JobTable, job: LiveJob) -> Iterator[bool]:
    """For each node: whether it could hold the job and is cordoned or drained."""
    for row in table.nodes.values():
        yield row.state in (NodeState.CORDONED, NodeState.DRAINING) and _could_hold(table, row, job)


def _could_hold(table: JobTable, row: NodeRow, job: LiveJob) -> bool:
    """Whether the node is large enough for the job, has the labels that it asks for and no taint that it does not
    tolerate."""
    spec = table.node_spec(row)
    enough = all(spec.capacity.get(name, 0) >= amount for name, amount in job.request.request.items())
    return enough and job.request.holds(spec.labels, spec.taints)


def closed_to(table: JobTable, job: LiveJob) -> str:
    """Nodes that are large enough for the job, have the labels it asks for and take nothing now, with the reasons."""
    found = [
        row
        for _, row in sorted(table.nodes.items())
        if row.state is not NodeState.UP and row.state not in GONE and _could_hold(table, row, job)
    ]
    named = [
        f"{row.name} is {row.state}" + (f" ({reason_of(row, to_all=True)})" if reason_of(row) else "")
        for row in islice(found, MAX_NAMED)
    ]
    if len(found) > MAX_NAMED:
        named.append(f"and {len(found) - MAX_NAMED} more accept no work")
    return "; ".join(named)
