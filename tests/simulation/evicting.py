"""A plane that makes work leave a simulated cluster, as a program that rents machines does; and what must follow.

It evicts jobs, tasks, what runs and what nodes hold, in every mode; it drains nodes that evict what is left after a
while, and opens them again. Its requests are the bodies of `POST /v1/jobs/evict` and `POST /v1/nodes/drain`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from hal.core.model import AttemptId, AttemptState, Event, EventKind, parse_task_ref
from hal.core.model.eviction import EvictMode
from hal.daemons.controller.api.endpoints.jobs import EvictBody
from hal.daemons.controller.api.requests.parameters import job_filter
from hal.daemons.controller.service.idempotency import Key
from hal.daemons.controller.service.jobs.control import Action
from hal.daemons.controller.service.nodes.nodes import DrainBody, NodeAction, NodesBody
from hal.daemons.controller.service.outcomes import Outcomes
from hal.planes.tasks import Submitter
from hal.store import AttemptRow, Store
from tests.simulation.cluster import Cluster

EVERY_S: Final = 0.6
BY: Final = Submitter("renter")
GRACES: Final = ("0s", "200ms", "1s", "3s")
WITHIN: Final = ("0s", "300ms", "2s")
LATE_MS: Final = 1_500
"""Where nothing befalls the cluster, what is due has happened so much later: a keeper wakes once a second."""
PAGE: Final = 1_000
MODES: Final = (*3 * (EvictMode.REQUEUE, EvictMode.CHECKPOINT), EvictMode.CANCEL)
"""Of which one is drawn for each request."""
ENDS: Final = {
    EvictMode.REQUEUE: (AttemptState.PREEMPTED, AttemptState.SUCCEEDED),
    EvictMode.CHECKPOINT: (AttemptState.PREEMPTED, AttemptState.SUCCEEDED),
    EvictMode.CANCEL: (AttemptState.CANCELLED, AttemptState.SUCCEEDED),
}
"""How an attempt that is evicted ends; one that has succeeded meanwhile has succeeded."""
Rows = dict[tuple[int, int, int], AttemptRow]
"""By job, task and number."""


class Asked(NamedTuple):
    """One request."""

    number: int
    mode: EvictMode
    jobs: frozenset[tuple[int, int | None]]
    """Jobs and tasks that it names, or that its filter matched."""
    nodes: frozenset[str]
    within_ms: int = 0
    """Of a drain: when what is left is evicted."""
    answered: frozenset[tuple[int, int | None]] = frozenset()
    """Of the jobs and tasks: those that it was told leave."""

    def means(self, row: AttemptRow) -> bool:
        """Whether that attempt is among what it asked for, or may have got the slot of one that is."""
        return row.job in {job for job, _ in self.jobs} or bool(self.nodes & set(row.nodes))


class Evictor:
    """Evicts, drains and opens until nothing befalls the cluster any more."""

    def __init__(self, cluster: Cluster) -> None:
        self.asked: dict[str, Asked] = {}
        """By its reason, which no two requests share."""
        self._cluster = cluster
        self._ids: Sequence[int] = ()
        self._rng: Random = cluster.world.rng("evictions")
        self._drained: set[str] = set()

    async def evict(self, ids: Sequence[int], calm: asyncio.Event) -> None:
        """Until then; all nodes are open afterwards.

        Args:
            ids: jobs, as they are submitted.
        """
        self._ids = ids
        drains: list[asyncio.Future[None]] = []
        while not calm.is_set():
            await asyncio.sleep(EVERY_S * self._rng.random())
            number, mode = len(self.asked), self._rng.choice(MODES)
            match self._rng.randrange(6):
                case 0 | 1 if self._ids:
                    await self._evict(number, mode, ids=[str(self._rng.choice(self._ids))])
                case 2 if self._ids:
                    refs = [f"{self._rng.choice(self._ids)}.{self._rng.randrange(12)}" for _ in range(3)]
                    await self._evict(number, mode, ids=list(dict.fromkeys(refs)))
                case 3:
                    await self._evict(number, mode, filter={"state": "running"})
                case 4:
                    await self._evict(number, mode, nodes=[self._rng.choice(list(self._cluster.hosts))])
                case 5 if open_nodes := [node for node in self._cluster.hosts if node not in self._drained]:
                    node = self._rng.choice(open_nodes)
                    self._drained.add(node)
                    drains.append(asyncio.ensure_future(self._drain(number, mode, node)))
                    await asyncio.sleep(0)
        for drain in drains:
            await drain

    async def _evict(self, number: int, mode: EvictMode, **what: Any) -> None:
        reason, nodes = f"eviction {number}", frozenset(what.get("nodes", ()))
        named = frozenset(map(parse_task_ref, what.get("ids", ())))
        if "filter" in what:
            named = frozenset((job, None) for job in self._ids)
        self.asked[reason] = Asked(number, mode, named, nodes)
        plain = {**what, "mode": mode.value, "reason": reason, "within": self._rng.choice(GRACES)}
        body = msgspec.json.decode(msgspec.json.encode(plain), type=EvictBody)
        wanted = None if body.filter is None else job_filter(body.filter)
        outcomes = await self._cluster.ask(
            lambda api: api.jobs.control(
                Action.EVICT, body.ids, wanted, BY, key=Key(reason, "same"), eviction=body.eviction, nodes=body.nodes
            )
        )
        self._note(reason, outcomes)
        leave = frozenset(parse_task_ref(one.id) for one in outcomes.results if one.ok and one.id not in nodes)
        self.asked[reason] = self.asked[reason]._replace(answered=leave)

    async def _drain(self, number: int, mode: EvictMode, node: str) -> None:
        """A node is drained, and after a while opened, sometimes before it has evicted anything."""
        reason, rng = f"drain {number}", self._rng
        plain = {"nodes": [node], "reason": reason, "evict": mode.value}
        plain |= {"within": rng.choice(WITHIN), "grace": rng.choice(GRACES)}
        body = msgspec.json.decode(msgspec.json.encode(plain), type=DrainBody)
        within_ms = body.eviction.within_ms if body.eviction is not None else 0
        self.asked[reason] = Asked(number, mode, frozenset(), frozenset((node,)), within_ms)
        self._note(reason, await self._cluster.ask(lambda api: api.nodes.control(NodeAction.DRAIN, body, BY)))
        await asyncio.sleep(
            within_ms / 1000 + 3 * rng.random() if rng.random() < 0.7 else within_ms / 1000 * rng.random()
        )
        await self._cluster.ask(lambda api: api.nodes.control(NodeAction.UNCORDON, NodesBody([node]), BY))
        self._drained.discard(node)

    def _note(self, reason: str, outcomes: Outcomes) -> None:
        said = ", ".join(f"{one.id}: {one.state or one.code} {one.detail}" for one in outcomes.results)
        self._cluster.world.note("renter", reason, said)


# ── what must follow ──────────────────────────────────────────────────────────────────────────────────────────────


def check_evictions(store: Store, ids: Sequence[int], asked: dict[str, Asked]) -> set[int]:
    """Every attempt ended once; what was evicted by whom and why is kept, and it ended and was followed by another
    attempt or by none as the mode of its eviction says; nothing left that nobody had asked to; what was told to leave
    did; nothing began on a closed node.

    Returns: jobs of which evictions have cancelled tasks.
    """
    rows = {(row.job, row.task, row.attempt): row for job in ids for row in _attempts(store, job)}
    for row in rows.values():
        _check_row(row, rows, asked)
    for one in asked.values():
        for job, task in one.answered:
            tries = [row for row in rows.values() if row.job == job and task in (None, row.task)]
            assert any(_leaves(row, one, asked) for row in tries), f"{one} was answered, and nothing left: {tries}"
    feed = list(_feed(store))
    check_each_ends_once(feed)
    check_nothing_begins_on_closed_nodes(feed)
    told = {item["id"]: item for item in _items(feed, EventKind.ATTEMPTS_PREEMPTED)}
    for row in rows.values():
        if row.preemption is not None and row.preemption.by:
            name = str(AttemptId(row.job, row.task, row.attempt))
            item = told.get(name, {})
            assert item.get("reason") == row.preemption.reason, f"{row} was evicted; the feed: {item}"
    return {row.job for row in rows.values() if row.state is AttemptState.CANCELLED}


def check_left_in_time(store: Store, ids: Sequence[int], asked: dict[str, Asked]) -> None:
    """Of a cluster that nothing befell: what was evicted has ended when its time was over, and what was on a drained
    node was evicted when that was due."""
    rows, feed = [row for job in ids for row in _attempts(store, job)], list(_feed(store))
    for row in rows:
        evicted = row.preemption
        if evicted is not None and evicted.by and row.started_ms is not None:
            assert (row.ended_ms or 0) <= evicted.due_ms + LATE_MS, f"{row} went on"
    for name, one in asked.items():
        for begin_ms, end_ms, node in _closed(feed, name):
            due_ms = begin_ms + one.within_ms + LATE_MS
            for row in rows:
                if node in row.nodes and row.allocated_ms < begin_ms and due_ms < min(end_ms, row.ended_ms or 0):
                    leaves = row.preemption is not None and row.preemption.at_ms < due_ms
                    assert leaves, f"{row} is still on {node}: {one}"


def _closed(feed: Sequence[Event], reason: str) -> Iterator[tuple[int, int, str]]:
    """When a node was closed for that reason, until when, and which: at most once."""
    begin_ms, node = 0, ""
    for event in feed:
        if event.kind is not EventKind.NODE_CHANGED:
            continue
        if not node and event.payload["reason"].endswith(f"by {BY.user}: {reason}"):
            begin_ms, node = event.at_ms, event.payload["node"]
        elif event.payload["node"] == node and event.payload["state"] == "up":
            yield begin_ms, event.at_ms, node
            return


def _check_row(row: AttemptRow, rows: Rows, asked: dict[str, Asked]) -> None:
    following, evicted = rows.get((row.job, row.task, row.attempt + 1)), row.preemption
    if following is not None:
        counted = row.retries + (row.state in (AttemptState.FAILED, AttemptState.OUT_OF_MEMORY))
        assert following.retries == counted, f"{following} follows {row}"
    if evicted is None or not evicted.by:
        assert not row.message.startswith("evicted by"), f"who evicted it is in its message only: {row}"
        assert row.state is not AttemptState.CANCELLED, f"nobody cancelled {row}"
        assert row.state is not AttemptState.PREEMPTED or row.cause == "refused", f"nobody evicted {row}"
        return
    one = asked[evicted.reason]
    assert one.means(row), f"{row} was not meant by {one}"
    mode, named = EvictMode(evicted.mode), (row.job, row.task) in one.jobs
    # Whose attempt only got the slot of one that is cancelled waits again.
    meant = {one.mode, EvictMode.REQUEUE} if one.mode is EvictMode.CANCEL and not named else {one.mode}
    assert mode in meant, f"{row}: {one}"
    assert evicted.by == BY.user, f"{row}: {one}"
    assert row.state in ENDS[mode], f"{row} was evicted: {one.mode}"
    if row.state is AttemptState.SUCCEEDED:
        assert following is None, f"{following} follows a success"
        return
    assert row.message.startswith(f"evicted by {BY.user}: {evicted.reason}"), f"why it ended is not kept: {row}"
    if row.state is AttemptState.PREEMPTED:
        assert following is not None, f"{row} was evicted, and is not tried again"
    else:
        assert following is None, f"{row} was cancelled by its eviction; {following}"


def _leaves(row: AttemptRow, one: Asked, asked: dict[str, Asked]) -> bool:
    """Whether that attempt left because of that request, or of one before it, or with the rest of its gang."""
    evicted = row.preemption
    if len(row.nodes) > 1:
        return True
    return evicted is not None and evicted.by != "" and asked[evicted.reason].number <= one.number


def check_each_ends_once(feed: Sequence[Event]) -> None:
    """No attempt ended twice, or was evicted twice, or after it had ended."""
    ended: set[str] = set()
    evicted: set[str] = set()
    for event in feed:
        if event.kind is EventKind.ATTEMPTS_ENDED:
            for item in event.payload["attempts"]:
                assert item["id"] not in ended, f"{item['id']} ended twice"
                ended.add(item["id"])
        elif event.kind is EventKind.ATTEMPTS_PREEMPTED:
            for item in event.payload["attempts"]:
                assert item["id"] not in ended | evicted, f"{item['id']} was evicted when it had ended or was leaving"
                evicted.add(item["id"])


def check_nothing_begins_on_closed_nodes(feed: Sequence[Event]) -> None:
    """From the commit that closed a node until the one that opened it nothing was given to it."""
    closed_ms: dict[str, int] = {}
    for event in feed:
        if event.kind is EventKind.NODE_JOINED:
            closed_ms.pop(event.payload["node"], None)  # what still keeps it closed is said again
        elif event.kind is EventKind.NODE_CHANGED:
            node = event.payload["node"]
            if event.payload["state"] == "up":
                closed_ms.pop(node, None)
            else:
                closed_ms.setdefault(node, event.at_ms)
        elif event.kind is EventKind.ATTEMPTS_ALLOCATED:
            for item in event.payload["attempts"]:
                late = [node for node in item["nodes"] if closed_ms.get(node, event.at_ms) < event.at_ms]
                assert not late, f"{item} was given to {late}, closed since {closed_ms}"


def _attempts(store: Store, job: int) -> list[AttemptRow]:
    found: list[AttemptRow] = []
    while page := store.attempts(job, after=(found[-1].task, found[-1].attempt) if found else None, limit=PAGE):
        found += page
    return found


def _feed(store: Store) -> Iterator[Event]:
    last = 0
    while page := store.events(last, limit=PAGE):
        last = page[-1].sequence
        for event in page:
            assert not event.payload.get("truncated"), event
            yield event


def _items(feed: Sequence[Event], kind: EventKind) -> Iterator[dict[str, Any]]:
    for event in feed:
        if event.kind is kind:
            yield from event.payload["attempts"]
