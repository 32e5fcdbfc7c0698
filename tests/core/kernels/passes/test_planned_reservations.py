"""Reservations while a slice plans, asked rule by rule: which count no more, which are passed, what they leave.

A table of reservations is drawn from a seed, with the same as plain objects beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

import numpy as np
import pytest

from hal.core.engine import apply, new_state
from hal.core.engine.classes import ClassSpec, Match, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import NodesChanged, NodeSpec
from hal.core.engine.rules.interning import intern_classes
from hal.core.kernels.passes.earlier_starts import list_events
from hal.core.kernels.passes.planned_reservations import (
    HURT,
    compact,
    drop_behind,
    forget_hurt,
    forget_overtaken,
    is_closed,
    leave_stale,
    let_go_behind,
    note_freed,
)
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.jit import plain
from hal.core.kernels.timelines.chains import link_reservations

RACKS: Final = ("a", "a", "a", "b", "b", "b")
NODES: Final = len(RACKS)
MOST: Final = 2
"""Reservations of jobs that compete, under top-K."""
SEEDS: Final = range(7)

Rank = tuple[int, int, int]
"""Key, job, task."""


def on(rack: str) -> tuple[Requirement, ...]:
    return (Requirement("rack", Match.IN, (rack,)),)


KINDS: Final = (ClassSpec({"cpu": 1}, 1, on("a")), ClassSpec({"cpu": 2}, 2, on("b")), ClassSpec({"cpu": 1}, 3))
REACHES: Final = ({0, 1, 2}, {3, 4, 5}, set(range(NODES)))


@dataclass
class Reservation:
    """One row of the table."""

    rank: Rank
    kind: int
    """Of KINDS."""
    nodes: list[int]
    held: int
    never: bool
    bucket: int
    alive: bool = True

    def competes(self, kind: int) -> bool:
        return bool(REACHES[self.kind] & REACHES[kind])


@dataclass
class Slice:
    """A slice whose cursor stands somewhere among the reservations."""

    seed: int
    table: list[Reservation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.r = r = Random(self.seed)
        self.state = new_state(EngineConfig(backfill=Backfill.TOP_K, reservations=MOST, order="fcfs"))
        apply(
            self.state, NodesChanged(tuple(NodeSpec(f"n{k}", {"cpu": 9}, {"rack": of}) for k, of in enumerate(RACKS)))
        )
        self.classes = [int(one) for one in intern_classes(self.state, KINDS)]
        self.shapes = [int(self.state.catalogue.classes[one, L.C_SHAPE]) for one in self.classes]
        self.t = self.state.tables()
        self.cursor: Rank = (r.randrange(3), r.randrange(4), r.randrange(2))
        p = self.t.pass_record
        p[[L.PASS_KEY, L.PASS_JOB, L.PASS_TASK]] = self.cursor
        p[[L.PASS_REPLANS, L.PASS_VACATED]] = 0
        self.t.ticks[L.TICK] += 1
        self.t.rows[:, [L.N_STALE, L.N_FREED, L.N_STAMP]] = 0
        self.t.counts[[L.COUNT_STALE, L.COUNT_FREED, L.COUNT_RESERVED]] = 0
        self.t.counts[L.COUNT_RESERVATIONS] = count = r.randrange(1, 9)
        for k in range(count):
            self.add(k)
        self.t.rows[:, L.N_RESERVED] = -1
        plain(link_reservations)(self.t)

    def add(self, k: int) -> None:
        r, t = self.r, self.t
        kind = r.randrange(len(KINDS))
        one = Reservation(
            rank=(r.randrange(3), r.randrange(4), r.randrange(2)),
            kind=kind,
            nodes=r.sample(sorted(REACHES[kind]), KINDS[kind].nodes),
            held=r.choice((0, 1, 1, 1)),
            never=r.random() < 0.2,
            bucket=r.randrange(2),
            alive=r.random() < 0.85,
        )
        one.nodes = [-1] * len(one.nodes) if one.never else one.nodes
        self.table.append(one)
        first = int(t.counts[L.COUNT_RESERVED])
        t.planned[k, [L.V_KEY, L.V_JOB, L.V_TASK]] = one.rank
        t.planned[k, L.V_ENTRY] = k if one.alive else -1
        t.planned[k, L.V_CLASS] = self.classes[kind]
        t.planned[k, [L.V_FIRST, L.V_NODES]] = first, len(one.nodes)
        t.planned[k, [L.V_START, L.V_PLANNED]] = L.INF if one.never else 50, 10
        t.planned[k, L.V_KIND] = L.KIND_NEVER if one.never else L.KIND_RESERVED
        t.planned[k, L.V_HELD] = one.held
        t.entries[k, L.E_BUCKET] = one.bucket
        for place, node in enumerate(one.nodes, first):
            t.planned_nodes[place, [L.Q_NODE, L.Q_RESERVATION]] = node, k
        t.counts[L.COUNT_RESERVED] += len(one.nodes)

    def held(self) -> list[int]:
        return self.t.planned[: len(self.table), L.V_HELD].tolist()

    def stale(self) -> set[int]:
        return set(self.t.stale[: int(self.t.counts[L.COUNT_STALE])].tolist())

    def freed(self) -> list[int]:
        return self.t.scratch[L.SCRATCH_LOCAL, : int(self.t.counts[L.COUNT_FREED])].tolist()

    def nodes_of(self, numbers: list[int]) -> set[int]:
        return {node for k in numbers for node in self.table[k].nodes} - {-1}

    def passed(self, one: Reservation) -> bool:
        return one.rank < self.cursor

    def without(self, gone: list[int]) -> list[int]:
        return [0 if k in gone else one.held for k, one in enumerate(self.table)]


@pytest.mark.parametrize("seed", SEEDS)
def test_better_work_makes_what_is_behind_it_and_competes_with_it_count_no_more(seed: int) -> None:
    """A drop without a shape competes with all. What this very pass made stays; its nodes need not be built again."""
    s = Slice(seed)
    drops = [(s.r.randrange(3), s.r.randrange(4), s.r.choice((0, 1, 2, -1))) for _ in range(2)]
    for d, (key, job, kind) in enumerate(drops):
        s.t.drops[d, [L.X_KEY, L.X_JOB, L.X_SHAPE]] = key, job, s.shapes[kind] if kind >= 0 else -1
    s.t.meta[L.M_DROPS] = len(drops)
    gone = [
        k
        for k, one in enumerate(s.table)
        if one.alive and one.held and not s.passed(one)
        and any((key, job, -1) <= one.rank and (kind < 0 or one.competes(kind)) for key, job, kind in drops)
    ]  # fmt: skip
    assert plain(forget_overtaken)(s.t) == bool(gone)
    assert s.held() == s.without(gone)
    assert s.stale() == s.nodes_of(gone)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_cannot_be_kept_counts_no_more_nor_does_what_is_behind_it(seed: int) -> None:
    """Where the pass has come by it already, the next one plans it again."""
    s = Slice(seed)
    hurt = [k for k, one in enumerate(s.table) if one.alive and one.held and s.r.random() < 0.4]
    for k in hurt:
        s.t.planned[k, L.V_HELD] = HURT
    behind = [
        k
        for k, one in enumerate(s.table)
        if one.alive and one.held and k not in hurt and not s.passed(one)
        and any(one.rank >= s.table[other].rank and one.competes(s.table[other].kind) for other in hurt)
    ]  # fmt: skip
    gone = behind + [k for k in hurt if not s.passed(s.table[k])]
    plain(forget_hurt)(s.t)
    assert s.held() == s.without(gone)
    assert s.stale() == s.nodes_of(gone)


@pytest.mark.parametrize("seed", SEEDS)
def test_behind_a_task_what_competes_with_it_is_let_go(seed: int) -> None:
    """But for the job's own reservation. The nodes that are left are listed, each once, those that came free before
    not at all."""
    s = Slice(seed)
    mine, kind, task = s.r.randrange(-1, len(s.table)), s.r.randrange(len(KINDS)), s.cursor[2] + s.r.randrange(2)
    s.t.rows[s.r.randrange(NODES), L.N_FREED] = 7
    gone = [
        k
        for k, one in enumerate(s.table)
        if k != mine and one.alive and one.held and one.rank >= (*s.cursor[:2], task) and one.competes(kind)
    ]
    plain(let_go_behind)(s.t, s.shapes[kind], mine, task)
    assert s.held() == s.without(gone)
    assert sorted(s.freed()) == sorted(node for node in s.nodes_of(gone) if not s.t.rows[node, L.N_FREED])
    assert bool(s.t.pass_record[L.PASS_REPLANS]) == bool(gone)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_strict_queue_takes_back_what_its_bucket_holds_from_the_cursor_on(seed: int) -> None:
    """The pass begins again where somebody ahead could have used nodes that are left."""
    s = Slice(seed)
    gone = [k for k, one in enumerate(s.table) if one.alive and one.bucket == 0 and not s.passed(one)]
    left = [k for k in gone if s.table[k].held and not s.table[k].never]
    plain(drop_behind)(s.t, 0)
    alive = (s.t.planned[: len(s.table), L.V_ENTRY] >= 0).tolist()
    assert alive == [one.alive and k not in gone for k, one in enumerate(s.table)]
    assert s.held() == s.without(gone)
    assert set(s.freed()) == s.nodes_of(gone)
    assert bool(s.t.pass_record[L.PASS_VACATED]) == bool(left)
    assert bool(s.t.pass_record[L.PASS_REPLANS]) == bool(gone)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shape_is_closed_when_enough_ahead_compete_with_it_and_stays_so(seed: int) -> None:
    """In this slice: whoever leaves meanwhile."""
    s = Slice(seed)
    kinds = range(len(KINDS))
    ahead = [[one for one in s.table if one.alive and s.passed(one) and one.competes(kind)] for kind in kinds]
    closed = [len(ahead[kind]) >= MOST for kind in kinds]
    assert [bool(plain(is_closed)(s.t, shape)) for shape in s.shapes] == closed
    s.t.planned[: len(s.table), L.V_ENTRY] = -1
    assert [bool(plain(is_closed)(s.t, shape)) for shape in s.shapes] == closed
    s.t.ticks[L.TICK] += 1
    assert not any(plain(is_closed)(s.t, shape) for shape in s.shapes)


@pytest.mark.parametrize("seed", SEEDS)
def test_nodes_of_what_does_not_count_are_stale_when_a_slice_is_repeated(seed: int) -> None:
    s = Slice(seed)
    for k, one in enumerate(s.table):
        if one.held and s.r.random() < 0.3:
            one.held = HURT
            s.t.planned[k, L.V_HELD] = HURT
    plain(leave_stale)(s.t)
    assert s.stale() == s.nodes_of([k for k, one in enumerate(s.table) if one.alive and one.held != 1])
    assert s.held() == [min(one.held, 1) for one in s.table]


@pytest.mark.parametrize("seed", SEEDS)
def test_those_that_are_left_move_up_with_places_for_all_their_nodes(seed: int) -> None:
    """A claim has found fewer of them."""
    s = Slice(seed)
    for k in range(len(s.table)):
        if s.r.random() < 0.3:
            s.t.planned[k, [L.V_KIND, L.V_NODES]] = L.KIND_CLAIM, 0
    kept = [one for one in s.table if one.alive]
    before = s.t.planned[: len(s.table)][[one.alive for one in s.table]].copy()
    plain(compact)(s.t)
    assert s.t.counts[L.COUNT_RESERVATIONS] == len(kept)
    assert s.t.counts[L.COUNT_RESERVED] == sum(len(one.nodes) for one in kept)
    first = 0
    for k, one in enumerate(kept):
        before[k, L.V_FIRST] = first
        places = s.t.planned_nodes[first : first + len(one.nodes)]
        assert places[:, L.Q_NODE].tolist() == one.nodes
        assert (places[:, L.Q_RESERVATION] == k).all()
        first += len(one.nodes)
    assert (s.t.planned[: len(kept)] == before).all()


def test_a_node_is_listed_once_however_many_leave_it() -> None:
    s = Slice(0)
    for k in range(len(s.table)):
        plain(note_freed)(s.t, k)
        plain(note_freed)(s.t, k)
    assert sorted(s.freed()) == sorted(s.nodes_of(list(range(len(s.table)))))


def test_only_events_that_no_whole_pass_has_seen_and_that_came_before_this_one_wake_anybody() -> None:
    """The last pass had seen all up to 10; this one began at 12. What only reservations left is no event."""
    s = Slice(0)
    t = s.t
    t.meta[L.M_SEEN], t.pass_record[L.PASS_EPOCH] = 10, 12
    t.freed[:NODES] = np.arange(NODES)
    t.meta[L.M_FREED] = NODES
    t.rows[:NODES, L.N_EVENT] = [0, 10, 11, 12, 13, 11]
    plain(list_events)(t)
    assert t.scratch[L.SCRATCH_EVENTS, : int(t.pass_record[L.PASS_EVENTS])].tolist() == [2, 3, 5]
