"""Owners as rows: the queue, the ledgers and the leaf of each, made as owners appear.

Pure. O(limits) for a new owner; nothing here runs for each job.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hal.core.engine.classes import OwnerSpec
from hal.core.engine.rules.preferences import preference_id, preference_of_queue
from hal.core.engine.state import State
from hal.core.engine.tables.accounts import Accounts, LedgerName, Spent
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Entry
from hal.core.kernels.structures.declared import LEDGERS, OWNER_LEDGERS, QUEUES, SHARE_NODES
from hal.core.model.policy import Discipline, Limit, Queue, Reclaim, Weights
from hal.core.model.policy_hours import UTC_OFFSETS, ZoneOffsets, is_open, next_close_ms, next_open_ms
from hal.core.model.policy_scope import Owner, ledger, lineage

DISCIPLINES: Final = {
    Discipline.PRIORITY: L.BY_PRIORITY,
    Discipline.FIFO: L.BY_SUBMISSION,
    Discipline.ROUND_ROBIN: L.BY_TURN,
    Discipline.DEADLINE: L.BY_DEADLINE,
}
MAX_LEDGER: Final = 1 << 60


def accounts_of(state: State) -> Accounts:
    """The names of a policy's tables. Only for states that have a policy."""
    assert state.accounts is not None
    return state.accounts


def owner_ids_in_use(state: State) -> Iterator[tuple[int, OwnerSpec]]:
    """Rows and owners, in the order of their rows."""
    return ((row, owner) for owner, row in sorted(state.shares.owner_ids.items(), key=lambda item: item[1]))


def standing_of(state: State, owner: OwnerSpec) -> int:
    """The row of an owner's standing."""
    shares = state.shares
    of = shares.standings.extension if owner.extension else shares.standings.standing
    return shares.standing_ids[of(owner.queue, owner.qos)]


def plain_owner(state: State, row: int, owner: OwnerSpec) -> None:
    """An owner that no policy knows: no leaf, no ledgers, the first queue."""
    shares = state.shares
    refs = int(shares.owners[row, L.O_REFS])
    shares.owners[row] = 0
    shares.owners[row, L.O_REFS] = refs
    shares.owners[row, L.O_LEAF] = -1
    shares.owners[row, L.O_QOS] = standing_of(state, owner) if owner.extension else 0


def describe_owner(state: State, row: int, owner: OwnerSpec) -> None:
    """Fill the row of an owner: its queue, ledgers, leaf, and what does not move of its offset."""
    shares = state.shares
    accounts = accounts_of(state)
    queue = _queue_id(state, owner.queue)
    ledgers = _ledgers_of(state, owner)
    first = _list_ledgers(state, ledgers)
    refs = int(shares.owners[row, L.O_REFS])
    shares.owners[row] = 0
    shares.owners[row, L.O_REFS] = refs
    shares.owners[row, L.O_QUEUE] = queue
    shares.owners[row, L.O_QOS] = standing_of(state, owner)
    shares.owners[row, L.O_LEDGER] = first
    shares.owners[row, L.O_LEDGERS] = len(ledgers)
    qos = accounts.policy.qos.get(owner.qos)
    shares.owners[row, L.O_USAGE] = round(1e6 * (qos.usage_factor if qos is not None else 1.0))
    settings = accounts.policy.queues.get(owner.queue, Queue())
    weights: Weights = settings.weights or accounts.policy.weights
    points = weights.queue * settings.priority + weights.qos * (qos.priority if qos is not None else 0)
    shares.owners[row, L.O_BASE] = -_units(points)
    shares.owners[row, L.O_OFFSET] = -_units(points)
    shares.owners[row, L.O_TURNS] = accounts.turn_ids.setdefault((owner.queue, owner.user), row)
    shares.owners[row, L.O_LEAF] = leaf_of(state, owner)
    state.meta[L.M_OWNERS] = max(int(state.meta[L.M_OWNERS]), row + 1)
    state.meta[L.M_SHARES_MOVED] = 1


