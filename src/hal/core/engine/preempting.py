"""Taking back between the slices of a pass: searches for victims, claims that are ready, suspended work that goes on.

Pure. A pass stops where the first job in line that may take from others gets no start; the search runs in slices of its
own, and the pass goes on at the same place: before anything behind that job is looked at. What is found becomes moves
of a plan: victims, and a claim on the rows that they leave.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from hal.core.engine.plan import (
    MOVED,
    NO_MOVES,
    NO_RESERVATIONS,
    NO_RESERVED,
    NO_ROWS,
    NO_STARTS,
    NO_VERDICTS,
    START,
    Cursor,
    Plan,
    Rows,
    StartRows,
)
from hal.core.engine.plugins.answers import prices_of
from hal.core.engine.rules.affinity import terms_hold
from hal.core.engine.state import State
from hal.core.engine.views import rows_of_run, run_view
from hal.core.kernels.preemption.victims import FOUND, SEVERAL, UNFINISHED
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints, Table

PHASE_SEARCH: Final = 1
PHASE_RESUME: Final = 2
PHASE_LENT: Final = 3
"""What others have borrowed is searched for, within a pass."""
PHASE_LENDER: Final = 4
"""The same between two passes, for a job that only its cohort's limit keeps waiting."""
PHASE_MOVE: Final = 5
"""Work that may be moved is searched for: what loses least."""
PHASE_MOVE_LEAST: Final = 6
"""The same, where that has no room elsewhere or does not pay: as little as possible."""
SOUGHT: Final = {PHASE_SEARCH: 0, PHASE_LENT: 1, PHASE_LENDER: 1, PHASE_MOVE: 2, PHASE_MOVE_LEAST: 3}
"""What the search is told to offer."""
MOVES: Final = (PHASE_MOVE, PHASE_MOVE_LEAST)
MAX_RESTARTS: Final = 3
"""Searches that begin anew because something has changed between their slices; the next one is not cut any more."""
UNCUT: Final = 1 << 60
NO_JOB: Final = -1
ANEW: Final = Cursor(-1, 0, 0, 0, 0, 0, False)
"""A new pass follows."""


def between_slices(state: State, now_ms: int, cursor: Cursor, budget: int) -> Plan:
    """The slice of a search, or of what is suspended, that a pass was stopped for."""
    if cursor.phase == PHASE_RESUME:
        return _resume(state, now_ms, cursor)
    return _search(state, now_ms, cursor, budget)


def next_lender(state: State, now_ms: int) -> tuple[Cursor | None, int]:
    """The search for the first waiting task that waits only for what its cohort has borrowed of it; when to look again.

    None while the last pass has not seen everything: those who rank before get their reservations first.
    """
    meta = state.meta
    if meta[L.M_PARKED_WAKE] < meta[L.M_EPOCH] or meta[L.M_PARKED_INSERTS] < meta[L.M_INSERTS]:
        return None, L.INF
    job, task, wake_ms = state.calls["lender"](state.at, now_ms)
    return (None if job < 0 else Cursor(0, 0, job, task, 0, 0, False, phase=PHASE_LENDER)), wake_ms


def settle_claims(state: State, now_ms: int) -> Plan | None:
    """The plan that starts claims whose rows are free and gives up those that will not be; None when there is neither.

    A new pass follows it.
    """
    broken = _broken_claims(state)
    if broken:
        return _plan(state, now_ms, ANEW, len(broken), moves=_given_up(state, broken))
    claims = int(state.meta[L.M_CLAIMS])
    order = np.zeros((2, claims), np.int64)
    moves = np.zeros((claims, L.MOVE_SIZE), np.int64)
    rows = np.zeros(_rows_claimed(state), np.int64)
    count, used, _wake_ms = state.calls["ready"](state.at, now_ms, order, moves, rows)
    if not count:
        return None
    moves = moves[:count]
    begun = moves[moves[:, L.A_OP] == L.OP_START]
    starts = np.zeros(begun.shape[0], START)
    for name, column in (
        ("job", L.A_JOB), ("task", L.A_TASK), ("attempt", L.A_ATTEMPT), ("row_offset", L.A_FIRST),
        ("row_count", L.A_NODES),
    ):  # fmt: skip
        starts[name] = begun[:, column]
    starts["entry"] = -1
    return _plan(state, now_ms, ANEW, count, moves=moves, rows=rows[:used], starts=starts)


