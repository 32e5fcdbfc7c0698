"""Reads a task's output for asyncio: to stop it, cancel the task that reads."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from hal.client.flows.async_player import AsyncPlayer
from hal.client.flows.log_flow import LogFlow
from hal.client.transport.async_transport import AsyncTransport


class AsyncLogFollower:
    """As `LogFollower`."""

    def __init__(
        self,
        connections: AsyncTransport,
        job_id: str,
        *,
        stream: str = "stdout",
        task: int = 0,
        rank: int = 0,
        attempt: int | None = None,
        from_first: bool = False,
    ) -> None:
        """As `LogFollower`."""
        self._flow = LogFlow(
            job_id, stream=stream, task=task, rank=rank, attempt=attempt, from_first=from_first, clock=time.monotonic
        )
        self._player = AsyncPlayer(connections)

    @property
    def elsewhere(self) -> tuple[str, str]:
        """As `LogFollower.elsewhere`."""
        return self._flow.elsewhere

    @property
    def dropped(self) -> int:
        """As `LogFollower.dropped`."""
        return self._flow.dropped

    def pieces(self, *, follow: bool = False, tail_bytes: int | None = None) -> AsyncIterator[bytes]:
        """As `LogFollower.pieces`."""
        return self._player.items(self._flow.steps(follow=follow, tail_bytes=tail_bytes))
