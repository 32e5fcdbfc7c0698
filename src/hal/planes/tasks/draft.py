"""What the changes since the last commit have touched, and what must follow once they are durable.

Pure. A `Draft` gathers several calls of the plane; sealing it gives one `Change`: rows and events to commit in one
transaction, engine events and orders to nodes for afterwards. Before anything is changed, its earlier value is kept
here, so that a commit that fails can be undone and readers never see what is not durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import Struct

from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import (
    ADOPT,
    END,
    INF,
    SUBMIT,
    UPDATE,
    AllocationsAdopted,
    AttemptsEnded,
    ConfigChanged,
    Event,
    JobsCancelled,
    JobsSubmitted,
    JobsUpdated,
    NodesChanged,
    NodeSpec,
    SubmitRows,
)
from hal.core.model import EventKind, JobSpec, StepId
from hal.core.model.policy import Policy
from hal.planes.tasks.dependencies import EndedJob
from hal.planes.tasks.interning import Interning
from hal.planes.tasks.live import Attempt, LiveJob
from hal.planes.tasks.packed import Packed
from hal.planes.tasks.spans import Spans
from hal.store.operations import AttemptEnd, NewEvent, NodeRow, Operation
from hal.wire.frames import StepStart, StepTemplate, StopReason

MAX_EVENT_ITEMS = 1_000
"""Most attempts or states that the payload of one event lists; `count` says how many there were."""

MAX_ROWS_A_BLOCK = 1_024
"""Rows of one engine event: so much is told to the engine at once."""
MAX_WITHDRAWN_A_BLOCK = 64
"""The same of ranges of tasks that leave: the engine looks at all that it knows of the job for each of them."""

AttemptKey = tuple[int, int, int]
"""Job, task, attempt number."""


class Eviction(Struct, frozen=True):
    """How steps are asked to leave: by `signal`, to save their work within `grace_ms`; or, without, by SIGTERM."""

    signal: str = ""
    grace_ms: int = 10_000


@dataclass(slots=True)
class Orders:
    """What one node is to be told after the commit, in this order."""

    templates: dict[int, StepTemplate] = field(default_factory=dict)
    """By job."""
    starts: list[StepStart] = field(default_factory=list)
    """`template` holds the job's id; whoever frames them puts the position there."""
    lost: list[StepId] = field(default_factory=list)
    """Given away without a word of the node: no start of one may leave any more, and what began is ended."""
    stops: dict[StopReason, list[StepId]] = field(default_factory=dict)
    recalls: list[StepId] = field(default_factory=list)
    """Starts on credit that are asked back."""
    evictions: dict[Eviction, list[StepId]] = field(default_factory=dict)
    """Steps that leave for other work, by how."""
    suspends: list[StepId] = field(default_factory=list)
    resumes: list[StepId] = field(default_factory=list)
    walltimes: dict[int, list[StepId]] = field(default_factory=dict)
    """Running steps by their new walltime."""
    acks: list[StepId] = field(default_factory=list)
    """Exits that are durable."""


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

    def lists(self) -> Iterator[list[Any]]:
        """All that grows with what one request may change."""
        yield self.ended
        for operation in self.operations:
            for name in operation.__struct_fields__:
                value = getattr(operation, name)
                if isinstance(value, list):
                    yield value

    @property
    def empty(self) -> bool:
        """Nothing to commit (orders may still have to go out: what is repeated is durable already)."""
        return not self.operations


