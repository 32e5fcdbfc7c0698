"""What waits, class by class: how much, whose, since when, and what would let it start. And what is reserved.

Pure; changes nothing. O(buckets + classes x resources + nodes x constraint sets), cut into slices. What waits is read
in one slice, as columns, so that it belongs together. Only where jobs with several tasks wait are entries looked at,
too, in slices of `ENTRIES_A_SLICE`. Parked work counts like any other. Columns become values only of classes that
somebody looks at: of two answers `Wants.unchanged_since` says which are as they were.
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
from hal.core.kernels.structures.arrays import Ints, Mask
from hal.core.model.verdict import Reason

T = TypeVar("T")
Sliced = Generator[None, None, T]
"""Yields between slices; returns the result."""

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
_KINDS: Final = (NODES, RESOURCES, TURN, *(reason.value for reason in Reason))
"""What a class may be short of, by the number in its column."""
_NODES, _RESOURCES, _TURN = range(3)


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
    """Nodes that have it free; of one domain the most, where the class names a level."""
    fits_ever: int
    """Nodes that are up and could hold it when they are empty; likewise."""


class Wants:
    """Waiting work by class, as it was at one moment: columns, in which the position of a class follows its number.

    Classes are numbered by the engine, which gives a number again when its class is forgotten.
    """

    def __init__(self, state: State, user: str) -> None:
        """Read all of it. O(buckets log buckets)

        Args:
            user: only work of this user; '': everybody's.
        """
        work, catalogue = state.work, state.catalogue
        buckets = work.active[: int(state.meta[L.M_ACTIVE])]
        self.owner_specs = list(state.shares.owner_specs)
        """Whose work it is, by the owner's number."""
        if user or state.shares.has_extensions:
            # Extensions of jobs want nothing: they take what is there, and no machine is worth renting for them.
            wanted = [user in ("", spec.user) and not spec.extension for spec in self.owner_specs]
            buckets = buckets[np.array(wanted, np.bool_)[work.buckets[buckets, L.B_OWNER]]]
        buckets = buckets[np.lexsort((buckets, work.buckets[buckets, L.B_CLASS]))]
        table = work.buckets[buckets]
        self.buckets: Ints = buckets
        """By class, then by their own number."""
        self.owners: Ints = table[:, L.B_OWNER]
        self.counts: Ints = table[:, L.B_COUNT]
        self.classes, begins, of = np.unique(table[:, L.B_CLASS], return_index=True, return_inverse=True)
        """Their numbers, ascending."""
        self.of: Ints = of.astype(np.int64)
        """The position of each bucket's class."""
        self.begins: Ints = np.append(begins, buckets.shape[0]).astype(np.int64)
        """Where the buckets of each class begin, and where the last ones end."""
        self.specs: list[ClassSpec] = [_known(catalogue.class_specs[one]) for one in self.classes.tolist()]
        self.jobs: Ints = np.bincount(of, table[:, L.B_COUNT], self.classes.shape[0]).astype(np.int64)
        self.tasks: Ints = self.jobs
        # First in order of each class: ranks of buckets by their first entries, the best written last.
        ranks = np.lexsort((table[:, L.B_HEAD_JOB], table[:, L.B_HEAD_KEY] + table[:, L.B_OFFSET]))
        first = np.zeros(self.classes.shape[0], np.int64)
        first[of[ranks[::-1]]] = ranks[::-1]
        rank = np.empty_like(ranks)
        rank[ranks] = np.arange(ranks.shape[0])
        self.order: Ints = np.argsort(rank[first], kind="stable")
        """Positions in order of the classes' first jobs."""
        self.head_slot: Ints = table[first, L.B_HEAD]
        self.head: Ints = table[first, L.B_HEAD_JOB]
        eligible = work.entries[self.head_slot, L.E_ELIGIBLE]
        self.since_ms: Ints = np.maximum(
            work.entries[self.head_slot, L.E_SUBMIT], np.where(eligible < L.INF, eligible, 0)
        )
        shapes = catalogue.classes[self.classes, L.C_SHAPE]
        self.nodes: Ints = catalogue.classes[self.classes, L.C_NODES]
        self.fit: Ints = catalogue.shapes[shapes, L.S_FIT]
        self.ever: Ints = catalogue.shapes[shapes, L.S_EVER]
        self.sets: Ints = catalogue.shapes[shapes, L.S_CSET]
        self.resources = tuple(state.nodes.resources)
        self.request: Ints = catalogue.request[: len(self.resources)][:, shapes].T
        # What each is short of, filled in by `wants`.
        self.kind: Ints = np.full(self.classes.shape[0], _TURN)
        """Index into `_KINDS`."""
        self.lacking: Ints = np.full(self.classes.shape[0], -1)
        """Index of a resource; -1: none."""
        self.short_by: Ints = np.zeros(self.classes.shape[0], np.int64)

    def rows(self, positions: Ints) -> list[ClassWants]:
        """The values of the classes at some positions."""
        first = self.begins[:-1]
        columns = (*self._columns(), first, self.begins[1:], self.owners[first], self.counts[first])
        out: list[ClassWants] = []
        for position, jobs, tasks, head, since_ms, kind, lacking, by, fit, ever, begin, end, number, count in zip(
            positions.tolist(), *(column[positions].tolist() for column in columns), strict=True
        ):
            queues: dict[str, int]
            users: dict[str, int]
            if end == begin + 1:
                owner = self.owner_specs[number]
                queues, more_queues, users, more_users = {owner.queue: count}, 0, {owner.user: count}, 0
            else:
                queues, more_queues, users, more_users = self._owned(begin, end)
            out.append(
                ClassWants(
                    self.specs[position], jobs, tasks, queues, users, more_queues, more_users, head, since_ms,
                    _KINDS[kind], self.resources[lacking] if lacking >= 0 else "", by, fit, ever,
                )
            )  # fmt: skip
        return out

    def unchanged_since(self, earlier: Wants) -> tuple[Ints, Mask]:
        """Where each class was in an earlier answer, -1: not in it; and whether all of its values are as they were."""
        if not earlier.specs:
            return np.full(self.classes.shape[0], -1), np.zeros(self.classes.shape[0], np.bool_)
        there, at = _found_in(earlier.classes, self.classes)
        specs = earlier.specs
        same_spec = [
            known and specs[place] is spec
            for known, place, spec in zip(there.tolist(), at.tolist(), self.specs, strict=True)
        ]
        was = np.where(np.array(same_spec, np.bool_), at, -1)
        if self.resources != earlier.resources:
            return was, np.zeros(was.shape[0], np.bool_)
        same = (was >= 0) & (np.diff(self.begins) == np.diff(earlier.begins)[at])
        for column, before in zip(self._columns(), earlier._columns(), strict=True):
            same &= column == before[at]
        # And its buckets: as many, each with the same owner and jobs.
        known, bucket = _found_in(earlier.buckets, self.buckets)
        known &= earlier.classes[earlier.of[bucket]] == self.classes[self.of]
        known &= (earlier.owners[bucket] == self.owners) & (earlier.counts[bucket] == self.counts)
        if earlier.owner_specs != self.owner_specs:
            known &= np.array(
                [place < len(earlier.owner_specs) and earlier.owner_specs[place] == spec
                 for place, spec in enumerate(self.owner_specs)], np.bool_
            )[self.owners]  # fmt: skip
        same[self.of[~known]] = False
        return was, same

    def _columns(self) -> tuple[Ints, ...]:
        """All that the values of a class are made of, beside its spec and the owners of its buckets."""
        return (
            self.jobs, self.tasks, self.head, self.since_ms, self.kind, self.lacking, self.short_by, self.fit,
            self.ever,
        )  # fmt: skip

    def _owned(self, begin: int, end: int) -> tuple[dict[str, int], int, dict[str, int], int]:
        """Jobs in some buckets by queue, and how many queues are not named; the same by user."""
        queues: dict[str, int] = {}
        users: dict[str, int] = {}
        for number, jobs in zip(self.owners[begin:end].tolist(), self.counts[begin:end].tolist(), strict=True):
            owner = self.owner_specs[number]
            queues[owner.queue] = queues.get(owner.queue, 0) + jobs
            users[owner.user] = users.get(owner.user, 0) + jobs
        return _largest(queues), max(len(queues) - MAX_NAMED, 0), _largest(users), max(len(users) - MAX_NAMED, 0)


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


