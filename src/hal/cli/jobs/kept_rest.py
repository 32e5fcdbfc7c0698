"""Following an output whose node is away: what the collector has kept of it is printed, behind what was there before.

The node is tried again in rounds, so an output goes on when its node returns, or as another attempt elsewhere. With
nothing new for some rounds, the first error is what the command ends with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from hal.core.model import HALError, NotFoundError, UnreachableError

if TYPE_CHECKING:
    from hal.cli.kit.screen import Screen
    from hal.client.flows.log_follower import LogFollower
    from hal.client.job import Job

ROUND_S: Final = 15.0
"""How long a node is waited for before the collector is asked."""
QUIET_ROUNDS: Final = 8
"""Without anything new: two minutes, as long as a node is waited for without a collector."""


class FollowedOutput:
    """One output of a task, followed to its end."""

    def __init__(self, screen: Screen, job: Job, which: dict[str, Any], collector: str) -> None:
        """
        Args:
            which: task, rank, attempt (None: the newest and those after it) and stream.
            collector: its URL; '': found by itself.
        """
        from hal.client.flows.log_follower import LogFollower

        self._screen, self._job, self._which, self._collector = screen, job, which, collector
        self._make = LogFollower
        self.follower: LogFollower = self._follower(None)
        """The present one."""
        self._noted = False

    def pieces(self, tail_bytes: int | None) -> Iterator[bytes]:
        """What was written, in order, until the task has ended.

        Raises:
            NotFoundError, UnreachableError: it cannot be read, and the collector has no more of it.
        """
        quiet = 0
        while True:
            try:
                yield from self.follower.pieces(follow=True, tail_bytes=tail_bytes)
                return
            except (NotFoundError, UnreachableError) as error:
                attempt, offset = self.follower.at
                if not attempt:
                    raise
                before = offset
                for piece, end in self._kept(attempt, offset):
                    offset = end
                    yield piece
                resume = self._next(attempt, offset)
                if offset > before:
                    self._note(error)
                    quiet = 0
                elif isinstance(error, NotFoundError) or resume == (attempt, offset):
                    quiet += 1
                    if isinstance(error, NotFoundError) or quiet >= QUIET_ROUNDS:
                        raise
                if resume is None:
                    return
                tail_bytes = None
                self.follower = self._follower(resume)

    def _follower(self, resume: tuple[int, int] | None) -> LogFollower:
        return self._make(self._job.client.connections, self._job.id, **self._which, resume=resume, patience_s=ROUND_S)

    def _next(self, attempt: int, offset: int) -> tuple[int, int] | None:
        """Where to go on; None: the task has ended with this attempt, and all that was kept is printed."""
        info = self._job.task(self._which["task"])
        if (info.attempt or 0) > attempt and self._which["attempt"] is None:
            return attempt + 1, 0
        return None if info.ended or (info.attempt or 0) > attempt else (attempt, offset)

    def _kept(self, attempt: int, offset: int) -> Iterator[tuple[bytes, int]]:
        """What the collector has behind an offset, and where each piece ends; nothing if it does not answer."""
        from msgspec.json import decode

        from hal.cli.kit.collector import collector_client
        from hal.client.rest.log_calls import LogLineInfo, kept_output

        filters = {**self._which, "attempt": attempt, "records": "1"}
        rest = b""
        try:
            for piece in collector_client(self._screen, self._collector).items_of(kept_output(self._job.id, filters)):
                *lines, rest = (rest + piece).split(b"\n")
                for text in lines:
                    line = decode(text, type=LogLineInfo)
                    data = line.text.encode() + (b"" if line.partial else b"\n")
                    end = line.offset + len(data)
                    if end > offset:
                        yield data[max(0, offset - line.offset) :], end
        except HALError:
            return

    def _note(self, error: HALError) -> None:
        if not self._noted:
            self._noted = True
            self._screen.note(f"{error.message}; what the collector has kept is printed")