class EngineFeed:
    """Engine events in the order in which they happened; neighbours of one kind become one block."""

    def __init__(self, interning: Interning) -> None:
        self._interning = interning
        self._events: list[Event] = []
        self._kind = ""
        self._rows: list[tuple[int, ...]] = []
        self._packed: list[SubmitRows] = []
        """Rows of packed jobs, of the block that has begun."""
        self._nodes: dict[str, NodeSpec] = {}
        self._gone: list[str] = []
        self._places: list[str] = []
        """Nodes of the block of adopted attempts."""

    def submit(
        self, job: LiveJob, first: int, count: int, attempt: int, eligible_ms: int, limits: tuple[int, int]
    ) -> None:
        """Tasks begin to wait for resources. `limits`: priority and walltime (the engine's infinity for none)."""
        self._begin("submit")
        request = self._interning.class_index(job.request)
        owner = self._interning.owner_index(job.owner)
        self._rows.append(
            (
                job.id,
                first,
                count,
                attempt,
                request,
                owner,
                limits[0],
                job.submit_ms,
                eligible_ms,
                0,
                limits[1],
                -1,
                job.spec.deadline_ms,
            )
        )

    def submit_packed(self, packed: Packed, class_of: Callable[[JobSpec, str], ClassSpec]) -> None:
        """These packed jobs begin to wait for resources.

        Args:
            class_of: what a spec asks for in a queue.
        """
        self._begin("submit")
        known = self._interning
        self._packed.append(
            packed.submitted(
                lambda spec, queue: known.class_index(class_of(spec, queue)),
                lambda owner: known.owner_index(known.owner_of(owner)),
            )
        )

    def withdraw(self, job: int, first: int, count: int) -> None:
        """Waiting tasks leave the engine."""
        self._begin("withdraw")
        self._rows.append((job, first, count))

    def end(self, job: int, task: int, attempt: int, requeue: bool, eligible_ms: int, ended_ms: int) -> None:
        """An attempt has ended; with `requeue` its task waits again."""
        self._begin("end")
        self._rows.append((job, task, attempt, int(requeue), eligible_ms, 0, ended_ms))

    def adopt(self, job: LiveJob, attempt: Attempt, since_ms: int) -> None:
        """An attempt that the engine did not know holds what its job asks for on its one node, since then."""
        self._begin("adopt")
        request = self._interning.class_index(job.request)
        owner = self._interning.owner_index(job.owner)
        walltime = INF if job.walltime_ms is None else job.walltime_ms
        place = len(self._rows)
        self._places.append(attempt.nodes[0])
        self._rows.append(
            (
                job.id,
                attempt.task,
                attempt.attempt,
                request,
                owner,
                job.priority,
                job.submit_ms,
                since_ms,
                walltime,
                -1,
                place,
                1,
                0,
                *attempt.engine_state,
            )
        )

    def update(self, job: int, priority: int, walltime_ms: int) -> None:
        """New limits of waiting tasks and running attempts."""
        self._begin("update")
        self._rows.append((job, priority, walltime_ms, -1))

    def node(self, node: NodeSpec) -> None:
        """A node came or changed."""
        self._begin("node")
        self._nodes[node.name] = node

    def config(self, config: EngineConfig) -> None:
        """Another policy holds."""
        self._begin("")
        self._events.append(ConfigChanged(config))

    def gone(self, node: str) -> None:
        """A node that the engine knows left for good: what only it could hold is impossible now."""
        self._begin("gone")
        self._gone.append(node)

    def take(self) -> list[Event]:
        """All blocks, in order."""
        self._begin("")
        events, self._events = self._events, []
        self._interning.fresh()
        return events

    def _begin(self, kind: str) -> None:
        most = MAX_WITHDRAWN_A_BLOCK if kind == "withdraw" else MAX_ROWS_A_BLOCK
        if kind == self._kind and len(self._rows) < most:
            return
        rows, before = self._rows, self._kind
        self._rows, self._kind = [], kind
        if before == "submit":
            for block in _in_order(rows, self._packed):
                self._events.append(JobsSubmitted(block, self._interning.classes, self._interning.owners))
            self._packed = []
        elif before == "withdraw":
            columns = np.array(rows, np.int64)
            self._events.append(JobsCancelled(columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy()))
        elif before == "end":
            self._events.append(AttemptsEnded(np.array(rows, END)))
        elif before == "adopt":
            names = tuple(dict.fromkeys(self._places))
            index = np.array([names.index(name) for name in self._places], np.int64)
            self._events.append(
                AllocationsAdopted(np.array(rows, ADOPT), index, names, self._interning.classes, self._interning.owners)
            )
            self._places = []
        elif before == "update":
            self._events.append(JobsUpdated(np.array(rows, UPDATE)))
        elif before == "node":
            self._events.append(NodesChanged(tuple(self._nodes.values())))
            self._nodes = {}
        elif before == "gone":
            self._events.append(NodesChanged(removed=tuple(self._gone)))
            self._gone = []


