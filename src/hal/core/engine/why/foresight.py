"""Where a waiting job stands: how many others come first, and when enough of what it needs comes free.

Pure, in whole columns: O(entries + running attempts x log) a question, whatever the number of buckets and nodes.
"""

from __future__ import annotations

import numpy as np

from hal.core.engine.classes import ClassSpec
from hal.core.engine.state import State
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Mask, Rows
from hal.core.kernels.structures.slots import look_up

MAX_SIBLINGS = 64
"""Ranges of alike tasks of one job that a brief answer looks at."""
RESERVED = "reservation"
BY_WALLTIMES = "walltimes of running jobs, jobs ahead not counted"


def entries_of(state: State, job: int) -> Rows:
    """Slots of all that waits of a job."""
    # Rows are longer than a cache line: one column of all of them is read, the others of a few.
    slots = np.flatnonzero(state.work.entries[: int(state.meta[L.M_ENTRY_TOP]), L.E_JOB] == job)
    waiting: Rows = slots[state.work.entries[slots, L.E_WHERE] != L.WHERE_FREE]
    return waiting


def first_entries(state: State, job: int) -> Rows:
    """Slots of what waits of a job, by the index of jobs: the first `MAX_SIBLINGS` that it leads to."""
    work = state.work
    slots: list[int] = []
    slot = int(look_up(work.job_index, work.entries, L.E_JOB, job))
    while slot >= 0 and len(slots) < MAX_SIBLINGS:
        slots.append(slot)
        slot = int(work.entries[slot, L.E_SIBLING])
    return np.array(slots, np.int64)


def admitted(state: State, shape: int) -> Rows:
    """Rows that could hold a shape when they are empty, and may."""
    rows = len(state.nodes.names)
    could = (state.nodes.capacity[:rows] >= state.catalogue.request[:, shape]).all(axis=1)
    return np.flatnonzero(could & (state.nodes.allowed[state.catalogue.shapes[shape, L.S_CSET], :rows] != 0))


def together(state: State, spec: ClassSpec, rows: Rows) -> int:
    """How many of these nodes one start may use: of a domain the most, where all must be in one."""
    if not spec.within:
        return int(rows.size)
    level = state.domains.level_of(spec.within)
    if level < 0:
        return 0
    domain = state.domains.domain_of[level, rows]
    return int(np.bincount(domain[domain > 0]).max(initial=0))


def position(state: State, slot: int, shape: int) -> int:
    """How many entries come before this one among those that could use its rows."""
    buckets = state.work.active[: int(state.meta[L.M_ACTIVE])]
    shapes = state.catalogue.classes[state.work.buckets[buckets, L.B_CLASS], L.C_SHAPE]
    rivals = np.zeros(state.work.buckets.shape[0], np.bool_)
    rivals[buckets] = np.isin(shapes, _rivals(state, shape, np.unique(shapes)))
    table = state.work.entries[: int(state.meta[L.M_ENTRY_TOP])]
    left = np.flatnonzero(table[:, L.E_WHERE] == L.WHERE_BUCKET)
    of = table[left, L.E_BUCKET]
    left, of = left[rivals[of]], of[rivals[of]]
    offset = np.ascontiguousarray(state.work.buckets[:, L.B_OFFSET])
    key = table[left, L.E_KEY] + offset[of]
    mine = int(state.work.entries[slot, L.E_KEY] + offset[state.work.entries[slot, L.E_BUCKET]])
    ties = left[key == mine]
    return int((key < mine).sum()) + int((table[ties, L.E_JOB] < state.work.entries[slot, L.E_JOB]).sum())


def forecast(state: State, slot: int, spec: ClassSpec, shape: int, now_ms: int) -> tuple[int | None, str]:
    """Its reservation where it has one, else the earliest release at which enough rows fit, jobs ahead ignored.

    Returns the instant and what it rests on; (None, "") where enough fits now, or never.
    """
    reservation = int(state.work.entries[slot, L.E_RESERVED])
    if reservation >= 0 and state.work.reservations[reservation, L.V_KIND] == L.KIND_RESERVED:
        return int(state.work.reservations[reservation, L.V_START]), RESERVED
    if spec.groups:
        return None, ""  # when all of them fit, only a reservation says
    rows = admitted(state, shape)
    wanted = state.catalogue.request[:, shape]
    place = np.full(len(state.nodes.names), -1, np.int64)
    place[rows] = np.arange(rows.size)
    free = state.nodes.free[rows]
    if together(state, spec, rows[(free >= wanted).all(axis=1)]) >= spec.nodes:
        return None, ""
    runs, held = _releases(state)
    at, given = state.work.runs[runs, L.R_END], _given(state, runs)
    near = place[held] >= 0
    at, given, held = at[near], given[near], place[held[near]]
    ends = np.unique(at)

    def enough(until: int) -> bool:
        then = free.copy()
        due = at <= until
        np.add.at(then, held[due], given[due])
        return together(state, spec, rows[(then >= wanted).all(axis=1)]) >= spec.nodes

    if not ends.size or not enough(int(ends[-1])):
        return None, ""
    low, high = 0, ends.size - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(int(ends[middle])) else (middle + 1, high)
    return max(int(ends[low]), now_ms + 1), BY_WALLTIMES


def _rivals(state: State, shape: int, others: Rows) -> Rows:
    """Which of these shapes could use a row that `shape` could use."""
    rows = len(state.nodes.names)
    csets, cset = np.unique(state.catalogue.shapes[np.append(others, shape), L.S_CSET], return_inverse=True)
    # Rows that are alike in everything that is asked here count once.
    kinds = np.unique(
        np.hstack([state.nodes.capacity[:rows], state.nodes.allowed[csets, :rows].T.astype(np.int64)]), axis=0
    )
    capacity, allowed = kinds[:, : state.nodes.capacity.shape[1]], kinds[:, state.nodes.capacity.shape[1] :]

    def mask(which: int, place: int) -> Mask:
        could: Mask = (capacity >= state.catalogue.request[:, which]).all(axis=1) & (allowed[:, cset[place]] != 0)
        return could

    mine = mask(shape, others.size)
    return np.array(
        [other for place, other in enumerate(others.tolist()) if other == shape or (mask(other, place) & mine).any()],
        np.int64,
    )


def _releases(state: State) -> tuple[Rows, Rows]:
    """Running attempts that will end, one for each row that they hold, and those rows."""
    table = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    runs = np.flatnonzero((table[:, L.R_NODES] > 0) & (table[:, L.R_END] < L.INF))
    piece = table[runs, L.R_PIECE]
    of: list[Rows] = []
    rows: list[Rows] = []
    while runs.size:
        some = piece >= 0
        runs, piece = runs[some], piece[some]
        of.append(runs)
        rows.append(state.work.pieces[piece, L.P_NODE])
        piece = state.work.pieces[piece, L.P_NEXT]
    none = np.zeros(0, np.int64)
    return np.concatenate([none, *of]), np.concatenate([none, *rows])


def _given(state: State, runs: Rows) -> Rows:
    """What each of these attempts holds of a row; shape (runs, resources)."""
    shapes = state.catalogue.classes[state.work.buckets[state.work.runs[runs, L.R_BUCKET], L.B_CLASS], L.C_SHAPE]
    return np.ascontiguousarray(state.catalogue.request[: state.nodes.free.shape[1]].T[shapes])
