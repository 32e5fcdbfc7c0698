"""Who waits for a job's end, or for a change of a node: woken when it is durable, nobody polls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hal.core.model import OverloadedError
from hal.store import Committed, DropNodes, JobRow, Operation, PutNodes

MAX_WAITERS = 20_000
"""Requests that wait for a job's end."""
MAX_NODE_WAITERS = 1_000
"""Requests that wait for a node."""
MAX_END_WAITERS = 200
"""Requests that wait for the end of any attempt."""


class JobWaiters:
    """Futures by job, resolved in the order in which they came."""

    def __init__(self) -> None:
        self._by_job: dict[int, dict[asyncio.Future[JobRow], None]] = {}
        self._count = 0

    async def wait(self, job: int, timeout_s: float) -> JobRow | None:
        """The row with which the job ends; None when it has not ended in time.

        Raises:
            OverloadedError: too many wait.
        """
        if self._count >= MAX_WAITERS:
            raise OverloadedError(f"{MAX_WAITERS} requests wait for jobs already", hint="try again in a second")
        ended: asyncio.Future[JobRow] = asyncio.get_running_loop().create_future()
        self._by_job.setdefault(job, {})[ended] = None
        self._count += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await ended
        except TimeoutError:
            return None
        finally:
            self._count -= 1
            waiting = self._by_job.get(job)
            if waiting is not None:
                waiting.pop(ended, None)
                if not waiting:
                    del self._by_job[job]

    def wanted(self, job: int) -> bool:
        """Whether anybody waits for it."""
        return job in self._by_job

    def ended(self, row: JobRow) -> None:
        """Wake those who wait for the end of a job."""
        for future in list(self._by_job.get(row.id, ())):
            if not future.done():
                future.set_result(row)


class NodeWaiters:
    """Futures by node."""

    def __init__(self) -> None:
        self._by_node: dict[str, set[asyncio.Future[None]]] = {}
        self._count = 0

    async def change(self, node: str, timeout_s: float) -> bool:
        """Wait for a change; returns whether it came in time.

        Raises:
            OverloadedError: too many wait.
        """
        if self._count >= MAX_NODE_WAITERS:
            raise OverloadedError(f"{MAX_NODE_WAITERS} requests wait for nodes already", hint="try again in a second")
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._by_node.setdefault(node, set()).add(changed)
        self._count += 1
        try:
            async with asyncio.timeout(timeout_s):
                await changed
        except TimeoutError:
            return False
        finally:
            self._count -= 1
            waiting = self._by_node[node]
            waiting.discard(changed)
            if not waiting:
                del self._by_node[node]
        return True

    def waits(self, node: str) -> bool:
        """Whether anybody waits for a change of this one."""
        return node in self._by_node

    def wanted(self, operations: Sequence[Operation]) -> bool:
        """Whether anybody waits for a node that these change."""
        return bool(self._by_node) and any(name in self._by_node for name in _changed(operations))

    def committed(self, operations: Sequence[Operation]) -> None:
        """Wake those who wait for these nodes, whose changes are durable."""
        if self._by_node:
            for name in _changed(operations):
                for future in self._by_node.get(name, ()):
                    if not future.done():
                        future.set_result(None)


class EndWaiters:
    """Who waits for the end of any attempt."""

    def __init__(self) -> None:
        self.flushed = 0
        """Number of the newest end that a power failure cannot take back: later ones are shown to nobody."""
        self.closed = False
        """The controller stops."""
        self._waiting: set[asyncio.Future[None]] = set()

    async def wait(self, beyond: int, timeout_s: float) -> bool:
        """Wait for an end behind that number; returns whether it came in time.

        Raises:
            OverloadedError: too many wait.
        """
        if self.flushed > beyond or self.closed:
            return True
        if len(self._waiting) >= MAX_END_WAITERS:
            raise OverloadedError(
                f"{MAX_END_WAITERS} requests wait for ends of attempts already", hint="try again in a second"
            )
        came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(came)
        try:
            async with asyncio.timeout(timeout_s):
                await came
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(came)
        return True

    def committed(self, committed: Committed) -> None:
        """Note the newest end that is durable, and wake those who wait."""
        if committed.last_end > self.flushed:
            self.flushed = committed.last_end
            self._wake()

    def close(self) -> None:
        """Wake all, as the controller stops."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)


def _changed(operations: Sequence[Operation]) -> list[str]:
    names: list[str] = []
    for operation in operations:
        if isinstance(operation, PutNodes):
            names.extend(row.name for row in operation.rows)
        elif isinstance(operation, DropNodes):
            names.extend(operation.names)
    return names
