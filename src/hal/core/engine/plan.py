"""What a cycle decided: column blocks that the caller owns (they are never written again).

Pure values. `PlanAssumed(plan)` makes a plan true; a plan that is not assumed changes nothing.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec
import numpy as np

from hal.core.kernels.structures.arrays import Ints, Records
from hal.core.kernels.structures.layout import A_OP, MOVE_SIZE, OP_CANCEL, OP_CLAIM, OP_PREEMPT, OP_RESUME

StartRows: TypeAlias = Records
"""Shape (S,), dtype `START`, in the order decided."""
ReservationRows: TypeAlias = Records
"""Shape (K,), dtype `RESERVATION`, in rank order."""
VerdictRows: TypeAlias = Records
"""Shape (V,), dtype `VERDICT`: jobs that the slice looked at and refused, at most MAX_VERDICTS."""
Rows: TypeAlias = Ints
"""Shape (G,): node rows (or indices of nodes)."""

START: Final = np.dtype(
    [
        ("job", np.int64),
        ("task", np.int64),
        ("attempt", np.int64),
        ("row_offset", np.int64),  # the gang's rows are plan.rows[row_offset : row_offset + row_count]
        ("row_count", np.int64),
        ("entry", np.int64),  # engine-internal slot; -1 in hand-made rows
    ]
)
RESERVATION: Final = np.dtype(
    [
        ("entry", np.int64),  # engine-internal slot
        ("job", np.int64),
        ("task", np.int64),
        ("key", np.int64),  # its place in the order
        ("start_ms", np.int64),  # forecast start; INF = not known (strict order), or it waits for a release of 'never'
        ("planned_ms", np.int64),
        ("class_id", np.int64),
        ("row_offset", np.int64),  # the reserved nodes are plan.reservation_rows[row_offset : row_offset + row_count]
        ("row_count", np.int64),
        ("kind", np.int64),  # hal.core.kernels.structures.layout KIND_RESERVED, KIND_CLAIM, KIND_BLOCK, KIND_NEVER
        ("dirty", np.int64),  # 1 = the next pass plans it anew
        ("held", np.int64),  # under conservative: 0 = work of better rank came and it is yet to be made anew
        ("behind", np.int64),  # under conservative: 1 = it looks at all nodes when an event wakes it
    ]
)
VERDICT: Final = np.dtype(
    [
        ("job", np.int64),
        ("task", np.int64),
        ("reason", np.int64),  # hal.core.kernels.structures.layout REASON_*
        ("short_rows", np.int64),  # distinct nodes lacking now (resources), else 0
    ]
)

MOVE: Final = np.dtype(
    [
        ("op", np.int64),  # hal.core.kernels.structures.layout OP_*
        ("slot", np.int64),  # engine-internal
        ("job", np.int64),
        ("task", np.int64),
        ("attempt", np.int64),
        ("mode", np.int64),  # of what is taken back: hal.core.kernels.structures.layout MODE_*
        ("grace_ms", np.int64),
        ("for_job", np.int64),  # whom it is taken back for, -1
        ("for_task", np.int64),
        ("at_ms", np.int64),  # of a claim: when its rows are free at the latest; of what is moved: see `MOVED`
        ("row_offset", np.int64),
        ("row_count", np.int64),
        ("lent", np.int64),  # of what is taken back: 0, `LENT` or `MOVED`
    ]
)
LENT: Final = 1
"""In `lent`: it had borrowed what the account of the job that it is taken back for had lent."""
MOVED: Final = 2
"""In `lent`: it is moved to make room for a gang, which would start by itself at `at_ms` (INF: nobody knows)."""

NO_STARTS: Final = np.zeros(0, START)
NO_ROWS: Final = np.zeros(0, np.int64)
NO_RESERVATIONS: Final = np.zeros((0, len(RESERVATION.names or ())), np.int64)
NO_VERDICTS: Final = np.zeros(0, VERDICT)
NO_RESERVED: Final = np.zeros((0, 2), np.int64)
NO_MOVES: Final = np.zeros((0, MOVE_SIZE), np.int64)
for _empty in (NO_STARTS, NO_ROWS, NO_RESERVATIONS, NO_VERDICTS, NO_RESERVED, NO_MOVES):
    _empty.setflags(write=False)


class Cursor(msgspec.Struct, frozen=True, gc=False):
    """Where an unfinished pass goes on; give it back to `cycle` after the slice's plan was assumed.

    (`lane`, `key`, `job`, `task`) is the next place in the order; everything before was considered. The rest says what
    the pass had seen when it began, so that only that much is parked when it completes.
    """

    lane: int
    key: int
    job: int
    task: int
    pass_wake: int
    pass_inserts: int
    full: bool
    phase: int = 0
    """Before the pass goes on there: 0 nothing, 1 work to take back is searched for, 2 suspended work is looked
    at, 3 and 4 what a cohort borrowed is searched for (4: between two passes)."""
    row: int = 0
    """Where the search goes on."""
    seen: int = -1
    """The state's version when the search began."""
    restarts: int = 0
    attended: bool = False
    """This pass has looked at suspended work."""

    @property
    def begins_anew(self) -> bool:
        """Shares have moved: what follows is a new pass, from the top of another order."""
        return self.lane < 0


