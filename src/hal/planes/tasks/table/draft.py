"""What the changes since the last commit have touched, and what must follow once they are durable.

Pure. A `Draft` gathers several calls of the plane; sealing it gives one `Change`: rows and events to commit in one
transaction, engine events and orders to nodes for afterwards. Before anything is changed, its earlier value is kept
here, so that a commit that fails can be undone and readers never see what is not durable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from hal.core.engine.events import (
    Event,
)
from hal.core.model import EventKind
from hal.core.model.offer import Offer
from hal.core.model.policy import Policy
from hal.planes.tasks.engine.interning import Interning
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.figures import GroupFigures, no_figures
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.standings import EndedJob
from hal.planes.tasks.live.task_ranges import TaskRanges
from hal.planes.tasks.table.engine_feed import EngineFeed
from hal.planes.tasks.table.orders import Orders
from hal.store.operations import AttemptEnd, NewEvent, NodeRow, Operation, Removed

MAX_EVENT_ITEMS = 1_000
"""Most attempts or states that the payload of one event lists; `count` says how many there were, and `truncated` that
some are not listed."""
AttemptKey = tuple[int, int, int]
"""Job, task, attempt number."""


@dataclass(slots=True)
class Change:
    """One group: what to commit, and what to do once it is durable."""

    operations: list[Operation]
    engine: list[Event]
    """In order; to be applied after the commit."""
    orders: dict[str, Orders]
    """By node; to be sent after the commit."""
    ended: list[LiveJob]
    """Jobs that have ended, in order."""
    touched: list[int]
    """Jobs whose rows changed, new ones included."""
    lost: list[str] = field(default_factory=list)
    """Nodes whose lease was over: what was guarded there is given away."""
    figures: GroupFigures = field(default_factory=no_figures)
    """For metrics."""

    def lists(self) -> Iterator[list[Any]]:
        """The lists that grow with what one request may change."""
        yield self.ended
        for operation in self.operations:
            for name in operation.__struct_fields__:
                value = getattr(operation, name)
                if isinstance(value, list):
                    yield value

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit (orders may still have to go out: what is repeated is durable already)."""
        return not self.operations

    @property
    def has_effects(self) -> bool:
        """Whether orders must go out, or nodes have lost their lease, whether or not there are rows."""
        return bool(self.orders or self.lost)