def wants(state: State, now_ms: int, user: str = "") -> Sliced[Wants]:
    """Gather what waits for nodes; held and blocked work is not among it.

    Args:
        user: only work of this user; '': everybody's.
    """
    found = Wants(state, user)
    yield
    yield from _count_tasks(state, found)
    yield from _judge_shortages(state, found)
    could = found.order[found.kind[found.order] == _TURN][:MAX_JUDGED]
    for number, position in enumerate(could.tolist(), 1):
        found.kind[position] = _rule(state, found, position, now_ms)
        if number % JUDGED_A_SLICE == 0:
            yield
    return found


def _found_in(known: Ints, wanted: Ints) -> tuple[Mask, Ints]:
    """Whether each is among those known, and where; of others the place is one that exists.

    Args:
        known: distinct, at least one.
    """
    order = np.argsort(known, kind="stable")
    at = order[np.minimum(np.searchsorted(known, wanted, sorter=order), known.size - 1)]
    return known[at] == wanted, at


def _known(spec: ClassSpec | None) -> ClassSpec:
    assert spec is not None, "a class that a bucket refers to is not forgotten"
    return spec


def _largest(jobs: dict[str, int]) -> dict[str, int]:
    if len(jobs) <= MAX_NAMED:
        return jobs
    return dict(sorted(jobs.items(), key=lambda item: (-item[1], item[0]))[:MAX_NAMED])


