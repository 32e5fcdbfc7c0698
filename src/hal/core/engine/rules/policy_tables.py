"""A policy as the tables that kernels read: made for all owners at once, followed through time, kept by name.

Pure. A change of policy makes all tables again and keeps what was used, by name: O(owners x limits).
Where offsets move, O(nodes of the tree of shares).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from hal.core.engine.classes import OwnerSpec
from hal.core.engine.events import HoursSpent
from hal.core.engine.rules.owners import accounts_of, describe_owner, leaf_of, next_edge, put_spent
from hal.core.engine.state import State
from hal.core.engine.tables.accounts import Accounts, LedgerName, Spent
from hal.core.kernels.rules.ledgers import recharge
from hal.core.kernels.rules.shares import class_rate, factor_of, rebase_shares, renew_factors, renew_offsets
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints
from hal.core.kernels.structures.jit import plain
from hal.core.kernels.structures.slots import look_up
from hal.core.model.policy import Policy
from hal.core.model.policy_hours import is_open

REBASE_HALF_LIVES: Final = 500
"""Use is rebased when it has been inflated this often: far inside the range of a float."""


def set_policy(state: State, policy: Policy, owners: Iterable[tuple[int, OwnerSpec]]) -> None:
    """Make all tables of a policy anew; use of shares and of running periods is kept by name."""
    old: Accounts | None = state.accounts
    used = {} if old is None else decayed_use(state)
    accounts = Accounts(policy)
    if old is not None:
        accounts.idle = spent_hours(state)
    state.accounts = accounts
    state.shares.ledgers[:] = 0
    state.shares.share_use[:] = 0.0
    state.shares.share_nodes[:] = 0
    state.shares.share_nodes[0, L.SHARE_PARENT] = -1
    state.shares.share_use[0, L.F_WEIGHT] = 1.0
    for place in (L.M_OWNER_LEDGERS, L.M_QUEUES, L.M_RENEWS, L.M_SHARED):
        state.meta[place] = 0
    state.meta[L.M_NODES_OF_SHARES] = 1
    state.meta[L.M_NEXT_EDGE] = L.INF
    zero = state.clock_ms
    state.meta[L.M_SHARE_ZERO] = zero
    state.meta[L.M_HALF_LIFE] = max(int(policy.fairshare.half_life), 1)
    state.meta[L.M_SLOPE] = round(policy.weights.age)
    for row, owner in owners:
        describe_owner(state, row, owner)
    load_use(state, [((path[-2] if len(path) > 1 else ""), path[-1][1:], u) for path, u in used.items()], zero)
    state.set_charge()
    state.rewire()
    recharge(state.at)
    if state.meta[L.M_ORDER] == L.ORDER_PRIORITY and renew_offsets(state.at, state.clock_ms):
        rank_reservations(state)


def fair_factor(state: State, leaf: int) -> float:
    """The fair-share factor of a leaf as use now is, 0..1."""
    renew_factors(state.at)
    return float(plain(factor_of)(state.tables(), leaf))


def renew(state: State, now_ms: int) -> None:
    """Hours, periods and offsets at `now_ms` (part of ClockAdvanced)."""
    accounts = state.accounts
    assert accounts is not None
    if state.meta[L.M_NEXT_EDGE] <= now_ms:
        turn_hours(state, now_ms)
    elapsed = now_ms - int(state.meta[L.M_SHARE_ZERO])
    if elapsed > REBASE_HALF_LIVES * int(state.meta[L.M_HALF_LIFE]):
        rebase_shares(state.at, now_ms)
    if (
        state.meta[L.M_ORDER] == L.ORDER_PRIORITY
        and (state.meta[L.M_SHARES_MOVED] or state.meta[L.M_RENEWS])
        and renew_offsets(state.at, now_ms)
    ):
        rank_reservations(state)
        if state.meta[L.M_BACKFILL] == L.BACKFILL_CONSERVATIVE and (
            state.meta[L.M_RESERVATIONS] >= state.meta[L.M_MAX_RESERVATIONS]
        ):
            state.meta[L.M_EPOCH] += 1  # others may be the first that hold a reservation now: all that waits is asked
            state.meta[L.M_WAKE] = state.meta[L.M_EPOCH]


def rank_reservations(state: State) -> None:
    """Rank reservations, and better work that came since they were made, as their jobs rank now that offsets of
    buckets have moved (part of `apply`)."""
    reservations = state.work.reservations[: int(state.meta[L.M_RESERVATIONS])]
    places = np.flatnonzero(reservations[:, L.V_ENTRY] >= 0)
    if not places.size:
        return
    keys = _keys_now(state, reservations[places, L.V_ENTRY])
    reservations[places, L.V_KEY] = keys
    last = np.lexsort((reservations[places, L.V_JOB], keys))[-1]
    state.meta[L.M_LAST_KEY] = keys[last]
    state.meta[L.M_LAST_JOB] = reservations[places[last], L.V_JOB]
    for drop in range(int(state.meta[L.M_DROPS])):
        slots = _waiting_of(state, int(state.work.drops[drop, L.X_JOB]))
        if slots.size:
            state.work.drops[drop, L.X_KEY] = _keys_now(state, slots).min()


def _waiting_of(state: State, job: int) -> Ints:
    """The slots of a job's entries that wait in a bucket, by the index of jobs: no scan of all that waits."""
    work = state.work
    slots = []
    slot = int(look_up(work.job_index, work.entries, L.E_JOB, job))
    while slot >= 0:
        if work.entries[slot, L.E_WHERE] == L.WHERE_BUCKET:
            slots.append(slot)
        slot = int(work.entries[slot, L.E_SIBLING])
    return np.array(slots, np.int64)


