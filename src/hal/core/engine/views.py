"""What plugins and people read: columns of waiting jobs and of rows, copied out of the tables.

Pure. Nothing here is on the hot path of a built-in policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.events import AdviceUpdated
from hal.core.engine.plan import RESERVATION
from hal.core.engine.rules.policy_tables import fair_factor
from hal.core.engine.state import State
from hal.core.engine.tables.accounts import LedgerName
from hal.core.engine.tables.advice import Floats
from hal.core.interfaces.labels import Labels
from hal.core.interfaces.policy import BucketView, JobView, Near, NodeView, Request, RunView
from hal.core.kernels.preemption.node_prices import MOST_ELAPSED_MS, MOST_LOST, WEIGHT_OF_A_NODE
from hal.core.kernels.rules.ledgers import ask_of
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Amounts, Ints, Records
from hal.core.kernels.structures.jit import plain
from hal.core.model.advice import KeySpace

HUNDREDTHS: Final = 100
"""Of a score, in which a class says how much it likes to be near other work."""
Kinds: TypeAlias = tuple[str, ...]
"""Kinds of advice, by name."""
PENDING: Final = np.dtype(
    [
        (name, np.int64)
        for name in (
            "job", "first_task", "tasks", "attempt", "class_id", "owner_id", "priority", "submit_ms", "eligible_ms",
            "held", "walltime_ms", "planned_ms", "where",
        )
    ]
)  # fmt: skip
RUNNING: Final = np.dtype(
    [
        (name, np.int64)
        for name in (
            "job", "task", "attempt", "class_id", "owner_id", "priority", "submit_ms", "walltime_ms", "planned_ms",
            "start_ms", "end_ms", "nodes", "state", "due_ms", "taken", "for_job", "run",
        )
    ]
)  # fmt: skip


def job_view(state: State, rows: Any, class_ids: Ints, owner_ids: Ints, reads: Kinds) -> JobView:
    """Submitted (or adopted) rows as an order plugin that reads these kinds of advice sees them."""
    planned = np.where(rows["planned_ms"] < 0, rows["walltime_ms"], rows["planned_ms"])
    classes = class_ids[rows["class_index"]]
    return JobView(
        job=rows["job"],
        priority=rows["priority"],
        submit_ms=rows["submit_ms"],
        eligible_ms=rows["eligible_ms"] if "eligible_ms" in rows.dtype.names else rows["submit_ms"],
        walltime_ms=rows["walltime_ms"],
        planned_ms=planned,
        nodes=state.catalogue.classes[classes, L.C_NODES],
        class_id=classes,
        owner_id=owner_ids[rows["owner_index"]],
        advice=advice_on_jobs(state, rows["job"], reads),
    )


def job_view_of_entries(state: State, slots: Ints, reads: Kinds) -> JobView:
    """Waiting entries as an order plugin that reads these kinds of advice sees them."""
    table = state.work.entries[slots]
    classes = state.work.buckets[table[:, L.E_BUCKET], L.B_CLASS]
    return JobView(
        job=table[:, L.E_JOB],
        priority=table[:, L.E_PRIORITY],
        submit_ms=table[:, L.E_SUBMIT],
        eligible_ms=table[:, L.E_ELIGIBLE],
        walltime_ms=table[:, L.E_WALL],
        planned_ms=table[:, L.E_PLANNED],
        nodes=state.catalogue.classes[classes, L.C_NODES],
        class_id=classes,
        owner_id=state.work.buckets[table[:, L.E_BUCKET], L.B_OWNER],
        advice=advice_on_jobs(state, table[:, L.E_JOB], reads),
    )


def job_view_of_runs(state: State, slots: Ints, reads: Kinds) -> JobView:
    """Running attempts as an order plugin sees them (as waiting ones), for the day that their tasks wait again."""
    table = state.work.runs[slots]
    classes = state.work.buckets[table[:, L.R_BUCKET], L.B_CLASS]
    return JobView(
        job=table[:, L.R_JOB],
        priority=table[:, L.R_PRIORITY],
        submit_ms=table[:, L.R_SUBMIT],
        eligible_ms=table[:, L.R_ELIGIBLE],
        walltime_ms=table[:, L.R_WALL],
        planned_ms=table[:, L.R_PLANNED],
        nodes=state.catalogue.classes[classes, L.C_NODES],
        class_id=classes,
        owner_id=state.work.buckets[table[:, L.R_BUCKET], L.B_OWNER],
        advice=advice_on_jobs(state, table[:, L.R_JOB], reads),
    )


def bucket_view(state: State, buckets: Ints, reads: Kinds) -> BucketView:
    """Buckets as an order plugin that reads these kinds of advice sees them."""
    table = state.work.buckets[buckets]
    return BucketView(
        class_id=table[:, L.B_CLASS].copy(),
        owner_id=table[:, L.B_OWNER].copy(),
        waiting=table[:, L.B_COUNT].copy(),
        advice=advice_on_owners(state, table[:, L.B_OWNER], reads),
    )


def run_view(state: State, slots: Ints, now_ms: int, lent: bool = False) -> RunView:
    """Running attempts as a preempt plugin sees them; `lent`: where what they borrowed is taken back."""
    table = state.work.runs[slots]
    buckets = state.work.buckets[table[:, L.R_BUCKET]]
    owner_ids, classes = buckets[:, L.B_OWNER], state.catalogue.classes[buckets[:, L.B_CLASS]]
    seen, which = np.unique(owner_ids, return_inverse=True)
    owners = [state.shares.owner_specs[owner] for owner in seen.tolist()]
    return RunView(
        job=table[:, L.R_JOB],
        task=table[:, L.R_TASK],
        attempt=table[:, L.R_ATTEMPT],
        queue=np.array([owner.queue for owner in owners], np.str_)[which],
        account=np.array([owner.account for owner in owners], np.str_)[which],
        user=np.array([owner.user for owner in owners], np.str_)[which],
        qos=np.array([owner.qos for owner in owners], np.str_)[which],
        priority=table[:, L.R_PRIORITY],
        submit_ms=table[:, L.R_SUBMIT],
        start_ms=table[:, L.R_START],
        walltime_ms=table[:, L.R_WALL],
        end_ms=table[:, L.R_END],
        taken=table[:, L.R_ATTEMPT] - 1 + table[:, L.R_PREEMPTED],
        wasted=_wasted(state, table, state.shares.owners[owner_ids, L.O_QOS], classes[:, L.C_SHAPE], now_ms, lent),
        nodes=table[:, L.R_NODES],
        resources=tuple(state.nodes.resources),
        amounts=state.catalogue.request[: len(state.nodes.resources), classes[:, L.C_SHAPE]],
    )


def _wasted(state: State, runs: Ints, qos: Ints, shapes: Ints, now_ms: int, lent: bool) -> Amounts:
    """What `victims.lost` says of each, in seconds of the whole of the largest node; in columns.

    Where lent quota is taken back, what could be suspended is requeued: it would lose its whole time.
    """
    largest = np.maximum(state.nodes.capacity[: len(state.nodes.names)].max(axis=0, initial=0), 1)[
        : len(state.nodes.resources), None
    ]
    shares = state.catalogue.request[: len(state.nodes.resources)][:, shapes] * WEIGHT_OF_A_NODE // largest
    weights = np.clip(shares.max(axis=0, initial=1), 1, WEIGHT_OF_A_NODE)
    elapsed = np.maximum(now_ms - runs[:, L.R_START], 0)
    mode = state.shares.qos[qos, L.STANDING_MODE]
    elapsed = np.where(mode == L.MODE_CHECKPOINT, np.minimum(elapsed, state.shares.qos[qos, L.STANDING_GRACE]), elapsed)
    elapsed = np.where((mode == L.MODE_SUSPEND) & (not lent), 0, np.minimum(elapsed, MOST_ELAPSED_MS))
    lost: Amounts = np.minimum(elapsed * weights * runs[:, L.R_NODES], MOST_LOST) / L.PRICE_ONE
    return lost


def advice_on_nodes(state: State, reads: Kinds) -> dict[str, Floats]:
    """By kind, what is advised of each node, shape (nodes,); NaN where nothing is. O(nodes) a kind."""
    if not reads:
        return {}
    slots = _slots_of_nodes(state)
    return {kind: state.advice.values_at(kind, KeySpace.NODES, slots) for kind in reads}


def _slots_of_nodes(state: State) -> Ints:
    """Slots of the nodes' names, by node index; looked up again after nodes or names have come or gone."""
    names = state.advice.names[KeySpace.NODES]
    known = state.plugins.node_slots
    if known is None or known[:2] != (state.nodes.changes, names.changes):
        known = state.plugins.node_slots = (state.nodes.changes, names.changes, names.find(state.nodes.names))
    return known[2]


