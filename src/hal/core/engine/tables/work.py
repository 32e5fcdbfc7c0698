"""Work: what waits, what runs, what is reserved for whom; the room that it takes, and the hash indexes into it.

Pure. Every growth doubles: O(1) a record, over many.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints
from hal.core.kernels.structures.declaration import Room
from hal.core.kernels.structures.declared import (
    BUCKET_HASH,
    BUCKETS,
    ENTRIES,
    ENTRY_HASH,
    PIECES,
    RESERVATIONS,
    RESERVED_NODES,
    RUN_HASH,
    RUNS,
    SEARCHED_ENTRIES,
    TIMED_ENTRIES,
    WorkTables,
)
from hal.core.kernels.structures.slots import rehash

SLICES_AHEAD: Final = 16
"""For so many times as many starts as are at hand tables are made larger, where as many wait."""
NO_JOBS: Final = np.zeros(0, np.int64)


class Predictions(Struct, frozen=True):
    """The newest advice on run times."""

    version: int = -1
    jobs: Ints = NO_JOBS
    """Sorted."""
    expires_ms: int = L.INF


class Work(WorkTables):
    """The part of a `State` that holds entries, runs and reservations."""

    def __init__(self) -> None:
        self.newest_job = -1
        """The largest job id that was ever submitted or adopted; -1 = none. Never goes back."""
        self.predictions = Predictions()
        """Which jobs are planned by something else than their walltime."""

    def rooms_for(self, meta: Ints, outcome: int, count: int) -> dict[Room, int]:
        """Larger rooms after a kernel asked for them by `outcome`; count: how many slots the event may need."""
        if outcome == L.GROW_ENTRIES:
            room = 2 * max(self.entries.shape[0], int(meta[L.M_ENTRY_TOP]) + count)
            rooms = {ENTRIES: room, ENTRY_HASH: power_of_two(2 * room)}
            if meta[L.M_PREEMPTING]:
                rooms[SEARCHED_ENTRIES] = room
            if meta[L.M_BY_TIME]:
                rooms[TIMED_ENTRIES] = room
            return rooms
        if outcome == L.GROW_BUCKETS:
            room = 2 * max(self.buckets.shape[0], int(meta[L.M_BUCKET_TOP]) + count)
            return {BUCKETS: room, BUCKET_HASH: power_of_two(2 * room)}
        # Room for all that waits, up to SLICES_AHEAD times the starts at hand: a pass of many slices would copy its
        # tables after every other one, and room that nobody wrote takes no memory.
        ahead = max(2 * count, min(int(meta[L.M_PENDING]), SLICES_AHEAD * count))
        if outcome == L.GROW_RUNS:
            room = max(2 * self.runs.shape[0], int(meta[L.M_RUN_TOP]) + ahead)
            return {RUNS: room, RUN_HASH: power_of_two(2 * room)}
        return {PIECES: max(2 * self.pieces.shape[0], int(meta[L.M_PIECE_TOP]) + ahead)}

    def refill_index(self, meta: Ints, outcome: int) -> None:
        """Fill the hash index that growth by `outcome` has emptied."""
        if outcome == L.GROW_ENTRIES:
            rehash(self.job_index, self.entries, self._job_heads(int(meta[L.M_ENTRY_TOP])), L.E_JOB, False)
        elif outcome == L.GROW_RUNS:
            live = np.flatnonzero(self.runs[: int(meta[L.M_RUN_TOP]), L.R_NODES])
            rehash(self.run_index, self.runs, live, L.R_JOB, True)
        elif outcome == L.GROW_BUCKETS:
            live = np.flatnonzero(self.buckets[: int(meta[L.M_BUCKET_TOP]), L.B_REFS])
            rehash(self.bucket_index, self.buckets, live, L.B_CLASS, True)

    def rooms_for_reservations(self, reservations: int, nodes: int) -> dict[Room, int]:
        """Rooms to keep so many reservations and nodes of reservations, where there is not room for as many."""
        rooms = {}
        if reservations > self.reservations.shape[0]:
            rooms[RESERVATIONS] = 2 * reservations
        if nodes > self.reserved.shape[0]:
            rooms[RESERVED_NODES] = 2 * nodes
        return rooms

    def _job_heads(self, top: int) -> Ints:
        """First entries of their jobs (the ones that no sibling leads to), in slot order."""
        live = np.flatnonzero(self.entries[:top, L.E_WHERE] != L.WHERE_FREE)
        following = self.entries[live, L.E_SIBLING]
        is_head = np.ones(self.entries.shape[0], np.bool_)
        is_head[following[following >= 0]] = False
        return live[is_head[live]]


def power_of_two(least: int) -> int:
    """The size of a hash index for `least` or more."""
    return 1 << max(6, (least - 1).bit_length())