def _queue_id(state: State, name: str) -> int:
    """The row of a queue, a new one where it is new; queues that the policy does not know count as default ones."""
    shares = state.shares
    accounts = accounts_of(state)
    there = accounts.queue_ids.get(name)
    if there is not None:
        return there
    row = len(accounts.queue_ids)
    accounts.queue_ids[name] = row
    if row >= shares.queues.shape[0]:
        state.make_room({QUEUES: 2 * row})
    queue = accounts.policy.queues.get(name, Queue(name=name))
    weights = queue.weights or accounts.policy.weights
    preference = preference_id(state, preference_of_queue(queue))
    shares.queues[row] = 0
    shares.queues[row, L.Y_PREFERENCE] = preference
    shares.queues[row, L.Y_DISCIPLINE] = DISCIPLINES[queue.order]
    shares.queues[row, L.Y_STRICT] = int(queue.strict)
    shares.queues[row, L.Y_SLOPE] = round(weights.age)
    shares.queues[row, L.Y_FAIR] = _units(weights.fairshare)
    shares.queues[row, L.Y_NICE] = _units(weights.priority)
    shares.queues[row, L.Y_SIZE] = _units(weights.size)
    shares.queues[row, L.Y_DEADLINE] = _units(weights.deadline)
    state.meta[L.M_QUEUES] = len(accounts.queue_ids)
    if (
        queue.order in (Discipline.ROUND_ROBIN, Discipline.DEADLINE)
        or shares.queues[row, L.Y_SLOPE] != state.meta[L.M_SLOPE]
    ):
        state.meta[L.M_RENEWS] = 1
    if not queue.starts:
        shares.queues[row, L.Y_SHUT] = 1
    elif queue.hours:
        zone = zone_of(state, queue)
        accounts.hours.append((row, queue.hours, zone))
        shares.queues[row, L.Y_SHUT] = int(not is_open(queue.hours, state.clock_ms, zone))
        next_edge(state, state.clock_ms)
    return row


def zone_of(state: State, queue: Queue) -> ZoneOffsets:
    """The offsets of the zone of a queue's hours."""
    return state.config.zones.get(queue.zone, UTC_OFFSETS)


def next_edge(state: State, now_ms: int) -> None:
    """When hours or periods next change what may start."""
    accounts = accounts_of(state)
    edge = L.INF
    for _row, hours, zone in accounts.hours:
        if is_open(hours, now_ms, zone):
            closes = next_close_ms(hours, now_ms, zone)
            edge = min(edge, L.INF if closes is None else closes)
        else:
            edge = min(edge, next_open_ms(hours, now_ms, zone))
    count = len(accounts.ledger_names)
    ends = state.shares.ledgers[:count, L.G_ENDS][state.shares.ledgers[:count, L.G_PERIOD] > 0]
    state.meta[L.M_NEXT_EDGE] = min(edge, int(ends.min(initial=L.INF)))


def _list_ledgers(state: State, ledgers: list[int]) -> int:
    first = int(state.meta[L.M_OWNER_LEDGERS])
    last = first + len(ledgers)
    if last > state.shares.owner_ledgers.shape[0]:
        state.make_room({OWNER_LEDGERS: 2 * last})
    state.shares.owner_ledgers[first:last] = ledgers
    state.meta[L.M_OWNER_LEDGERS] = last
    return first


def _ledgers_of(state: State, owner: OwnerSpec) -> list[int]:
    accounts = accounts_of(state)
    found: list[int] = []
    who = Owner(owner.queue, owner.account, owner.user, owner.qos)
    for name, limit in accounts.policy.limits.items():
        scope = ledger(limit, who, accounts.policy.accounts)
        if scope is None:
            continue
        mine = LedgerName(name, *scope)
        if limit.running is not None:
            found.append(_ledger_id(state, mine, L.LEDGER_TASKS, limit.running, limit))
        for resource, amount in (limit.resources or {}).items():
            kind = _with(mine, "resources", resource)
            own = _ledger_id(state, kind, L.LEDGER_RESOURCE, amount, limit)
            found.append(own)
            if limit.cohort:
                shared = LedgerName("", what="resources", resource=resource, cohort=limit.cohort)
                whole = _ledger_id(state, shared, L.LEDGER_RESOURCE, _cohort_amount(state, limit, resource), limit)
                found.append(whole)
                state.shares.ledgers[whole, L.G_COHORT] = L.COHORT_ITSELF
                state.shares.ledgers[own, L.G_COHORT] = whole + 1
                state.shares.ledgers[own, L.G_RECLAIM] = int(limit.reclaim is Reclaim.PREEMPT)
        for resource, amount in (limit.hours or {}).items():
            found.append(_ledger_id(state, _with(mine, "hours", resource), L.LEDGER_HOURS, amount, limit))
    return list(dict.fromkeys(found))


