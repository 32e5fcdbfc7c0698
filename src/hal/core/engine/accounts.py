"""A policy as the tables that kernels read: owners, ledgers, queues and the tree of shares.

Pure. Rows are made for owners as they appear (their ledgers, their leaf); a change of policy makes all of it anew and
keeps what was used, by name. O(limits) for a new owner; nothing here runs for each job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from hal.core.engine.classes import OwnerSpec
from hal.core.engine.events import HoursSpent
from hal.core.engine.growing import grown
from hal.core.kernels import layout as L
from hal.core.kernels.jit import plain
from hal.core.kernels.ledgers import recharge
from hal.core.kernels.shares import class_rate, factor_of, rebase_shares, renew_factors, renew_offsets
from hal.core.kernels.tables import look_up
from hal.core.model.policy import Discipline, Limit, Policy, Queue, Reclaim, Weights
from hal.core.model.policy_hours import is_open, next_close_ms, next_open_ms
from hal.core.model.policy_scope import Owner, ledger, lineage

if TYPE_CHECKING:
    from hal.core.engine.state import State

Table = NDArray[np.int64]

DISCIPLINES: Final = {
    Discipline.PRIORITY: L.BY_PRIORITY,
    Discipline.FIFO: L.BY_SUBMISSION,
    Discipline.ROUND_ROBIN: L.BY_TURN,
    Discipline.DEADLINE: L.BY_DEADLINE,
}
HOUR_MS: Final = 3_600_000
REBASE_HALF_LIVES: Final = 500
"""Use is rebased when it has been inflated this often: far inside the range of a float."""
MAX_LEDGER: Final = 1 << 60
GIB: Final = 1 << 30


class LedgerName(Struct, frozen=True, order=True):
    """What a ledger counts: a limit (or cohort), the names that its '*' stand for, and an amount.

    what: "running", "resources" or "hours". cohort: the limits of a cohort taken together.
    """

    limit: str
    queue: str = ""
    account: str = ""
    user: str = ""
    qos: str = ""
    what: str = "running"
    resource: str = ""
    cohort: str = ""


class Spent(Struct, frozen=True):
    """Of an hours ledger, in base-unit-seconds: charged (what runs for its whole walltime), used by what has ended."""

    used: int
    ended: int
    ends_ms: int


class Accounts:
    """The policy's part of a `State`; see the tables in core/kernels/layout."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.queue_ids: dict[str, int] = {}
        self.ledger_ids: dict[LedgerName, int] = {}
        self.ledger_names: list[LedgerName] = []
        self.node_ids: dict[tuple[str, ...], int] = {(): 0}
        self.node_paths: list[tuple[str, ...]] = [()]
        self.turn_ids: dict[tuple[str, str], int] = {}
        self.hours: list[tuple[int, tuple[str, ...]]] = []
        self.hour_ledgers: dict[LedgerName, int] = {}
        """Those of `ledger_ids` that count hours."""
        self.idle: dict[LedgerName, Spent] = {}
        """What was used of hours ledgers that have no row: nobody of them has work."""

    # ── queues ────────────────────────────────────────────────────────────────────────────────────────────────────

    def queue_id(self, state: State, name: str) -> int:
        """The row of a queue, a new one where it is new; queues that the policy does not know count as default ones."""
        there = self.queue_ids.get(name)
        if there is not None:
            return there
        row = len(self.queue_ids)
        self.queue_ids[name] = row
        if row >= state.queues.shape[0]:
            state.queues = grown(state.queues, 2 * row)
            state.rewire()
        queue = self.policy.queues.get(name, Queue(name=name))
        weights = queue.weights or self.policy.weights
        state.queues[row] = 0
        state.queues[row, L.Y_DISCIPLINE] = DISCIPLINES[queue.order]
        state.queues[row, L.Y_STRICT] = int(queue.strict)
        state.queues[row, L.Y_SLOPE] = round(weights.age)
        state.queues[row, L.Y_FAIR] = _units(weights.fairshare)
        state.queues[row, L.Y_NICE] = _units(weights.priority)
        state.queues[row, L.Y_SIZE] = _units(weights.size)
        state.queues[row, L.Y_DEADLINE] = _units(weights.deadline)
        state.meta[L.M_QUEUES] = len(self.queue_ids)
        if (
            queue.order in (Discipline.ROUND_ROBIN, Discipline.DEADLINE)
            or state.queues[row, L.Y_SLOPE] != state.meta[L.M_SLOPE]
        ):
            state.meta[L.M_RENEWS] = 1
        if queue.hours:
            self.hours.append((row, queue.hours))
            state.queues[row, L.Y_SHUT] = int(not is_open(queue.hours, state.clock_ms))
            self._next_edge(state, state.clock_ms)
        return row

    def turn_hours(self, state: State, now_ms: int) -> None:
        """Open and shut queues by their hours at `now_ms`."""
        for row, hours in self.hours:
            shut = int(not is_open(hours, now_ms))
            if shut != state.queues[row, L.Y_SHUT]:
                state.queues[row, L.Y_SHUT] = shut
                state.wake_all()
        self._next_edge(state, now_ms)

    def _next_edge(self, state: State, now_ms: int) -> None:
        """When hours or periods next change what may start."""
        edge = L.INF
        for _row, hours in self.hours:
            if is_open(hours, now_ms):
                closes = next_close_ms(hours, now_ms)
                edge = min(edge, L.INF if closes is None else closes)
            else:
                edge = min(edge, next_open_ms(hours, now_ms))
        count = len(self.ledger_names)
        ends = state.ledgers[:count, L.G_ENDS][state.ledgers[:count, L.G_PERIOD] > 0]
        state.meta[L.M_NEXT_EDGE] = min(edge, int(ends.min(initial=L.INF)))

    # ── owners ────────────────────────────────────────────────────────────────────────────────────────────────────

    def describe(self, state: State, row: int, owner: OwnerSpec) -> None:
        """Fill the row of an owner: its queue, ledgers, leaf, and what does not move of its offset."""
        queue = self.queue_id(state, owner.queue)
        ledgers = self._ledgers_of(state, owner)
        first = self._list(state, ledgers)
        refs = int(state.owner_table[row, L.O_REFS])
        state.owner_table[row] = 0
        state.owner_table[row, L.O_REFS] = refs
        state.owner_table[row, L.O_QUEUE] = queue
        state.owner_table[row, L.O_QOS] = state.qos_ids[state.standings.standing(owner.queue, owner.qos)]
        state.owner_table[row, L.O_LEDGER] = first
        state.owner_table[row, L.O_LEDGERS] = len(ledgers)
        qos = self.policy.qos.get(owner.qos)
        state.owner_table[row, L.O_USAGE] = round(1e6 * (qos.usage_factor if qos is not None else 1.0))
        settings = self.policy.queues.get(owner.queue, Queue())
        weights: Weights = settings.weights or self.policy.weights
        points = weights.queue * settings.priority + weights.qos * (qos.priority if qos is not None else 0)
        state.owner_table[row, L.O_BASE] = -_units(points)
        state.owner_table[row, L.O_OFFSET] = -_units(points)
        state.owner_table[row, L.O_TURNS] = self.turn_ids.setdefault((owner.queue, owner.user), row)
        state.owner_table[row, L.O_LEAF] = self._leaf(state, owner)
        state.meta[L.M_OWNERS] = max(int(state.meta[L.M_OWNERS]), row + 1)
        state.meta[L.M_SHARES_MOVED] = 1

    def _list(self, state: State, ledgers: list[int]) -> int:
        first = int(state.meta[L.M_OWNER_LEDGERS])
        last = first + len(ledgers)
        if last > state.owner_ledgers.shape[0]:
            state.owner_ledgers = grown(state.owner_ledgers, 2 * last)
            state.rewire()
        state.owner_ledgers[first:last] = ledgers
        state.meta[L.M_OWNER_LEDGERS] = last
        return first

    # ── ledgers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _ledgers_of(self, state: State, owner: OwnerSpec) -> list[int]:
        found: list[int] = []
        who = Owner(owner.queue, owner.account, owner.user, owner.qos)
        for name, limit in self.policy.limits.items():
            scope = ledger(limit, who, self.policy.accounts)
            if scope is None:
                continue
            mine = LedgerName(name, *scope)
            if limit.running is not None:
                found.append(self._ledger(state, mine, L.LEDGER_TASKS, limit.running, limit))
            for resource, amount in (limit.resources or {}).items():
                kind = _with(mine, "resources", resource)
                own = self._ledger(state, kind, L.LEDGER_RESOURCE, amount, limit)
                found.append(own)
                if limit.cohort:
                    shared = LedgerName("", what="resources", resource=resource, cohort=limit.cohort)
                    whole = self._ledger(state, shared, L.LEDGER_RESOURCE, self._cohort(limit, resource), limit)
                    found.append(whole)
                    state.ledgers[whole, L.G_COHORT] = L.COHORT_ITSELF
                    state.ledgers[own, L.G_COHORT] = whole + 1
                    state.ledgers[own, L.G_RECLAIM] = int(limit.reclaim is Reclaim.PREEMPT)
            for resource, amount in (limit.hours or {}).items():
                found.append(self._ledger(state, _with(mine, "hours", resource), L.LEDGER_HOURS, amount, limit))
        return list(dict.fromkeys(found))

    def _cohort(self, limit: Limit, resource: str) -> int:
        members = [other for other in self.policy.limits.values() if other.cohort == limit.cohort]
        return sum(other.resources.get(resource, 0) for other in members if other.resources is not None)

    def _ledger(self, state: State, name: LedgerName, kind: int, amount: int, limit: Limit) -> int:
        there = self.ledger_ids.get(name)
        if there is not None:
            return there
        row = len(self.ledger_names)
        if row >= state.ledgers.shape[0]:
            state.ledgers = grown(state.ledgers, 2 * row + 2)
            state.rewire()
        self.ledger_ids[name] = row
        self.ledger_names.append(name)
        entry = state.ledgers[row]
        entry[:] = 0
        entry[L.G_KIND] = kind
        entry[L.G_NOMINAL] = amount
        entry[L.G_LIMIT] = amount
        if kind != L.LEDGER_TASKS:
            state.intern_resources([name.resource])
            entry = state.ledgers[row]
            entry[L.G_RESOURCE] = state.resources.index(name.resource)
        if kind == L.LEDGER_HOURS:
            self.hour_ledgers[name] = row
            shift = max(0, (amount * 3600).bit_length() - 59)
            entry[L.G_SHIFT] = shift
            entry[L.G_LIMIT] = entry[L.G_NOMINAL] = (amount * 3600) >> shift
            period = max(int(limit.period), 1)
            entry[L.G_PERIOD] = period
            entry[L.G_ENDS] = (state.clock_ms // period + 1) * period
            self._put_spent(entry, self.idle.pop(name, None))
            self._next_edge(state, state.clock_ms)
        elif limit.cohort and not name.cohort and kind == L.LEDGER_RESOURCE:
            lent = limit.borrow.get(name.resource, 0) if limit.borrow is not None else MAX_LEDGER
            entry[L.G_LIMIT] = min(amount + lent, L.INF)
        return row

    def spent(self, state: State) -> dict[LedgerName, Spent]:
        """What was used of hours in periods that go on; also of those who have no work now."""
        spent = {name: kept for name, kept in self.idle.items() if kept.ends_ms > state.clock_ms}
        for name, row in self.hour_ledgers.items():
            entry = state.ledgers[row]
            if entry[L.G_USED] and entry[L.G_ENDS] > state.clock_ms:
                shift = int(entry[L.G_SHIFT])
                used, ended = int(entry[L.G_USED]) << shift, int(entry[L.G_SPENT]) << shift
                spent[name] = Spent(used, ended, int(entry[L.G_ENDS]))
        return spent

    def hours_spent(self, state: State) -> Iterator[HoursSpent]:
        """The same without what runs, as it outlives this engine."""
        for name, kept in self.spent(state).items():
            if kept.ended:
                yield HoursSpent(
                    name.limit, name.queue, name.account, name.user, name.qos, name.resource, kept.ended, kept.ends_ms
                )

    def hours_mark(self, state: State) -> bytes:
        """Equal as long as `hours_spent` is."""
        rows = np.fromiter(self.hour_ledgers.values(), np.int64, len(self.hour_ledgers))
        spent: bytes = state.ledgers[rows, L.G_SPENT].tobytes()
        return spent

    def load_hours(self, state: State, hours: Iterable[HoursSpent]) -> None:
        """Add what had ended before this engine began; a row that is made later takes it from `idle`."""
        for told in hours:
            name = LedgerName(told.limit, told.queue, told.account, told.user, told.qos, "hours", told.resource)
            kept = Spent(told.units, told.units, told.ends_ms)
            row = self.ledger_ids.get(name)
            if row is None:
                self.idle[name] = kept
            else:
                self._put_spent(state.ledgers[row], kept)

    @staticmethod
    def _put_spent(entry: Table, kept: Spent | None) -> None:
        if kept is not None and kept.ends_ms == entry[L.G_ENDS]:
            entry[L.G_USED] += kept.used >> int(entry[L.G_SHIFT])
            entry[L.G_SPENT] += kept.ended >> int(entry[L.G_SHIFT])

    # ── shares ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _leaf(self, state: State, owner: OwnerSpec) -> int:
        """The node of (account, user); nodes above it are made where they are new."""
        above = tuple(reversed(list(lineage(owner.account, self.policy.accounts))))
        # An account and a user of one name are two nodes: users carry a mark that no name can have.
        path = (*above, f"\0{owner.user}")
        node = 0
        for depth in range(1, len(path) + 1):
            part = path[:depth]
            there = self.node_ids.get(part)
            if there is None:
                there = self._new_node(state, part, node, owner)
            node = there
        return node

    def _new_node(self, state: State, path: tuple[str, ...], parent: int, owner: OwnerSpec) -> int:
        node = len(self.node_paths)
        if node >= state.share_nodes.shape[0]:
            state.share_nodes = grown(state.share_nodes, 2 * node)
            use = np.zeros((2 * node, L.F_SIZE), np.float64)
            use[: state.share_use.shape[0]] = state.share_use
            state.share_use = use
            state.rewire()
        self.node_ids[path] = node
        self.node_paths.append(path)
        state.share_nodes[node] = 0
        state.share_nodes[node, L.N_PARENT] = parent
        state.share_nodes[node, L.N_DEPTH] = len(path)
        state.share_use[node] = 0.0
        state.share_use[node, L.F_WEIGHT] = self._weight(path, owner.account)
        if any(state.share_nodes[other, L.N_PARENT] == parent for other in range(1, node)):
            state.meta[L.M_SHARED] = 1
        state.meta[L.M_NODES_OF_SHARES] = node + 1
        return node

    def _weight(self, path: tuple[str, ...], account: str) -> float:
        name = path[-1]
        if name.startswith("\0"):
            declared = self.policy.accounts.get(account)
            return float(declared.users.get(name[1:], 1.0)) if declared is not None else 1.0
        found = self.policy.accounts.get(name)
        return float(found.weight) if found is not None else 1.0

    def load(self, state: State, use: Iterable[tuple[str, str, float]], at_ms: int) -> None:
        """Add (account, user, units at `at_ms`) to the leaves, made where they are new."""
        worth = 2.0 ** ((at_ms - int(state.meta[L.M_SHARE_ZERO])) / int(state.meta[L.M_HALF_LIFE]))
        for account, user, units in use:
            leaf = self._leaf(state, OwnerSpec(account=account, user=user))
            self.add_use(state, self.node_paths[leaf], units * worth)
        state.meta[L.M_SHARES_MOVED] = 1

    def use_of(self, state: State) -> dict[tuple[str, ...], float]:
        """Decayed use of every leaf at the state's clock, in units: what survives a change of policy."""
        shrunk = 2.0 ** -((state.clock_ms - int(state.meta[L.M_SHARE_ZERO])) / max(int(state.meta[L.M_HALF_LIFE]), 1))
        return {
            path: float(state.share_use[node, L.F_USE]) * shrunk
            for node, path in enumerate(self.node_paths)
            if path and path[-1].startswith("\0")
        }

    def settled_use(self, state: State) -> tuple[tuple[str, str, float], ...]:
        """(account, user, units at the state's clock) of what has ended, without what running attempts are charged."""
        used = self.use_of(state)
        tables, half_life = state.tables(), int(state.meta[L.M_HALF_LIFE])
        runs = state.runs[: int(state.meta[L.M_RUN_TOP])]
        for run in np.flatnonzero(runs[:, L.R_NODES] > 0).tolist():
            bucket = int(runs[run, L.R_BUCKET])
            owner = int(state.buckets[bucket, L.B_OWNER])
            leaf = int(state.owner_table[owner, L.O_LEAF])
            if leaf < 0:
                continue
            rate = plain(class_rate)(tables, int(state.buckets[bucket, L.B_CLASS]))
            age = (int(runs[run, L.R_START]) - state.clock_ms) / half_life
            units = rate * int(runs[run, L.R_CHARGED]) / 1000.0 * int(state.owner_table[owner, L.O_USAGE]) / 1e6
            path = self.node_paths[leaf]
            used[path] = used.get(path, 0.0) - units * 2.0**age
        return tuple(
            (path[-2] if len(path) > 1 else "", path[-1][1:], units) for path, units in used.items() if units > 1e-6
        )

    def add_use(self, state: State, path: tuple[str, ...], units: float) -> None:
        """Use (at M_SHARE_ZERO) of a leaf that exists, added to it and all above it."""
        node = self.node_ids.get(path, -1)
        while node >= 0:
            state.share_use[node, L.F_USE] += units
            node = int(state.share_nodes[node, L.N_PARENT])


def set_policy(state: State, policy: Policy, owners: Iterable[tuple[int, OwnerSpec]]) -> None:
    """Make all tables of a policy anew; use of shares and of running periods is kept by name."""
    old: Accounts | None = state.accounts
    used = {} if old is None else old.use_of(state)
    accounts = Accounts(policy)
    if old is not None:
        accounts.idle = old.spent(state)
    state.accounts = accounts
    state.ledgers[:] = 0
    state.share_use[:] = 0.0
    state.share_nodes[:] = 0
    state.share_nodes[0, L.N_PARENT] = -1
    state.share_use[0, L.F_WEIGHT] = 1.0
    for place in (L.M_OWNER_LEDGERS, L.M_QUEUES, L.M_RENEWS, L.M_SHARED):
        state.meta[place] = 0
    state.meta[L.M_NODES_OF_SHARES] = 1
    state.meta[L.M_NEXT_EDGE] = L.INF
    zero = state.clock_ms
    state.meta[L.M_SHARE_ZERO] = zero
    state.meta[L.M_HALF_LIFE] = max(int(policy.fairshare.half_life), 1)
    state.meta[L.M_SLOPE] = round(policy.weights.age)
    for row, owner in owners:
        accounts.describe(state, row, owner)
    accounts.load(state, [((path[-2] if len(path) > 1 else ""), path[-1][1:], u) for path, u in used.items()], zero)
    set_charge(state)
    state.rewire()
    recharge(state.at)
    if state.meta[L.M_ORDER] == L.ORDER_PRIORITY and renew_offsets(state.at, state.clock_ms):
        rank_promises(state)


def fair_factor(state: State, leaf: int) -> float:
    """The fair-share factor of a leaf as use now is, 0..1."""
    renew_factors(state.at)
    return float(plain(factor_of)(state.tables(), leaf))


def set_charge(state: State) -> None:
    """What a base unit of each resource costs a second; after resources or nodes changed."""
    assert state.accounts is not None
    fair = state.accounts.policy.fairshare
    state.charge[:] = 0.0
    for place, name in enumerate(state.resources):
        unit = {"cpu": 1000.0, "gpu": 1000.0, "memory": float(GIB)}.get(name, 1.0)
        price = fair.charge.get(name, 0.0) / unit
        if fair.dominant:
            total = float(state.capacity[: len(state.row_names), place].sum())
            price = (fair.charge.get(name, 1.0) / total) if total else 0.0
        state.charge[0, place] = price
    state.charge[1, 0] = float(fair.dominant)
    state.meta[L.M_CPU] = state.resources.index("cpu") if "cpu" in state.resources else -1


def renew(state: State, now_ms: int) -> None:
    """Hours, periods and offsets at `now_ms` (part of ClockAdvanced)."""
    accounts = state.accounts
    assert accounts is not None
    if state.meta[L.M_NEXT_EDGE] <= now_ms:
        accounts.turn_hours(state, now_ms)
    elapsed = now_ms - int(state.meta[L.M_SHARE_ZERO])
    if elapsed > REBASE_HALF_LIVES * int(state.meta[L.M_HALF_LIFE]):
        rebase_shares(state.at, now_ms)
    if (
        state.meta[L.M_ORDER] == L.ORDER_PRIORITY
        and (state.meta[L.M_SHARES_MOVED] or state.meta[L.M_RENEWS])
        and renew_offsets(state.at, now_ms)
    ):
        rank_promises(state)
        if state.meta[L.M_BACKFILL] == L.BACKFILL_CONSERVATIVE and (
            state.meta[L.M_RESERVATIONS] >= state.meta[L.M_MAX_RESERVATIONS]
        ):
            state.meta[L.M_EPOCH] += 1  # others may be the first that hold a reservation now: all that waits is asked
            state.meta[L.M_WAKE] = state.meta[L.M_EPOCH]


def rank_promises(state: State) -> None:
    """Let promises, and better work that came since they were made, stand where their jobs stand now that offsets of
    buckets have moved (part of `apply`)."""
    promises = state.reservations[: int(state.meta[L.M_RESERVATIONS])]
    places = np.flatnonzero(promises[:, L.V_ENTRY] >= 0)
    if not places.size:
        return
    keys = _keys_now(state, promises[places, L.V_ENTRY])
    promises[places, L.V_KEY] = keys
    last = np.lexsort((promises[places, L.V_JOB], keys))[-1]
    state.meta[L.M_LAST_KEY] = keys[last]
    state.meta[L.M_LAST_JOB] = promises[places[last], L.V_JOB]
    for drop in range(int(state.meta[L.M_DROPS])):
        slots = _waiting_of(state, int(state.drops[drop, L.X_JOB]))
        if slots.size:
            state.drops[drop, L.X_KEY] = _keys_now(state, slots).min()


def _waiting_of(state: State, job: int) -> Table:
    """The slots of a job's entries that wait in a bucket, by the index of jobs: no scan of all that waits."""
    slots = []
    slot = int(look_up(state.job_index, state.entries, L.E_JOB, job))
    while slot >= 0:
        if state.entries[slot, L.E_WHERE] == L.WHERE_BUCKET:
            slots.append(slot)
        slot = int(state.entries[slot, L.E_SIBLING])
    return np.array(slots, np.int64)


def _keys_now(state: State, slots: Table) -> Table:
    """The ranks of waiting entries among all."""
    keys: Table = state.entries[slots, L.E_KEY] + state.buckets[state.entries[slots, L.E_BUCKET], L.B_OFFSET]
    return keys


def _with(name: LedgerName, what: str, resource: str) -> LedgerName:
    return LedgerName(name.limit, name.queue, name.account, name.user, name.qos, what, resource)


def _units(points: float) -> int:
    return round(points * L.POINT)