def _count_tasks(state: State, found: Wants) -> Sliced[None]:
    """Count the tasks of each class. Entries are looked at only where some have several."""
    if state.meta[L.M_PENDING] == state.meta[L.M_ENTRIES]:
        return
    position_of = np.full(state.work.buckets.shape[0], -1, np.int64)
    position_of[found.buckets] = found.of
    further = np.zeros(found.jobs.shape[0], np.int64)
    # As far as entries were when it began: those that come meanwhile are not among what is counted.
    top = int(state.meta[L.M_ENTRY_TOP])
    for at in range(0, top, ENTRIES_A_SLICE):
        some = state.work.entries[at : min(at + ENTRIES_A_SLICE, top)]
        # Of most only this column is read: a row is longer than a cache line.
        some = some[np.flatnonzero(some[:, L.E_TASKS] > 1)]
        some = some[some[:, L.E_WHERE] == L.WHERE_BUCKET]
        some = some[some[:, L.E_BUCKET] < position_of.shape[0]]  # the table of buckets may have grown since
        positions = position_of[some[:, L.E_BUCKET]]
        np.add.at(further, positions[positions >= 0], some[positions >= 0, L.E_TASKS] - 1)
        yield
    found.tasks = found.jobs + further


def _judge_shortages(state: State, found: Wants) -> Sliced[None]:
    """Fill in for each class what it is short of, which resource, and by how much."""
    capacity = np.zeros(found.request.shape, np.int64)
    free = np.zeros(found.request.shape, np.int64)
    resources = len(found.resources)
    for number, constraints in enumerate(np.unique(found.sets).tolist(), 1):
        allowed = state.nodes.allowed[constraints, : len(state.nodes.names)] if constraints < _sets(state) else None
        rows = np.flatnonzero(allowed) if allowed is not None else np.zeros(0, np.int64)
        if rows.size:
            of = found.sets == constraints
            capacity[of] = state.nodes.capacity[rows, :resources].max(axis=0)
            free[of] = np.maximum(state.nodes.free[rows, :resources].max(axis=0), 0)
        if number % SETS_A_SLICE == 0:
            yield
    never, now = found.ever < found.nodes, found.fit < found.nodes
    lacks = found.request - np.where(never[:, None], capacity, free)
    # Of several resources the one of which the largest part is lacking.
    worst = np.argmax(lacks / np.maximum(found.request, 1), axis=1) if resources else np.zeros(len(never), np.int64)
    by = lacks[np.arange(lacks.shape[0]), worst] if resources else np.zeros(len(never), np.int64)
    nodes = found.nodes - np.where(never, found.ever, found.fit)
    short = never | now
    found.kind = np.where(never, _NODES, np.where(now, _RESOURCES, _TURN))
    found.lacking = np.where(short & (by > 0), worst, -1)
    found.short_by = np.where(short, np.where(by > 0, by, nodes), 0)
    yield


def _sets(state: State) -> int:
    """Constraint sets that the state has now."""
    return int(state.nodes.allowed.shape[0])


def _rule(state: State, found: Wants, position: int, now_ms: int) -> int:
    """The rule that keeps the first job of a class waiting though it would fit; TURN where none does."""
    slot, job, spec = int(found.head_slot[position]), int(found.head[position]), found.specs[position]
    entry = state.work.entries[slot]
    if entry[L.E_JOB] != job or entry[L.E_WHERE] != L.WHERE_BUCKET:
        return _TURN  # it has started since
    verdict = refused(state, job, slot, spec, now_ms) or unlicensed(state, job, slot, spec, now_ms)
    return _TURN if verdict is None else _KINDS.index(verdict.reason.value, _TURN + 1)


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
