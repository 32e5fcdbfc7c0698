"""What waits for the loop: calls of people, and reports of nodes in a queue for each node; all are bounded.

A call that finds its queue full is refused (`overloaded`); a report waits, so that its connection is not read on. Nodes
take turns, and none has more than its share of a group: one that floods is done slower, and nobody else is. A share is
counted in what reports say, and corrected by the time that the reports of that node were measured to take.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, cast

from hal.core.model import HALError, OverloadedError, UnreachableError
from hal.planes.interface import Work

T = TypeVar("T")

MAX_CALLS = 2_000
"""Calls that may wait."""
MAX_REPORTS = 256
"""Reports (frames) of one node that may wait."""
MAX_WEIGHT = 16_000
"""What they may weigh together: one for each step that is named, and for so many characters reported."""
MAX_CALLS_A_GROUP = 500
MAX_REPORTS_A_GROUP = 200
MAX_WEIGHT_A_GROUP = 4_000
"""Of one node's reports in a group; one of more goes alone."""


USUAL_NS = 200_000
"""What a weight of 1 may take of the loop's time (a step's end takes an eighth of it on a machine that is not busy);
reports of a node whose ones take more weigh more."""
MEASURED_WEIGHT = 1_024
"""Over so much of what a node has reported is its cost measured; what is older counts half."""
MAX_DEARNESS = 64


class Call(Generic[T]):
    """Something a person asked for: done in the loop, answered when it is durable."""

    __slots__ = ("answer", "in_slices", "result", "work")

    def __init__(
        self, work: Callable[[int], T] | Callable[[int], Work[T]], answer: asyncio.Future[T], *, in_slices: bool = False
    ) -> None:
        self.work = work
        self.answer = answer
        self.in_slices = in_slices
        self.result: Any = None

    def stage(self, now_ms: int) -> Work[T] | None:
        """Do it in memory, or give the slices that do it.

        Raises:
            HALError: it was refused and changed nothing.
        """
        made: Any = self.work(now_ms)
        if self.in_slices:
            return cast("Work[T]", made)
        self.result = made
        return None

    def done(self) -> None:
        """Answer, as it is durable."""
        if not self.answer.done():
            self.answer.set_result(self.result)

    def failed(self, error: Exception) -> None:
        """Answer with the error, as it has not happened."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Report:
    """Something that a node reported, or that the controller itself found of it."""

    __slots__ = ("node", "reported", "size", "weight", "what", "work")

    def __init__(
        self,
        node: str,
        what: str,
        work: Callable[[int], None],
        weight: int = 1,
        *,
        reported: bool = True,
        dearness: int = 1,
    ) -> None:
        self.node = node
        """Whose turn it is done in."""
        self.what = what
        self.work = work
        self.size = weight
        """What it says: its steps and texts."""
        self.weight = weight * dearness
        """Of its node's share."""
        self.reported = reported
        """The node said so: if it cannot be true the node has lied. Else it is the controller's own."""

    def stage(self, now_ms: int) -> None:
        """Do it in memory."""
        self.work(now_ms)

    def halves(self) -> tuple[Report, ...]:
        """The same as two reports, each of a half of it; () where it cannot be parted."""
        return ()