def _broken_claims(state: State) -> list[int]:
    """Claims on nodes from which affinity, or what else is asked of nodes, keeps them now, they themselves not counted:
    what they were to be together with has ended."""
    if not state.meta[L.M_AFFINE]:
        return []
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    claims = np.flatnonzero((runs[:, L.R_NODES] > 0) & (runs[:, L.R_STATE] == L.RUN_CLAIM))
    classes = state.catalogue.classes[state.work.buckets[runs[claims, L.R_BUCKET], L.B_CLASS]]
    csets = state.catalogue.shapes[classes[:, L.C_SHAPE], L.S_CSET]
    jobs = runs[claims, L.R_JOB]
    grouped = (classes[:, [L.C_NEXT, L.C_FOLLOWS]] != 0).any(axis=1)
    broken = np.zeros(claims.shape, np.bool_)
    for at in np.flatnonzero(classes[:, L.C_AFFINE] == 1).tolist():
        whole = claims[grouped & (jobs == jobs[at])] if grouped[at] else claims[at : at + 1]
        broken[at] = not terms_hold(state, int(csets[at]), np.array(rows_of_run(state, int(claims[at]))), whole)
    # All groups of a job give up together.
    found: list[int] = claims[broken | (grouped & np.isin(jobs, jobs[broken & grouped]))].tolist()
    return found


def _given_up(state: State, claims: list[int]) -> Table:
    """The moves that give claims up."""
    moves = np.zeros((len(claims), L.MOVE_SIZE), np.int64)
    runs = state.work.runs[claims]
    moves[:, L.A_OP], moves[:, L.A_SLOT] = L.OP_CANCEL, claims
    moves[:, [L.A_JOB, L.A_TASK, L.A_ATTEMPT]] = runs[:, [L.R_JOB, L.R_TASK, L.R_ATTEMPT]]
    moves[:, [L.A_FOR_JOB, L.A_FOR_TASK]] = NO_JOB
    return moves


def claims_wake_ms(state: State) -> int:
    """When the next claim falls unless its rows come free before; INF without claims."""
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    due = runs[(runs[:, L.R_NODES] > 0) & (runs[:, L.R_STATE] == L.RUN_CLAIM), L.R_DUE]
    return int(due.min(initial=L.INF - state.config.claim_patience_ms - 1)) + state.config.claim_patience_ms + 1


def _rows_claimed(state: State) -> int:
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    return int(runs[(runs[:, L.R_STATE] == L.RUN_CLAIM), L.R_NODES].sum())


def _resume(state: State, now_ms: int, cursor: Cursor) -> Plan:
    suspended = int(state.meta[L.M_SUSPENDED])
    moves = np.zeros((suspended, L.MOVE_SIZE), np.int64)
    count = state.calls["resumable"](state.at, now_ms, np.zeros((2, suspended), np.int64), moves)
    goes_on = msgspec.structs.replace(cursor, phase=0, attended=True)
    return _plan(state, now_ms, goes_on, max(count, 1), moves=moves[:count])


def _search(state: State, now_ms: int, cursor: Cursor, budget: int) -> Plan:
    place, seen, restarts = cursor.row, cursor.seen, cursor.restarts
    # A question about emptying a node (`why.emptying`) uses the same scratch.
    if place and (seen != state.version or state.search_record[L.SEEK_ENTRY] < 0):
        place, restarts = 0, restarts + 1
    if place == 0:
        seen = state.version
        if state.plugins.preempt is not None:
            _ask_prices(state, now_ms, lent=SOUGHT[cursor.phase] != 0)
    if restarts > MAX_RESTARTS:
        budget = UNCUT
    sought = SOUGHT[cursor.phase]
    outcome = state.calls["seek"](state.at, cursor.job, cursor.task, now_ms, place, budget, sought)
    if outcome == SEVERAL:
        outcome = state.calls["seek_groups"](state.at, cursor.job, cursor.task, now_ms, place, budget)
    state.check_bounds()
    work = int(state.pass_record[L.PASS_WORK])
    found = state.search_record
    if outcome == UNFINISHED:
        onward = msgspec.structs.replace(cursor, row=int(found[L.SEEK_NODE]), seen=seen, restarts=restarts)
        return _plan(state, now_ms, onward, work)
    goes_on = msgspec.structs.replace(cursor, phase=0, row=0, seen=-1, restarts=0)
    if cursor.phase == PHASE_LENDER:
        goes_on = ANEW
    affine = found[L.SEEK_ENTRY] >= 0 and state.meta[L.M_AFFINE] and any(part.affine for part in _parts(state))
    if outcome == FOUND and not (affine and _loses_company(state)):
        moves, rows = _moves(state, cursor)
        if affine or found[L.SEEK_DUE] <= now_ms:
            goes_on = ANEW  # all of it is free at once: what is claimed starts first; or others may be elsewhere now
        return _plan(state, now_ms, goes_on, work, moves=moves, rows=rows)
    following = _next_search(state, cursor.phase)
    if following:
        return _plan(state, now_ms, msgspec.structs.replace(goes_on, phase=following), work)
    moves = np.zeros((1, L.MOVE_SIZE), np.int64)
    moves[0, [L.A_OP, L.A_JOB, L.A_TASK, L.A_FOR_JOB, L.A_AT]] = (
        L.OP_SEARCHED, cursor.job, cursor.task, NO_JOB, _young_until(state, now_ms, cursor.phase)
    )  # fmt: skip
    return _plan(state, now_ms, goes_on, work, moves=moves)