def advice_on_jobs(state: State, jobs: Ints, reads: Kinds) -> dict[str, Floats]:
    """By kind, what is advised of each of these jobs; NaN where nothing is."""
    if not reads:
        return {}
    slots = state.advice.names[KeySpace.JOBS].find(jobs.tolist())
    return {kind: state.advice.values_at(kind, KeySpace.JOBS, slots) for kind in reads}


def advice_on_owners(state: State, owner_ids: Ints, reads: Kinds) -> dict[str, Floats]:
    """By kind, what is advised of the queue, account or user of each of these owners; NaN where nothing is."""
    advice, columns = state.advice, {}
    seen, which = np.unique(owner_ids, return_inverse=True)
    owners = [state.shares.owner_specs[owner] for owner in seen.tolist()] if reads else []
    for kind in reads:
        held = advice.kinds.get(kind)
        name = _OWNER_NAMES.get(held.space) if held is not None else None
        if held is None or name is None:
            columns[kind] = np.full(owner_ids.shape, np.nan)
        else:
            slots = advice.names[held.space].find([name(owner) for owner in owners])
            columns[kind] = advice.values_at(kind, held.space, slots)[which]
    return columns


def known_keys(state: State, kinds: Iterable[str]) -> dict[str, int]:
    """By kind, how many of its keys name something that the engine knows now; kinds of jobs are not counted.

    Names are looked up once for all kinds: O(nodes + owners); then O(nodes + owners) a kind, in columns.
    """
    advice, known = state.advice, dict[str, int]()
    slots: dict[KeySpace, Ints] = {}
    for kind in kinds:
        held = advice.kinds[kind]
        if held.space is KeySpace.JOBS:
            continue
        if held.space not in slots:
            slots[held.space] = _slots_known(state, held.space)
        known[kind] = int((~np.isnan(advice.values_at(kind, held.space, slots[held.space]))).sum())
    return known


