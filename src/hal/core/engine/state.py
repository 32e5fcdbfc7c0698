"""The engine's state: columnar tables that only `apply` changes, with scratch that a cycle gives back as it found it.

Pure. Memory is linear in live work: slots of jobs, attempts, pieces and buckets are used again, classes that nobody
refers to are forgotten under pressure. Every growth doubles. Tables are declared in core/kernels/structures/declared;
the parts of a state own them and know nothing of the state. Whoever changes several of them at once is above it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.errors import EngineError, EngineFault
from hal.core.engine.events import ADOPT, END, SUBMIT
from hal.core.engine.plugins.selection import Plugins
from hal.core.engine.tables.accounts import Accounts, Shares
from hal.core.engine.tables.advice import Advice
from hal.core.engine.tables.allocation import Allocation
from hal.core.engine.tables.bookings import Bookings
from hal.core.engine.tables.catalogue import Catalogue
from hal.core.engine.tables.domains import Domains, Path
from hal.core.engine.tables.licences import Licences
from hal.core.engine.tables.nodes import Nodes
from hal.core.engine.tables.outputs import MOST_STARTS, Outputs
from hal.core.engine.tables.outputs import RESERVATIONS as FIRST_RESERVATIONS
from hal.core.engine.tables.scratch import FOLLOWING_NODES, Scratch
from hal.core.engine.tables.timelines import ONE_NODE, reach_rooms, timeline_rooms
from hal.core.engine.tables.work import Work
from hal.core.kernels.nodes.rows import recount
from hal.core.kernels.passes import cold_timelines, conservative, easy, group_victims
from hal.core.kernels.preemption import claims, lending, victims
from hal.core.kernels.structures import bounds
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Allowed, Ints
from hal.core.kernels.structures.declaration import DECLARED, Room
from hal.core.kernels.structures.declared import (
    FIRST_SLOTS,
    PLANNED,
    RESOURCES,
    SCORED_GANGS,
    SCORED_SHAPES,
    TIMED_ENTRIES,
    TIMELINE_POINTS,
    ScalarTables,
    TimelineTables,
)
from hal.core.kernels.structures.jit import bind
from hal.core.kernels.structures.memory import Tables, point_at
from hal.core.kernels.work import pending, running
from hal.core.model.offer import Offer

PREEMPTING_KERNELS: Final = ("apply_moves", "cancel", "ready", "resumable", "seek", "seek_groups", "empty", "lender")
"""Bound only where some QOS may take from another, or a limit has taken back what it lent."""
NO_KEYS: Final = np.zeros(0, np.int64)
FAULTS: Final = {
    bounds.CHAIN: "a chain of records",
    bounds.SEARCH: "a search for an instant",
    bounds.PASS: "a pass over what waits",
    L.FAULT_TREE: "a tree of what waits or runs",
}
"""What came to its bound, by the word that a kernel leaves."""
OUTPUTS: Final = tuple(name for name, declared in DECLARED.items() if declared.group == "outputs")


class State(ScalarTables):
    """All that the engine knows, in groups that own their tables. Make it by `new_state`, change it only by `apply`.

    Other parts read attributes, never write them. `version` counts applied events.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        on_compile: Callable[[str], None] | None = None,
        kernels: tuple[str, ...] | None = None,
    ) -> None:
        """Empty tables; `configuration.new_state` makes them a state that can plan."""
        self.config = config
        """Which policies, and which bounds. Replaced by ConfigChanged."""
        self._on_compile = on_compile
        self._kernels = kernels
        self.nodes = Nodes()
        """Nodes, what is free on them, and which work they admit."""
        self.domains = Domains()
        """Which nodes are near each other, and how many of each domain fit what asks for one."""
        self.work = Work()
        """What waits, what runs, and what is reserved for whom."""
        self.catalogue = Catalogue(NO_KEYS)
        """Classes, shapes and constraint sets that are in use."""
        self.shares = Shares(NO_KEYS)
        """Owners, queues, limits and fair shares."""
        self.bookings = Bookings()
        """Bookings that have not ended."""
        self.licences = Licences()
        """Licences: how many there are, are held and will be."""
        self.timelines = TimelineTables()
        """What each node will have free, and when. Of one node where the policy plans without."""
        self.scratch = Scratch()
        """What a pass writes down for itself."""
        self.outputs = Outputs()
        """Where slices write what plans hold."""
        self.advice = Advice()
        """What planes advise, for plugins to read."""
        self.plugins = Plugins()
        """The plugins that the configuration names, and what is kept of their answers."""
        self.offers: tuple[Offer, ...] = ()
        """Machines that could be rented; read by explanations only."""
        self.accounts: Accounts | None = None
        """The policy's names and their rows in `shares`; None without a policy."""
        self.allocation = Allocation(self.table_owners())
        """Sizes of rooms; makes, grows and copies the tables."""
        self.reservations_needed = FIRST_RESERVATIONS
        """Reservations, and nodes of reservations, that one slice under conservative backfill has needed."""
        self.keeps_timelines = config.backfill in (Backfill.TOP_K, Backfill.CONSERVATIVE)
        """Whether the policy plans with timelines: TOP_K or CONSERVATIVE."""
        self.given: Ints = self.pass_record[: L.GIVEN_COLUMNS]
        """Of the pass record: what the last slice gave. Part of `pass_record`, not a copy."""
        self.at: Any = None
        """What kernels take: the addresses of all tables, of which every one that is replaced needs `rewire`."""
        self.renew_outputs()

    def table_owners(self) -> dict[str, Any]:
        """The object that owns the tables of each group."""
        parts = (
            self, self.nodes, self.domains, self.work, self.catalogue, self.shares, self.bookings, self.licences,
            self.timelines, self.scratch, self.outputs,
        )  # fmt: skip
        return {part.group: part for part in parts}

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

    def node_name(self, node_index: int) -> str:
        """The name of a node."""
        return self.nodes.names[node_index]

    def node_index(self, name: str) -> int:
        """The index of a node. Raises KeyError for a node that never joined or has left."""
        return self.nodes.by_name[name]

    def next_booking_ms(self) -> int:
        """When the next booking begins or ends; INF when none does."""
        return int(self.meta[L.M_BOOKING_EDGE])

    def advice_expiry_ms(self) -> int:
        """When the first kind of advice that a policy in use reads expires; INF when none does."""
        reads = self.plugins.reads_advice
        return self.advice.next_expiry_ms(reads) if reads else L.INF

    def next_timer_ms(self) -> int:
        """When the next task becomes eligible by time, hours, periods or bookings change, or advice that is read
        expires; INF when nothing does."""
        at = int(self.meta[L.M_TIMER_ROOT])
        edge = min(
            int(self.meta[L.M_NEXT_EDGE]),
            self.next_booking_ms(),
            self.work.predictions.expires_ms,
            self.advice_expiry_ms(),
        )
        if at < 0:
            return edge
        while self.work.rank[at, L.T_LEFT] >= 0:
            at = int(self.work.rank[at, L.T_LEFT])
        return min(int(self.work.rank[at, L.T_KEY]), edge)

    @property
    def offsets_moved(self) -> bool:
        """Whether a pass should begin with ClockAdvanced, so that shares, turns, ages and advice count as they are."""
        meta = self.meta
        return self.advice.moves_offsets or bool(
            meta[L.M_ORDER] == L.ORDER_PRIORITY
            and meta[L.M_ACTIVE]
            and ((meta[L.M_SHARES_MOVED] and meta[L.M_SHARED]) or meta[L.M_RENEWS])
        )

    def wake_all(self) -> None:
        """Everything is planned anew and nothing stays parked (part of `apply`)."""
        self.meta[L.M_DIRTY] = 1
        self.meta[L.M_EPOCH] += 1
        self.meta[L.M_WAKE] = self.meta[L.M_EPOCH]

    # --- growth ----------------------------------------------------------------------------------------------------

    def make_room_for_nodes(self, count: int) -> None:
        """Make room for `count` nodes."""
        rooms = self.nodes.rooms_for(count)
        if rooms:
            self.allocation.resize(rooms)
            self.renew_timelines()
            self.renew_outputs()
            self.rewire()

    def make_room_for_domains(self, paths: list[Path]) -> None:
        """Make room for the domains that these paths name."""
        rooms = self.domains.rooms_for(paths)
        if rooms:
            self.make_room(rooms)

    def settle_domains(self) -> None:
        """Nodes may have moved: list them in topological order again (part of `apply`)."""
        if not self.domains.is_listed:
            self.domains.write_order(self.meta, self.nodes.rows)
        self.meta[L.M_COMPACT] = int(self.config.compact and self.domains.any())

    def grow(self, outcome: int, count: int) -> None:
        """Make room after a kernel asked for it; `count` is how many slots the event may need."""
        self.allocation.resize(self.work.rooms_for(self.meta, outcome, count))
        self.work.refill_index(self.meta, outcome)
        self.rewire()

    def grow_reservations(self, reservations: int, nodes: int) -> None:
        """Make room to keep so many reservations and nodes of reservations."""
        rooms = self.work.rooms_for_reservations(reservations, nodes)
        if rooms:
            self.make_room(rooms)

    def intern_resources(self, names: list[str]) -> None:
        """Give columns to resources that are new; nodes have none of them until an event says so."""
        fresh = [name for name in dict.fromkeys(names) if name not in self.nodes.resources]
        if not fresh:
            return
        self.nodes.resources.extend(fresh)
        count = len(self.nodes.resources)
        if self.nodes.free.shape[1] < count:
            self.allocation.resize({RESOURCES: count})
        self.meta[L.M_RESOURCES] = count
        self.renew_timelines()
        self.set_charge()
        self.renew_outputs()
        self.rewire()

    def set_charge(self) -> None:
        """What a base unit of each resource costs a second; after resources or nodes changed."""
        if self.accounts is not None:
            self.accounts.set_charge(self.nodes, self.shares, self.meta)

    def grow_profile(self) -> None:
        """Larger timelines and room for more reservations, for a conservative slice that asked for them."""
        self.renew_timelines(grow=True)
        self.reservations_needed = max(
            2 * self.reservations_needed,
            2 * int(self.meta[L.M_RESERVATIONS]),
            2 * int(self.meta[L.M_RESERVED]) + 2 * self.nodes.free.shape[0],
        )
        self.rewire()

    def renew_timelines(self, *, grow: bool = False) -> None:
        """Timelines that know nothing yet; of one point where the policy plans without them."""
        self.counts[L.COUNT_REACH] += 1
        self.counts[L.COUNT_COLD] = 1
        rooms = ONE_NODE
        if self.keeps_timelines:
            points = self.allocation.size(TIMELINE_POINTS)
            attempts = int(self.meta[L.M_PIECES]) + 2 * int(self.meta[L.M_RESERVED])
            need = 8 * self.nodes.free.shape[0] + 4 * attempts + FIRST_SLOTS
            rooms = timeline_rooms(self.nodes.free.shape[0], max(2 * points if grow else points, need))
        self.allocation.resize(rooms, emptied=True)

    def touch(self, rows: range | list[int]) -> None:
        """Amounts of these rows changed: their timelines are built anew, and reservations may move there.

        Part of `apply`; the epoch counts up afterwards.
        """
        if not self.keeps_timelines:
            return
        self.counts[L.COUNT_REACH] += 1
        some = np.unique(np.asarray(rows, np.int64))
        for flag, count, into, of in (
            (L.N_STALE, L.COUNT_STALE, self.timelines.stale, self.counts),
            (L.N_FREED, L.M_FREED, self.work.freed, self.meta),
        ):
            fresh = some[self.nodes.rows[some, flag] == 0]
            at = int(of[count])
            into[at : at + fresh.shape[0]] = fresh
            of[count] += fresh.shape[0]
        self.nodes.rows[some, L.N_STALE] = 1
        self.nodes.rows[some, L.N_FREED] = self.nodes.rows[some, L.N_EVENT] = self.meta[L.M_EPOCH] + 1

    def use_time_index(self) -> None:
        """Make room in the index by planned time (a change of policy to EASY-SJBF)."""
        if self.work.by_time.shape[0] < self.work.entries.shape[0]:
            self.make_room({TIMED_ENTRIES: self.work.entries.shape[0]})

    # --- outputs: plans own slices of them, nothing is copied --------------------------------------------------------

    def renew_outputs(self, *, full: bool = False) -> bool:
        """Fresh output tables, or in place of full ones (see `Outputs.renew`); older plans keep the old ones alive."""
        return self.outputs.renew(
            self.allocation,
            self.pass_record,
            nodes=self.nodes.free.shape[0],
            slice_starts=self.config.slice_starts,
            planned=self._planned_room(),
            full=full,
        )

    def room_for_slice(self, outcome: int) -> None:
        """Make room after a slice asked for it and decided nothing."""
        if outcome == L.GROW_TIMELINES:
            self.grow_profile()
        else:
            self.renew_outputs(full=True)
            for name in OUTPUTS:
                point_at(self.at, name, getattr(self.outputs, name))

    def _planned_room(self) -> int:
        """Reservations, and nodes of them, that a slice may plan; under EASY no two compete for a node and booking."""
        room = int(self.nodes.free.shape[0]) + int(self.bookings.booked.shape[0]) + 8
        return max(room, self.reservations_needed) if self.keeps_timelines else room

    # --- calls -----------------------------------------------------------------------------------------------------

    def rewire(self) -> None:
        """Build the argument tuples of all kernels anew (an array was replaced)."""
        self.allocation.resize(self._following_rooms())
        self.renew_outputs(full=True)
        self.given = self.pass_record[: L.GIVEN_COLUMNS]
        self._note_remade(self.allocation.take_remade())
        self.nodes.open_now = self._open_now()
        self.at = self.allocation.block()
        self._bind()

    def make_room(self, rooms: Mapping[Room, int]) -> None:
        """Give rooms other sizes, and kernels the tables that were made again."""
        self.allocation.resize(rooms)
        self.rewire()

    def note_new_nodes(self) -> None:
        """What is kept about rows by placement, by reservations and by a score plugin's answers holds no longer."""
        self.ticks[L.TICK_MIRROR] = 0
        self.ticks[L.TICK_READY] = 0
        self.plugins.scored_at = -1

    def room_for_scores(self, lines: int) -> None:
        """Make room for a score plugin's answers about this many shapes; the old ones stay."""
        if self.scratch.scores.shape[0] < lines:
            self.make_room({SCORED_SHAPES: 2 * lines})

    def room_for_domain_scores(self, lines: int) -> None:
        """Make room for a domain score plugin's answers about this many kinds of gangs."""
        if self.scratch.domain_scores.shape[0] < lines:
            self.make_room({SCORED_GANGS: lines})

    def _following_rooms(self) -> dict[Room, int]:
        """Rooms whose sizes follow from others."""
        nodes, resources = self.nodes.free.shape
        shapes, reservations = self.catalogue.shapes.shape[0], self.work.reservations.shape[0]
        starts = min(self.config.slice_starts, MOST_STARTS)
        rooms = self.nodes.following_rooms()
        lists = max(shapes, self.domains.domains.shape[0] + 1)
        rooms |= self.scratch.following_rooms(nodes=nodes + 1, shapes=lists, reservations=reservations, starts=starts)
        rooms[PLANNED] = self._planned_room()
        rooms |= self.licences.following_rooms(reservations, self.work.runs.shape[0])
        if self.keeps_timelines:
            rooms |= reach_rooms(nodes, shapes)
        if self.meta[L.M_PREEMPTING]:
            rooms |= self.scratch.search_rooms(nodes, resources, self.work.runs.shape[0])
        return rooms

    def _note_remade(self, remade: set[str]) -> None:
        """What was kept in tables that were made again holds no longer."""
        if "reach" in remade:
            self.counts[L.COUNT_REACH] += 1
        if "holding" in remade:
            self.ticks[L.TICK_LISTED] = -1
        if "spare" in remade:
            self.allocation.clear(FOLLOWING_NODES)
            self.nodes.rows[:, L.N_UNREADY] = 0
            self.ticks[L.TICK_UNREADY] = 0
            self.note_new_nodes()
        if "best" in remade:
            self.catalogue.shapes[:, L.S_FOLLOWED] = -1

    def _open_now(self) -> Allowed:
        """Which nodes each constraint set may use right now: allowed, and not held by somebody else's booking."""
        return self.bookings.open_nodes(self.catalogue.sets, self.nodes.allowed, self.clock_ms, len(self.nodes.names))

    def open_nodes(self) -> None:
        """Follow what is allowed and booked in `open_now` (part of `apply`)."""
        table = self._open_now()
        if table.shape == self.nodes.open_now.shape and self.nodes.open_now is not self.nodes.allowed is not table:
            self.nodes.open_now[:] = table  # in place: kernels hold its address
        elif table is not self.nodes.open_now:
            self.nodes.open_now = table
            self.rewire()

    def admit(self, nodes: range | list[int], constraint_set: int, spec: ClassSpec) -> None:
        """Work out which of some nodes a constraint set admits, whatever filters say (part of `apply`)."""
        bound = spec.booking and not self.bookings.anywhere(spec.booking)
        self.nodes.admit(nodes, constraint_set, spec, self.bookings.rows_of(spec.booking) if bound else None)
        if levels := spec.levels():
            here = np.asarray(nodes, np.int64)
            for level in levels:
                self.nodes.allowed[constraint_set, here] &= self.domains.are_in(level, here)

    def recount(self, first: int, last: int) -> None:
        """Count again where shapes first..last-1 fit (part of `apply`)."""
        if first == 0:
            self.note_new_nodes()
        recount(self.at, first, last)
        for shape in self.catalogue.shape_free:
            if first <= shape < last:
                self.catalogue.shapes[shape, L.S_FIT] = 0
                self.catalogue.shapes[shape, L.S_EVER] = 0

    def tables(self) -> Tables:
        """The tables as kernels see them."""
        return self.allocation.tables()

    def _bind(self) -> None:
        """Entry points for these argument types; they never change, so the first state of a process binds them."""
        mine, other = ("conservative", "easy") if self.keeps_timelines else ("easy", "conservative")
        wanted = PREEMPTING_KERNELS if self.meta[L.M_PREEMPTING] else ()
        if self._kernels is not None or any(name not in _entry_points for name in (mine, *wanted)):
            no_submits, no_ends, no_adopts = np.zeros(0, SUBMIT), np.zeros(0, END), np.zeros(0, ADOPT)
            no_table, none, no_moves = np.zeros((0, 2), np.int64), NO_KEYS, np.zeros((0, L.MOVE_SIZE), np.int64)
            starts = self.outputs.start_records
            plan = (starts, none, 0, False, no_table, no_table, 0, False, 0, 0)
            for name, kernel, arguments in (
                ("submit", pending.submit, (self.at, no_submits, none, none, none)),
                ("change", pending.change, (self.at, 0, none, none, none, none)),
                ("advance", pending.advance, (self.at, 0)),
                ("end", running.end, (self.at, no_ends)),
                ("refuse", running.refuse, (self.at, starts, 0)),
                ("assume", running.assume, (self.at, *plan)),
                ("note", running.note_parked, (self.at, 0, 0, 0, 0)),
                ("apply_moves", claims.apply_moves, (self.at, no_moves, none, 0)),
                ("cancel", claims.cancel_claims, (self.at, none, False)),
                ("ready", claims.ready_claims, (self.at, 0, no_table, no_moves, none)),
                ("resumable", claims.resumable, (self.at, 0, no_table, no_moves)),
                ("seek", victims.seek, (self.at, 0, 0, 0, 0, 0, 0)),
                ("seek_groups", group_victims.seek_groups, (self.at, 0, 0, 0, 0, 0)),
                ("empty", victims.empty_node, (self.at, 0, 0)),
                ("lender", lending.next_lender, (self.at, 0)),
                ("adopt", running.adopt, (self.at, no_adopts, none, none, none, none)),
                ("easy", easy.cycle, (self.at, 0, 1, 1, False, False)),
                ("conservative", conservative.cycle, (self.at, 0, 1, 1, False, False)),
                ("learn", cold_timelines.learn, (self.at, 0, 0)),
            ):
                if self._kernels is None:
                    needed = name != other and (name in wanted or name not in PREEMPTING_KERNELS)
                    needed = needed and (name != "learn" or self.keeps_timelines)
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