class Draft:
    """Everything staged since the last commit."""

    def __init__(self, interning: Interning, next_id: int) -> None:
        self.next_id_before = next_id
        self.jobs_before: dict[int, LiveJob | None] = {}
        """The committed value of each job that was changed; None for a new one."""
        self.ended_before: dict[int, EndedJob | None] = {}
        """What was remembered of ended jobs that others wait for; None for nothing."""
        self.ends: dict[int, list[tuple[int, int]]] = {}
        """Ranges of tasks that ended or wait again, of arrays that others follow by task; propagated at `settle`."""
        self.nodes_before: dict[str, NodeRow | None] = {}
        self.lost_nodes: list[str] = []
        """Nodes whose lease has lapsed."""
        self.offers_before: dict[str, Offer] | None = None
        """The committed offers, when others were staged."""
        self.policy_before: Policy | None = None
        """The committed policy, when another one was staged."""
        self.stored_ranges: dict[int, TaskRanges] = {}
        """Of jobs that had ended and live again: the ranges their rows have."""
        self.refills: set[int] = set()
        """Arrays with `max_running` that have changed: which tasks it gets is decided when the engine is fed."""
        self.reclassed: set[int] = set()
        """Jobs that ask for other nodes now: what waits of them enters the engine again when they are settled."""
        self.new_jobs: list[int] = []
        self.edited: set[int] = set()
        """Jobs whose own fields (not only progress) a person changed."""
        self.new_attempts: dict[AttemptKey, Attempt] = {}
        self.marked_attempts: dict[AttemptKey, Attempt] = {}
        self.ended_attempts: dict[AttemptKey, AttemptEnd] = {}
        self.slots_since: dict[AttemptKey, int] = {}
        """Attempts with a slot that the engine does not know yet: since when they have it."""
        self.unreported: set[AttemptKey] = set()
        """Attempts that had such a slot and passed it on: the engine need not hear of them at all."""
        self.removed: dict[int, Removed] = {}
        """Ended jobs, and what is removed of them."""
        self.other: list[Operation] = []
        self.feed = EngineFeed(interning)
        self.orders: dict[str, Orders] = {}
        self.figures = no_figures()
        """Of all this, once it is sealed."""
        self.ended_jobs: dict[int, LiveJob] = {}
        """In the order in which they ended."""
        self._notes: dict[tuple[EventKind, str, str, str], _Note] = {}

    def order(self, node: str) -> Orders:
        """The orders for that node after the commit."""
        orders = self.orders.get(node)
        if orders is None:
            orders = self.orders[node] = Orders()
        return orders

    def note(
        self,
        kind: EventKind,
        cause: str,
        trace_id: str,
        job: int | None = None,
        item: object = None,
        tasks: int = 0,
        *,
        about: str = "",
        **facts: object,
    ) -> None:
        """Add to the event of that kind, cause and request.

        Args:
            item: one more entry of the payload's list (see `_LISTS`).
            tasks: added to the payload's `tasks`.
            about: events about different things (nodes) are not made one.
            facts: further fields of the payload.
        """
        key = (kind, cause, trace_id, about)
        note = self._notes.get(key)
        if note is None:
            note = self._notes[key] = _Note([], [], {})
        if job is not None and (not note.jobs or note.jobs[-1] != job):
            note.jobs.append(job)
        if item is not None:
            note.count += 1
            if len(note.items) < MAX_EVENT_ITEMS:
                note.items.append(item)
        note.tasks += tasks
        if facts:
            note.facts.update(facts)

    def events(self, now_ms: int) -> list[NewEvent]:
        """The events for the feed, in the order in which they began; what happened to an attempt comes before its end.

        A block of ends may have begun before a block of starts and still have got the ends of those that started.
        """
        notes = list(self._notes.items())
        ends = next((at for at, (key, _) in enumerate(notes) if key[0] is EventKind.ATTEMPTS_ENDED), len(notes))
        notes[ends:] = sorted(notes[ends:], key=lambda note: note[0][0] not in _TOLD_BEFORE_ENDS)
        return [
            NewEvent(
                at_ms=now_ms,
                kind=kind,
                cause=cause,
                trace_id=trace,
                jobs=list(dict.fromkeys(note.jobs)),
                payload=note.payload(_LISTS.get(kind, "items")),
            )
            for (kind, cause, trace, _), note in notes
        ]


_TOLD_BEFORE_ENDS = frozenset(
    {
        EventKind.ATTEMPTS_STARTED,
        EventKind.ATTEMPTS_GATED,
        EventKind.ATTEMPTS_PROBED,
        EventKind.ATTEMPTS_PREEMPTED,
        EventKind.STARTS_REFUSED,
    }
)
"""Their attempts were allocated by an earlier commit, so they may go to the front of this one."""

_LISTS = {
    EventKind.JOBS_ENDED: "ended",
    EventKind.JOBS_REPLACED: "replacements",
    EventKind.ATTEMPTS_ALLOCATED: "attempts",
    EventKind.ATTEMPTS_STARTED: "attempts",
    EventKind.ATTEMPTS_ENDED: "attempts",
    EventKind.ATTEMPTS_PREEMPTED: "attempts",
    EventKind.ATTEMPTS_RESUMED: "attempts",
    EventKind.ATTEMPTS_GATED: "attempts",
    EventKind.ATTEMPTS_PROBED: "attempts",
    EventKind.STARTS_REFUSED: "attempts",
}
"""What the list in an event's payload is called."""


class _Note(Struct):
    jobs: list[int]
    items: list[object]
    facts: dict[str, object]
    count: int = 0
    tasks: int = 0

    def payload(self, name: str) -> dict[str, object]:
        out = dict(self.facts)
        if self.items:
            out[name] = self.items
        if self.count > len(self.items):
            out["count"], out["truncated"] = self.count, True
        if self.tasks:
            out["tasks"] = self.tasks
        return out