def _slots_known(state: State, space: KeySpace) -> Ints:
    """Slots of the names of a key space that name something; -1 where no kind has the name."""
    if space is KeySpace.NODES:
        here = state.nodes.rows[: len(state.nodes.names), L.N_STATE] != L.NODE_GONE
        slots: Ints = _slots_of_nodes(state)[here]
        return slots
    name = _OWNER_NAMES[space]
    return state.advice.names[space].find(list({name(owner) for owner in state.shares.owner_ids}))


def advice_events(state: State) -> Iterator[AdviceUpdated]:
    """Events that let another state hold the same advice."""
    for kind, held in state.advice.kinds.items():
        slots = np.flatnonzero(~np.isnan(held.values))
        keys = [state.advice.key_at(held.space, slot) for slot in slots.tolist()]
        yield AdviceUpdated(kind, held.space, held.version, tuple(keys), held.values[slots], held.expires_ms)  # type: ignore[arg-type]


_OWNER_NAMES: Final[dict[KeySpace, Callable[[OwnerSpec], str]]] = {
    KeySpace.QUEUES: lambda owner: owner.queue,
    KeySpace.ACCOUNTS: lambda owner: owner.account,
    KeySpace.USERS: lambda owner: owner.user,
}


class Cluster:
    """The ClusterView of a state."""

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def resources(self) -> tuple[str, ...]:
        """Names, by resource index."""
        return tuple(self._state.nodes.resources)

    def capacity(self) -> Ints:
        """Shape (R,): what the nodes that are up have together."""
        rows = len(self._state.nodes.names)
        up = self._state.nodes.rows[:rows, L.N_STATE] == L.NODE_UP
        total: Ints = self._state.nodes.capacity[:rows][up].sum(axis=0)[: len(self._state.nodes.resources)]
        return total

    def request(self, class_id: int) -> Request:
        """What a task of the class takes on each of its nodes. Raises KeyError for a class that is not in use."""
        spec = self._state.catalogue.class_specs[class_id]
        if spec is None:
            raise KeyError(class_id)
        return request_of(self._state, spec)

    def owner(self, owner_id: int) -> OwnerSpec:
        """Queue, account, user and QOS of an owner."""
        return self._state.shares.owner_specs[owner_id]


def node_view(state: State, some: Ints | None = None, reads: Kinds = ()) -> NodeView:
    """All rows, or some of them, as resource-major float32 columns, with these kinds of advice."""
    rows = np.arange(len(state.nodes.names)) if some is None else some
    labels = state.nodes.labels if some is None else [state.nodes.labels[row] for row in some.tolist()]
    return NodeView(
        rows=rows.shape[0],
        resources=tuple(state.nodes.resources),
        free=np.ascontiguousarray(state.nodes.free[rows].T, np.float32),
        capacity=np.ascontiguousarray(state.nodes.capacity[rows].T, np.float32),
        up=state.nodes.rows[rows, L.N_STATE] == L.NODE_UP,
        labels=Labels(labels),
        advice={kind: column[rows] for kind, column in advice_on_nodes(state, reads).items()},
    )


