"""What must not be said before it survives a power failure: answers to people, acknowledgements to keepers, the feed.

A commit survives the death of every process at once; flushing it to the disk takes a few milliseconds more. Orders to
agents do not wait for that, because what a power failure takes from this host's store it takes from this host's steps
too (docs/decisions/0012). Answers do: one flush covers every group committed before it, beside the next group's commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from hal.daemons.controller.committing import Committer
from hal.runtime.interface import Lane, Runtime

MAX_UNFLUSHED = 256
"""Groups that may be committed and not flushed; the loop waits for the disk beyond."""


class Flusher:
    """One flush at a time, for all that waits for it."""

    def __init__(self, runtime: Runtime, committer: Committer) -> None:
        self._runtime = runtime
        self._committer = committer
        self._waiting: list[Callable[[], None]] = []
        self._filled = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    async def then(self, say: Callable[[], None]) -> None:
        """Call `say` when everything committed so far is flushed; waits only when `MAX_UNFLUSHED` groups do."""
        while len(self._waiting) >= MAX_UNFLUSHED:
            await self._idle.wait()
        self._waiting.append(say)
        self._idle.clear()
        self._filled.set()

    async def run(self) -> None:
        """Until cancelled.

        Raises:
            FlushFailed: the disk refused; the process must end.
        """
        while True:
            await self._filled.wait()
            self._filled.clear()
            waiting, self._waiting = self._waiting, []
            await self._runtime.run_blocking(partial(self._committer.store.flush), Lane.FLUSH)
            for say in waiting:
                say()
            if not self._waiting:
                self._idle.set()

    async def drained(self) -> None:
        """Everything that waits has been said."""
        await self._idle.wait()
