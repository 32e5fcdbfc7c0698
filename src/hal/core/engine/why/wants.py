"""What waits, class by class: how much, whose, since when, and what would let it start. And what is reserved.

Pure; changes nothing. O(buckets + classes x resources + nodes x constraint sets), cut into slices. What waits is read
in one slice, as columns, so that it belongs together. Only where jobs with several tasks wait are entries looked at,
too, in slices of `ENTRIES_A_SLICE`. Parked work counts like any other.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeVar

import numpy as np
from msgspec import Struct

from hal.core.engine.classes import ClassSpec
from hal.core.engine.state import State
from hal.core.engine.why.licensed import unlicensed
from hal.core.engine.why.refused import refused
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints

T = TypeVar("T")
Sliced = Generator[None, None, T]
"""Yields between slices; returns the result."""

CLASSES_A_SLICE: Final = 500
JUDGED_A_SLICE: Final = 20
"""Classes of which a rule is looked for that keeps them waiting."""
MAX_JUDGED: Final = 1_000
"""The first classes in order that could start now and do not; of later ones no rule is looked for."""
ENTRIES_A_SLICE: Final = 100_000
SETS_A_SLICE: Final = 20
MAX_NAMED: Final = 10
"""Users and queues of a class that are named, those with the most jobs."""
RESERVATIONS_A_SLICE: Final = 500
MAX_RESERVATIONS: Final = 10_000
MAX_RESERVED_NODES: Final = 100_000

NODES: Final = "nodes"
RESOURCES: Final = "resources"
TURN: Final = "turn"


class ClassWants(Struct, frozen=True, gc=False):
    """Waiting work of one class."""

    spec: ClassSpec
    """What each start takes."""
    jobs: int
    """Entries: jobs, of which one counts several times where its tasks differ."""
    tasks: int
    queues: dict[str, int]
    """Jobs by queue; of the `MAX_NAMED` with the most."""
    users: dict[str, int]
    more_queues: int
    """Queues that are not named."""
    more_users: int
    head: int
    """The job that is first in order."""
    head_since_ms: int
    """Since when it could have started."""
    short: str
    """What it is short of. NODES: too few nodes that are up could hold it. RESOURCES: too few have them free. TURN:
    they are free, and either reserved for other work or given to it by the next pass. Else the rule that keeps its
    first job (`hal.core.model.Reason`)."""
    resource: str
    """The resource of which no node has enough; "": each is there, but not together on enough nodes."""
    short_by: int
    """Of that resource, base units on a node; without one, nodes."""
    fits_now: int
    """Nodes that have it free."""
    fits_ever: int
    """Nodes that are up and could hold it when they are empty."""


class Reserved(Struct, frozen=True, gc=False):
    """A reservation."""

    job: int
    task: int
    """Counted from the job's first waiting task."""
    start_ms: int
    """INF: not known."""
    end_ms: int
    """INF: never."""
    nodes: list[str]
    claimed: bool
    """The nodes are kept free of other starts already."""


def wants_version(state: State) -> str:
    """Name the wants of one engine: equal only where they are equal. O(1)."""
    counts = (L.M_INSERTS, L.M_ENTRIES, L.M_PENDING, L.M_ACTIVE, L.M_EPOCH, L.M_WAKE)
    return "-".join(str(int(state.meta[at])) for at in counts)


def wants(state: State, now_ms: int, user: str = "") -> Sliced[list[ClassWants]]:
    """Gather what waits for nodes, classes in order of their first jobs; held and blocked work is not among it.

    Args:
        user: only work of this user; '': everybody's.
    """
    waiting = _Waiting(state, user)
    yield
    tasks = yield from _tasks(state, waiting)
    short = yield from _shortages(state, waiting)
    jobs, head, since = waiting.jobs.tolist(), waiting.head_job.tolist(), waiting.since_ms.tolist()
    fit, ever, counts = waiting.fit.tolist(), waiting.ever.tolist(), tasks.tolist()
    out: list[ClassWants] = []
    judged = 0
    for number, place in enumerate(waiting.order.tolist(), 1):
        kind, resource, by = short[place]
        if kind == TURN and judged < MAX_JUDGED:
            judged += 1
            kind = _rule(state, waiting, place, now_ms)
            if judged % JUDGED_A_SLICE == 0:
                yield
        queues, more_queues, users, more_users = waiting.owned(place)
        out.append(
            ClassWants(
                waiting.specs[place], jobs[place], counts[place], queues, users, more_queues, more_users, head[place],
                since[place], kind, resource, by, fit[place], ever[place],
            )
        )  # fmt: skip
        if number % CLASSES_A_SLICE == 0:
            yield
    return out