def request_of(state: State, spec: ClassSpec) -> Request:
    """A class's request by resource index."""
    amounts = np.zeros(len(state.nodes.resources), np.int64)
    for name, amount in spec.request.items():
        if amount:
            amounts[state.nodes.resources.index(name)] = amount
    return Request(amounts=amounts, wanted=tuple(np.flatnonzero(amounts).tolist()))


def preferring_request(state: State, spec: ClassSpec) -> Request:
    """The same with what the class prefers."""
    request, preference = request_of(state, spec), spec.preference
    if preference is None:
        return request
    near = (Near(one.term.label.partition(" ")[2], one.term.level, one.weight / HUNDREDTHS) for one in preference.near)
    return Request(request.amounts, request.wanted, preference.spread, tuple(near))


def pending(state: State) -> Records:
    """Waiting entries (dtype PENDING) sorted by (job, first task); a copy. `where`: layout WHERE_*."""
    top = int(state.meta[L.M_ENTRY_TOP])
    table = state.work.entries[:top]
    table = table[table[:, L.E_WHERE] != L.WHERE_FREE]
    out = np.zeros(table.shape[0], PENDING)
    buckets = state.work.buckets[table[:, L.E_BUCKET]]
    for name, column in (
        ("job", L.E_JOB), ("first_task", L.E_FIRST), ("tasks", L.E_TASKS), ("attempt", L.E_ATTEMPT),
        ("priority", L.E_PRIORITY), ("submit_ms", L.E_SUBMIT), ("eligible_ms", L.E_ELIGIBLE), ("held", L.E_HELD),
        ("walltime_ms", L.E_WALL), ("planned_ms", L.E_PLANNED), ("where", L.E_WHERE),
    ):  # fmt: skip
        out[name] = table[:, column]
    out["class_id"] = buckets[:, L.B_CLASS]
    out["owner_id"] = buckets[:, L.B_OWNER]
    return out[np.lexsort((out["first_task"], out["job"]))]


def running(state: State) -> Records:
    """Whatever holds rows (dtype RUNNING) sorted by (job, task); a copy.

    `state`: layout RUN_*: attempts, and claims of tasks that wait for rows to be cleared. `due_ms`: when what is told
    to leave, or the rows of a claim, will be out at the latest; since when an attempt is suspended.
    """
    top = int(state.meta[L.M_RUN_TOP])
    slots = np.flatnonzero(state.work.runs[:top, L.R_NODES] > 0)
    table = state.work.runs[slots]
    out = np.zeros(table.shape[0], RUNNING)
    buckets = state.work.buckets[table[:, L.R_BUCKET]]
    for name, column in (
        ("job", L.R_JOB), ("task", L.R_TASK), ("attempt", L.R_ATTEMPT), ("priority", L.R_PRIORITY),
        ("submit_ms", L.R_SUBMIT), ("walltime_ms", L.R_WALL), ("planned_ms", L.R_PLANNED), ("start_ms", L.R_START),
        ("end_ms", L.R_END), ("nodes", L.R_NODES), ("state", L.R_STATE), ("taken", L.R_PREEMPTED), ("for_job", L.R_FOR),
    ):  # fmt: skip
        out[name] = table[:, column]
    out["due_ms"] = np.where(out["state"] == L.RUN_SUSPENDED, table[:, L.R_SINCE], table[:, L.R_DUE])
    out["due_ms"][out["state"] == L.RUN_ON] = 0
    out["class_id"] = buckets[:, L.B_CLASS]
    out["owner_id"] = buckets[:, L.B_OWNER]
    out["run"] = slots
    return out[np.lexsort((out["task"], out["job"]))]


def rows_of_run(state: State, run: int) -> list[int]:
    """The rows that a running attempt holds, in rank order (`run` from `running`)."""
    rows = []
    piece = int(state.work.runs[run, L.R_PIECE])
    while piece >= 0:
        rows.append(int(state.work.pieces[piece, L.P_NODE]))
        piece = int(state.work.pieces[piece, L.P_NEXT])
    return rows


def runs_of_row(state: State, row: int) -> list[int]:
    """The running attempts that hold a row, the latest first (`run` as in `running`)."""
    runs = []
    piece = int(state.nodes.rows[row, L.N_ATTEMPTS]) - 1
    while piece >= 0:
        runs.append(int(state.work.pieces[piece, L.P_RUN]))
        piece = int(state.work.pieces[piece, L.P_ON_ROW]) - 1
    return runs


