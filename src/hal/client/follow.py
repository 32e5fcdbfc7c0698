"""Reading a step's output file: to its present end, or as it grows, over retries and restarts of the controller."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator

from hal.client import calls
from hal.client.backoff import FIRST_DELAY_S, LONGEST_DELAY_S, Backoff
from hal.client.http import CHUNK_BYTES, BrokenStreamError, Connections, Stream
from hal.client.views import LogPart, TaskInfo
from hal.core.model import NotFoundError, TaskState, UnreachableError

NOT_BEGUN = frozenset({TaskState.PENDING, TaskState.HELD, TaskState.ALLOCATED})
NODE_PATIENCE_S = 120.0
"""How long a follower waits for a node that is not heard."""
PART_BYTES = 4 << 20
"""How much of a file one request reads."""


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
    ) -> None:
        """With `from_first`, following begins with the first attempt instead of the latest."""
        self._connections = connections
        self._job_id = job_id
        self._stream = stream
        self._task = task
        self._rank = rank
        self._attempt = attempt
        self._from_first = from_first
        self._latest = 0
        self._offset = 0
        self.dropped = 0
        """Bytes that were written but not kept until they could be read (outputs are size-bounded)."""
        self._open: Stream | None = None
        self._stopping = threading.Event()

    def pieces(self, *, follow: bool = False, tail_bytes: int | None = None) -> Iterator[bytes]:
        """What was written, in order.

        Args:
            follow: until the task has ended (or the one attempt that was named), else to the present end.
            tail_bytes: leave out all but the last so many bytes of what is there now.
        Raises:
            NotFoundError: no such job, task, rank or attempt.
        """
        if tail_bytes is not None:
            self._offset = max(0, self._part(limit=0).size - tail_bytes)
        if not follow:
            yield from self._rest(self._attempt)
            return
        if self._attempt is not None:
            yield from self._whole(self._attempt)
            return
        attempt = self._next_attempt(0)
        if attempt is not None and not self._from_first:
            attempt = self._latest
        while attempt is not None:
            yield from self._whole(attempt)
            self._offset = 0
            attempt = self._next_attempt(attempt)

    def stop(self) -> None:
        """Make `pieces` end soon, from another thread; what is there by now is still given."""
        self._stopping.set()
        stream = self._open
        if stream is not None:
            stream.interrupt()

    def _whole(self, attempt: int) -> Iterator[bytes]:
        """One attempt's file until it is complete; nothing of an earlier attempt that never ran."""
        try:
            yield from self._until_complete(attempt)
        except NotFoundError:
            if attempt >= self._latest:
                raise

    def _until_complete(self, attempt: int) -> Iterator[bytes]:
        """One attempt's file, opened again wherever it breaks off, also while its node is not heard for a while."""
        delay_s = FIRST_DELAY_S
        patience = Backoff(NODE_PATIENCE_S)
        while True:
            before, stopping = self._offset, self._stopping.is_set()
            try:
                yield from self._streamed(attempt)
                # A controller that is stopped in good order ends its streams too: only the file's own word counts.
                part = yield from self._rest(attempt)
                if part.ended or stopping:
                    return
                patience.worked()
            except BrokenStreamError:
                pass
            except UnreachableError:
                if stopping or patience.failed(time.monotonic()) is None:
                    raise
            if self._offset > before:
                delay_s = FIRST_DELAY_S
            self._stopping.wait(delay_s)
            delay_s = min(delay_s * 2, LONGEST_DELAY_S)

    def _streamed(self, attempt: int) -> Iterator[bytes]:
        """What one followed answer gives."""
        if self._stopping.is_set():
            return
        with self._connections.stream(self._call(attempt, follow=True).request) as stream:
            self._open = stream
            try:
                self._go_to(calls.number_in(stream.headers, "hal-log-offset", self._offset))
                for piece in stream:
                    self._offset += len(piece)
                    yield piece
            finally:
                self._open = None

    def _rest(self, attempt: int | None) -> Generator[bytes, None, LogPart]:
        """What is there now; gives the last part read."""
        while True:
            part = self._part(attempt=attempt, limit=PART_BYTES)
            self._go_to(part.offset)
            self._offset += len(part.data)
            if not part.data:
                return part
            for start in range(0, len(part.data), CHUNK_BYTES):
                yield part.data[start : start + CHUNK_BYTES]

    def _go_to(self, offset: int) -> None:
        """What comes next lies there."""
        self.dropped += max(0, offset - self._offset)
        self._offset = offset

    def _next_attempt(self, previous: int) -> int | None:
        """The attempt after `previous` once it has begun, waited for; None when there will be none."""
        delay_s = FIRST_DELAY_S
        while True:
            stopping = self._stopping.is_set()  # before it is read: what is read after that is the last word
            info = self._task_info()
            begun = info.state not in NOT_BEGUN
            self._latest = info.attempt or 0
            if self._latest > previous + 1 or (self._latest == previous + 1 and begun):
                return previous + 1
            if info.ended or stopping:
                return None
            self._stopping.wait(delay_s)
            delay_s = min(delay_s * 2, LONGEST_DELAY_S)

    def _task_info(self) -> TaskInfo:
        call = calls.task(self._job_id, self._task)
        return call.read(self._connections.send(call.request))

    def _part(self, *, attempt: int | None = None, limit: int) -> LogPart:
        call = self._call(attempt or self._attempt, limit=limit)
        return call.read(self._connections.send(call.request))

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
