"""A client of a broker: what it has submitted and what waits of it. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Final, Protocol

from hal.planes.sessions.blocks import Block, TaskRange
from hal.planes.sessions.pools import Pool
from hal.wire.frames.conversation import Frame
from hal.wire.frames.sessions import MAX_NEEDS, MAX_PRIORITY, DropObjects, StoreObject, SubmitTasks

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


def drop_frames(refs: Collection[int]) -> Iterator[DropObjects]:
    """The frames that say of so many objects that they are not used any more."""
    rest = iter(refs)
    while part := tuple(islice(rest, MAX_NEEDS)):
        yield DropObjects(refs=part)


class Queue:
    """What waits of one client for slots of one pool.

    Attributes:
        ranges: by `urgency`; no entry is empty.
        tasks: how many these are.
    """

    __slots__ = ("ranges", "tasks")

    def __init__(self) -> None:
        self.ranges: dict[int, OrderedDict[TaskRange, None]] = {}
        self.tasks = 0

    def add(self, tasks: TaskRange, *, first: bool) -> None:
        frame = tasks.block.frame
        key = urgency(frame)
        ranges = self.ranges.get(key)
        if ranges is None:
            ranges = self.ranges[key] = OrderedDict()
        ranges[tasks] = None
        if first or (frame.depth and not frame.key):  # tasks of a key run in the order in which they came
            ranges.move_to_end(tasks, last=False)
        if (home := tasks.block.home) is not None:
            home.waiting[tasks] = None
            if first:
                home.waiting.move_to_end(tasks, last=False)
        self.tasks += tasks.end - tasks.start

    def remove(self, tasks: TaskRange) -> None:
        """One of the ranges does not wait here any more."""
        key = urgency(tasks.block.frame)
        ranges = self.ranges[key]
        del ranges[tasks]
        if not ranges:
            del self.ranges[key]
        if (home := tasks.block.home) is not None:
            del home.waiting[tasks]
        self.tasks -= tasks.end - tasks.start

    def replace(self, key: int, ranges: Iterable[TaskRange]) -> None:
        """These remain of the ranges of an urgency."""
        self.ranges[key] = OrderedDict.fromkeys(ranges)
        if not self.ranges[key]:
            del self.ranges[key]


class Submitter:
    """One client.

    Attributes:
        number: it begins the ids of its objects.
        worker: the worker whose tasks submit through it; 0: it is a client of its own.
        blocks: those of which a task has not ended, by the id of their first task.
        queues: what waits for slots of each pool; no entry is empty.
        waiting_tasks: the tasks of all of them.
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
        self.queues: dict[Pool, Queue] = {}
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

    def add(self, tasks: TaskRange, pool: Pool, *, first: bool = False) -> None:
        """Let tasks wait for slots of a pool: behind all others as urgent, or before them."""
        queue = self.queues.get(pool)
        if queue is None:
            queue = self.queues[pool] = Queue()
        queue.add(tasks, first=first)
        self.waiting_tasks += tasks.end - tasks.start

    def name_of(self, function: int) -> str:
        """What people call a function of it."""
        pieces = self.objects.get(function)
        return pieces[0].name if pieces else ""

    def front(self, pool: Pool) -> TaskRange:
        """The range whose turn it is in a pool; there is one."""
        ranges = self.queues[pool].ranges
        return next(iter(ranges[max(ranges)]))

    def take(self, pool: Pool, tasks: TaskRange, end: int) -> None:
        """Take the tasks up to `end` of the range in front of a pool."""
        count = end - tasks.start
        self.waiting_tasks -= count
        queue = self.queues[pool]
        queue.tasks -= count
        tasks.start = end
        if tasks.start == tasks.end:
            self._remove(tasks, pool, queue)

    def remove(self, pool: Pool, tasks: TaskRange) -> None:
        """A range does not wait for slots of a pool any more."""
        self.waiting_tasks -= tasks.end - tasks.start
        self._remove(tasks, pool, self.queues[pool])

    def _remove(self, tasks: TaskRange, pool: Pool, queue: Queue) -> None:
        queue.remove(tasks)
        if not queue.ranges:
            del self.queues[pool]

    def forget_waiting(self) -> None:
        """It is gone: keys that others use, too, do not wait with its tasks."""
        for queue in self.queues.values():
            for ranges in queue.ranges.values():
                for tasks in ranges:
                    if (home := tasks.block.home) is not None:
                        del home.waiting[tasks]
        self.queues.clear()

    def waiting_for(self, pool: Pool) -> list[TaskRange]:
        """Everything that waits for a pool, in the order of its turns."""
        queue = self.queues.get(pool)
        if queue is None:
            return []
        return [tasks for key in sorted(queue.ranges, reverse=True) for tasks in queue.ranges[key]]