class _Part(NamedTuple):
    """What was searched for: a task, or a group of a job that has several."""

    nodes: int
    cset: int
    """Its constraint set."""
    affine: bool
    """Whether terms of affinity concern it."""


def _parts(state: State) -> list[_Part]:
    """What was searched for: the task, or each group of its job."""
    bucket = state.work.entries[state.search_record[L.SEEK_ENTRY], L.E_BUCKET]
    class_id = int(state.work.buckets[bucket, L.B_CLASS])
    parts = []
    while class_id >= 0:
        row = state.catalogue.classes[class_id]
        cset = int(state.catalogue.shapes[row[L.C_SHAPE], L.S_CSET])
        parts.append(_Part(int(row[L.C_NODES]), cset, bool(row[L.C_AFFINE] == 1)))
        class_id = int(row[L.C_NEXT]) - 1
    return parts


def _loses_company(state: State) -> bool:
    """Whether, when what was found has left, and what leaves already, something is gone that the task is to be together
    with: then it could not start there."""
    found = state.search_record
    victims = _with_other_groups(state, state.scratch.victims[1, : found[L.SEEK_COUNT]])
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    leaving = np.flatnonzero((runs[:, L.R_NODES] > 0) & (runs[:, L.R_STATE] == L.RUN_GOING))
    without = np.union1d(victims, leaving)
    first = 0
    for part in _parts(state):
        rows = state.scratch.scratch[L.SCRATCH_CHOSEN, first : first + part.nodes]
        if part.affine and not terms_hold(state, part.cset, rows, without):
            return True
        first += part.nodes
    return False


def _next_search(state: State, phase: int) -> int:
    """The phase that follows a search in vain; 0: none."""
    found = state.search_record
    if found[L.SEEK_ENTRY] >= 0 and state.meta[L.M_GROUPS] and len(_parts(state)) > 1:
        return 0
    if phase == PHASE_SEARCH and state.meta[L.M_RECLAIM]:
        return PHASE_LENT
    if phase in (PHASE_SEARCH, PHASE_LENT):
        wide = found[L.SEEK_ENTRY] >= 0 and found[L.SEEK_GANG] >= state.meta[L.M_MOVING_NODES]
        return PHASE_MOVE if state.meta[L.M_MOVING] and wide else 0
    return PHASE_MOVE_LEAST if phase == PHASE_MOVE and found[L.SEEK_COUNT] else 0


def _young_until(state: State, now_ms: int, phase: int) -> int:
    """When to search again though nothing happens: work that is too young now is old enough then."""
    found = state.search_record
    until = int(found[L.SEEK_YOUTH])
    if phase in MOVES and state.shares.qos[found[L.SEEK_QOS], L.STANDING_PREEMPTS]:
        # What the search before this one, among work that its QOS preempts, found too young is not known any more.
        until = min(until, now_ms + state.config.min_run_ms)
    return until


def _ask_prices(state: State, now_ms: int, *, lent: bool) -> None:
    """Ask a preempt plugin, once a search, about all that some QOS, or a limit that reclaims, lets be taken back."""
    assert state.plugins.preempt is not None
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    qos = state.shares.owners[state.work.buckets[runs[:, L.R_BUCKET], L.B_OWNER], L.O_QOS]
    may_go = (runs[:, L.R_NODES] > 0) & (runs[:, L.R_STATE] == L.RUN_ON)
    if not (state.meta[L.M_RECLAIM] or state.meta[L.M_MOVING]):
        may_go &= state.shares.qos[qos, L.STANDING_MODE] != L.MODE_OFF
    slots = np.flatnonzero(may_go)
    state.work.runs[slots, L.R_PRICE] = prices_of(state.plugins.preempt, run_view(state, slots, now_ms, lent), now_ms)