class _Waiting:
    """Columns by class of what waits, read at one moment."""

    def __init__(self, state: State, user: str) -> None:
        work, catalogue = state.work, state.catalogue
        buckets = work.active[: int(state.meta[L.M_ACTIVE])]
        if user:
            known = np.array([spec is not None and spec.user == user for spec in state.shares.owner_specs], np.bool_)
            buckets = buckets[known[work.buckets[buckets, L.B_OWNER]]]
        self.buckets: Ints = buckets.copy()
        table = work.buckets[buckets]
        classes, of = np.unique(table[:, L.B_CLASS], return_inverse=True)
        self.of: Ints = of.astype(np.int64)
        """Place of each bucket's class."""
        self.specs: list[ClassSpec] = [_known(catalogue.class_specs[one]) for one in classes.tolist()]
        self.counts: list[int] = table[:, L.B_COUNT].tolist()
        self.jobs = np.bincount(of, table[:, L.B_COUNT], classes.shape[0]).astype(np.int64)
        self.owners = [state.shares.owner_specs[owner] for owner in table[:, L.B_OWNER].tolist()]
        # First in order of each class: ranks of buckets by their first entries, the best written last.
        ranks = np.lexsort((table[:, L.B_HEAD_JOB], table[:, L.B_HEAD_KEY] + table[:, L.B_OFFSET]))
        first = np.zeros(classes.shape[0], np.int64)
        first[of[ranks[::-1]]] = ranks[::-1]
        rank = np.empty_like(ranks)
        rank[ranks] = np.arange(ranks.shape[0])
        self.order = np.argsort(rank[first], kind="stable")
        self.head_slot: Ints = table[first, L.B_HEAD]
        self.head_job: Ints = table[first, L.B_HEAD_JOB]
        eligible = work.entries[self.head_slot, L.E_ELIGIBLE]
        self.since_ms = np.maximum(work.entries[self.head_slot, L.E_SUBMIT], np.where(eligible < L.INF, eligible, 0))
        shapes = catalogue.classes[classes, L.C_SHAPE]
        self.nodes = catalogue.classes[classes, L.C_NODES]
        self.fit, self.ever = catalogue.shapes[shapes, L.S_FIT], catalogue.shapes[shapes, L.S_EVER]
        self.sets = catalogue.shapes[shapes, L.S_CSET]
        self.resources = tuple(state.nodes.resources)
        self.request = catalogue.request[: len(self.resources)][:, shapes].T
        order = np.argsort(of, kind="stable")
        self._buckets_in_order = order.tolist()
        self._begins = np.searchsorted(of[order], np.arange(classes.shape[0] + 1)).tolist()

    def owned(self, place: int) -> tuple[dict[str, int], int, dict[str, int], int]:
        """Jobs of a class by queue, and how many queues are not named; the same by user."""
        begin, end = self._begins[place], self._begins[place + 1]
        if end == begin + 1:
            bucket = self._buckets_in_order[begin]
            owner, jobs = self.owners[bucket], self.counts[bucket]
            return {owner.queue: jobs}, 0, {owner.user: jobs}, 0
        queues: dict[str, int] = {}
        users: dict[str, int] = {}
        for bucket in self._buckets_in_order[begin:end]:
            owner, jobs = self.owners[bucket], self.counts[bucket]
            queues[owner.queue] = queues.get(owner.queue, 0) + jobs
            users[owner.user] = users.get(owner.user, 0) + jobs
        return _largest(queues), max(len(queues) - MAX_NAMED, 0), _largest(users), max(len(users) - MAX_NAMED, 0)


def _known(spec: ClassSpec | None) -> ClassSpec:
    assert spec is not None, "a class that a bucket refers to is not forgotten"
    return spec


def _largest(jobs: dict[str, int]) -> dict[str, int]:
    if len(jobs) <= MAX_NAMED:
        return jobs
    return dict(sorted(jobs.items(), key=lambda item: (-item[1], item[0]))[:MAX_NAMED])


def _tasks(state: State, waiting: _Waiting) -> Sliced[Ints]:
    """Tasks of each class. Entries are looked at only where some have several."""
    if state.meta[L.M_PENDING] == state.meta[L.M_ENTRIES]:
        return waiting.jobs
    place_of = np.full(state.work.buckets.shape[0], -1, np.int64)
    place_of[waiting.buckets] = waiting.of
    further = np.zeros(waiting.jobs.shape[0], np.int64)
    # As far as entries were when it began: those that come meanwhile are not among what is counted.
    top = int(state.meta[L.M_ENTRY_TOP])
    for at in range(0, top, ENTRIES_A_SLICE):
        some = state.work.entries[at : min(at + ENTRIES_A_SLICE, top)]
        # Of most only this column is read: a row is longer than a cache line.
        some = some[np.flatnonzero(some[:, L.E_TASKS] > 1)]
        some = some[some[:, L.E_WHERE] == L.WHERE_BUCKET]
        some = some[some[:, L.E_BUCKET] < place_of.shape[0]]  # the table of buckets may have grown since
        places = place_of[some[:, L.E_BUCKET]]
        np.add.at(further, places[places >= 0], some[places >= 0, L.E_TASKS] - 1)
        yield
    return waiting.jobs + further


