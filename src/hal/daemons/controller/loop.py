"""The loop: inbox → plane → one commit → engine, orders, answers → one slice of scheduling → the plan's rows go first
into the next commit.

One group is in flight at a time, so everything is decided on memory that reflects all earlier groups. Runs unchanged
on the virtual Runtime. It holds no decision about scheduling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from hal.core.engine.events import INF, StartsRefused
from hal.core.engine.plan import Plan
from hal.core.engine.scheduler import Scheduler
from hal.core.model import HALError, StoreError
from hal.daemons.controller.clock import Clock
from hal.daemons.controller.committing import Committer
from hal.daemons.controller.inbox import Call, Inbox, Report, is_refusal
from hal.planes.tasks import Change, TaskPlane
from hal.runtime.interface import Runtime
from hal.store import Committed, StaleEpoch

RETRY_FIRST_MS = 100
RETRY_LONGEST_MS = 5_000
"""Between two tries to commit while the store refuses (a full disk)."""
LONGEST_WAIT_MS = 60_000
"""The loop looks at the clock at least so often."""


class PlanSink:
    """Keeps assumed plans until the loop makes their starts durable."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []

    def accept(self, plan: Plan) -> None:
        """Called by the scheduler; see `hal.core.engine.scheduler.Sink`."""
        self.plans.append(plan)


class Effects(Protocol):
    """What follows a commit."""

    def committed(self, change: Change, committed: Committed | None) -> None:
        """Send orders, tell those who wait and watch."""


class ControlLoop:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        plane: TaskPlane,
        scheduler: Scheduler,
        sink: PlanSink,
        committer: Committer,
        effects: Effects,
        row_name: Callable[[int], str],
    ) -> None:
        self.inbox = Inbox()
        self.trouble = ""
        """Why nothing can be made durable now; '' when all is well."""
        self._runtime = runtime
        self._clock = clock
        self._plane = plane
        self._scheduler = scheduler
        self._sink = sink
        self._committer = committer
        self._effects = effects
        self._row_name = row_name
        self._retry_ms = 0
        self._stopping = False
        self._more = True
        self._wake_ms = INF

    async def run(self) -> None:
        """Until `stop`; the group in flight is finished first."""
        while not self._stopping:
            await self._work_comes()
            if self._stopping:
                return
            if not await self._one_group():
                await self._back_off()
                continue
            step = self._scheduler.step(self._clock.now_ms())
            self._more, self._wake_ms = step.more, step.wake_ms

    def stop(self, reason: str) -> None:
        """Finish the group in flight and return from `run`; calls that wait are refused."""
        self._stopping = True
        self.inbox.close(reason)
        self.inbox.filled.set()

    async def _work_comes(self) -> None:
        if self.inbox or self._sink.plans or self._more:
            await self._runtime.sleep(0)
            return
        self.inbox.filled.clear()
        wait_ms = min(max(self._wake_ms - self._clock.now_ms(), 0), LONGEST_WAIT_MS)
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

    async def _one_group(self) -> bool:
        """Stage what waits and commit it; False when the store refused."""
        reports, calls = self.inbox.take()
        plans, self._sink.plans = self._sink.plans, []
        now_ms = self._clock.now_ms()
        reports, calls = self._staged(plans, reports, calls, now_ms)
        change = self._plane.seal(now_ms)
        committed: Committed | None = None
        if not change.empty:
            try:
                committed = await self._committer.commit(change.operations, now_ms)
            except StaleEpoch:
                raise
            except StoreError as error:
                self._undone(plans, reports, calls, error)
                return False
        self._plane.durable()
        for event in change.engine:
            self._scheduler.feed(event)
        for call in calls:
            call.done()
        self._effects.committed(change, committed)
        if committed is not None and self.trouble:
            self._runtime.log.info("commits succeed again")
            self.trouble, self._retry_ms = "", 0
        return True

    def _staged(
        self, plans: list[Plan], reports: list[Report], calls: list[Call[Any]], now_ms: int
    ) -> tuple[list[Report], list[Call[Any]]]:
        """Stage everything; what was refused is answered, what is faulty is left out and the rest staged again."""
        while True:
            faulty = self._try_to_stage(plans, reports, calls, now_ms)
            if faulty is None:
                return reports, calls
            self._plane.undo()
            reports = [report for report in reports if report is not faulty]
            calls = [call for call in calls if call is not faulty and not call.answer.done()]

    def _try_to_stage(
        self, plans: list[Plan], reports: list[Report], calls: list[Call[Any]], now_ms: int
    ) -> Report | Call[Any] | None:
        for plan in plans:
            self._plane.assumed(plan.starts, plan.rows, self._row_name, self._committer.epoch, now_ms)
        for report in reports:
            try:
                report.stage(now_ms)
            except HALError as error:
                self._runtime.log.error("a report of a node was left out", report=report.what, reason=str(error))
                return report
        for call in list(calls):
            if call.answer.done():
                calls.remove(call)
                continue
            try:
                call.stage(now_ms)
            except HALError as error:
                call.failed(error)
                if not is_refusal(error):
                    self._runtime.log.error("a request met a fault", reason=str(error))
                    return call
                calls.remove(call)
        return None

    def _undone(self, plans: list[Plan], reports: list[Report], calls: list[Call[Any]], error: StoreError) -> None:
        self._plane.undo()
        for plan in reversed(plans):
            self._scheduler.feed(StartsRefused(plan.starts))
        self.inbox.put_back(reports)
        for call in calls:
            call.failed(error)
        self._more = True
        if not self.trouble:
            self._runtime.log.error("a commit failed; nothing of it has happened", reason=str(error))
        self.trouble = str(error)
