"""A broker without processes: clients that remember what they were answered, workers that do as they are told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from hal.planes.sessions.blocks import TaskRange
from hal.planes.sessions.broker import Broker
from hal.planes.sessions.pools import Home
from hal.planes.sessions.slots import Slot
from hal.planes.sessions.submitters import Submitter
from hal.wire.frames.conversation import Frame
from hal.wire.frames.sessions import (
    RecallTasks,
    RunTasks,
    StoreObject,
    SubmitTasks,
    TaskResults,
    TasksDone,
    TasksReturned,
    TaskStatus,
)


def sizes(*lengths: int) -> bytes:
    return b"".join(length.to_bytes(4, "little") for length in lengths)


class Outbox:
    """Keeps the frames."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def send_nowait(self, frame: Frame) -> None:
        self.frames.append(frame)


class Client:
    """Submits tasks whose argument is their id, and keeps their answers."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.outbox = Outbox()
        self.submitter: Submitter = broker.add_submitter(self.outbox)
        self.function = (self.submitter.number << 32) + 1
        broker.store_object(self.submitter, StoreObject(ref=self.function, data=b"f"))
        self.submitted = 0

    def submit(
        self,
        count: int,
        now_ms: int = 0,
        *,
        priority: int = 0,
        attempts: int = 1,
        once: bool = False,
        depth: int = 0,
        shape: str = "",
        key: str = "",
    ) -> int:
        first = self.submitted
        parts = [str(first + index).encode() for index in range(count)]
        self.submitted += count
        frame = SubmitTasks(
            first=first,
            function=self.function,
            sizes=sizes(*map(len, parts)),
            payload=b"".join(parts),
            priority=priority,
            attempts=attempts,
            once=once,
            depth=depth,
            shape=shape,
            key=key,
        )
        self.broker.submit(self.submitter, frame, now_ms)
        return first

    def answers(self) -> dict[int, tuple[int, bytes]]:
        """Status and payload by task; a task that was answered twice fails here."""
        found: dict[int, tuple[int, bytes]] = {}
        for frame in self.outbox.frames:
            if isinstance(frame, TaskResults):
                at = 0
                for offset, size in enumerate(memoryview(frame.sizes).cast("I")):
                    task = frame.block + frame.index + offset
                    assert task not in found, f"task {task} was answered twice"
                    found[task] = frame.statuses[offset], bytes(frame.payload[at : at + size])
                    at += size
                assert at == len(frame.payload)
        return found


class Worker:
    """Has what it was sent, in order."""

    def __init__(self, broker: Broker, name: str = "w", now_ms: int = 0, *, shape: str = "", worker: int = 0) -> None:
        self.broker = broker
        self.outbox = Outbox()
        self.slot: Slot = broker.add_slot(name, self.outbox, now_ms, shape=shape, worker=worker)
        self.read = 0
        self.runs: dict[int, tuple[int, list[bytes]]] = {}
        """Of each run how many were reported, and the arguments."""
        self.recalled = False
        broker.dispatch(now_ms)

    def receive(self) -> None:
        for frame in self.outbox.frames[self.read :]:
            if isinstance(frame, RunTasks):
                at, arguments = 0, []
                for size in memoryview(frame.sizes).cast("I"):
                    arguments.append(bytes(frame.payload[at : at + size]))
                    at += size
                self.runs[frame.run] = (0, arguments)
            elif isinstance(frame, RecallTasks):
                self.recalled = True
        self.read = len(self.outbox.frames)

    @property
    def arguments(self) -> list[bytes]:
        """Of all it has not reported."""
        self.receive()
        return [argument for done, arguments in self.runs.values() for argument in arguments[done:]]

    def finish(
        self, count: int = 1, now_ms: int = 0, *, took_us: int = 10, status: TaskStatus = TaskStatus.DONE
    ) -> list[bytes]:
        """Report the next tasks, with their arguments as results; returns these."""
        self.receive()
        reported: list[bytes] = []
        while count and self.runs:
            run, (done, arguments) = next(iter(self.runs.items()))
            part = arguments[done : done + count]
            if done + len(part) == len(arguments):
                del self.runs[run]
            else:
                self.runs[run] = (done + len(part), arguments)
            count -= len(part)
            reported += part
            self.broker.finish(
                self.slot,
                TasksDone(
                    run=run,
                    index=done,
                    statuses=bytes([status]) * len(part),
                    sizes=sizes(*map(len, part)),
                    payload=b"".join(part),
                    took_us=took_us * len(part),
                ),
                now_ms,
            )
            self.receive()
        return reported

    def give_back(self, now_ms: int = 0, *, begun: int = 1) -> None:
        """Answer a recall: all but the first tasks, which have begun."""
        self.receive()
        self.recalled = False
        for run, (done, arguments) in list(self.runs.items()):
            keep = min(done + begun, len(arguments))
            begun -= keep - done
            if keep < len(arguments):
                self.broker.return_tasks(self.slot, TasksReturned(run=run, index=keep), now_ms)
                if keep == done:
                    del self.runs[run]
                else:
                    self.runs[run] = (done, arguments[:keep])
        self.broker.return_tasks(self.slot, TasksReturned(run=0, index=0), now_ms)

    def die(self, now_ms: int = 0) -> None:
        self.broker.remove_slot(self.slot, now_ms)
        self.runs.clear()


def check_loads(broker: Broker) -> None:
    """What pools know of their slots is so."""
    for pool in broker._pools.values():
        slots = [slot for slot in broker.slots.values() if slot.pool is pool]
        assert set(pool.idle) == {slot for slot in slots if slot.idle}
        assert set(pool.laden) == {slot for slot in slots if slot.held_tasks > 1}
        assert set(pool.hungry) <= set(slots)


def check_keys(broker: Broker) -> None:
    """What is known of the keys of slots is so."""
    homes = list(broker._homes._homes.values())
    for slot in broker.slots.values():
        own = {home for home in homes if home.slot is slot}
        assert slot.keys == len(own)
        assert set(broker._homes._of_slot.get(slot, ())) == own
        assert set(broker._homes._not_begun.get(slot, ())) == {home for home in own if not home.begun}
    waiting: dict[Home, list[TaskRange]] = {}
    for submitter in broker.submitters.values():
        for pool, queue in submitter.queues.items():
            assert queue.tasks == sum(tasks.end - tasks.start for part in queue.ranges.values() for tasks in part)
            for tasks in [tasks for part in queue.ranges.values() for tasks in part]:
                if (home := tasks.block.home) is not None:
                    assert pool is (home.slot.own if home.slot is not None else broker._homeless[home.pool])
                    waiting.setdefault(home, []).append(tasks)
    for home in homes:
        assert set(home.waiting) == set(waiting.get(home, ()))
    assert set(broker._homes._not_begun) <= set(broker.slots.values())
    assert set(broker._homes._of_slot) <= set(broker.slots.values())


def lines_in(work: Callable[[], object]) -> int:
    """How many lines of Python it runs: what it costs, on any machine."""
    lines = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines
