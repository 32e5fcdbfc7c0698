"""The engine as the controller holds it: fed, stepped, asked; and begun again where a commit failed.

What is staged is fed to the engine before it is committed, so that what ends and what starts in its place are one
transaction. Where that fails the engine has seen what never happened: it is built again from the plane, which was
undone (O(live jobs), and rare).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

import numpy as np
from msgspec.structs import replace

from hal.core.engine import new_state
from hal.core.engine.classes import ClassSpec, Elsewhere
from hal.core.engine.config import EngineConfig
from hal.core.engine.errors import PolicyFault
from hal.core.engine.events import ClockAdvanced, Event, SharesLoaded
from hal.core.engine.plan import Plan
from hal.core.engine.rules.booked_nodes import met_by
from hal.core.engine.rules.policy_tables import hours_mark, hours_spent, settled_use
from hal.core.engine.scheduler import Scheduler, Step
from hal.core.engine.views import LedgerRow, ShareRow, advice_events, known_keys, ledger_rows, share_rows
from hal.core.engine.why.emptying import Emptied, emptied, releasable
from hal.core.engine.why.explain import explain
from hal.core.engine.why.feasible import never_fits
from hal.core.engine.why.priority import PriorityParts, priority_of
from hal.core.engine.why.probing import Prober
from hal.core.engine.why.scores import ScoredNodes, score_of_nodes
from hal.core.engine.why.wants import Reserved, Sliced, Wants, reserved, wants, wants_version
from hal.core.model import Never, Outlook, Verdict
from hal.daemons.controller.cycle.share_memory import HoursMemory
from hal.planes.tasks import BookingTimes
from hal.runtime.interface import Runtime
from hal.runtime.metrics.histogram import HistogramValue
from hal.store import NodeRow


class Engine:
    """One state, one scheduler, the plans that are not staged yet."""

    def __init__(
        self,
        config: EngineConfig,
        on_fault: Callable[[PolicyFault], None] | None = None,
        runtime: Runtime | None = None,
        slices: HistogramValue | None = None,
    ) -> None:
        """
        Args:
            slices: counts how long they take.
            on_fault: called with a policy that answers wrongly, see `Scheduler`.
            runtime: what watches slices from outside, and where what goes wrong is logged; None: nobody does.
        """
        self._clock_ns = runtime.monotonic_ns if runtime is not None and slices is not None else _no_clock_ns
        self._slices = slices or HistogramValue()
        self._log = None if runtime is None else runtime.log
        self._watch = None if runtime is None else runtime.watch(self._report_late)
        self._rests = False
        self._config = config
        self._on_fault = on_fault
        self._plans: list[Plan] = []
        self._hours = HoursMemory()
        self._hours_mark = b""
        self._prober = Prober()
        self.state = new_state(config)
        self._scheduler = Scheduler(self.state, self, on_fault)
        self._bookings = BookingTimes()
        self._begun = 0
        """How often it was begun: versions of its state begin again then."""

    # ── deciding ──────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(
        self,
        events: Iterable[Event],
        now_ms: int,
        use: SharesLoaded | None = None,
        hours: HoursMemory | None = None,
    ) -> None:
        """Forget everything but what was used and advised, and start from these; `use`, `hours`: of an earlier
        controller.

        The clock is set first: use and hours are loaded as of an instant, and with a clock at 1970 the use since then
        would overflow.
        """
        settled = use or self.settled_use()
        self._hours = hours or self._hours
        self._hours.undone()
        self._hours_mark = b""
        self._plans = []
        advised = tuple(advice_events(self.state))
        self._begun += 1
        self.state = new_state(self._config)
        self._scheduler = Scheduler(self.state, self, self._on_fault)
        self._bookings = BookingTimes()
        self.feed((ClockAdvanced(max(now_ms, settled.at_ms if settled is not None else 0)),))
        self.feed(advised)  # before the jobs, whose keys may depend on it
        self.feed(events)
        spent = self._hours.spent()
        if settled is not None or spent:
            self.feed((SharesLoaded((), now_ms, spent) if settled is None else replace(settled, hours=spent),))

    def settled_use(self) -> SharesLoaded | None:
        """What accounts have used with what has ended; None without shares."""
        accounts = self.state.accounts
        return None if accounts is None else SharesLoaded(settled_use(self.state), self.state.clock_ms)

    def hours_to_keep(self) -> dict[str, str]:
        """Facts for the store about hours that have been spent since the last commit."""
        accounts = self.state.accounts
        if accounts is None or not accounts.hour_ledgers:
            return {}
        mark = hours_mark(self.state)
        if mark == self._hours_mark:
            return {}
        self._hours_mark = mark
        return self._hours.stage(hours_spent(self.state))

    def hours_kept(self) -> None:
        """Note that these facts are durable."""
        self._hours.committed()

    def feed(self, events: Iterable[Event]) -> None:
        """Apply what has happened."""
        for event in events:
            self._scheduler.feed(event)

    def bookings_move(self, now_ms: int) -> bool:
        """Apply changes of bookings; returns whether any changed, began or ended since the last step."""
        moves = self.state.next_booking_ms() <= now_ms
        news = self._bookings.news(self.state.config.policy, now_ms)
        if news is not None:
            # Which ones have ended, and which have begun, depends on the clock.
            self.feed((ClockAdvanced(now_ms), news))
        return moves or news is not None

    def step(self, now_ms: int) -> Step:
        """One slice of scheduling. Raises EngineFault; then only `begin` helps."""
        if self._watch is None:
            return self._scheduler.step(now_ms)
        self._watch.begin()
        began_ns = self._clock_ns()
        try:
            step = self._scheduler.step(now_ms)
        finally:
            self._watch.end()
        self._slices.observe((self._clock_ns() - began_ns) / 1e9)
        if step.rests != self._rests:
            self._rests = step.rests
            if step.rests:
                self._report("the engine was asked again and again for nothing; it rests between passes until "
                             "something happens")  # fmt: skip
        return step

    def close(self) -> None:
        """End the watch, as nothing is decided any more."""
        if self._watch is not None:
            self._watch.close()

    def _report_late(self, seconds: float) -> None:
        """On the thread of the watch: a slice has not come back."""
        self._report(
            "the engine has not returned from a slice, and no request is answered until it does; if this lasts, choose "
            "another backfill in [engine] of hal.toml (easy), end this controller with SIGKILL and start it again: all "
            "work is stored, and running work continues",
            seconds=round(seconds),
        )

    def _report(self, what: str, **values: object) -> None:
        if self._log is not None:
            config = self.state.config
            self._log.error(
                what,
                backfill=config.backfill.value,
                order=config.order,
                waiting=self.state.pending_tasks,
                running=self.state.running_attempts,
                nodes=len(self.state.nodes.names),
                **values,
            )

    def accept(self, plan: Plan) -> None:
        """See `hal.core.engine.scheduler.Sink`."""
        self._plans.append(plan)

    def take_plans(self) -> list[Plan]:
        """Assumed plans that are not staged yet."""
        plans, self._plans = self._plans, []
        return plans

    def row_name(self, row: int) -> str:
        """The node of a row."""
        return self.state.node_name(row)

    # ── asking: see `hal.planes.tasks.EngineView` ─────────────────────────────────────────────────────

    def never_fits(
        self, request: ClassSpec, without: Set[str] = frozenset(), only: Set[str] | None = None
    ) -> Never | None:
        """Why no nodes could ever give this; None when some could."""
        return never_fits(self.state, request, without, only)

    def met_by(self, job: int, walltime_ms: int) -> str:
        """The booking that running tasks of the job would run into with that walltime; '' when none."""
        met = met_by(self.state, job, walltime_ms)
        return "" if met is None else met.name

    def explain(self, job: int, now_ms: int, *, brief: bool = False) -> Verdict:
        """Why the job's waiting tasks do not start."""
        return explain(self.state, job, now_ms, brief=brief)

    def look(self, job: int, now_ms: int, elsewhere: Sequence[Elsewhere]) -> Outlook | None:
        """What would let the job start now, and when it starts as it is."""
        return self._prober.look(self.state, job, now_ms, elsewhere)

    def foresee(
        self, submitted: Sequence[Event], jobs: Sequence[int], now_ms: int
    ) -> tuple[dict[int, int], int] | None:
        """When jobs would start if they were submitted now."""
        return self._prober.foresee(self.state, submitted, jobs, now_ms)

    def wants_version(self) -> str:
        """Name the wants as they are: another name after every change."""
        return f"{self._begun}-{wants_version(self.state)}"

    def wants(self, now_ms: int, user: str) -> Sliced[Wants]:
        """Gather waiting work by class; '': everybody's."""
        return wants(self.state, now_ms, user)

    def reserved(self) -> Sliced[tuple[list[Reserved], bool]]:
        """Gather reservations, and whether there are more."""
        return reserved(self.state)

    @property
    def moves_work(self) -> bool:
        """Whether the configuration lets work be moved."""
        return self.state.config.compaction > 0

    def emptied(self, node: str, now_ms: int) -> Emptied | None:
        """What it takes to empty a node; None: its work cannot all be moved."""
        return emptied(self.state, node, now_ms)

    def releasable(self, now_ms: int) -> Sliced[list[Emptied]]:
        """Of the rented nodes those that could be emptied."""
        return releasable(self.state, now_ms)

    def shares(self) -> list[ShareRow]:
        """The tree of shares as use now is."""
        return share_rows(self.state)

    def ledgers(self) -> list[LedgerRow]:
        """What limits have in use."""
        return ledger_rows(self.state)

    def known_keys(self, kinds: Iterable[str]) -> dict[str, int]:
        """By kind of advice, how many of its keys name something that is there; kinds of jobs are not counted."""
        return known_keys(self.state, kinds)

    def readers_of(self, kind: str) -> tuple[str, ...]:
        """Policies in use that read a kind of advice, and queues that weigh it."""
        plugins = self.state.plugins
        policies = (plugins.order, plugins.score)
        reading = [one.info.name for one in policies if one is not None and kind in one.info.reads_advice]
        queues = self.state.config.policy.queues if self.state.config.policy is not None else {}
        return (*reading, *(f"queue {name}" for name, queue in queues.items() if kind in queue.preferences))

    def priority(self, job: int, now_ms: int) -> PriorityParts:
        """A waiting job's priority, factor by factor. Raises EngineError when nothing of it waits."""
        return priority_of(self.state, job, now_ms)

    def scores(self, job: int, limit: int) -> ScoredNodes:
        """The best nodes for a waiting job now. Raises EngineError when nothing of it waits."""
        return score_of_nodes(self.state, job, limit)

    def free(self, row: NodeRow) -> dict[str, int]:
        """What no attempt holds on a node; all of it where the engine does not know the node."""
        place = self.state.nodes.by_name.get(row.name)
        if place is None:
            return dict(row.capacity)
        free, resources = self.state.nodes.free[place], self.state.nodes.resources
        return {name: max(int(free[resources.index(name)]), 0) for name in row.capacity if name in resources}

    def free_of(self, rows: Sequence[NodeRow]) -> dict[str, list[int]]:
        """As `free`, of many nodes: by resource that any of them offers, a column in their order; 0 where a node has
        none of it."""
        nodes = self.state.nodes
        places = np.array([nodes.by_name.get(row.name, -1) for row in rows], np.int64)
        known = places >= 0
        found: dict[str, list[int]] = {}
        for name in {name for row in rows for name in row.capacity}:
            column = np.array([row.capacity.get(name, 0) for row in rows], np.int64)
            if name in nodes.resources:
                free = nodes.free[places, nodes.resources.index(name)]
                column = np.where(known, np.minimum(np.maximum(free, 0), column), column)
            found[name] = column.tolist()
        return found


def _no_clock_ns() -> int:
    """Where nobody counts how long slices take."""
    return 0
