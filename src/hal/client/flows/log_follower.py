"""Reads a task's output in threads: it can be stopped from another one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from hal.client.flows.log_flow import NODE_PATIENCE_S, LogFlow
from hal.client.flows.player import Player
from hal.client.transport.http import Connections, SocketStream


class LogFollower:
    """One stream of one rank of one task: its latest attempt and, when following, those after it."""

    def __init__(
        self,
        connections: Connections,
        job_id: str,
        *,
        stream: str = "stdout",
        task: int = 0,
        rank: int = 0,
        attempt: int | None = None,
        from_first: bool = False,
        resume: tuple[int, int] | None = None,
        patience_s: float = NODE_PATIENCE_S,
    ) -> None:
        """See `LogFlow`."""
        self._flow = LogFlow(
            job_id,
            stream=stream,
            task=task,
            rank=rank,
            attempt=attempt,
            from_first=from_first,
            resume=resume,
            patience_s=patience_s,
            clock=time.monotonic,
        )
        self._stopping = threading.Event()
        self._player = Player(connections, pause=self._stopping.wait)

    @property
    def elsewhere(self) -> tuple[str, str]:
        """The file that the job has named for this output, and its node, as far as it was read; ("", "") if none."""
        return self._flow.elsewhere

    @property
    def at(self) -> tuple[int, int]:
        """The attempt that is followed, and up to which offset it was read; attempt 0: none is."""
        return self._flow.at

    @property
    def dropped(self) -> int:
        """Bytes that were written but not kept until they could be read (outputs are bounded)."""
        return self._flow.dropped

    def pieces(self, *, follow: bool = False, tail_bytes: int | None = None) -> Iterator[bytes]:
        """What was written, in order; as `LogFlow.steps`."""
        return self._player.items(self._flow.steps(follow=follow, tail_bytes=tail_bytes))

    def stop(self) -> None:
        """Make `pieces` end soon, from another thread; what is there by now is still given."""
        self._flow.stopping = True
        self._stopping.set()
        stream = self._player.stream
        if isinstance(stream, SocketStream):
            stream.interrupt()
