"""The steps of reading a task's output: to its present end, or as it grows, over retries and controller restarts."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from hal.client.flows.steps import Emit, Flow, Listen, Pause, Read
from hal.client.rest import calls
from hal.client.rest.views import LogPart, TaskInfo
from hal.client.transport.backoff import FIRST_DELAY_S, LONGEST_DELAY_S, Backoff
from hal.client.transport.exchange import CHUNK_BYTES, BrokenStreamError
from hal.core.model import NotFoundError, TaskState, UnreachableError

NOT_BEGUN = frozenset({TaskState.PENDING, TaskState.HELD, TaskState.ALLOCATED})
NODE_PATIENCE_S = 120.0
"""How long a reader waits for a node that is unreachable."""
PART_BYTES = 4 << 20
"""How much of a file one request reads."""

R = TypeVar("R")
_Part = Generator[calls.Call[Any] | Listen | Read | Pause | Emit[bytes], Any, R]
"""A part of the flow that returns something."""


class LogFlow:
    """One stream of one rank of one task: its latest attempt and, when following, those after it."""

    def __init__(
        self,
        job_id: str,
        *,
        stream: str = "stdout",
        task: int = 0,
        rank: int = 0,
        attempt: int | None = None,
        from_first: bool = False,
        resume: tuple[int, int] | None = None,
        patience_s: float = NODE_PATIENCE_S,
        clock: Callable[[], float],
    ) -> None:
        """
        Args:
            from_first: following begins with the first attempt instead of the latest.
            resume: following begins with this attempt, at this offset.
            patience_s: how long a node that is unreachable is waited for.
            clock: monotonic, in seconds.
        """
        self._resume, self._patience_s = resume, patience_s
        self._reading = 0
        self._job_id = job_id
        self._stream = stream
        self._task = task
        self._rank = rank
        self._attempt = attempt
        self._from_first = from_first
        self._clock = clock
        self._latest = 0
        self._offset = 0
        self.dropped = 0
        """Bytes that were written but not kept until they could be read (outputs are bounded)."""
        self.elsewhere = ("", "")
        """The file that the job has named for this output, and its node: nothing of it is read; empty if it has not."""
        self.stopping = False
        """Set from anywhere: what is there by now is still emitted, then the flow ends."""

    @property
    def at(self) -> tuple[int, int]:
        """The attempt that is followed, and up to which offset it was read; 0: none is."""
        return self._reading, self._offset

    def steps(self, *, follow: bool = False, tail_bytes: int | None = None) -> Flow[bytes]:
        """Emit what was written, in order.

        Args:
            follow: until the task has ended (or the one attempt that was named), else to the present end.
            tail_bytes: leave out all but the last so many bytes of what is there now.
        Raises:
            NotFoundError: no such job, task, rank or attempt.
        """
        if tail_bytes is not None:
            part = yield from self._part(limit=0)
            self._offset = max(0, part.size - tail_bytes)
        if not follow:
            yield from self._rest(self._attempt)
            return
        if self._attempt is not None:
            if self._resume is not None:
                self._offset = self._resume[1]
            yield from self._whole(self._attempt)
            return
        attempt = yield from self._next_attempt(0)
        if attempt is not None and self._resume is not None:
            attempt, self._offset = self._resume
        elif attempt is not None and not self._from_first:
            attempt = self._latest
        while attempt is not None:
            yield from self._whole(attempt)
            self._offset = 0
            attempt = yield from self._next_attempt(attempt)

    def _whole(self, attempt: int) -> _Part[None]:
        """One attempt's file until it is complete; nothing of an earlier attempt that never ran."""
        self._reading = attempt
        try:
            yield from self._until_complete(attempt)
        except NotFoundError:
            if attempt >= self._latest:
                raise

    def _until_complete(self, attempt: int) -> _Part[None]:
        """One attempt's file, opened again wherever it breaks off, also while its node is unreachable for a while."""
        delay_s = FIRST_DELAY_S
        patience = Backoff(self._patience_s)
        while True:
            before, stopping = self._offset, self.stopping
            try:
                yield from self._streamed(attempt)
                # A controller that is stopped in good order ends its streams, too: only the file tells its end.
                part = yield from self._rest(attempt)
                if part.ended or stopping:
                    return
                patience.worked()
            except BrokenStreamError:
                pass
            except UnreachableError:
                if stopping or patience.failed(self._clock()) is None:
                    raise
            if self._offset > before:
                delay_s = FIRST_DELAY_S
            yield Pause(delay_s)
            delay_s = min(delay_s * 2, LONGEST_DELAY_S)

    def _streamed(self, attempt: int) -> _Part[None]:
        """What one followed answer gives."""
        if self.stopping:
            return
        headers = yield Listen(self._call(attempt, follow=True).request)
        self._go_to(calls.number_in(headers, "hal-log-offset", self._offset))
        while (piece := (yield Read())) is not None:
            self._offset += len(piece)
            yield Emit(piece)

    def _rest(self, attempt: int | None) -> _Part[LogPart]:
        """What is there now; returns the last part read."""
        while True:
            part = yield from self._part(attempt=attempt, limit=PART_BYTES)
            self._go_to(part.offset)
            self._offset += len(part.data)
            if not part.data:
                return part
            for start in range(0, len(part.data), CHUNK_BYTES):
                yield Emit(part.data[start : start + CHUNK_BYTES])

    def _go_to(self, offset: int) -> None:
        """What comes next begins at this offset."""
        self.dropped += max(0, offset - self._offset)
        self._offset = offset

    def _next_attempt(self, previous: int) -> _Part[int | None]:
        """The attempt after `previous` once it has begun; None when there will be none."""
        delay_s = FIRST_DELAY_S
        while True:
            stopping = self.stopping  # before it is read: what is read after that is the last word
            info: TaskInfo = yield calls.task(self._job_id, self._task)
            begun = info.state not in NOT_BEGUN
            self._latest = info.attempt or 0
            if self._latest > previous + 1 or (self._latest == previous + 1 and begun):
                return previous + 1
            if info.ended or stopping:
                return None
            yield Pause(delay_s)
            delay_s = min(delay_s * 2, LONGEST_DELAY_S)

    def _part(self, *, attempt: int | None = None, limit: int) -> _Part[LogPart]:
        part: LogPart = yield self._call(attempt or self._attempt, limit=limit)
        if part.path:
            self.elsewhere = (part.path, part.node)
        return part

    def _call(self, attempt: int | None, *, limit: int | None = None, follow: bool = False) -> calls.Call[LogPart]:
        return calls.log(
            self._job_id,
            task=self._task,
            attempt=attempt,
            rank=self._rank,
            stream=self._stream,
            offset=self._offset,
            limit=limit,
            follow=follow,
        )