class ItemsReport(Report):
    """A report of several things, each of which could have been reported alone."""

    __slots__ = ("_items", "_record")

    def __init__(
        self,
        node: str,
        what: str,
        record: Callable[[str, Sequence[Any], int], None],
        items: Sequence[Any],
        weight: int = 1,
        *,
        dearness: int = 1,
    ) -> None:
        super().__init__(node, what, partial(record, node, items), weight, dearness=dearness)
        self._record = record
        self._items = items

    def halves(self) -> tuple[Report, ...]:
        """See `Report`."""
        middle = len(self._items) // 2
        if not middle:
            return ()
        weight = max(self.size // 2, 1)
        return tuple(
            ItemsReport(self.node, self.what, self._record, part, weight, dearness=max(self.weight // self.size, 1))
            for part in (self._items[:middle], self._items[middle:])
        )


class Waiting:
    """What one node has reported and is not done yet."""

    __slots__ = ("reports", "weight")

    def __init__(self) -> None:
        self.reports: deque[Report] = deque()
        self.weight = 0

    @property
    def full(self) -> bool:
        return len(self.reports) >= MAX_REPORTS or self.weight >= MAX_WEIGHT


class Cost:
    """What one node's reports have taken of the loop's time lately, beside how much they said."""

    __slots__ = ("size", "time_ns")

    def __init__(self) -> None:
        self.size = 0
        self.time_ns = 0

    def add(self, size: int, time_ns: int) -> None:
        """Count a report that was done."""
        self.size += size
        self.time_ns += time_ns
        if self.size >= 2 * MEASURED_WEIGHT:
            self.size //= 2
            self.time_ns //= 2

    @property
    def dearness(self) -> int:
        """How many times the usual; a few slow ones make no node dear."""
        return max(1, min(self.time_ns // (max(self.size, MEASURED_WEIGHT) * USUAL_NS), MAX_DEARNESS))


class Inbox:
    """The queues."""

    def __init__(self) -> None:
        self._calls: deque[Call[Any]] = deque()
        self._waiting: dict[str, Waiting] = {}
        """By node; nodes of which nothing waits are not in it."""
        self._costs: dict[str, Cost] = {}
        """By node, of all that have reported something."""
        self._turns: deque[str] = deque()
        """The same nodes; whose turn it is comes first."""
        self._urgent = False
        self._space = asyncio.Event()
        self._space.set()
        self._closed = ""
        self.filled = asyncio.Event()
        """Set when something was put in; the loop clears it."""

    def __bool__(self) -> bool:
        """Whether something must be done now."""
        return self._urgent

    @property
    def calls_waiting(self) -> int:
        """Calls that wait for their turn."""
        return len(self._calls)

    def wake_for_lazy(self) -> None:
        """Wake the loop: what could wait has waited long enough."""
        if self._turns:
            self._wake()

    def _wake(self) -> None:
        self._urgent = True
        self.filled.set()

    async def call(self, work: Callable[[int], T]) -> T:
        """Have it done and made durable; what `work` returned.

        Raises:
            OverloadedError: too many calls wait.
            UnreachableError: the controller is stopping.
            HALError: as `work` raised it, or the commit failed; nothing has happened.
        """
        return await self._enqueue(Call(work, asyncio.get_running_loop().create_future()))

    async def call_in_slices(self, work: Callable[[int], Work[T]]) -> T:
        """As `call`, for what may be much: the loop turns between slices, and nothing else is staged meanwhile."""
        return await self._enqueue(Call[T](work, asyncio.get_running_loop().create_future(), in_slices=True))

    async def _enqueue(self, call: Call[T]) -> T:
        if self._closed:
            raise UnreachableError(self._closed)
        if len(self._calls) >= MAX_CALLS:
            raise OverloadedError(f"{MAX_CALLS} requests wait already", hint="try again in a second")
        self._calls.append(call)
        self._wake()
        return await call.answer

    async def report(
        self, node: str, what: str, work: Callable[[int], None], *, weight: int = 1, lazy: bool = False
    ) -> None:
        """Have what a node reported done; returns when it is queued. A `lazy` one is done with what comes next (see
        `wake_for_lazy`)."""
        await self._room_for(node)
        self._put(Report(node, what, work, weight, dearness=self._dearness_of(node)))
        if not lazy:
            self._wake()

    async def report_items(
        self,
        node: str,
        what: str,
        record: Callable[[str, Sequence[Any], int], None],
        items: Sequence[Any],
        *,
        weight: int = 1,
        lazy: bool = False,
    ) -> None:
        """The same of several things: where HAL meets a fault with one of them, the others are done all the same."""
        await self._room_for(node)
        self._put(ItemsReport(node, what, record, items, weight, dearness=self._dearness_of(node)))
        if not lazy:
            self._wake()

    async def _room_for(self, node: str) -> None:
        while (waiting := self._waiting.get(node)) is not None and waiting.full:
            self._wake()
            self._space.clear()
            await self._space.wait()

    def _dearness_of(self, node: str) -> int:
        cost = self._costs.get(node)
        return cost.dearness if cost is not None else 1

    def report_nowait(self, node: str, what: str, work: Callable[[int], None]) -> None:
        """Have something done about a node that the controller found itself: for the few that must not wait (timers),
        beyond the bound."""
        self._put(Report(node, what, work, reported=False))
        self._wake()

    def _put(self, report: Report) -> None:
        waiting = self._waiting.get(report.node)
        if waiting is None:
            waiting = self._waiting[report.node] = Waiting()
            self._turns.append(report.node)
        waiting.reports.append(report)
        waiting.weight += report.weight

    def take(self) -> tuple[list[Report], list[Call[Any]]]:
        """The next group's reports and calls, oldest first; of each node no more than its share."""
        reports: list[Report] = []
        weights: dict[str, int] = {}
        later: list[str] = []
        while self._turns and len(reports) < MAX_REPORTS_A_GROUP:
            node = self._turns.popleft()
            waiting = self._waiting[node]
            weight = weights.get(node, 0) + waiting.reports[0].weight
            if weight > MAX_WEIGHT_A_GROUP and node in weights:
                later.append(node)
                continue
            weights[node] = weight
            report = waiting.reports.popleft()
            waiting.weight -= report.weight
            reports.append(report)
            if waiting.reports:
                self._turns.append(node)
            else:
                del self._waiting[node]
        self._turns.extend(later)
        calls = [self._calls.popleft() for _ in range(min(len(self._calls), MAX_CALLS_A_GROUP))]
        self._urgent = bool(self._turns or self._calls)
        self._space.set()
        return reports, calls

    def spent(self, report: Report, time_ns: int) -> None:
        """Record how long it took: the dearer a node's reports are, the fewer of them have a place in a group."""
        cost = self._costs.get(report.node)
        if cost is None:
            cost = self._costs[report.node] = Cost()
        cost.add(report.size, time_ns)

    def forget(self, node: str) -> None:
        """Forget a node that was removed."""
        self._costs.pop(node, None)

    def put_back(self, items: Sequence[Report | Call[Any]]) -> None:
        """Put what was taken and not done at the front again."""
        for report in reversed(items):
            if isinstance(report, Call):
                self._calls.appendleft(report)
                continue
            waiting = self._waiting.get(report.node)
            if waiting is None:
                waiting = self._waiting[report.node] = Waiting()
                self._turns.appendleft(report.node)
            waiting.reports.appendleft(report)
            waiting.weight += report.weight
        self._urgent = True

    def drop_reported(self, node: str) -> int:
        """Forget what that node has reported and is not done yet; how much that was."""
        waiting = self._waiting.get(node)
        if waiting is None:
            return 0
        kept = [report for report in waiting.reports if not report.reported]
        dropped = len(waiting.reports) - len(kept)
        waiting.reports = deque(kept)
        waiting.weight = sum(report.weight for report in kept)
        if not kept:
            del self._waiting[node]
            self._turns.remove(node)
        self._space.set()
        return dropped

    def close(self, reason: str) -> None:
        """Take no further calls; those that wait are refused."""
        self._closed = reason
        while self._calls:
            self._calls.popleft().failed(UnreachableError(reason))


def is_refusal(error: HALError) -> bool:
    """Whether the error is an answer to the caller (else it is a fault of HAL)."""
    return error.code != "internal"
