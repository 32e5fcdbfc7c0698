"""The loop: inbox → plane → engine → one slice of scheduling → plane → one commit → orders; one flush → answers.

What has ended and what starts in its place are one transaction; nobody is notified before it is committed, and
people and keepers are answered when it is flushed (see `flusher`). One group is in flight at a time, so everything is
decided on memory that reflects all earlier groups. Where a commit fails, plane and engine go back to where the last one
left them. What cannot be staged, or is what a group fails for (see `bisection`), is left out: whoever asked is
answered, and nothing else stops. A node whose report is refused as false (`FalseReportError`) has lied; whatever else a
report meets is a fault of HAL, for which its node is not blamed. What may be much is done in slices, between which
the loop turns (connections are served, leases renewed); nothing else is staged until its group is committed. Runs
unchanged on the virtual Runtime. It holds no decision about scheduling, and knows no plane by name (see `plane_group`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

from hal.core.engine.events import INF, JobsCancelled, NodesChanged, StartsRefused
from hal.core.model import HALError, InternalError, StoreError, UnreachableError
from hal.daemons.controller.cycle.bisection import Bisection, Item
from hal.daemons.controller.cycle.clock import Clock
from hal.daemons.controller.cycle.committer import Committer
from hal.daemons.controller.cycle.engine import Engine
from hal.daemons.controller.cycle.flusher import Flusher
from hal.daemons.controller.cycle.inbox import Call, Inbox, Report, is_refusal
from hal.daemons.controller.cycle.plane_group import GroupChange, PlaneFailed, PlaneGroup
from hal.daemons.controller.metrics.book import MetricsBook
from hal.planes.interface import MAX_WITHDRAWN_A_BLOCK, FalseReportError, Sealed, Work
from hal.runtime.interface import Runtime
from hal.runtime.line_budget import BudgetedLogs
from hal.store import Committed, GroupRefused, PutMeta, StaleEpoch

T = TypeVar("T")
SealedT = TypeVar("SealedT", bound=Sealed)

RETRY_FIRST_MS = 100
RETRY_LONGEST_MS = 5_000
"""Between two tries to commit while the store refuses (a full disk)."""
PROBE_EVERY_MS = 5_000
"""After a commit that failed an empty one is tried this often, so that all is known to be well when it is again."""
DEPOSED = "another controller leads now"
MAX_TURN_NS = 20_000_000
"""Reports are staged for so long before others have their turn."""
BLOCKS_A_TURN = 4
"""Blocks of events that the engine is fed in one turn of the loop; of withdrawals it is one."""
DUE_AGAIN_MS = 5_000
"""What is due by itself and met a fault is tried again after this time."""
MAX_FAULTS = 256
"""Faults of HAL whose traceback is logged once; of those beyond, each time."""
LONGEST_WAIT_MS = 60_000
"""The loop looks at the clock at least so often."""


class Effects(Protocol[SealedT]):
    """What follows a commit."""

    def committed(self, change: GroupChange[SealedT]) -> None:
        """Send orders to this host."""

    def flushed(self, change: GroupChange[SealedT], committed: Committed | None) -> None:
        """Send orders to other hosts, acknowledge, inform those who wait and watch."""

    def awaited(self, change: GroupChange[SealedT]) -> bool:
        """Whether somebody waits for what has changed."""


class ControlLoop(Generic[SealedT]):
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        planes: PlaneGroup[SealedT],
        engine: Engine,
        committer: Committer,
        flusher: Flusher,
        effects: Effects[SealedT],
        lied: Callable[[str, str], None],
        faulted: Callable[[str, str], bool],
        metrics: MetricsBook,
    ) -> None:
        """
        Args:
            lied: called with a node that reported what cannot be, and why that is so; nothing of it was taken in.
            faulted: called with a node of whose report a part met a fault of HAL, and what it reported; returns whether
                its connection ends, after which it reports again all that was not acknowledged.
            metrics: counts turns, groups and commits.
        """
        self.inbox = Inbox()
        self.trouble = ""
        """Why nothing can be made durable now; '' when all is well."""
        self._runtime = runtime
        self._clock = clock
        self._planes = planes
        self._engine = engine
        self._committer = committer
        self._flusher = flusher
        self._effects = effects
        self._report_lie = lied
        self._report_fault = faulted
        self._faults: set[str] = set()
        """Faults of which the log has the traceback."""
        self._metrics = metrics
        self._logs = BudgetedLogs(runtime.log, runtime.monotonic_ms)
        """Of what nodes and, all together, people caused."""
        self._ended_for = ""
        """The node whose connection ended for what was left out last: it reports the rest again. '' = none."""
        self._bisection = Bisection()
        self._retry_ms = 0
        self._probe_ms = 0
        self._recover_ms = 0
        """When planes that have failed are read again."""
        self._due: asyncio.Future[None] | None = None
        """What is due by itself, while it is being done."""
        self._due_again_ms = 0
        """Nothing that is due by itself is done before this."""
        self._stopping = False
        self._deposed: StaleEpoch | None = None
        self._more = True
        self._wake_ms = INF

    async def run(self) -> None:
        """Run until `stop`; the group in flight is finished first.

        Raises:
            StaleEpoch: another controller has taken over.
        """
        while not self._stopping:
            await self._wait_for_work()
            if self._stopping:
                break
            if not await self._run_group():
                await self._back_off()
        if self._deposed is not None:
            raise self._deposed

    def look_again(self) -> None:
        """Take a step, as the engine was fed something that may let another job start."""
        self._more = True
        self.inbox.filled.set()

    def stop(self, reason: str) -> None:
        """Finish the group in flight and return from `run`; calls that wait are refused."""
        self._stopping = True
        self.inbox.close(reason)
        self.inbox.filled.set()

    def depose(self, error: StaleEpoch) -> None:
        """Begin nothing any more, as another controller has taken over; `run` raises."""
        self._deposed = error
        self.stop(DEPOSED)

    async def _wait_for_work(self) -> None:
        while self._planes.lead.has_discarded:
            self._planes.lead.free_discarded()
            await self._runtime.sleep(0)
        if self.inbox or self._more or self._bisection.active:
            await self._runtime.sleep(0)
            return
        self.inbox.filled.clear()
        longest_ms = PROBE_EVERY_MS if self.trouble or self._planes.failed else LONGEST_WAIT_MS
        wait_ms = min(max(self._wake_ms - self._clock.now_ms(), 0), longest_ms)
        timer = self._runtime.call_later(wait_ms, self.inbox.filled.set)
        await self.inbox.filled.wait()
        timer.cancel()

    async def _back_off(self) -> None:
        self._retry_ms = min(max(self._retry_ms * 2, RETRY_FIRST_MS), RETRY_LONGEST_MS)
        waited = self._runtime.call_later(self._retry_ms, self.inbox.filled.set)
        self.inbox.filled.clear()
        # New calls are not made to wait for the whole back-off: each is one more try.
        await self.inbox.filled.wait()
        waited.cancel()

    # ── one group ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run_group(self) -> bool:
        """Stage what waits, decide, commit it all; False when the store refused."""
        began_ns, now_ms = self._runtime.monotonic_ns(), self._clock.now_ms()
        if self._planes.failed and now_ms >= self._recover_ms:
            await self._recover()
        if self._bisection.active:
            reports, calls = self._bisection.take()
        else:
            reports, calls = self.inbox.take()
            calls = [*self._take_due(now_ms), *calls]
        reports, calls = await self._stage(reports, calls, now_ms)
        try:
            await self._decide(now_ms)
            change = await self._run_slices(self._planes.sealing(now_ms))
        except Exception as error:
            items: list[Item] = [*reports, *calls]
            if isinstance(error, PlaneFailed) and (error.out or not items):
                # No request is to blame: all are staged again, also what was accused for it.
                self._planes.fail(error.plane, error)
                self.inbox.put_back([*items, *self._bisection.abandon()])
            elif not self._bisection.failed(items, error):
                raise
            await self._rebuild()
            return True
        committed: Committed | None = None
        if not change.empty or self._bisection.verifying or (self.trouble and now_ms >= self._probe_ms):
            handed_ns = self._runtime.monotonic_ns()
            try:
                committed = await self._committer.commit(change.operations, now_ms)
                self._metrics.commits.observe((self._runtime.monotonic_ns() - handed_ns) / 1e9)
                await self._committer.lease.held()
            except StaleEpoch:
                for call in calls:
                    call.failed(UnreachableError(DEPOSED))
                raise
            except Exception as error:
                return await self._handle_failed_commit(reports, calls, error)
        self._planes.keep()
        self._more = self._more or self._planes.lead.crowded
        self._engine.hours_kept()
        self._effects.committed(change)
        if committed is not None:
            self._metrics.groups.observe(len(reports) + len(calls))
        self._metrics.cycles.observe((self._runtime.monotonic_ns() - began_ns) / 1e9)
        if calls or not change.empty or change.has_effects:
            urgent = bool(calls) or self._effects.awaited(change)
            await self._flusher.then(partial(self._answer, calls, change, committed), urgent=urgent)
        if committed is not None and self.trouble:
            self._runtime.log.info("commits succeed again")
            self.trouble, self._retry_ms = "", 0
        blamed = self._bisection.passed()
        if blamed is not None:
            self._leave_out(*blamed)
        return True

    async def _handle_failed_commit(self, reports: list[Report], calls: list[Call[Any]], error: Exception) -> bool:
        """Nothing was written; False when that is not for what was in the group.

        Raises:
            Exception: the error, where it says neither.
        """
        self._metrics.commit_failures.add()
        items: list[Item] = [*reports, *calls]
        of_its_values = not isinstance(error, HALError) or type(error) in (GroupRefused, StoreError)
        if of_its_values and self._bisection.failed(items, error):
            await self._rebuild()
            return True
        if not isinstance(error, StoreError):
            raise error
        await self._undo(items, error)
        return False

    def _answer(self, calls: list[Call[Any]], change: GroupChange[SealedT], committed: Committed | None) -> None:
        for call in calls:
            call.done()
        self._effects.flushed(change, committed)
        self._planes.lead.discard(change.lead)
        if self._planes.lead.has_discarded:
            self.inbox.filled.set()

    async def _run_slices(self, work: Work[T]) -> T:
        """Do work that is cut into slices; others have their turn in between."""
        try:
            while True:
                next(work)
                await self._runtime.sleep(0)
        except StopIteration as end:
            return cast("T", end.value)

    async def _feed_engine(self) -> bool:
        """Feed the engine what is staged, a few blocks in each turn; whether that may let more start at once."""
        wakes = False
        for number, event in enumerate(self._planes.take_engine_events(), 1):
            self._engine.feed((event,))
            wakes = wakes or isinstance(event, NodesChanged | StartsRefused)
            full = isinstance(event, JobsCancelled) and len(event.jobs) >= MAX_WITHDRAWN_A_BLOCK
            if full or number % BLOCKS_A_TURN == 0:
                await self._runtime.sleep(0)
        return wakes

    async def _decide(self, now_ms: int) -> None:
        """Feed the engine what is staged, and stage what it decides."""
        await self._feed_engine()
        if self._engine.bookings_move(now_ms):
            self._planes.lead.end_with_bookings(now_ms)
        step = self._engine.step(now_ms)
        # What becomes due again while it is being done is looked at when that is durable, not in every turn until then.
        due_ms = step.wake_ms if self._does_due else self._next_due_ms
        self._more, self._wake_ms = step.more, min(step.wake_ms, due_ms)
        epoch, row_name = self._committer.epoch, self._engine.row_name
        for plan in self._engine.take_plans():
            self._planes.lead.carry_out(plan, row_name, epoch, now_ms, credit=not step.more)
        self._more = await self._feed_engine() or self._more
        hours = self._engine.hours_to_keep()
        if hours:
            self._planes.lead.add_operations(PutMeta(hours))

    @property
    def _next_due_ms(self) -> int:
        return max(self._planes.lead.next_due_ms, self._due_again_ms)

    @property
    def _does_due(self) -> bool:
        return self._due is not None and not self._due.done()

    def _take_due(self, now_ms: int) -> list[Call[Any]]:
        """What is due by itself, as a request that nobody waits for: a fault in it is found and left out like that of
        any other, and leaves the next group to those who ask for something."""
        if self._next_due_ms > now_ms or self._does_due:
            return []
        self._due = asyncio.get_running_loop().create_future()
        self._due.add_done_callback(self._due_done)
        return [Call(self._planes.lead.carrying_out_due, self._due, in_slices=True)]

    def _due_done(self, due: asyncio.Future[None]) -> None:
        self.inbox.filled.set()
        error = due.exception()
        if error is not None:
            self._due_again_ms = self._clock.now_ms() + DUE_AGAIN_MS
            self._logs.of("").error("what was due was not done; it is tried again", reason=str(error))

    async def _stage(
        self, reports: list[Report], calls: list[Call[Any]], now_ms: int
    ) -> tuple[list[Report], list[Call[Any]]]:
        """Stage everything; what was refused is answered, what is faulty is left out and the rest staged again. Where a
        plane fails of itself, all is staged again without that plane."""
        while True:
            try:
                faulty = await self._try_to_stage(reports, calls, now_ms)
            except PlaneFailed:
                await self._undo_planes()
                continue
            if faulty is None:
                return reports, calls
            await self._undo_planes()
            ended = self._ended_for
            reports = [
                report
                for report in reports
                if report is not faulty and not (ended and report.reported and report.node == ended)
            ]
            calls = [call for call in calls if call is not faulty and not call.answer.done()]

    async def _try_to_stage(self, reports: list[Report], calls: list[Call[Any]], now_ms: int) -> Item | None:
        turn_ns = 0
        for report in reports:
            try:
                began_ns = self._runtime.monotonic_ns()
                report.stage(now_ms)
                spent_ns = self._runtime.monotonic_ns() - began_ns
                self.inbox.spent(report, spent_ns)
                turn_ns += spent_ns
                if self._planes.unsettled:
                    await self._run_slices(self._planes.settling())
                if turn_ns > MAX_TURN_NS:
                    turn_ns = 0
                    await self._runtime.sleep(0)
            except Exception as error:
                _raise_if_out(error)
                self._leave_out(report, error)
                return report
        for call in list(calls):
            if call.answer.done():
                calls.remove(call)
                continue
            try:
                slices = call.stage(now_ms)
                if slices is not None:
                    call.result = await self._run_slices(slices)
                if self._planes.unsettled:
                    await self._run_slices(self._planes.settling())
            except Exception as error:
                _raise_if_out(error)
                if not isinstance(error, HALError) or not is_refusal(error):
                    self._leave_out(call, error)
                    return call
                call.failed(error)
                calls.remove(call)
        return None

    def _leave_out(self, item: Item, error: Exception) -> None:
        """Leave it out: whoever asked is answered, a node that reported what cannot be true has lied."""
        self._ended_for = ""
        reason = str(error) if isinstance(error, HALError) else f"{type(error).__name__}: {error}"
        if isinstance(item, Call):
            log = self._logs.of("")
            log.error("a request met a fault", reason=reason, exc_info=_unexpected(error))
            self._metrics.faults.of("request").add()
            item.failed(error if isinstance(error, HALError) else InternalError(f"the request met a fault: {reason}"))
        elif item.reported and isinstance(error, FalseReportError):
            self._ended_for = item.node
            self.inbox.drop_reported(item.node)
            self._report_lie(item.node, f"{item.what}: {reason}")
        elif item.reported:
            self._leave_out_for_fault(item, error, reason)
        else:
            self._metrics.faults.of("node").add()
            self._logs.of(item.node).error(
                "something about a node was left out",
                node=item.node,
                report=item.what,
                reason=reason,
                exc_info=_unexpected(error),
            )

    def _leave_out_for_fault(self, item: Report, error: Exception, reason: str) -> None:
        """A report met a fault of HAL: what it is about alone is left out, the rest is staged again."""
        halves = item.halves()
        if halves:
            self.inbox.put_back(halves)
            return
        self._metrics.faults.of("report").add()
        where = _origin_of(error)
        known = where in self._faults
        if len(self._faults) < MAX_FAULTS:
            self._faults.add(where)
        log = self._logs.of(item.node) if known else self._runtime.log
        log.error(
            "a report of a node met a fault of HAL",
            node=item.node,
            report=item.what,
            reason=reason,
            exc_info=None if known else error,
        )
        if self._report_fault(item.node, item.what):
            self._ended_for = item.node
            self.inbox.drop_reported(item.node)

    async def _rebuild(self) -> None:
        """Build planes and engine again as the last commit left them."""
        await self._undo_planes()
        self._begin_engine()

    def _begin_engine(self) -> None:
        while True:
            try:
                self._engine.begin(self._planes.engine_events(), self._clock.now_ms())
            except Exception as error:
                if not self._planes.rejected(error):
                    raise
            else:
                self._more = True
                return

    async def _undo_planes(self) -> None:
        await self._run_slices(self._planes.undoing())
        if self._planes.failed and self._clock.now_ms() >= self._recover_ms:
            await self._recover()

    def planes_in_service(self) -> dict[str, bool]:
        """Whether each plane is in service, by name."""
        return self._planes.in_service()

    async def load_planes(self) -> None:
        """Read the rows of all attached planes; before the loop runs, and before the engine begins.

        Raises:
            StoreError: they cannot be read.
        """
        for plane in self._planes.attached:
            self._planes.restore(plane, await self._committer.read(plane.read))

    async def _recover(self) -> None:
        """Read the rows of planes that have failed again; of those that cannot be read, later."""
        told = False
        self._recover_ms = self._clock.now_ms() + PROBE_EVERY_MS
        for plane in self._planes.failed:
            try:
                told = self._planes.restore(plane, await self._committer.read(plane.read)) or told
            except Exception as error:
                self._planes.fail(plane, error)
        if told:
            self._begin_engine()

    async def _undo(self, items: list[Item], error: StoreError) -> None:
        await self._rebuild()
        items += self._bisection.abandon()
        self.inbox.put_back([one for one in items if isinstance(one, Report)])
        for one in items:
            if isinstance(one, Call):
                one.failed(error)
        self._probe_ms = self._clock.now_ms() + PROBE_EVERY_MS
        if not self.trouble:
            self._runtime.log.error("a commit failed; nothing of it has happened", reason=str(error))
        self.trouble = str(error)


def _origin_of(error: Exception) -> str:
    """Where an error was raised, and what: equal for the same fault."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    place = "" if at is None else f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"
    return f"{type(error).__name__} {place}"


def _raise_if_out(error: Exception) -> None:
    """Raise again what no request is to blame for."""
    if isinstance(error, PlaneFailed) and error.out:
        raise error


def _unexpected(error: Exception) -> Exception | None:
    return None if isinstance(error, HALError) else error
