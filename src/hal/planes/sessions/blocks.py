"""Blocks of tasks as a broker holds them: one payload, and columns with the state of each task. Pure.

The columns are bytes and not NumPy's: importing that took a third of the time in which a session opens.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate, groupby
from typing import Any, Final, cast

from hal.planes.sessions.pools import Home, Pool
from hal.wire.frames.sessions import SIZE_BYTES, SubmitTasks

WAITING: Final = 0
SENT: Final = 1
"""A worker has it."""
ENDED: Final = 2
"""Its client has the answer."""


class Block:
    """The tasks of one `SubmitTasks`.

    Attributes:
        submitter: number of the client.
        frame: as it arrived; its payload is never copied, only sliced.
        state: of each task: WAITING, SENT or ENDED.
        losses: of each task, how many workers were lost while it may have run.
        failures: of each task, how often it raised an exception.
        left: tasks that have not ended.
        came_ms: when it arrived.
        name: of its function, for people.
        pool: of the slots whose shape its tasks name.
        home: of the key of its tasks; None: they have none.
    """

    __slots__ = (
        "came_ms",
        "count",
        "failures",
        "frame",
        "home",
        "left",
        "losses",
        "name",
        "offsets",
        "pool",
        "state",
        "submitter",
        "view",
    )

    def __init__(self, submitter: int, frame: SubmitTasks, came_ms: int = 0, pool: Pool | None = None) -> None:
        """
        Raises:
            ValueError: the sizes are not those of the payload.
        """
        if not frame.sizes or len(frame.sizes) % SIZE_BYTES:
            raise ValueError(f"{len(frame.sizes)} bytes of sizes")
        self.offsets: array[int] = array("q", accumulate(memoryview(frame.sizes).cast("I"), initial=0))
        if self.offsets[-1] != len(frame.payload):
            raise ValueError(f"the sizes sum up to {self.offsets[-1]}, and the payload has {len(frame.payload)} bytes")
        self.submitter = submitter
        self.frame = frame
        self.came_ms = came_ms
        self.name = ""
        self.pool = pool or Pool()
        self.home: Home | None = None
        self.count = self.left = len(self.offsets) - 1
        self.view = memoryview(frame.payload)
        self.state = bytearray(self.count)
        self.losses = bytearray(self.count)
        self.failures = bytearray(self.count)

    def mark(self, start: int, end: int, state: int) -> None:
        """Let these tasks be in a state."""
        self.state[start:end] = bytes((state,)) * (end - start)

    def sizes_of(self, start: int, end: int) -> bytes:
        return self.frame.sizes[start * SIZE_BYTES : end * SIZE_BYTES]

    def payload_of(self, start: int, end: int) -> bytes:
        """The bytes of these tasks; a view, unless it is all of them."""
        if start == 0 and end == self.count:
            return self.frame.payload
        # A view is encoded like bytes, without a copy in between.
        part: Any = self.view[self.offsets[start] : self.offsets[end]]
        return cast(bytes, part)

    def ranges(self, state: int) -> list[tuple[int, int]]:
        """Where tasks of this state are: starts and ends."""
        found, start = [], 0
        for one, tasks in groupby(self.state):
            end = start + sum(1 for _ in tasks)
            if one == state:
                found.append((start, end))
            start = end
        return found

    def bytes_of(self, start: int, end: int) -> int:
        return self.offsets[end] - self.offsets[start]

    def fitting(self, start: int, end: int, most_bytes: int) -> int:
        """Where a range ends that has at most so many bytes; it has at least one task."""
        bound = bisect_right(self.offsets, self.offsets[start] + most_bytes) - 1
        return max(start + 1, min(end, bound))


class TaskRange:
    """Consecutive tasks of a block that wait."""

    __slots__ = ("block", "end", "start")

    def __init__(self, block: Block, start: int, end: int) -> None:
        self.block = block
        self.start = start
        self.end = end


class Run:
    """Consecutive tasks of a block that a worker has.

    Attributes:
        number: of the run, at its worker.
        start: the first task in the block.
        end: behind the last one; less after tasks were returned.
        done: tasks that have ended, from `start` on.
        expected_us: how long the tasks that have not ended are expected to take; 0 while it waits.
        waits: its task has begun, and waits for others.
        fresh: it is the first of its key at its worker.
    """

    __slots__ = ("block", "done", "end", "expected_us", "fresh", "number", "sent_ms", "start", "waits")

    def __init__(self, number: int, block: Block, start: int, end: int, expected_us: float, sent_ms: int) -> None:
        self.number = number
        self.block = block
        self.start = start
        self.end = end
        self.done = 0
        self.waits = False
        self.fresh = False
        self.expected_us = expected_us
        self.sent_ms = sent_ms
