"""What must not be sent before it survives a power failure: answers to people, acknowledgements to keepers, the feed.

A commit survives the death of every process at once; flushing it to the disk takes a few milliseconds more. Orders to
agents of this host do not wait for that, because what a power failure takes from this host's store it takes from this
host's steps too (docs/decisions/0012). Answers do, and orders to other hosts: one flush covers every group committed
before it, beside the next group's commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from hal.daemons.controller.cycle.committer import Committer
from hal.runtime.interface import Lane, Runtime, Timer
from hal.runtime.metrics.histogram import HistogramValue

MAX_UNFLUSHED = 256
"""Groups that may be committed and not flushed; the loop waits for the disk beyond."""
COMPANY_MS = 20
"""How long what nobody waits for (acknowledgements, the feed) may wait for company: one flush for many groups."""


class Flusher:
    """One flush at a time, for all that waits for it."""

    def __init__(self, runtime: Runtime, committer: Committer, flushes: HistogramValue) -> None:
        """
        Args:
            flushes: counts how long they take.
        """
        self._flushes = flushes
        self._runtime = runtime
        self._committer = committer
        self._waiting: list[Callable[[], None]] = []
        self._filled = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._later: Timer | None = None

    async def then(self, say: Callable[[], None], *, urgent: bool) -> None:
        """Call `say` when everything committed so far is flushed; waits only when `MAX_UNFLUSHED` groups do.

        Args:
            urgent: somebody waits for it; else it may wait `COMPANY_MS` for company.
        """
        while len(self._waiting) >= MAX_UNFLUSHED:
            self._filled.set()
            await self._idle.wait()
        self._waiting.append(say)
        self._idle.clear()
        if urgent:
            self._filled.set()
        elif self._later is None:
            self._later = self._runtime.call_later(COMPANY_MS, self._filled.set)

    async def run(self) -> None:
        """Until cancelled.

        Raises:
            FlushFailed: the disk refused; the process must end.
        """
        while True:
            await self._filled.wait()
            self._filled.clear()
            if self._later is not None:
                self._later.cancel()
                self._later = None
            waiting, self._waiting = self._waiting, []
            began_ns = self._runtime.monotonic_ns()
            await self._runtime.run_blocking(partial(self._committer.store.flush), Lane.FLUSH)
            self._flushes.observe((self._runtime.monotonic_ns() - began_ns) / 1e9)
            for say in waiting:
                say()
            if not self._waiting:
                self._idle.set()

    async def caught_up(self) -> None:
        """Wait until everything that was committed before this call is flushed."""
        if self._idle.is_set():
            return
        done = asyncio.get_running_loop().create_future()
        await self.then(lambda: None if done.done() else done.set_result(None), urgent=True)
        await done

    async def drained(self) -> None:
        """Wait until everything that waits has been sent."""
        self._filled.set()
        await self._idle.wait()