def reservations(state: State) -> Records:
    """What waiting jobs have reserved (dtype RESERVATION); a copy. Rows: `reserved_rows`."""
    table = state.work.reservations[: int(state.meta[L.M_RESERVATIONS])].copy()
    return table.view(RESERVATION).reshape(-1)


def reserved_rows(state: State) -> Ints:
    """The reserved nodes that `reservations` points into; a copy."""
    return state.work.reserved[: int(state.meta[L.M_RESERVED]), L.Q_NODE].copy()


class LedgerRow(msgspec.Struct, frozen=True):
    """A ledger: what it counts, how much is used of how much (base units; base-unit-seconds for hours).

    nominal: its own part, where it may borrow more. ends_ms: when its period ends, INF without one.
    """

    name: LedgerName
    used: int
    limit: int
    nominal: int
    ends_ms: int


def claimed_amounts(state: State) -> dict[int, int]:
    """By ledger: what is charged for waiting tasks whose place is being cleared, at times beyond what limits allow."""
    claimed: dict[int, int] = {}
    if not state.meta[L.M_CLAIMS]:
        return claimed
    tables = state.tables()
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    for run in runs[(runs[:, L.R_NODES] > 0) & (runs[:, L.R_STATE] == L.RUN_CLAIM)]:
        bucket = state.work.buckets[run[L.R_BUCKET]]
        owner = state.shares.owners[bucket[L.B_OWNER]]
        first, last = int(owner[L.O_LEDGER]), int(owner[L.O_LEDGER] + owner[L.O_LEDGERS])
        for ledger in state.shares.owner_ledgers[first:last].tolist():
            ask = plain(ask_of)(tables, ledger, int(bucket[L.B_CLASS]), int(run[L.R_WALL]))
            claimed[ledger] = claimed.get(ledger, 0) + (ask if ask < L.INF else 0)
    return claimed


def ledger_rows(state: State) -> list[LedgerRow]:
    """All ledgers of the owners that have been seen, sorted by name."""
    if state.accounts is None:
        return []
    out = []
    claimed = claimed_amounts(state)
    for name, row in sorted(state.accounts.ledger_ids.items()):
        entry = state.shares.ledgers[row]
        shift = int(entry[L.G_SHIFT])
        out.append(
            LedgerRow(
                name=name,
                used=int(entry[L.G_USED] - claimed.get(row, 0)) << shift,
                limit=int(entry[L.G_LIMIT]) << shift,
                nominal=int(entry[L.G_NOMINAL]) << shift,
                ends_ms=int(entry[L.G_ENDS]) if entry[L.G_PERIOD] else L.INF,
            )
        )
    return out


class ShareRow(msgspec.Struct, frozen=True):
    """A node of the tree of shares.

    path: accounts from the top, empty for the root; `user` is None for accounts. target and used are parts (0..1) among
    its siblings, for the root 1 (used: 0 while nothing was); units is decayed use at the state's clock; factor is what
    its jobs get (users only, else 0).
    """

    path: tuple[str, ...]
    user: str | None
    weight: float
    target: float
    used: float
    units: float
    factor: float


def share_rows(state: State) -> list[ShareRow]:
    """The tree of shares, parents before children, siblings by name."""
    if state.accounts is None:
        return []
    fair_factor(state, 0)
    nodes, use = state.shares.share_nodes, state.shares.share_use
    shrunk = 2.0 ** -((state.clock_ms - int(state.meta[L.M_SHARE_ZERO])) / max(int(state.meta[L.M_HALF_LIFE]), 1))
    out = []
    for path, node in sorted(state.accounts.node_ids.items()):
        parent = max(int(nodes[node, L.SHARE_PARENT]), 0)
        weights = float(use[parent, L.F_WEIGHTS])
        units = float(use[parent, L.F_SUM] if node else use[0, L.F_USE])  # the root has no siblings
        is_user = bool(path) and path[-1].startswith("\0")
        out.append(
            ShareRow(
                path=path[:-1] if is_user else path,
                user=path[-1][1:] if is_user else None,
                weight=float(use[node, L.F_WEIGHT]),
                target=float(use[node, L.F_WEIGHT]) / weights if node and weights else 1.0,
                used=float(use[node, L.F_USE]) / units if units else 0.0,
                units=float(use[node, L.F_USE]) * shrunk,
                factor=float(2.0 ** -use[node, L.F_LOSS]) if is_user else 0.0,
            )
        )
    return out