def _shortages(state: State, waiting: _Waiting) -> Sliced[list[tuple[str, str, int]]]:
    """For each class what it is short of, which resource, and by how much."""
    capacity = np.zeros(waiting.request.shape, np.int64)
    free = np.zeros(waiting.request.shape, np.int64)
    resources = len(waiting.resources)
    for number, constraints in enumerate(np.unique(waiting.sets).tolist(), 1):
        allowed = state.nodes.allowed[constraints, : len(state.nodes.names)] if constraints < _sets(state) else None
        rows = np.flatnonzero(allowed) if allowed is not None else np.zeros(0, np.int64)
        if rows.size:
            of = waiting.sets == constraints
            capacity[of] = state.nodes.capacity[rows, :resources].max(axis=0)
            free[of] = np.maximum(state.nodes.free[rows, :resources].max(axis=0), 0)
        if number % SETS_A_SLICE == 0:
            yield
    never, now = waiting.ever < waiting.nodes, waiting.fit < waiting.nodes
    lacks = waiting.request - np.where(never[:, None], capacity, free)
    # Of several resources the one of which the largest part is lacking.
    worst = np.argmax(lacks / np.maximum(waiting.request, 1), axis=1) if resources else np.zeros(len(never), np.int64)
    by = lacks[np.arange(lacks.shape[0]), worst] if resources else np.zeros(len(never), np.int64)
    nodes = waiting.nodes - np.where(never, waiting.ever, waiting.fit)
    yield
    out: list[tuple[str, str, int]] = []
    for none_ever, none_now, which, amount, lacking in zip(
        never.tolist(), now.tolist(), worst.tolist(), by.tolist(), nodes.tolist(), strict=True
    ):
        if not none_ever and not none_now:
            out.append((TURN, "", 0))
        else:
            kind = NODES if none_ever else RESOURCES
            out.append((kind, waiting.resources[which], amount) if amount > 0 else (kind, "", lacking))
    return out


def _sets(state: State) -> int:
    """Constraint sets that the state has now."""
    return int(state.nodes.allowed.shape[0])


def _rule(state: State, waiting: _Waiting, place: int, now_ms: int) -> str:
    """The rule that keeps the first job of a class waiting though it would fit; TURN where none does."""
    slot, job, spec = int(waiting.head_slot[place]), int(waiting.head_job[place]), waiting.specs[place]
    entry = state.work.entries[slot]
    if entry[L.E_JOB] != job or entry[L.E_WHERE] != L.WHERE_BUCKET:
        return TURN  # it has started since
    verdict = refused(state, job, slot, spec, now_ms) or unlicensed(state, job, slot, spec, now_ms)
    return TURN if verdict is None else verdict.reason.value


def reserved(state: State) -> Sliced[tuple[list[Reserved], bool]]:
    """Gather reservations in order of rank: which work is to start where, and when; and whether there are more.

    At most `MAX_RESERVATIONS`, with `MAX_RESERVED_NODES` nodes together.
    """
    work, names = state.work, state.nodes.names
    count = int(state.meta[L.M_RESERVATIONS])
    table = work.reservations[: min(count, MAX_RESERVATIONS)].copy()
    fitting = int(np.searchsorted(np.cumsum(table[:, L.V_NODES]), MAX_RESERVED_NODES, side="right"))
    table = table[:fitting]
    last = int((table[:, L.V_FIRST] + table[:, L.V_NODES]).max(initial=0))
    nodes = work.reserved[:last, L.Q_NODE].copy()
    out: list[Reserved] = []
    for number, row in enumerate(table, 1):
        entry, kind, start, planned, first, of, job, task = (int(row[at]) for at in _RESERVATION)
        if entry >= 0 and kind in (L.KIND_RESERVED, L.KIND_CLAIM):
            end = min(start + planned, L.INF) if planned < L.INF else L.INF
            held = [names[node] for node in nodes[first : first + of].tolist()]
            out.append(Reserved(job, task, start, end, held, kind == L.KIND_CLAIM))
        if number % RESERVATIONS_A_SLICE == 0:
            yield
    return out, table.shape[0] < count


_RESERVATION: Final = (
    L.V_ENTRY, L.V_KIND, L.V_START, L.V_PLANNED, L.V_FIRST, L.V_NODES, L.V_JOB, L.V_TASK,
)  # fmt: skip