def _in_order(rows: list[tuple[int, ...]], packed: list[SubmitRows]) -> list[SubmitRows]:
    """Blocks of rows by job and task: those of packed jobs, which ascend, and the listed ones between them."""
    listed = np.array(sorted(rows), SUBMIT)
    blocks: list[SubmitRows] = []
    for block in packed:
        before, listed = np.split(listed, [np.searchsorted(listed["job"], block["job"][-1])])
        both = np.concatenate((before, block)) if len(before) else block
        blocks.append(both[np.argsort(both["job"], kind="stable")] if len(before) else block)
    return [*blocks, listed] if len(listed) or not blocks else blocks


class Draft:
    """Everything staged since the last commit."""

    def __init__(self, interning: Interning, next_id: int) -> None:
        self.next_id_before = next_id
        self.jobs_before: dict[int, LiveJob | None] = {}
        """The committed value of each job that was changed; None for a new one."""
        self.ended_before: dict[int, EndedJob | None] = {}
        """What was remembered of ended jobs that others wait for; None for nothing."""
        self.ends: dict[int, list[tuple[int, int]]] = {}
        """Runs of tasks that have ended or wait again, of arrays that others follow task by task; told at `settle`."""
        self.nodes_before: dict[str, NodeRow | None] = {}
        self.lost_nodes: list[str] = []
        """Nodes whose lease was over."""
        self.policy_before: Policy | None = None
        """The committed policy, when another one was staged."""
        self.stored_spans: dict[int, Spans] = {}
        """Of jobs that had ended and live again: the spans their rows have."""
        self.refills: set[int] = set()
        """Arrays with `max_running` that have changed: which tasks the engine is told of is decided when it is told."""
        self.new_jobs: list[int] = []
        self.edited: set[int] = set()
        """Jobs whose own fields (not only progress) a person changed."""
        self.new_attempts: dict[AttemptKey, Attempt] = {}
        self.marked_attempts: dict[AttemptKey, Attempt] = {}
        self.ended_attempts: dict[AttemptKey, AttemptEnd] = {}
        self.placed: dict[AttemptKey, int] = {}
        """Attempts that got a place of which the engine has not been told: since when it has gone on unheard of."""
        self.untold: set[AttemptKey] = set()
        """Attempts that had such a place and passed it on: the engine need not hear of them at all."""
        self.other: list[Operation] = []
        self.feed = EngineFeed(interning)
        self.orders: dict[str, Orders] = {}
        self.ended_jobs: dict[int, LiveJob] = {}
        """In the order in which they ended."""
        self._notes: dict[tuple[EventKind, str, str, str], _Note] = {}

    def order(self, node: str) -> Orders:
        """What that node is to be told."""
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
        """The events for the feed, in the order in which they began; of one attempt the start is told before the end.

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


_TOLD_BEFORE_ENDS = frozenset({EventKind.ATTEMPTS_STARTED, EventKind.ATTEMPTS_GATED, EventKind.STARTS_REFUSED})
"""Their attempts were allocated by an earlier commit, so they may go to the front of this one."""

_LISTS = {
    EventKind.JOBS_ENDED: "ended",
    EventKind.ATTEMPTS_ALLOCATED: "attempts",
    EventKind.ATTEMPTS_STARTED: "attempts",
    EventKind.ATTEMPTS_ENDED: "attempts",
    EventKind.ATTEMPTS_PREEMPTED: "attempts",
    EventKind.ATTEMPTS_RESUMED: "attempts",
    EventKind.ATTEMPTS_GATED: "attempts",
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
            out["count"] = self.count
        if self.tasks:
            out["tasks"] = self.tasks
        return out
