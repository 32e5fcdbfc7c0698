"""The engine's state: columnar tables that only `apply` changes, with scratch that a cycle gives back as it found it.

Pure. Memory is linear in live work: slots of jobs, attempts, pieces and buckets are used again, classes that nobody
refers to are forgotten under pressure. Every growth doubles. The tables are described in core/kernels/layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hal.core.engine.accounts import Accounts, set_charge, set_policy
from hal.core.engine.answers import mask_of
from hal.core.engine.bookings import Bookings, open_table
from hal.core.engine.classes import ClassSpec, OwnerSpec, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.errors import EngineError, EngineFault
from hal.core.engine.events import ADOPT, END, SUBMIT
from hal.core.engine.growing import grown, lined
from hal.core.engine.licences import LicenceName, check_licences, room_for_events, set_totals, want_licences
from hal.core.engine.plan import START, VERDICT
from hal.core.engine.policies import (
    ORDER_KERNELS,
    PLACEMENT_KERNELS,
    PREEMPT_KERNELS,
    filter_named,
    order_named,
    preempt_named,
    score_named,
)
from hal.core.engine.predictions import Predictions
from hal.core.engine.qos import Standing, Standings, set_qos
from hal.core.engine.timelines import Timelines
from hal.core.interfaces.filter import Filter
from hal.core.interfaces.order import Order
from hal.core.interfaces.preempt import Preempt
from hal.core.interfaces.score import Score
from hal.core.kernels import bounds, claims, conservative, easy, lending, pending, running, victims
from hal.core.kernels import layout as L
from hal.core.kernels.jit import bind
from hal.core.kernels.memory import Tables, address_block
from hal.core.kernels.reach import WORD
from hal.core.kernels.releases import READY_LINES
from hal.core.kernels.rows import BLOCK, ROOM_BITS, SHAPES_AT_ONCE, TOUCHED, recount
from hal.core.kernels.tables import rehash
from hal.core.model.policy import Policy

Table = NDArray[np.int64]

BACKFILL_KERNELS: Final = {
    Backfill.NONE: L.BACKFILL_NONE,
    Backfill.EASY: L.BACKFILL_EASY,
    Backfill.EASY_SJBF: L.BACKFILL_SJBF,
    Backfill.TOP_K: L.BACKFILL_CONSERVATIVE,
    Backfill.CONSERVATIVE: L.BACKFILL_CONSERVATIVE,
}
PREEMPTING_KERNELS: Final = ("take_back", "fall", "ready", "resumable", "seek", "lender")
"""Bound only where some QOS may take from another, or a limit has taken back what it lent."""
NO_KEYS: Final = np.zeros(0, np.int64)
FIRST_SLOTS: Final = 64
MOST_MASKS_KEPT: Final = 1_024
"""What filters that are stopped have said of kinds of jobs of which there are none now: the latest of it."""
SLICES_AHEAD: Final = 16
"""For so many times as many starts as are at hand tables are made larger, where as many wait."""
ARENA_STARTS: Final = 1 << 15
FAULTS: Final = {
    bounds.CHAIN: "a chain of records",
    bounds.SEARCH: "a search for an instant",
    bounds.PASS: "a pass over what waits",
    L.FAULT_TREE: "a tree of what waits or runs",
}
"""What came to its bound, by the word that a kernel leaves."""
ARENA_ROWS: Final = 1 << 16
ARENA_PROMISES: Final = 1 << 12


class State:
    """All that the engine knows. Create it, then change it only through `apply`.

    Attributes are the tables of core/kernels/layout; other parts read them, never write them. `version` counts applied
    events.
    """

    def __init__(
        self,
        config: EngineConfig | None = None,
        *,
        on_compile: Callable[[str], None] | None = None,
        kernels: tuple[str, ...] | None = None,
    ) -> None:
        """An empty state. The first of a process loads the kernels, telling `on_compile` before each.

        kernels: bind these only, for `compile_all`; such a state cannot plan.
        """
        self.config = config or EngineConfig()
        self._on_compile = on_compile
        self._kernels = kernels
        self.meta: Table = np.zeros(L.META_SIZE, np.int64)
        for place in (L.M_ENTRY_FREE, L.M_RUN_FREE, L.M_PIECE_FREE, L.M_BUCKET_FREE, L.M_END_ROOT, L.M_TIMER_ROOT):
            self.meta[place] = -1
        self.meta[L.M_PARKED_WAKE] = -1
        self.meta[L.M_CSETS] = 1
        self.meta[L.M_NEXT_EDGE] = L.INF
        self.meta[L.M_BOOKING_EDGE] = L.INF
        self.meta[L.M_NODES_OF_SHARES] = 1
        self.meta[L.M_CPU] = -1
        self.meta[L.M_HALF_LIFE] = 1
        # Names, by value: what events mean.
        self.resources: list[str] = []
        self.row_names: list[str] = []
        self.row_labels: list[dict[str, str]] = []
        self.row_health: list[str] = []
        self.row_by_name: dict[str, int] = {}
        self.csets: list[ClassSpec | None] = [ClassSpec({})]
        self.cset_ids: dict[tuple[Any, ...], int] = {(): 0}
        self.cset_free: list[int] = []
        self.shape_ids: dict[tuple[Any, ...], int] = {}
        self.shape_specs: list[ClassSpec | None] = []
        self.shape_free: list[int] = []
        self.class_ids: dict[tuple[int, int], int] = {}
        self.class_specs: list[ClassSpec | None] = []
        self.class_free: list[int] = []
        self.owner_ids: dict[OwnerSpec, int] = {}
        self.owners: list[OwnerSpec] = []
        self.owner_free: list[int] = []
        self._seen_classes: tuple[ClassSpec, ...] | None = None
        self._seen_class_ids: Table = NO_KEYS
        self._seen_owners: tuple[OwnerSpec, ...] | None = None
        self._seen_owner_ids: Table = NO_KEYS
        self.predictions = Predictions()
        # Tables.
        self.entries: Table = np.zeros((FIRST_SLOTS, L.ENTRY_SIZE), np.int64)
        self.rank: Table = np.zeros((FIRST_SLOTS, L.TREE_SIZE), np.int64)
        self.by_time: Table = np.zeros((FIRST_SLOTS, L.TREE_SIZE), np.int64)
        self.job_index: Table = np.zeros(4 * FIRST_SLOTS, np.int64)
        self.buckets: Table = np.zeros((FIRST_SLOTS, L.BUCKET_SIZE), np.int64)
        self.bucket_index: Table = np.zeros(4 * FIRST_SLOTS, np.int64)
        self.active: Table = np.zeros(FIRST_SLOTS, np.int64)
        self.classes: Table = np.zeros((FIRST_SLOTS, L.CLASS_SIZE), np.int64)
        self.shapes: Table = np.zeros((FIRST_SLOTS, L.SHAPE_SIZE), np.int64)
        self.request: Table = np.zeros((1, FIRST_SLOTS), np.int64)
        self.allowed: NDArray[np.int8] = np.zeros((1, 4), np.int8)
        self.open_now = self.allowed
        self.free: Table = np.zeros((4, 1), np.int64)
        self.capacity: Table = np.zeros((4, 1), np.int64)
        self.rows: Table = np.zeros((4, L.ROW_SIZE), np.int64)
        self.rows[:, L.W_PROMISED] = -1
        self.rows[:, L.W_AHEAD] = L.INF
        self.runs: Table = np.zeros((FIRST_SLOTS, L.RUN_SIZE), np.int64)
        self.ends: Table = np.zeros((FIRST_SLOTS, L.TREE_SIZE), np.int64)
        self.unlisted: Table = np.zeros((2, FIRST_SLOTS), np.int64)
        self.run_index: Table = np.zeros(4 * FIRST_SLOTS, np.int64)
        self.pieces: Table = np.zeros((FIRST_SLOTS, L.PIECE_SIZE), np.int64)
        self.reservations: Table = np.zeros((16, L.RESERVATION_SIZE), np.int64)
        self.reserved: Table = np.zeros((16, L.Q_EXTRA + 1), np.int64)
        self.owner_table: Table = np.zeros((FIRST_SLOTS, L.OWNER_SIZE), np.int64)
        self.owner_ledgers: Table = np.zeros(FIRST_SLOTS, np.int64)
        self.ledgers: Table = np.zeros((4, L.LEDGER_SIZE), np.int64)
        self.queues: Table = np.zeros((4, L.QUEUE_SIZE), np.int64)
        self.share_nodes: Table = np.zeros((FIRST_SLOTS, L.NODE_SIZE), np.int64)
        self.share_use: NDArray[np.float64] = np.zeros((FIRST_SLOTS, L.F_SIZE), np.float64)
        self.charge: NDArray[np.float64] = np.zeros((2, 1), np.float64)
        self.accounts: Accounts | None = None
        self.standings = Standings(Policy())
        self.qos_ids: dict[Standing, int] = {}
        self.qos: Table = np.zeros((1, L.K_TAKES + 1), np.int64)
        self.searched: Table = np.zeros((1, L.SEARCHED_SIZE), np.int64)
        # Scratch: never part of what the state means.
        self.path: Table = np.zeros(L.PATH, np.int64)
        self.ticks: Table = np.zeros(L.TICKS, np.int64)
        self.counts: Table = np.zeros(L.COUNTS, np.int64)
        self.timelines = Timelines(1, 1, 1)
        self.freed: Table = np.zeros(4, np.int64)  # not scratch: where promises may find an earlier place
        self.bookings = Bookings()
        self.booking_table: Table = np.zeros((1, L.BOOKING_SIZE), np.int64)
        self.booked: Table = np.zeros((1, L.BOOKED_SIZE), np.int64)
        self.booked_rows: Table = np.zeros(1, np.int64)
        self.licence_names: list[LicenceName] = []
        self.licence_totals: dict[str, int] | None = None
        self.licences: Table = np.zeros((1, L.LICENCE_SIZE), np.int64)
        self.wants: Table = np.zeros((FIRST_SLOTS, 1), np.int64)
        self.licence_events: Table = np.zeros((2, 1), np.int64)
        self.holding: Table = np.zeros((2, 1), np.int64)
        self.changes: Table = np.zeros((1, L.CHANGE_SIZE), np.int64)
        self.drops: Table = np.zeros((L.MAX_DROPS, L.DROP_SIZE), np.int64)
        self.reach: Table = np.zeros((1, 3), np.int64)
        self.scores: Table = np.zeros((1, 4), np.int64)
        self.newest_job = -1
        """The largest job id that was ever submitted or adopted."""
        self.spare: NDArray[np.float32] = np.zeros((0, 0), np.float32)
        self.per_unit: NDArray[np.float32] = self.spare
        self.best: Table = np.zeros((0, 0), np.int64)
        self.differ: Table = np.zeros((2, SHAPES_AT_ONCE), np.int64)
        self.touched: Table = np.zeros(TOUCHED, np.int64)
        self.ready_of: Table = np.zeros((READY_LINES, 2), np.int64)
        self.value: NDArray[np.int32] = np.zeros(BLOCK, np.int32)
        self.search: Table = np.zeros((1, L.Z_FREE), np.int64)
        self.picks: Table = np.zeros((5, L.MAX_CANDIDATES), np.int64)
        self.order: Order | None = None
        self.score: Score | None = None
        self.preempt: Preempt | None = None
        self.filters: list[Filter] = []
        self.stopped: frozenset[str] = frozenset()
        self.masks: dict[tuple[str, tuple[object, ...]], NDArray[np.bool_]] = {}
        """What each filter said last of a shape: all that counts of one that has failed since."""
        self.scored_shapes: list[int] = []
        self.scored_at = -1
        self.promise_need = FIRST_SLOTS
        self.conservative = BACKFILL_KERNELS[self.config.backfill] == L.BACKFILL_CONSERVATIVE
        self._new_arenas()
        self.use_config(self.config)
        self.rewire()

    # --- reading ---------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """How many times the state was changed."""
        return int(self.meta[L.M_VERSION])

    @property
    def clock_ms(self) -> int:
        """The latest instant that an event or an assumed plan has named."""
        return int(self.meta[L.M_CLOCK])

    def check_bounds(self) -> None:
        """Raises EngineFault when a loop of a kernel came to its bound (see `kernels.bounds`), now or earlier."""
        if self.path[L.FAULT]:
            raise EngineFault(FAULTS[int(self.path[L.FAULT])])

    @property
    def pending_tasks(self) -> int:
        """Tasks that wait, held and blocked ones included."""
        return int(self.meta[L.M_PENDING])

    @property
    def running_attempts(self) -> int:
        """Attempts that hold rows."""
        return int(self.meta[L.M_RUNS])

    def row_name(self, row: int) -> str:
        """The node of a row."""
        return self.row_names[row]

    def row_of(self, name: str) -> int:
        """The row of a node. Raises KeyError for a node that never joined or has left."""
        return self.row_by_name[name]

    def next_booking_ms(self) -> int:
        """When the next booking begins or ends; INF when none does."""
        return int(self.meta[L.M_BOOKING_EDGE])

    def next_timer_ms(self) -> int:
        """When the next task becomes eligible by time, or hours, periods or bookings change; INF when nothing does."""
        at = int(self.meta[L.M_TIMER_ROOT])
        edge = min(int(self.meta[L.M_NEXT_EDGE]), self.next_booking_ms(), self.predictions.expires_ms)
        if at < 0:
            return edge
        while self.rank[at, L.T_LEFT] >= 0:
            at = int(self.rank[at, L.T_LEFT])
        return min(int(self.rank[at, L.T_KEY]), edge)

    @property
    def offsets_moved(self) -> bool:
        """Whether a pass should begin with ClockAdvanced, so that shares, turns and ages count as they now are."""
        meta = self.meta
        return bool(
            meta[L.M_ORDER] == L.ORDER_PRIORITY
            and meta[L.M_ACTIVE]
            and ((meta[L.M_SHARES_MOVED] and meta[L.M_SHARED]) or meta[L.M_RENEWS])
        )

    def wake_all(self) -> None:
        """Everything is planned anew and nothing stays parked (part of `apply`)."""
        self.meta[L.M_DIRTY] = 1
        self.meta[L.M_EPOCH] += 1
        self.meta[L.M_WAKE] = self.meta[L.M_EPOCH]

    # --- policy ----------------------------------------------------------------------------------------------------

    def policies_of(self, config: EngineConfig) -> tuple[Order | None, Score | None, Preempt | None, list[Filter]]:
        """The plugins that a configuration names; changes nothing. Raises EngineError for an unknown policy name."""
        return (
            None if config.order in ORDER_KERNELS else order_named(config.order),
            None if config.placement in PLACEMENT_KERNELS else score_named(config.placement),
            None if config.preempt in PREEMPT_KERNELS else preempt_named(config.preempt),
            [filter_named(name) for name in config.filters],
        )

    def use_config(self, config: EngineConfig) -> None:
        """Set the policy scalars (part of `apply(ConfigChanged)`). Raises EngineError for an unknown policy name."""
        self.order, self.score, self.preempt, self.filters = self.policies_of(config)
        self.stopped = frozenset(config.stopped)
        self.meta[L.M_PRICED] = int(self.preempt is not None)
        self.config = config
        self.meta[L.M_ORDER] = ORDER_KERNELS.get(config.order, L.ORDER_PLUGIN)
        self.meta[L.M_PLACEMENT] = PLACEMENT_KERNELS.get(config.placement, L.PLACE_PLUGIN)
        self.meta[L.M_BACKFILL] = BACKFILL_KERNELS[config.backfill]
        self.meta[L.M_BY_TIME] = int(config.backfill is Backfill.EASY_SJBF)
        self.conservative = BACKFILL_KERNELS[config.backfill] == L.BACKFILL_CONSERVATIVE
        self.meta[L.M_TIMELINES] = int(self.conservative)
        self._new_timelines()
        self.meta[L.M_PARKING] = int(config.parking)
        self.meta[L.M_CLAIM_AFTER] = config.claim_after_ms
        set_totals(self, None if config.policy is None else config.policy.licences)
        top = config.backfill is Backfill.TOP_K
        self.meta[L.M_MAX_RESERVATIONS] = config.reservations if top else config.max_reservations
        self._rows_are_new()
        set_qos(self, config)
        if config.policy is not None or config.order == "priority":
            set_policy(self, config.policy or Policy(), list(self.owner_ids_in_use()))
        elif self.accounts is not None:
            self.accounts = None
            self.queues[:] = 0
            self.meta[L.M_NEXT_EDGE] = L.INF
            for place in (L.M_RENEWS, L.M_SHARED, L.M_SHARES_MOVED):
                self.meta[place] = 0
            for row, _owner in self.owner_ids_in_use():
                self._plain_owner(row)

    def owner_ids_in_use(self) -> Iterator[tuple[int, OwnerSpec]]:
        """Rows and owners, in the order of their rows."""
        return ((row, owner) for owner, row in sorted(self.owner_ids.items(), key=lambda item: item[1]))

    def _plain_owner(self, row: int) -> None:
        refs = int(self.owner_table[row, L.O_REFS])
        self.owner_table[row] = 0
        self.owner_table[row, L.O_REFS] = refs
        self.owner_table[row, L.O_LEAF] = -1

    # --- interning -------------------------------------------------------------------------------------------------

    def intern_resources(self, names: list[str]) -> None:
        """Give columns to resources that are new; rows have none of them until a node says so."""
        fresh = [name for name in dict.fromkeys(names) if name not in self.resources]
        if not fresh:
            return
        self.resources.extend(fresh)
        count = len(self.resources)
        width = max(1, count)
        if self.free.shape[1] < width:
            for name in ("free", "capacity"):
                old = getattr(self, name)
                table = np.zeros((old.shape[0], width), np.int64)
                table[:, : old.shape[1]] = old
                setattr(self, name, table)
            request = np.zeros((width, self.request.shape[1]), np.int64)
            request[: self.request.shape[0]] = self.request
            self.request = request
            reserved = np.zeros((self.reserved.shape[0], L.Q_EXTRA + width), np.int64)
            reserved[:, : self.reserved.shape[1]] = self.reserved
            self.reserved = reserved
        self.meta[L.M_RESOURCES] = count
        self._new_timelines()
        if self.charge.shape[1] < width:
            self.charge = np.zeros((2, width), np.float64)
        if self.accounts is not None:
            set_charge(self)
        self._new_arenas()
        self.rewire()

    def intern_classes(self, specs: tuple[ClassSpec, ...]) -> Table:
        """Class ids of specs; remembers the tuple by identity."""
        if specs is self._seen_classes:
            return self._seen_class_ids
        for spec in specs:
            _check_class(spec)
        ids = np.array([self._class_id(spec) for spec in specs], np.int64)
        if len(self.class_ids) > FIRST_SLOTS and self._forget_classes(set(ids.tolist())):
            self.rewire()
        self._seen_classes, self._seen_class_ids = specs, ids
        return ids

    def intern_owners(self, owners: tuple[OwnerSpec, ...]) -> Table:
        """Owner ids; remembers the tuple by identity."""
        if owners is self._seen_owners:
            return self._seen_owner_ids
        for owner in owners:
            if owner not in self.owner_ids:
                self._new_owner(owner)
        if len(self.owner_ids) > FIRST_SLOTS:
            self._forget_owners(set(owners))
        ids = np.array([self.owner_ids[owner] for owner in owners], np.int64)
        self._seen_owners, self._seen_owner_ids = owners, ids
        return ids

    def _new_owner(self, owner: OwnerSpec) -> None:
        if self.owner_free:
            row = self.owner_free.pop()
            self.owners[row] = owner
        else:
            row = len(self.owners)
            self.owners.append(owner)
            if row >= self.owner_table.shape[0]:
                self.owner_table = grown(self.owner_table, 2 * row)
                self.rewire()
        self.owner_ids[owner] = row
        self.owner_table[row, L.O_REFS] = 0
        if self.accounts is None:
            self._plain_owner(row)
        else:
            self.accounts.describe(self, row, owner)

    def _forget_owners(self, keep: set[OwnerSpec]) -> None:
        """Forget owners that no bucket refers to, when they are most of what is interned."""
        idle = [
            owner for owner, row in self.owner_ids.items() if self.owner_table[row, L.O_REFS] == 0 and owner not in keep
        ]
        if 2 * len(idle) <= len(self.owner_ids):
            return
        for owner in idle:
            self.owner_free.append(self.owner_ids.pop(owner))
        if self.accounts is not None:
            set_policy(self, self.accounts.policy, list(self.owner_ids_in_use()))

    def _class_id(self, spec: ClassSpec) -> int:
        shape = self.shape_id(spec)
        key = (shape, spec.nodes)
        there = self.class_ids.get(key)
        if there is not None:
            return there
        if self.class_free:
            class_id = self.class_free.pop()
            self.class_specs[class_id] = spec
        else:
            class_id = len(self.class_specs)
            self.class_specs.append(spec)
            if class_id >= self.classes.shape[0]:
                self.classes = grown(self.classes, 2 * class_id)
                self.rewire()
        self.classes[class_id] = (shape, spec.nodes, 0, 0)
        self.class_ids[key] = class_id
        return class_id

    def shape_id(self, spec: ClassSpec) -> int:
        """The shape of a class, a new one where it is new."""
        key = spec.shape_key()
        there = self.shape_ids.get(key)
        if there is not None:
            return there
        self.intern_resources([name for name, amount in spec.request.items() if amount])
        cset = self._cset_id(spec)
        if self.shape_free:
            shape = self.shape_free.pop()
            self.shape_specs[shape] = spec
        else:
            shape = len(self.shape_specs)
            self.shape_specs.append(spec)
            if shape >= self.shapes.shape[0]:
                self.shapes = grown(self.shapes, 2 * shape)
                self.wants = grown(self.wants, 2 * shape)
                request = np.zeros((self.request.shape[0], 2 * shape), np.int64)
                request[:, : self.request.shape[1]] = self.request
                self.request = request
            self.meta[L.M_SHAPES] = shape + 1
        self.shape_ids[key] = shape
        self.request[:, shape] = 0
        for name, amount in spec.request.items():
            if amount:
                self.request[self.resources.index(name), shape] = amount
        self.shapes[shape] = 0
        self.shapes[shape, L.S_SCORES] = -1
        self.shapes[shape, L.S_CSET] = cset
        self._name_booking(shape, spec)
        want_licences(self, shape, spec)
        self.rewire()
        self.recount(shape, shape + 1)
        return shape

    def _cset_id(self, spec: ClassSpec) -> int:
        """The constraint set of a shape: its requirements, and the shape itself where filters look at it.

        Raises EngineError, and interns nothing, when a filter's answer is wrong.
        """
        key: tuple[Any, ...] = tuple(sorted(set(spec.constraints), key=_requirement_key))
        if spec.booking:
            key = (*key, ("booking", spec.booking))
        if self.filters:
            key = (*key, spec.shape_key())
        there = self.cset_ids.get(key)
        if there is not None:
            return there
        masks = self._masks(spec)
        if self.cset_free:
            cset = self.cset_free.pop()
            self.csets[cset] = spec
        else:
            cset = len(self.csets)
            self.csets.append(spec)
            if cset >= self.allowed.shape[0]:
                allowed = np.zeros((2 * self.allowed.shape[0], self.allowed.shape[1]), np.int8)
                allowed[: self.allowed.shape[0]] = self.allowed
                self.allowed = allowed
                self.rewire()
            self.meta[L.M_CSETS] = cset + 1
        self.cset_ids[key] = cset
        self._admit(range(len(self.row_names)), cset, spec)
        self.allowed[cset, : masks.shape[0]] &= masks
        return cset

    def admit(self, touched: list[int]) -> None:
        """Work out anew which of these rows each constraint set admits: up, labels as required, no filter against it.

        Raises EngineError, and changes nothing, when a filter's answer is wrong.
        """
        masks = {
            cset: self._masks(spec)
            for cset, spec in enumerate(self.csets)
            if self.filters and cset and spec is not None
        }
        for cset, spec in enumerate(self.csets):
            if spec is not None:
                # A filter may look at all rows, so one that changed may change what it says of the others.
                self._admit(range(len(self.row_names)) if cset in masks else touched, cset, spec)
        for cset, mask in masks.items():
            self.allowed[cset, : mask.shape[0]] &= mask
        self._open()

    def _name_booking(self, shape: int, spec: ClassSpec) -> None:
        inside = self.bookings.id_of(spec.booking)
        self.shapes[shape, L.S_INSIDE] = inside
        self.shapes[shape, L.S_BOOKING] = 0 if self.bookings.anywhere(spec.booking) else inside

    def admit_bookings(self) -> None:
        """Work out anew which rows the classes of bookings may ever use (part of `apply`)."""
        for cset, spec in enumerate(self.csets):
            if spec is not None and spec.booking:
                masks = self._masks(spec, anew=False)  # bookings are nothing that a filter looks at
                self._admit(range(len(self.row_names)), cset, spec)
                self.allowed[cset, : masks.shape[0]] &= masks
        for shape, spec in enumerate(self.shape_specs):
            if spec is not None and spec.booking:
                self._name_booking(shape, spec)

    def _open(self) -> None:
        """Rows that are open right now: allowed, and not held by somebody else's booking."""
        table = open_table(self, self.allowed)
        if table.shape == self.open_now.shape and self.open_now is not self.allowed is not table:
            self.open_now[:] = table  # in place: kernels hold its address
        elif table is not self.open_now:
            self.open_now = table
            if hasattr(self, "at"):
                self.rewire()

    def _admit(self, rows: range | list[int], cset: int, spec: ClassSpec) -> None:
        some = np.asarray(rows, np.int64)
        self.allowed[cset, some] = self.rows[some, L.W_STATE] == L.ROW_UP
        if spec.constraints:
            for row in rows:
                if not all(part.holds(self.row_labels[row]) for part in spec.constraints):
                    self.allowed[cset, row] = 0
        if spec.booking and not self.bookings.anywhere(spec.booking):
            mine = self.bookings.rows_of(spec.booking)
            self.allowed[cset, [row for row in rows if row not in mine]] = 0

    def _masks(self, spec: ClassSpec, *, anew: bool = True) -> NDArray[np.int8]:
        """1 where all filters admit a row for this shape; empty without filters. anew: they are asked again."""
        if not self.filters:
            return np.zeros(0, np.int8)
        from hal.core.engine.views import node_view, request_of

        view = node_view(self)
        request = request_of(self, spec)
        admitted = np.ones(view.rows, np.int8)
        for policy in self.filters:
            key = (policy.info.name, spec.shape_key())
            if anew and policy.info.name not in self.stopped:
                self.masks[key] = mask_of(policy, request, view)
            said = self.masks.get(key, np.zeros(0, np.bool_))
            admitted[: said.shape[0]] &= said
            admitted[said.shape[0] :] = 0  # it has said of no other row that it may be used
        return admitted

    def unasked(self, spec: ClassSpec) -> list[str]:
        """Filters that have failed before they said anything of such jobs: none of these starts."""
        return [
            policy.info.name
            for policy in self.filters
            if policy.info.name in self.stopped and (policy.info.name, spec.shape_key()) not in self.masks
        ]

    def forget_row(self, row: int) -> None:
        """What filters said of the node of a row does not hold for the next one there (part of `apply`)."""
        for key, mask in self.masks.items():
            if key[0] in self.stopped and row < mask.shape[0]:
                self.masks[key] = mask.copy()
                self.masks[key][row] = False

    def use_filters(self, filters: list[Filter], stopped: frozenset[str]) -> None:
        """Other filters: every shape is admitted anew. Raises EngineError, and changes nothing, on a wrong answer."""
        before = self.filters, self.stopped, self.masks.copy()
        self.filters, self.stopped = filters, stopped
        shapes = [(shape, spec) for shape, spec in enumerate(self.shape_specs) if spec is not None]
        try:
            for _shape, spec in shapes:
                self._masks(spec)
        except EngineError:
            self.filters, self.stopped, self.masks = before
            raise
        named = {policy.info.name for policy in filters}
        self.masks = {
            key: mask
            for key, mask in self.masks.items()
            if key[0] in named and (key[0] in stopped or key[1] in self.shape_ids)
        }
        self.csets, self.cset_ids, self.cset_free = self.csets[:1], {(): 0}, []
        self.meta[L.M_CSETS] = 1
        for shape, spec in shapes:
            self.shapes[shape, L.S_CSET] = self._cset_id(spec)
        for shape in self.shape_free:
            self.shapes[shape, L.S_CSET] = 0
        self.recount(0, int(self.meta[L.M_SHAPES]))

    def _forget_classes(self, keep: set[int]) -> bool:
        """Forget classes and shapes that no bucket refers to, when they are most of what is interned."""
        live = set(np.flatnonzero(self.classes[: len(self.class_specs), L.C_REFS]).tolist()) | keep
        if len(self.class_ids) <= max(FIRST_SLOTS, 2 * len(live)):
            return False
        for key, class_id in list(self.class_ids.items()):
            if class_id not in live:
                del self.class_ids[key]
                self.class_specs[class_id] = None
                self.class_free.append(class_id)
        used = {shape for shape, _nodes in self.class_ids}
        for shape_key, shape in list(self.shape_ids.items()):
            if shape not in used:
                del self.shape_ids[shape_key]
                self.shape_specs[shape] = None
                self.shape_free.append(shape)
                self.request[:, shape] = L.INF
                self.shapes[shape, L.S_FIT] = 0
                self.shapes[shape, L.S_EVER] = 0
                self.shapes[shape, L.S_CSET] = 0
                self.shapes[shape, L.S_SCORES] = -1
        # A filter that is stopped cannot be asked again when such jobs come back.
        gone = [key for key in self.masks if key[1] not in self.shape_ids]
        said = [key for key in gone if key[0] in self.stopped]
        kept = set(said[-MOST_MASKS_KEPT:])
        for lost in gone:
            if lost not in kept:
                del self.masks[lost]
        needed = {int(self.shapes[shape, L.S_CSET]) for shape in self.shape_ids.values()} | {0}
        for cset_key, cset in list(self.cset_ids.items()):
            if cset not in needed:
                del self.cset_ids[cset_key]
                self.csets[cset] = None
                self.cset_free.append(cset)
        return True

    def recount(self, first: int, last: int) -> None:
        """Count anew where shapes first..last-1 fit."""
        if first == 0:
            self._rows_are_new()
        recount(self.at, first, last)
        for shape in self.shape_free:
            if first <= shape < last:
                self.shapes[shape, L.S_FIT] = 0
                self.shapes[shape, L.S_EVER] = 0

    # --- growth ----------------------------------------------------------------------------------------------------

    def grow_rows(self, count: int) -> None:
        """Make room for `count` rows."""
        room = self.free.shape[0]
        if count <= room:
            return
        room = max(count, 2 * room)
        self.free = grown(self.free, room)
        self.capacity = grown(self.capacity, room)
        rows = grown(self.rows, room)
        rows[self.rows.shape[0] :, L.W_PROMISED] = -1
        rows[self.rows.shape[0] :, L.W_AHEAD] = L.INF
        self.rows = rows
        allowed = np.zeros((self.allowed.shape[0], room), np.int8)
        allowed[:, : self.allowed.shape[1]] = self.allowed
        self.allowed = allowed
        self.freed = grown(self.freed, room)
        self._new_timelines()
        self._new_arenas()
        self.rewire()

    def grow(self, outcome: int, count: int) -> None:
        """Make room after a kernel asked for it; `count` is how many slots the event may need."""
        if outcome == L.GROW_ENTRIES:
            room = 2 * max(self.entries.shape[0], int(self.meta[L.M_ENTRY_TOP]) + count)
            self.entries = grown(self.entries, room)
            self.rank = grown(self.rank, room)
            if self.meta[L.M_PREEMPTING]:
                self.searched = grown(self.searched, room)
            if self.meta[L.M_BY_TIME]:
                self.by_time = grown(self.by_time, room)
            top = int(self.meta[L.M_ENTRY_TOP])
            heads = self._job_heads(top)
            self.job_index = lined(_power_of_two(2 * room))
            rehash(self.job_index, self.entries, heads, L.E_JOB, False)
        elif outcome == L.GROW_RUNS:
            room = max(2 * self.runs.shape[0], int(self.meta[L.M_RUN_TOP]) + self._starts_ahead(count))
            self.runs = grown(self.runs, room)
            self.ends = grown(self.ends, room)
            unlisted = np.zeros((2, max(room, self.unlisted.shape[1])), np.int64)  # that of a shadow is longer
            unlisted[:, : self.unlisted.shape[1]] = self.unlisted
            self.unlisted = unlisted
            live = np.flatnonzero(self.runs[: int(self.meta[L.M_RUN_TOP]), L.R_NODES])
            self.run_index = lined(_power_of_two(2 * room))
            rehash(self.run_index, self.runs, live, L.R_JOB, True)
        elif outcome == L.GROW_PIECES:
            room = max(2 * self.pieces.shape[0], int(self.meta[L.M_PIECE_TOP]) + self._starts_ahead(count))
            self.pieces = grown(self.pieces, room)
        elif outcome == L.GROW_BUCKETS:
            room = 2 * max(self.buckets.shape[0], int(self.meta[L.M_BUCKET_TOP]) + count)
            self.buckets = grown(self.buckets, room)
            self.active = grown(self.active, room)
            live = np.flatnonzero(self.buckets[: int(self.meta[L.M_BUCKET_TOP]), L.B_REFS])
            self.bucket_index = lined(_power_of_two(2 * room))
            rehash(self.bucket_index, self.buckets, live, L.B_CLASS, True)
        self.rewire()

    def _starts_ahead(self, count: int) -> int:
        """How many starts to make room for where `count` are at hand: all that waits, up to SLICES_AHEAD times as many.

        A pass of many slices would copy its tables after every other one; room that nobody wrote takes no memory.
        """
        return max(2 * count, min(self.pending_tasks, SLICES_AHEAD * count))

    def grow_reservations(self, promises: int, promised: int) -> None:
        """Make room to keep this many reservations and promised rows."""
        if promises > self.reservations.shape[0] or promised > self.reserved.shape[0]:
            if promises > self.reservations.shape[0]:
                self.reservations = grown(self.reservations, 2 * promises)
            if promised > self.reserved.shape[0]:
                self.reserved = grown(self.reserved, 2 * promised)
            self.rewire()

    def grow_profile(self) -> None:
        """Larger timelines and promise arenas for a conservative cycle that asked for them."""
        self._new_timelines(grow=True)
        self.promise_need = max(
            2 * self.promise_need,
            2 * int(self.meta[L.M_RESERVATIONS]),
            2 * int(self.meta[L.M_PROMISED]) + 2 * self.free.shape[0],
        )
        self._new_promise_arena(2 * self.promise_need)
        self.rewire()

    def _new_timelines(self, *, grow: bool = False) -> None:
        """Timelines that know nothing yet; of one point where the policy plans without them."""
        self.counts[L.COUNT_REACH] += 1
        self.counts[L.COUNT_COLD] = 1
        if not self.conservative:
            self.timelines = Timelines(1, 1, 1)
            return
        points = self.timelines.profile.shape[0]
        attempts = int(self.meta[L.M_PIECES]) + 2 * int(self.meta[L.M_PROMISED])
        need = 8 * self.free.shape[0] + 4 * attempts + FIRST_SLOTS
        self.timelines = Timelines(self.free.shape[0], self.free.shape[1], max(2 * points if grow else points, need))

    def touch(self, rows: range | list[int]) -> None:
        """Amounts of these rows changed: their timelines are built anew, and promises may move there.

        Part of `apply`; the epoch counts up afterwards.
        """
        if not self.conservative:
            return
        self.counts[L.COUNT_REACH] += 1
        some = np.unique(np.asarray(rows, np.int64))
        for flag, count, into, of in (
            (L.W_STALE, L.COUNT_STALE, self.timelines.stale, self.counts),
            (L.W_FREED, L.M_FREED, self.freed, self.meta),
        ):
            fresh = some[self.rows[some, flag] == 0]
            at = int(of[count])
            into[at : at + fresh.shape[0]] = fresh
            of[count] += fresh.shape[0]
        self.rows[some, L.W_STALE] = 1
        self.rows[some, L.W_FREED] = self.rows[some, L.W_EVENT] = self.meta[L.M_EPOCH] + 1

    def use_time_index(self) -> None:
        """Make room in the index by planned time (a change of policy to EASY-SJBF)."""
        if self.by_time.shape[0] < self.entries.shape[0]:
            self.by_time = grown(self.by_time, self.entries.shape[0])
            self.rewire()

    def _job_heads(self, top: int) -> Table:
        """First entries of their jobs (the ones that no sibling leads to), in slot order."""
        live = np.flatnonzero(self.entries[:top, L.E_WHERE] != L.WHERE_FREE)
        following = self.entries[live, L.E_SIBLING]
        is_head = np.ones(self.entries.shape[0], np.bool_)
        is_head[following[following >= 0]] = False
        return live[is_head[live]]

    # --- output arenas: plans own slices of them, nothing is copied --------------------------------------------------

    def _new_arenas(self) -> None:
        self._new_start_arena()
        self._new_row_arena()
        self._new_promise_arena(ARENA_PROMISES)
        self._new_verdict_arena()

    def _new_start_arena(self) -> None:
        self.start_arena = np.zeros(ARENA_STARTS, START)
        self.start_at = 0
        self.start_last = ARENA_STARTS - min(self.config.slice_starts, ARENA_STARTS)

    def _new_row_arena(self) -> None:
        self.row_arena = np.zeros(max(ARENA_ROWS, 4 * self.free.shape[0]), np.int64)
        self.row_at = 0
        self.row_last = self.row_arena.shape[0] - max(ARENA_ROWS // 4, self.free.shape[0])

    def _new_promise_arena(self, room: int) -> None:
        room = max(room, 4 * self._promise_room())
        self.promise_arena: Table = np.zeros((room, L.RESERVATION_SIZE), np.int64)
        self.promise_at = 0
        self.promised_arena: Table = np.zeros((room, L.Q_EXTRA + self.free.shape[1]), np.int64)
        self.promised_at = 0
        self.promise_last = room - self._promise_room()

    def _new_verdict_arena(self) -> None:
        self.verdict_arena = np.zeros(16 * easy.MAX_VERDICTS, VERDICT)
        self.verdict_at = 0
        self.verdict_last = 15 * easy.MAX_VERDICTS

    def room_for_plan(self) -> None:
        """Fresh arenas where the old ones may not hold another plan (older plans keep the old ones alive).

        `cycle` calls it when a place has passed its last one, so an ordinary slice costs four comparisons.
        """
        if self.start_at > self.start_last:
            self._new_start_arena()
        if self.row_at > self.row_last:
            self._new_row_arena()
        if self.promise_at > self.promise_last or self.promised_at > self.promise_last:
            self._new_promise_arena(max(ARENA_PROMISES, 4 * self._promise_room()))
        if self.verdict_at > self.verdict_last:
            self._new_verdict_arena()

    def _promise_room(self) -> int:
        rows = int(self.free.shape[0]) + 8
        return max(rows, self.promise_need) if self.conservative else rows

    # --- calls -----------------------------------------------------------------------------------------------------

    def rewire(self) -> None:
        """Build the argument tuples of all kernels anew (an array was replaced)."""
        s = self
        rows = s.free.shape[0]
        self.projected: Table = np.zeros((rows, s.free.shape[1]), np.int64)
        self.heap: Table = lined(s.buckets.shape[0], 4)
        width = max(L.MAX_DEPTH, s.shapes.shape[0], rows, min(s.config.slice_starts, ARENA_STARTS) + 1)
        width = max(width, s.reservations.shape[0])
        self.scratch: Table = np.zeros((10, width), np.int64)
        if s.conservative and s.reach.shape != (s.shapes.shape[0], rows // WORD + 3):
            s.reach = np.zeros((s.shapes.shape[0], rows // WORD + 3), np.int64)
            s.counts[L.COUNT_REACH] += 1
        s.open_now = open_table(s, s.allowed)
        s.licence_events, s.holding = room_for_events(s)
        self._follow_rows()
        self._make_search_room()
        self.at: Any = address_block(self.tables())
        self._bind()

    def _rows_are_new(self) -> None:
        """What is kept about rows by placement, by promises and by a score plugin's answers holds no longer."""
        self.ticks[L.TICK_MIRROR] = 0
        self.ticks[L.TICK_READY] = 0
        self.scored_at = -1

    def room_for_scores(self, lines: int) -> None:
        """Make room for a score plugin's answers about this many shapes; the old ones stay."""
        rows = self.free.shape[0]
        if self.scores.shape[0] < lines or self.scores.shape[1] != rows:
            scores = np.zeros((2 * lines, rows), np.int64)
            kept = len(self.scored_shapes)
            if kept:  # of as many rows: other rows begin anew
                scores[:kept] = self.scores[:kept]
            self.scores = scores
            self.rewire()

    def _follow_rows(self) -> None:
        """Scratch by which counts and scored placement follow rows, anew where it no longer fits the tables."""
        rows, resources = self.free.shape
        blocks = (rows + BLOCK - 1) // BLOCK
        if self.spare.shape != (resources, rows):
            self.lagging: Table = np.zeros(rows, np.int64)
            self.counted: Table = np.zeros((rows, resources), np.int64)
            self.spare = np.zeros((resources, rows), np.float32)
            self.per_unit = np.zeros((resources, rows), np.float32)
            self.block_touched: Table = np.zeros(blocks, np.int64)
            self.room: Table = np.zeros(((rows >> ROOM_BITS) + 1, 1 + resources), np.int64)
            self.ready: Table = np.zeros((READY_LINES, rows), np.int64)
            self.unready: Table = np.zeros(rows, np.int64)
            self.rows[:, L.W_UNREADY] = 0
            self.ticks[L.TICK_UNREADY] = 0
            self._rows_are_new()
        if self.best.shape != (self.shapes.shape[0], blocks):
            self.best = np.zeros((self.shapes.shape[0], blocks), np.int64)
            self.shapes[:, L.S_FOLLOWED] = -1

    def _make_search_room(self) -> None:
        """Scratch of searches, only where some QOS may take from another."""
        if not self.meta[L.M_PREEMPTING]:
            return
        rows, resources = self.free.shape
        if self.search.shape != (rows, L.Z_FREE + 2 * resources):
            self.search = np.zeros((rows, L.Z_FREE + 2 * resources), np.int64)
        if self.picks.shape[1] < resources:
            self.picks = np.zeros((5, resources), np.int64)

    def tables(self) -> Tables:
        """The tables as kernels see them."""
        s = self
        t = s.timelines
        return Tables(
            s.meta, s.entries, s.rank, s.by_time, s.job_index, s.buckets, s.bucket_index, s.active, s.classes, s.shapes,
            s.request, s.allowed, s.open_now, s.free, s.capacity, s.rows, s.runs, s.ends, s.run_index, s.pieces,
            s.reservations, s.reserved, s.owner_table, s.owner_ledgers, s.ledgers, s.queues, s.share_nodes, s.share_use,
            s.charge, s.qos, s.searched,
            s.path, s.scores, s.projected, s.heap, s.scratch, s.counts, s.ticks, t.profile, t.events,
            t.stale, s.freed, s.drops, s.booking_table, s.booked, s.booked_rows, s.licences,
            s.wants, s.licence_events, s.changes, s.reach, t.late, t.row_log, t.lines, t.line_begin, t.line_end,
            s.lagging, s.counted, s.differ, s.spare, s.per_unit, s.best, s.touched, s.block_touched, s.room, s.value,
            s.ready, s.ready_of, s.unready,
            s.search, s.picks, s.unlisted, s.holding,
        )  # fmt: skip

    def _bind(self) -> None:
        """Entry points for these argument types; they never change, so the first state of a process binds them."""
        mine, other = ("conservative", "easy") if self.conservative else ("easy", "conservative")
        wanted = PREEMPTING_KERNELS if self.meta[L.M_PREEMPTING] else ()
        if self._kernels is not None or any(name not in _entry_points for name in (mine, *wanted)):
            no_submits, no_ends, no_adopts = np.zeros(0, SUBMIT), np.zeros(0, END), np.zeros(0, ADOPT)
            no_table, none, no_moves = np.zeros((0, 2), np.int64), NO_KEYS, np.zeros((0, L.MOVE_SIZE), np.int64)
            out = (self.start_arena, 0, self.row_arena, 0, self.promise_arena, 0, self.promised_arena, 0)
            place = (0, 1, 1, False, False, 0, 0, 0, 0, 0, 0, 0)
            plan = (self.start_arena, none, 0, False, no_table, no_table, 0, False, 0, 0)
            for name, kernel, arguments in (
                ("submit", pending.submit, (self.at, no_submits, none, none, none)),
                ("change", pending.change, (self.at, 0, none, none, none, none)),
                ("advance", pending.advance, (self.at, 0)),
                ("end", running.end, (self.at, no_ends)),
                ("refuse", running.refuse, (self.at, self.start_arena, 0)),
                ("assume", running.assume, (self.at, *plan)),
                ("note", running.note_parked, (self.at, 0, 0, 0, 0)),
                ("take_back", claims.take_back, (self.at, no_moves, none, 0)),
                ("fall", claims.fall_claims, (self.at, none, False)),
                ("ready", claims.ready_claims, (self.at, 0, no_table, no_moves, none)),
                ("resumable", claims.resumable, (self.at, 0, no_table, no_moves)),
                ("seek", victims.seek, (self.at, 0, 0, 0, 0, 0, 0, no_table, none, no_table)),
                ("lender", lending.next_lender, (self.at, 0)),
                ("adopt", running.adopt, (self.at, no_adopts, none, none, none, none)),
                ("easy", easy.cycle, (self.at, *out, self.verdict_arena, 0, *place)),
                ("conservative", conservative.cycle, (self.at, *out, self.verdict_arena, 0, *place)),
                ("learn", conservative.learn, (self.at, self.promise_arena, 0, self.promised_arena, 0, 0, 0)),
            ):
                if self._kernels is None:
                    needed = name != other and (name in wanted or name not in PREEMPTING_KERNELS)
                    needed = needed and (name != "learn" or self.conservative)
                else:
                    needed = name in self._kernels
                if name in _entry_points or not needed:
                    continue
                if self._on_compile is not None:
                    self._on_compile(f"compiling {kernel.__module__.rpartition('.')[2]}.{name}")
                _entry_points[name] = bind(kernel, arguments)
        self.calls = _entry_points
        self.cycle_call: Callable[..., Any] = _entry_points.get(mine, _unbound)


_entry_points: dict[str, Callable[..., Any]] = {}


def _unbound(*arguments: Any) -> Any:
    raise EngineError("this state was made to compile some kernels only: it cannot plan; make another State")


def _check_class(spec: ClassSpec) -> None:
    if spec.nodes < 1 or any(not 0 <= amount < L.INF for amount in spec.request.values()):
        raise EngineError(
            f"class {spec.request} on {spec.nodes} nodes: nodes must be at least 1 and amounts 0..2**60 base units; "
            "the event was not applied"
        )
    check_licences(spec)


def _requirement_key(requirement: Requirement) -> tuple[str, str, tuple[str, ...]]:
    return (requirement.key, requirement.match.value, requirement.values)


def _power_of_two(least: int) -> int:
    return 1 << max(6, (least - 1).bit_length())
