"""What waits to be done by the loop: calls of people and reports of nodes, each in a bounded queue of its own.

A call that finds its queue full is refused (`overloaded`); a report waits, so that its connection is not read on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from hal.core.model import HALError, OverloadedError, UnreachableError

T = TypeVar("T")

MAX_CALLS = 2_000
"""Calls that may wait."""
MAX_REPORTS = 1_000
"""Reports (frames) that may wait."""
MAX_CALLS_A_GROUP = 500
MAX_REPORTS_A_GROUP = 200


class Call(Generic[T]):
    """Something a person asked for: done in the loop, answered when it is durable."""

    __slots__ = ("answer", "result", "work")

    def __init__(self, work: Callable[[int], T], answer: asyncio.Future[T]) -> None:
        self.work = work
        self.answer = answer
        self.result: Any = None

    def stage(self, now_ms: int) -> None:
        """Do it in memory.

        Raises:
            HALError: it was refused and changed nothing.
        """
        self.result = self.work(now_ms)

    def done(self) -> None:
        """It is durable."""
        if not self.answer.done():
            self.answer.set_result(self.result)

    def failed(self, error: Exception) -> None:
        """It has not happened."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Report:
    """Something a node told."""

    __slots__ = ("what", "work")

    def __init__(self, what: str, work: Callable[[int], None]) -> None:
        self.what = what
        self.work = work

    def stage(self, now_ms: int) -> None:
        """Do it in memory."""
        self.work(now_ms)


class Inbox:
    """The two queues."""

    def __init__(self) -> None:
        self._calls: deque[Call[Any]] = deque()
        self._reports: deque[Report] = deque()
        self._urgent = False
        self._space = asyncio.Event()
        self._space.set()
        self._closed = ""
        self.filled = asyncio.Event()
        """Set when something was put in; the loop clears it."""

    def __bool__(self) -> bool:
        """Whether something must be done now."""
        return self._urgent

    def lazy_is_due(self) -> None:
        """What could wait has waited long enough."""
        if self._reports:
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
        if self._closed:
            raise UnreachableError(self._closed)
        if len(self._calls) >= MAX_CALLS:
            raise OverloadedError(f"{MAX_CALLS} requests wait already", hint="try again in a second")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.append(Call(work, answer))
        self._wake()
        return await answer

    async def report(self, what: str, work: Callable[[int], None], *, lazy: bool = False) -> None:
        """Have it done; returns when it is queued. A `lazy` one is done with what comes next (see `lazy_is_due`)."""
        while len(self._reports) >= MAX_REPORTS:
            self._wake()
            self._space.clear()
            await self._space.wait()
        if lazy:
            self._reports.append(Report(what, work))
        else:
            self.report_nowait(what, work)

    def report_nowait(self, what: str, work: Callable[[int], None]) -> None:
        """As `report`, for the few that must not wait (timers): beyond the bound."""
        self._reports.append(Report(what, work))
        self._wake()

    def take(self) -> tuple[list[Report], list[Call[Any]]]:
        """The next group's reports and calls, oldest first."""
        reports = [self._reports.popleft() for _ in range(min(len(self._reports), MAX_REPORTS_A_GROUP))]
        calls = [self._calls.popleft() for _ in range(min(len(self._calls), MAX_CALLS_A_GROUP))]
        self._urgent = bool(self._reports or self._calls)
        if len(self._reports) < MAX_REPORTS:
            self._space.set()
        return reports, calls

    def put_back(self, reports: list[Report]) -> None:
        """Reports whose commit failed come first again."""
        self._reports.extendleft(reversed(reports))
        self._urgent = True

    def close(self, reason: str) -> None:
        """Take no further calls; those that wait are told."""
        self._closed = reason
        while self._calls:
            self._calls.popleft().failed(UnreachableError(reason))


def is_refusal(error: HALError) -> bool:
    """Whether the error is an answer to the caller (else it is a fault of HAL)."""
    return error.code != "internal"
