"""A client of a broker: what it has submitted and what waits of it. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from hal.planes.sessions.blocks import Block, TaskRange
from hal.wire.frames.conversation import Frame
from hal.wire.frames.sessions import MAX_PRIORITY, StoreObject, SubmitTasks

MAX_OBJECT_BYTES: Final = 1 << 30
"""Of all objects of a client."""


class Outbox(Protocol):
    """Where frames to one process go."""

    def send_nowait(self, frame: Frame) -> None: ...


class Ledger(Protocol):
    """Who remembers, beyond the broker's life, which tasks may have begun that may not begin twice."""

    def hand_out(self, submitter: Submitter, block: Block, start: int, end: int, send: Callable[[], None]) -> None:
        """A worker is about to get these; `send` is called once that is remembered."""

    def take_back(self, submitter: Submitter, tasks: TaskRange) -> None:
        """These wait, and have not begun, or may begin again."""


def urgency(frame: SubmitTasks) -> int:
    """What waits longest for others comes first: the deepest tasks, then those of the highest priority."""
    return frame.depth * (2 * MAX_PRIORITY + 1) + frame.priority


class Submitter:
    """One client.

    Attributes:
        number: it begins the ids of its objects.
        worker: the worker whose tasks submit through it; 0: it is a client of its own.
        blocks: those of which a task has not ended, by the id of their first task.
        waiting: ranges that wait, by `urgency`; no entry is empty.
        waiting_tasks: their tasks.
        unanswered: tasks that have not ended.
        unanswered_bytes: of blocks of which a task has not ended.
        served_us: the work handed out for it, for turns among clients.
        objects: pieces of each object.
        acknowledged: nothing was submitted since it was last sent something.
        asks: it has asked how the session goes, as who only looks at it does.
        pressed: it does not read its results: no more of its tasks are handed out.
    """

    def __init__(self, number: int, outbox: Outbox, worker: int = 0) -> None:
        self.number = number
        self.worker = worker
        self.outbox = outbox
        self.blocks: dict[int, Block] = {}
        self.waiting: dict[int, deque[TaskRange]] = {}
        self.waiting_tasks = 0
        self.unanswered = 0
        self.unanswered_bytes = 0
        self.served_us = 0.0
        self.objects: dict[int, list[StoreObject]] = {}
        self.object_bytes = 0
        self.acknowledged = True
        self.pressed = False
        self.asks = False

    @property
    def only_looks(self) -> bool:
        """Whether it looks at the session without using it."""
        return self.asks and not self.objects

    def add(self, tasks: TaskRange, *, first: bool = False) -> None:
        """Let tasks wait: behind all others as urgent, or before them."""
        frame = tasks.block.frame
        queue = self.waiting.setdefault(urgency(frame), deque())
        if first or frame.depth:
            queue.appendleft(tasks)
        else:
            queue.append(tasks)
        self.waiting_tasks += tasks.end - tasks.start

    def name_of(self, function: int) -> str:
        """What people call a function of it."""
        pieces = self.objects.get(function)
        return pieces[0].name if pieces else ""

    def front(self) -> TaskRange:
        """The range whose turn it is; there is one."""
        return self.waiting[max(self.waiting)][0]

    def take(self, tasks: TaskRange, end: int) -> None:
        """Take the front range's tasks up to `end`."""
        self.waiting_tasks -= end - tasks.start
        tasks.start = end
        if tasks.start == tasks.end:
            key = urgency(tasks.block.frame)
            queue = self.waiting[key]
            queue.popleft()
            if not queue:
                del self.waiting[key]