def _cohort_amount(state: State, limit: Limit, resource: str) -> int:
    accounts = accounts_of(state)
    members = [other for other in accounts.policy.limits.values() if other.cohort == limit.cohort]
    return sum(other.resources.get(resource, 0) for other in members if other.resources is not None)


def _ledger_id(state: State, name: LedgerName, kind: int, amount: int, limit: Limit) -> int:
    accounts = accounts_of(state)
    there = accounts.ledger_ids.get(name)
    if there is not None:
        return there
    row = len(accounts.ledger_names)
    if row >= state.shares.ledgers.shape[0]:
        state.make_room({LEDGERS: 2 * row + 2})
    accounts.ledger_ids[name] = row
    accounts.ledger_names.append(name)
    entry = state.shares.ledgers[row]
    entry[:] = 0
    entry[L.G_KIND] = kind
    entry[L.G_NOMINAL] = amount
    entry[L.G_LIMIT] = amount
    if kind != L.LEDGER_TASKS:
        state.intern_resources([name.resource])
        entry = state.shares.ledgers[row]
        entry[L.G_RESOURCE] = state.nodes.resources.index(name.resource)
    if kind == L.LEDGER_HOURS:
        accounts.hour_ledgers[name] = row
        shift = max(0, (amount * 3600).bit_length() - 59)
        entry[L.G_SHIFT] = shift
        entry[L.G_LIMIT] = entry[L.G_NOMINAL] = (amount * 3600) >> shift
        period = max(int(limit.period), 1)
        entry[L.G_PERIOD] = period
        entry[L.G_ENDS] = (state.clock_ms // period + 1) * period
        put_spent(entry, accounts.idle.pop(name, None))
        next_edge(state, state.clock_ms)
    elif limit.cohort and not name.cohort and kind == L.LEDGER_RESOURCE:
        lent = limit.borrow.get(name.resource, 0) if limit.borrow is not None else MAX_LEDGER
        entry[L.G_LIMIT] = min(amount + lent, L.INF)
    return row


def put_spent(entry: Entry, kept: Spent | None) -> None:
    if kept is not None and kept.ends_ms == entry[L.G_ENDS]:
        entry[L.G_USED] += kept.used >> int(entry[L.G_SHIFT])
        entry[L.G_SPENT] += kept.ended >> int(entry[L.G_SHIFT])


def leaf_of(state: State, owner: OwnerSpec) -> int:
    """The node of (account, user); nodes above it are made where they are new."""
    accounts = accounts_of(state)
    above = tuple(reversed(list(lineage(owner.account, accounts.policy.accounts))))
    # An account and a user of one name are two nodes: users carry a mark that no name can have.
    path = (*above, f"\0{owner.user}")
    node = 0
    for depth in range(1, len(path) + 1):
        part = path[:depth]
        there = accounts.node_ids.get(part)
        if there is None:
            there = _new_node(state, part, node, owner)
        node = there
    return node


def _new_node(state: State, path: tuple[str, ...], parent: int, owner: OwnerSpec) -> int:
    shares = state.shares
    accounts = accounts_of(state)
    node = len(accounts.node_paths)
    if node >= shares.share_nodes.shape[0]:
        state.make_room({SHARE_NODES: 2 * node})
    accounts.node_ids[path] = node
    accounts.node_paths.append(path)
    shares.share_nodes[node] = 0
    shares.share_nodes[node, L.SHARE_PARENT] = parent
    shares.share_nodes[node, L.SHARE_DEPTH] = len(path)
    shares.share_use[node] = 0.0
    shares.share_use[node, L.F_WEIGHT] = _weight(state, path, owner.account)
    if any(shares.share_nodes[other, L.SHARE_PARENT] == parent for other in range(1, node)):
        state.meta[L.M_SHARED] = 1
    state.meta[L.M_NODES_OF_SHARES] = node + 1
    return node


def _weight(state: State, path: tuple[str, ...], account: str) -> float:
    accounts = accounts_of(state)
    name = path[-1]
    if name.startswith("\0"):
        declared = accounts.policy.accounts.get(account)
        return float(declared.users.get(name[1:], 1.0)) if declared is not None else 1.0
    found = accounts.policy.accounts.get(name)
    return float(found.weight) if found is not None else 1.0


def _with(name: LedgerName, what: str, resource: str) -> LedgerName:
    return LedgerName(name.limit, name.queue, name.account, name.user, name.qos, what, resource)


def _units(points: float) -> int:
    return round(points * L.POINT)