def _keys_now(state: State, slots: Ints) -> Ints:
    """The ranks of waiting entries among all."""
    keys: Ints = (
        state.work.entries[slots, L.E_KEY] + state.work.buckets[state.work.entries[slots, L.E_BUCKET], L.B_OFFSET]
    )
    return keys


def turn_hours(state: State, now_ms: int) -> None:
    """Open and shut queues by their hours at `now_ms`."""
    accounts = accounts_of(state)
    for row, hours, zone in accounts.hours:
        shut = int(not is_open(hours, now_ms, zone))
        if shut != state.shares.queues[row, L.Y_SHUT]:
            state.shares.queues[row, L.Y_SHUT] = shut
            state.wake_all()
    next_edge(state, now_ms)


def spent_hours(state: State) -> dict[LedgerName, Spent]:
    """What was used of hours in periods that go on; also of those who have no work now."""
    accounts = accounts_of(state)
    spent = {name: kept for name, kept in accounts.idle.items() if kept.ends_ms > state.clock_ms}
    for name, row in accounts.hour_ledgers.items():
        entry = state.shares.ledgers[row]
        if entry[L.G_USED] and entry[L.G_ENDS] > state.clock_ms:
            shift = int(entry[L.G_SHIFT])
            used, ended = int(entry[L.G_USED]) << shift, int(entry[L.G_SPENT]) << shift
            spent[name] = Spent(used, ended, int(entry[L.G_ENDS]))
    return spent


def hours_spent(state: State) -> Iterator[HoursSpent]:
    """The same without what runs, as it outlives this engine."""
    for name, kept in spent_hours(state).items():
        if kept.ended:
            yield HoursSpent(
                name.limit, name.queue, name.account, name.user, name.qos, name.resource, kept.ended, kept.ends_ms
            )


def hours_mark(state: State) -> bytes:
    """Equal as long as `hours_spent` is."""
    accounts = accounts_of(state)
    rows = np.fromiter(accounts.hour_ledgers.values(), np.int64, len(accounts.hour_ledgers))
    spent: bytes = state.shares.ledgers[rows, L.G_SPENT].tobytes()
    return spent


def load_hours(state: State, hours: Iterable[HoursSpent]) -> None:
    """Add what had ended before this engine began; a row that is made later takes it from `idle`."""
    accounts = accounts_of(state)
    for told in hours:
        name = LedgerName(told.limit, told.queue, told.account, told.user, told.qos, "hours", told.resource)
        kept = Spent(told.units, told.units, told.ends_ms)
        row = accounts.ledger_ids.get(name)
        if row is None:
            accounts.idle[name] = kept
        else:
            put_spent(state.shares.ledgers[row], kept)


def load_use(state: State, use: Iterable[tuple[str, str, float]], at_ms: int) -> None:
    """Add (account, user, units at `at_ms`) to the leaves, made where they are new."""
    accounts = accounts_of(state)
    worth = 2.0 ** ((at_ms - int(state.meta[L.M_SHARE_ZERO])) / int(state.meta[L.M_HALF_LIFE]))
    for account, user, units in use:
        leaf = leaf_of(state, OwnerSpec(account=account, user=user))
        _add_use(state, accounts.node_paths[leaf], units * worth)
    state.meta[L.M_SHARES_MOVED] = 1


def decayed_use(state: State) -> dict[tuple[str, ...], float]:
    """Decayed use of every leaf at the state's clock, in units: what survives a change of policy."""
    accounts = accounts_of(state)
    shrunk = 2.0 ** -((state.clock_ms - int(state.meta[L.M_SHARE_ZERO])) / max(int(state.meta[L.M_HALF_LIFE]), 1))
    return {
        path: float(state.shares.share_use[node, L.F_USE]) * shrunk
        for node, path in enumerate(accounts.node_paths)
        if path and path[-1].startswith("\0")
    }


def settled_use(state: State) -> tuple[tuple[str, str, float], ...]:
    """(account, user, units at the state's clock) of what has ended, without what running attempts are charged."""
    accounts = accounts_of(state)
    used = decayed_use(state)
    tables, half_life = state.tables(), int(state.meta[L.M_HALF_LIFE])
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    for run in np.flatnonzero(runs[:, L.R_NODES] > 0).tolist():
        bucket = int(runs[run, L.R_BUCKET])
        owner = int(state.work.buckets[bucket, L.B_OWNER])
        leaf = int(state.shares.owners[owner, L.O_LEAF])
        if leaf < 0:
            continue
        rate = plain(class_rate)(tables, int(state.work.buckets[bucket, L.B_CLASS]))
        age = (int(runs[run, L.R_START]) - state.clock_ms) / half_life
        units = rate * int(runs[run, L.R_CHARGED]) / 1000.0 * int(state.shares.owners[owner, L.O_USAGE]) / 1e6
        path = accounts.node_paths[leaf]
        used[path] = used.get(path, 0.0) - units * 2.0**age
    return tuple(
        (path[-2] if len(path) > 1 else "", path[-1][1:], units) for path, units in used.items() if units > 1e-6
    )


def _add_use(state: State, path: tuple[str, ...], units: float) -> None:
    """Use (at M_SHARE_ZERO) of a leaf that exists, added to it and all above it."""
    accounts = accounts_of(state)
    node = accounts.node_ids.get(path, -1)
    while node >= 0:
        state.shares.share_use[node, L.F_USE] += units
        node = int(state.shares.share_nodes[node, L.SHARE_PARENT])
