"""What a broker measures of its session: how long tasks took to be answered, how many ended when and how, by function
and by tag, what each slot did, and which tasks failed. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from msgspec.structs import replace

from hal.planes.sessions.blocks import Block
from hal.planes.sessions.slots import Slot
from hal.wire.frames.sessions import (
    LATENCY_STEPS,
    MAX_FAILURES,
    MAX_GROUPS_TOLD,
    RATE_STEPS,
    GroupNumbers,
    SessionFailures,
    SlotNumbers,
    TaskFailure,
    TasksDone,
    TaskStatus,
)

LATE_RUN_MS: Final = 10_000
"""A slot that has reported nothing for so long while it has a task is called late."""
MAX_FAILURE_BYTES: Final = 2 << 20
"""Of their exceptions and tracebacks."""
REST: Final = "(others)"
"""The function, or the tag, of those that are too many to be counted by themselves."""


class Latencies:
    """How many tasks were answered within 1 ms, 2 ms, 4 ms and so on after their block arrived.

    Attributes:
        sum_ms: of all of them.
    """

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * LATENCY_STEPS
        self.sum_ms = 0

    def note(self, took_ms: int, tasks: int) -> None:
        """So many tasks were answered, that long after they came. O(1)."""
        self.counts[min(max(took_ms, 0).bit_length(), LATENCY_STEPS - 1)] += tasks
        self.sum_ms += max(took_ms, 0) * tasks


class Rates:
    """How many tasks slots have reported in each of the last steps of time."""

    __slots__ = ("_counts", "_step", "_step_ms")

    def __init__(self, step_ms: int) -> None:
        self._step_ms = step_ms
        self._step = 0
        self._counts = [0] * RATE_STEPS

    def note(self, now_ms: int, tasks: int) -> None:
        """So many were reported now. O(1) on average."""
        step = now_ms // self._step_ms
        if step != self._step:
            self._turn(step)
        self._counts[step % RATE_STEPS] += tasks

    def told(self, now_ms: int) -> tuple[int, ...]:
        """Of each step, the oldest first; the last one goes on."""
        self._turn(now_ms // self._step_ms)
        at = self._step % RATE_STEPS + 1
        return (*self._counts[at:], *self._counts[:at])

    def _turn(self, step: int) -> None:
        for passed in range(max(self._step + 1, step - RATE_STEPS + 1), step + 1):
            self._counts[passed % RATE_STEPS] = 0
        self._step = max(self._step, step)


class _Group:
    """Tasks of one function, or with one tag."""

    __slots__ = ("busy_us", "done", "failed", "retried")

    def __init__(self) -> None:
        self.done = self.failed = self.retried = self.busy_us = 0


class _Failure(NamedTuple):
    """A task that failed; what is told of it, and when it did."""

    told: TaskFailure
    at_ms: int


class Measures:
    """All of it.

    Attributes:
        ended: tasks by how they ended, in the order of `TaskStatus`.
        retried: how often a task failed that ran again.
        lost_workers: workers that were lost with tasks.
    """

    def __init__(self) -> None:
        self.latencies = Latencies()
        self.seconds, self.minutes = Rates(1_000), Rates(60_000)
        self.ended = [0] * len(TaskStatus)
        self.retried = 0
        self.lost_workers = 0
        self._functions: dict[str, _Group] = {}
        self._tags: dict[str, _Group] = {}
        self._failures: deque[_Failure] = deque()
        self._failure_bytes = 0

    def note_done(self, slot: Slot, block: Block, start: int, frame: TasksDone, now_ms: int) -> None:
        """A slot has reported tasks of a block, the first of which is `start`; before that counts their failures."""
        count = len(frame.statuses)
        self.latencies.note(now_ms - block.came_ms, count)
        self.seconds.note(now_ms, count)
        self.minutes.note(now_ms, count)
        done = frame.statuses.count(TaskStatus.DONE)
        failed = retried = 0
        if done < count:
            failed, retried = self._note_failures(slot, block, start, frame, now_ms)
        self.ended[TaskStatus.DONE] += done
        for group in self._groups_of(block):
            group.done += done
            group.failed += failed
            group.retried += retried
            group.busy_us += frame.took_us

    def _note_failures(self, slot: Slot, block: Block, start: int, frame: TasksDone, now_ms: int) -> tuple[int, int]:
        """Returns how many have failed for good, and how many run again."""
        failed = retried = at = 0
        for offset, size in enumerate(memoryview(frame.sizes).cast("I")):
            status = frame.statuses[offset]
            if status == TaskStatus.DONE:
                at += size
                continue
            index = start + offset
            if status == TaskStatus.FAILED and block.failures[index] + 1 < block.frame.attempts:
                retried += 1
            else:
                failed += 1
                self.ended[status] += 1
                self._keep(slot, block, index, TaskStatus(status), frame.payload[at : at + size], now_ms, begun=1)
            at += size
        self.retried += retried
        return failed, retried

    def note_lost(
        self, slot: Slot | None, block: Block, index: int, status: TaskStatus, reason: bytes, now_ms: int
    ) -> None:
        """A task ended with its worker, whose loss is counted already, or with an earlier broker.

        Args:
            slot: of the worker; None: it is not known.
        """
        self.ended[status] += 1
        for group in self._groups_of(block):
            group.failed += 1
        self._keep(slot, block, index, status, reason, now_ms)

    def note_cancelled(self, tasks: int) -> None:
        """So many tasks were cancelled."""
        self.ended[TaskStatus.CANCELLED] += tasks

    def failures(self, now_ms: int, tag: str = "", function: str = "") -> SessionFailures:
        """The newest failures, newest first.

        Args:
            tag, function: of these only; '': of all.
        """
        found = [
            replace(one.told, ago_ms=max(now_ms - one.at_ms, 0))
            for one in reversed(self._failures)
            if (not tag or tag in one.told.tags) and _is_called(one.told, function)
        ]
        failed = sum(self.ended) - self.ended[TaskStatus.DONE] - self.ended[TaskStatus.CANCELLED]
        return SessionFailures(failures=tuple(found), ever=failed)

    def functions(self) -> tuple[GroupNumbers, ...]:
        """Numbers by function."""
        return _told(self._functions)

    def tags(self) -> tuple[GroupNumbers, ...]:
        """Numbers by tag; a task with two tags counts in both."""
        return _told(self._tags)

    def _groups_of(self, block: Block) -> list[_Group]:
        found = [_group(self._functions, block.name)]
        for tag in block.frame.tags:
            found.append(_group(self._tags, tag))
        return found

    def _keep(
        self,
        slot: Slot | None,
        block: Block,
        index: int,
        status: TaskStatus,
        payload: bytes,
        now_ms: int,
        *,
        begun: int = 0,
    ) -> None:
        told = TaskFailure(
            task=block.frame.first + index,
            client=block.submitter,
            function=block.name,
            tags=block.frame.tags,
            status=status,
            attempts=int(block.failures[index]) + int(block.losses[index]) + begun,
            worker=slot.name if slot is not None else "",
            slot=slot.task if slot is not None else 0,
            ago_ms=0,
            payload=bytes(payload),
        )
        self._failures.append(_Failure(told, now_ms))
        self._failure_bytes += len(payload)
        while len(self._failures) > MAX_FAILURES or self._failure_bytes > MAX_FAILURE_BYTES:
            self._failure_bytes -= len(self._failures.popleft().told.payload)


def _is_called(failure: TaskFailure, function: str) -> bool:
    return not function or f".{failure.function}".endswith(f".{function}")


def _group(groups: dict[str, _Group], name: str) -> _Group:
    found = groups.get(name)
    if found is None:
        if len(groups) >= MAX_GROUPS_TOLD - 1:
            name = REST
        found = groups.setdefault(name, _Group())
    return found


def _told(groups: dict[str, _Group]) -> tuple[GroupNumbers, ...]:
    return tuple(
        GroupNumbers(name=name, done=one.done, failed=one.failed, retried=one.retried, busy_us=one.busy_us)
        for name, one in groups.items()
    )


def numbers_of(slot: Slot, now_ms: int) -> SlotNumbers:
    """What people ask about a slot."""
    held = slot.held_tasks
    running = next((run.block for run in slot.runs.values() if not run.waits), None)
    return SlotNumbers(
        name=slot.name,
        task=slot.task,
        held=held,
        done=slot.tasks_done,
        busy_us=slot.busy_us,
        since_ms=max(now_ms - slot.since_ms, 0),
        silent_ms=max(now_ms - slot.heard_ms, 0) if held else 0,
        running=running.name if running is not None else "",
        tags=running.frame.tags if running is not None else (),
        shape=slot.pool.shape,
    )