class Plan(msgspec.Struct, frozen=True, gc=False):
    """One slice's decisions at `now_ms`.

    changes: whether PlanAssumed(plan) changes the state (starts, reservations or parking); without it, skip the apply.
    wake_ms: call again at this instant when no event comes before (INF: only an event can help).
    cursor: None when the pass is complete.
    plan_version: the state version it was made from; PlanAssumed refuses a plan of another version.
    replans: whether `reservations` replaces the state's (else they stay as they are and `reservations` is empty).
    reservation_table: the reservations as a table of their columns, shape (K, 13).
    reserved_table: shape (P, 2 + R): row, reservation, amounts left beside the reservation for each resource.
    work: units spent (row checks and candidates).
    resumed: it went on with a pass that an earlier slice began.
    full: under conservative: the pass looks at every reservation, not only at work that has none.
    """

    now_ms: int
    plan_version: int
    changes: bool
    starts: StartRows
    rows: Rows
    replans: bool
    reservation_table: Ints
    reserved_table: Ints
    verdicts: VerdictRows
    wake_ms: int
    cursor: Cursor | None
    work: int
    pass_wake: int
    pass_inserts: int
    resumed: bool = False
    full: bool = False
    moves: Ints = NO_MOVES
    """What is taken back, claimed, given up and resumed: shape (M, 13), see `MOVE`."""

    @property
    def preemptions(self) -> Records:
        """Running attempts that are told to leave, or suspended (dtype MOVE)."""
        return self._moves(OP_PREEMPT)

    @property
    def resumes(self) -> Records:
        """Suspended attempts that go on (dtype MOVE)."""
        return self._moves(OP_RESUME)

    @property
    def claims(self) -> Records:
        """Waiting tasks whose rows are being cleared (dtype MOVE); their rows are in `rows`."""
        return self._moves(OP_CLAIM)

    @property
    def fallen(self) -> Records:
        """Claims that are given up (dtype MOVE): their tasks wait as before."""
        return self._moves(OP_CANCEL)

    def _moves(self, op: int) -> Records:
        wanted: Records = self.moves[self.moves[:, A_OP] == op].view(MOVE).reshape(-1)
        return wanted

    @property
    def complete(self) -> bool:
        """Whether the pass considered everything it set out to."""
        return self.cursor is None

    @property
    def reservations(self) -> ReservationRows:
        """What waiting jobs have reserved (dtype RESERVATION), when this plan replans."""
        return self.reservation_table.view(RESERVATION).reshape(-1)

    @property
    def reservation_rows(self) -> Rows:
        """The reserved nodes, all reservations one after the other."""
        return self.reserved_table[:, 0]

    @property
    def wants(self) -> VerdictRows:
        """Work that more resources would let start: the refusals with the number of nodes that each lacks."""
        return self.verdicts[self.verdicts["short_rows"] > 0]