def _moves(state: State, cursor: Cursor) -> tuple[Table, Rows]:
    """What the search found: victims in order of (job, task), then the claim, or those of all groups; and the nodes
    that are claimed, in that order."""
    found = state.search_record
    slots = state.scratch.victims[1, : found[L.SEEK_COUNT]]
    parts = _parts(state)
    runs = state.work.runs[slots]
    if state.meta[L.M_GROUPS]:
        slots = _with_other_groups(state, slots)
        runs = state.work.runs[slots]
    order = np.lexsort((runs[:, L.R_TASK], runs[:, L.R_JOB]))
    slots, runs = slots[order], runs[order]
    qos = state.shares.owners[state.work.buckets[runs[:, L.R_BUCKET], L.B_OWNER], L.O_QOS]
    moves = np.zeros((slots.shape[0] + len(parts), L.MOVE_SIZE), np.int64)
    taken, claims = moves[: slots.shape[0]], moves[slots.shape[0] :]
    taken[:, L.A_OP] = L.OP_PREEMPT
    taken[:, L.A_SLOT] = slots
    taken[:, L.A_JOB] = runs[:, L.R_JOB]
    taken[:, L.A_TASK] = runs[:, L.R_TASK]
    taken[:, L.A_ATTEMPT] = runs[:, L.R_ATTEMPT]
    taken[:, L.A_MODE] = state.shares.qos[qos, L.STANDING_MODE]
    if state.meta[L.M_GROUPS]:  # a part of them could not be resumed
        taken[_is_grouped(state, slots) & (taken[:, L.A_MODE] == L.MODE_SUSPEND), L.A_MODE] = L.MODE_REQUEUE
    taken[:, L.A_LENT] = int(cursor.phase != PHASE_SEARCH)
    if cursor.phase in MOVES:
        taken[:, L.A_LENT] = MOVED
        taken[taken[:, L.A_MODE] != L.MODE_CHECKPOINT, L.A_MODE] = L.MODE_REQUEUE
        taken[:, L.A_AT] = found[L.SEEK_ALONE]
    elif cursor.phase != PHASE_SEARCH:
        taken[np.isin(taken[:, L.A_MODE], (L.MODE_OFF, L.MODE_SUSPEND)), L.A_MODE] = L.MODE_REQUEUE
    taken[:, L.A_GRACE] = np.where(taken[:, L.A_MODE] == L.MODE_SUSPEND, 0, state.shares.qos[qos, L.STANDING_GRACE])
    taken[:, L.A_FOR_JOB] = cursor.job
    taken[:, L.A_FOR_TASK] = cursor.task
    entries = state.scratch.scratch[L.SCRATCH_ORDER, : len(parts)] if len(parts) > 1 else found[[L.SEEK_ENTRY]]
    nodes = np.array([part.nodes for part in parts])
    claims[:, [L.A_OP, L.A_JOB, L.A_FOR_JOB, L.A_AT]] = L.OP_CLAIM, cursor.job, NO_JOB, found[L.SEEK_DUE]
    claims[:, L.A_SLOT], claims[:, L.A_ATTEMPT] = entries, state.work.entries[entries, L.E_ATTEMPT]
    claims[:, L.A_TASK] = cursor.task + np.arange(len(parts))
    claims[:, L.A_FIRST], claims[:, L.A_NODES] = np.cumsum(nodes) - nodes, nodes
    return moves, state.scratch.scratch[L.SCRATCH_CHOSEN, : int(nodes.sum())].copy()


def _is_grouped(state: State, slots: Ints) -> NDArray[np.bool_]:
    """Which of these running attempts are a group of a job that has several."""
    classes = state.catalogue.classes[state.work.buckets[state.work.runs[slots, L.R_BUCKET], L.B_CLASS]]
    found: NDArray[np.bool_] = (classes[:, [L.C_NEXT, L.C_FOLLOWS]] != 0).any(axis=1)
    return found


def _with_other_groups(state: State, slots: Ints) -> Ints:
    """The same and the other groups of their jobs, which leave with them."""
    jobs = state.work.runs[slots[_is_grouped(state, slots)], L.R_JOB]
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    on = (runs[:, L.R_NODES] > 0) & (runs[:, L.R_STATE] == L.RUN_ON) & np.isin(runs[:, L.R_JOB], jobs)
    return np.union1d(slots, np.flatnonzero(on))


def _plan(
    state: State,
    now_ms: int,
    cursor: Cursor,
    work: int,
    *,
    moves: Table = NO_MOVES,
    rows: Rows = NO_ROWS,
    starts: StartRows = NO_STARTS,
) -> Plan:
    return Plan(
        now_ms, state.version, len(moves) > 0, starts, rows, False, NO_RESERVATIONS, NO_RESERVED, NO_VERDICTS, now_ms,
        cursor, work, cursor.pass_wake, cursor.pass_inserts, resumed=True, moves=moves,
    )  # fmt: skip
