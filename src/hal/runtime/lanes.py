"""Blocking calls off the loop: one thread per lane, calls in order, a bounded number waiting."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from hal.core.model.errors import OverloadedError
from hal.runtime.interface import MAX_BLOCKING_CALLS

T = TypeVar("T")


class BlockingLanes:
    """The threads of `Runtime.run_blocking`, each started on its first call."""

    def __init__(self) -> None:
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._waiting: Counter[str] = Counter()
        self._running: dict[asyncio.Future[Any], None] = {}

    async def run(self, call: Callable[[], T], lane: str) -> T:
        """Run a call on the lane's thread.

        Raises:
            OverloadedError: `MAX_BLOCKING_CALLS` already wait there.
        """
        if self._waiting[lane] >= MAX_BLOCKING_CALLS:
            raise OverloadedError(f"{self._waiting[lane]} blocking calls wait in the {lane} lane")
        thread = self._threads.get(lane)
        if thread is None:
            thread = self._threads[lane] = ThreadPoolExecutor(1, thread_name_prefix=f"hal-{lane}")
        self._waiting[lane] += 1
        # Decremented when the call ends, not when its caller does: a cancelled caller's call still runs.
        future = asyncio.get_running_loop().run_in_executor(thread, call)
        self._running[future] = None
        future.add_done_callback(lambda done: self._finished(lane, done))
        return await asyncio.shield(future)

    async def close(self) -> None:
        """Drop waiting calls, and wait for those that run."""
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)
        if self._running:
            await asyncio.wait(list(self._running))

    def _finished(self, lane: str, done: asyncio.Future[T]) -> None:
        self._waiting[lane] -= 1
        self._running.pop(done, None)
        if not done.cancelled():
            # Retrieve the exception, so that the loop does not report it when the caller was cancelled.
            done.exception()
