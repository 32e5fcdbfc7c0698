"""Where slices write what plans hold: starts and their nodes, verdicts, reservations and theirs.

Pure. A plan owns slices of these tables, nothing is copied and nothing is written twice: a table that may not hold
another slice's plan gives way to a fresh one, and the plans that own parts of the old one keep it alive.
"""

from __future__ import annotations

from typing import Final

from hal.core.engine.plan import START, VERDICT, StartRows, VerdictRows
from hal.core.engine.tables.allocation import Allocation
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints
from hal.core.kernels.structures.declaration import Room
from hal.core.kernels.structures.declared import (
    OUTPUT_NODES,
    OUTPUT_RESERVATIONS,
    OUTPUT_STARTS,
    OUTPUT_VERDICTS,
    OutputTables,
)

MOST_STARTS: Final = 1 << 15
"""Starts of one slice."""
NODES: Final = 1 << 16
RESERVATIONS: Final = 1 << 12
VERDICTS: Final = 16 * L.MAX_VERDICTS
SLICES: Final = 16
"""Of so many slices the reservations have room, however many each has; what nobody writes takes no memory."""
_PARTS: Final = (
    (OUTPUT_STARTS, L.PASS_FIRST_START, L.PASS_STARTS, L.PASS_LAST_START),
    (OUTPUT_NODES, L.PASS_FIRST_NODE, L.PASS_NODES, L.PASS_LAST_NODE),
    (OUTPUT_VERDICTS, L.PASS_FIRST_VERDICT, L.PASS_VERDICTS, L.PASS_LAST_VERDICT),
    (OUTPUT_RESERVATIONS, L.PASS_FIRST_RESERVATION, L.PASS_RESERVATIONS, L.PASS_LAST_RESERVATION),
    (OUTPUT_RESERVATIONS, L.PASS_FIRST_RESERVED, L.PASS_RESERVED, L.PASS_LAST_RESERVED),
)
"""By room: columns of the pass record for the first record of a slice, how many it has, the last it may begin at."""


class Outputs(OutputTables):
    """The output tables of one state, and starts and verdicts as plans show them."""

    start_records: StartRows
    verdict_records: VerdictRows

    def renew(
        self, allocation: Allocation, record: Ints, *, nodes: int, slice_starts: int, planned: int, full: bool = False
    ) -> bool:
        """Fresh tables, or with `full` only in place of those that a slice may not begin to write. Whether any is.

        Args:
            nodes: of the cluster; slice_starts: of one slice at most; planned: records that a slice may reserve.
        """
        spare = {
            OUTPUT_STARTS: min(slice_starts + L.MAX_GROUPS, MOST_STARTS),
            OUTPUT_NODES: max(NODES // 4, nodes),
            OUTPUT_VERDICTS: L.MAX_VERDICTS,
            OUTPUT_RESERVATIONS: planned,
        }
        rooms: dict[Room, int] = {
            OUTPUT_STARTS: MOST_STARTS,
            OUTPUT_NODES: max(NODES, 4 * nodes),
            OUTPUT_VERDICTS: VERDICTS,
            OUTPUT_RESERVATIONS: max(RESERVATIONS, SLICES * planned),
        }
        if full:
            over = {
                room
                for room, first, count, _last in _PARTS
                if record[first] + record[count] > allocation.size(room) - spare[room]
            }
            rooms = {room: size for room, size in rooms.items() if room in over}
        allocation.resize(rooms, emptied=True)
        for room, first, count, last in _PARTS:
            if room in rooms:
                record[first] = record[count] = 0
            record[last] = allocation.size(room) - spare[room]
        if OUTPUT_RESERVATIONS in rooms:
            record[L.PASS_REPLANS] = 0
        self.start_records = self.starts.view(START).reshape(-1)
        self.verdict_records = self.verdicts.view(VERDICT).reshape(-1)
        return bool(rooms)
