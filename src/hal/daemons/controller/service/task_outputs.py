"""Outputs of many tasks of a job in one answer: read at their nodes, many in one frame, a window of tasks at a time.

Nothing is kept here. What one answer holds in memory is bounded by its window, and so many are made at a time; whoever
does not read an answer holds it up.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import Struct

from hal.core.model import HALError, StepId, TaskState
from hal.core.model.output_record import OutputRecord, record_line
from hal.daemons.controller.nodes.log_reads import not_readable
from hal.daemons.controller.service.jobs.refusals import no_job
from hal.daemons.controller.service.outputs import (
    CHUNK_BYTES,
    JobNames,
    LogRequest,
    Outputs,
    deleted_by_node,
    named_path,
    outputs_gone,
)
from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import Selection, finished, named_pieces
from hal.store import JobRow, Removal, Store, TaskRow
from hal.wire.bounds import MAX_READS
from hal.wire.frames.agent_keeper import OutputPart, Stream

PAGE: Final = 256
"""Tasks that are read from the store at once."""
WINDOW: Final = MAX_READS
"""Tasks whose outputs are read at the same time; one window is read while the one before is sent."""
FIRST_BYTES: Final = 16 << 10
"""Of each output what is read together with others, so that an answer holds 2 MiB at most; longer ones are continued
one by one."""
SENT_BYTES: Final = 64 << 10
"""What is sent at once, about."""
WINDOWS_AT_ONCE: Final = 8
"""Windows of all answers that are read at the same time; the others wait for their turn."""


class TasksRequest(Struct, frozen=True, kw_only=True):
    """Which outputs of which tasks."""

    job: int
    tasks: Selection = Selection()
    """By number or by index, and in which states."""
    after: int = -1
    """Only of tasks behind this one."""
    rank: int = 0
    stream: Stream = Stream.STDOUT
    offset: int = 0
    """Of each; negative: from its end."""
    limit: int = 1 << 53
    """Bytes of each."""


_Window = list[tuple[bytes, OutputRecord]]
"""Data and record of each of its tasks."""


class TaskOutputs:
    """See `read`."""

    def __init__(self, parts: Parts, outputs: Outputs) -> None:
        self._parts = parts
        self._outputs = outputs
        self._turns = asyncio.Semaphore(WINDOWS_AT_ONCE)

    async def read(self, wanted: TasksRequest) -> AsyncIterator[bytes]:
        """Records and data, by task, of the latest attempt of each; a task that cannot be read has a record that says
        why.

        Raises:
            NotFoundError: no such job or task, or its outputs were removed.
            SpecError: too many separate tasks are named.
        """
        row, removal = await self._parts.committer.read(
            lambda store: (store.job(wanted.job), store.removal(wanted.job))
        )
        if row is None:
            raise no_job(wanted.job)
        if row.removed and not (row.spec.stdout if wanted.stream is Stream.STDOUT else row.spec.error_path):
            raise outputs_gone(row, removal)
        pieces = await self._parts.committer.read(
            lambda _: finished(named_pieces(wanted.job, row.spec, wanted.tasks))[1]
        )
        return self._answer(wanted, row, removal, pieces)

    async def _answer(
        self, wanted: TasksRequest, row: JobRow, removal: Removal | None, pieces: Sequence[tuple[int, int]]
    ) -> AsyncIterator[bytes]:
        names = JobNames(row.spec, row.user, row.name)
        reading: deque[asyncio.Task[_Window]] = deque()
        try:
            async for window in self._windows(wanted, pieces):
                reading.append(asyncio.create_task(self._read_window(wanted, names, window, removal)))
                if len(reading) > 1:
                    async for piece in self._sent(wanted, await reading[0]):
                        yield piece
                    reading.popleft()
            if reading:
                async for piece in self._sent(wanted, await reading[0]):
                    yield piece
        finally:
            for task in reading:
                task.cancel()

    async def _sent(self, wanted: TasksRequest, window: _Window) -> AsyncIterator[bytes]:
        together = bytearray()
        for data, record in window:
            together += record_line(record) + data
            longer = record.offset + record.bytes < record.size and not record.error
            if longer or len(together) >= SENT_BYTES:
                yield bytes(together)
                together.clear()
            if longer:
                async for piece in self._rest(wanted, record):
                    yield piece
        yield bytes(together)

    async def _windows(
        self, wanted: TasksRequest, pieces: Sequence[tuple[int, int]]
    ) -> AsyncIterator[Sequence[TaskRow]]:
        """The tasks that are wanted, in ascending order."""
        states = wanted.tasks.states
        window: list[TaskRow] = []
        for first, end in pieces:
            at = max(first, wanted.after + 1)
            while at < end:
                page = partial(_page, job=wanted.job, states=states, first=at, limit=min(PAGE, end - at))
                within = [task for task in await self._parts.committer.read(page) if task.task < end]
                window += within
                while len(window) >= WINDOW:
                    yield window[:WINDOW]
                    window = window[WINDOW:]
                if len(within) < min(PAGE, end - at):
                    break
                at = within[-1].task + 1
        if window:
            yield window

    async def _read_window(
        self, wanted: TasksRequest, names: JobNames, window: Sequence[TaskRow], removal: Removal | None
    ) -> _Window:
        found: dict[int, tuple[bytes, OutputRecord]] = {}
        by_node: dict[str, list[TaskRow]] = defaultdict(list)
        unclear = []
        for task in window:
            if task.attempt >= 1 and not task.nodes:
                unclear.append(task)
                continue
            if not task.attempt or wanted.rank >= len(task.nodes):
                found[task.task] = (b"", OutputRecord(task=task.task))
                continue
            node = task.nodes[wanted.rank]
            step = StepId(wanted.job, task.task, task.attempt, wanted.rank)
            about = OutputRecord(task=task.task, attempt=task.attempt, node=node)
            if path := named_path(wanted.stream, names, step, node):
                found[task.task] = (b"", msgspec.structs.replace(about, path=path))
            elif removal is not None and (task.allocated_ms or 0) <= removal.at_ms:
                found[task.task] = (
                    b"",
                    msgspec.structs.replace(about, error="its output was deleted, as retention says"),
                )
            else:
                by_node[node].append(task)
        async with self._turns:
            for some in await asyncio.gather(*(self._read_part(wanted, part) for part in by_node.values())):
                found |= some
            for task in unclear:
                found[task.task] = await self._read_unclear(wanted, task)
        return [found[task.task] for task in window]

    async def _read_part(self, wanted: TasksRequest, tasks: Sequence[TaskRow]) -> dict[int, tuple[bytes, OutputRecord]]:
        """What one node has of these, at most `MAX_READS`."""
        found: dict[int, tuple[bytes, OutputRecord]] = {}
        node = tasks[0].nodes[wanted.rank]
        left = list(tasks)
        limit = min(wanted.limit, FIRST_BYTES)
        while left:
            steps = [StepId(wanted.job, task.task, task.attempt, wanted.rank) for task in left]
            try:
                parts = await self._parts.agents.read_outputs(node, steps, wanted.stream, wanted.offset, limit)
            except HALError as error:
                for task in left:
                    about = OutputRecord(task=task.task, attempt=task.attempt, node=node, error=error.message)
                    found[task.task] = (b"", about)
                return found
            for task, part in zip(left, parts, strict=False):
                found[task.task] = self._recorded(task, node, part)
            left = left[len(parts) :]
        return found

    def _recorded(self, task: TaskRow, node: str, part: OutputPart) -> tuple[bytes, OutputRecord]:
        error = not_readable(part.error).message if part.error else ""
        if not part.size and task.state.ended and (task.allocated_ms or 0) <= part.deleted_ms:
            step = StepId(task.job, task.task, task.attempt, 0)
            error = deleted_by_node(step, node, part.deleted_ms, part.deleted_by, self._parts.runtime.now_ms()).message
        about = OutputRecord(
            task=task.task,
            attempt=task.attempt,
            node=node,
            offset=part.offset,
            size=part.size,
            bytes=len(part.data),
            error=error,
        )
        return part.data, about

    async def _read_unclear(self, wanted: TasksRequest, task: TaskRow) -> tuple[bytes, OutputRecord]:
        """Of a task that waits again, or ended while it did: what its latest attempt wrote."""
        log = LogRequest(job=wanted.job, task=task.task, rank=wanted.rank, stream=wanted.stream)
        try:
            piece = await self._outputs.read(log, wanted.offset, min(wanted.limit, FIRST_BYTES))
        except HALError as error:
            return b"", OutputRecord(task=task.task, attempt=task.attempt, error=error.message)
        return piece.data, OutputRecord(
            task=task.task,
            attempt=piece.attempt or 0,
            node=piece.node,
            offset=piece.offset,
            size=piece.size,
            bytes=len(piece.data),
            path=piece.path,
        )

    async def _rest(self, wanted: TasksRequest, begun: OutputRecord) -> AsyncIterator[bytes]:
        """What there is behind the first piece, as far as it was there then and is wanted."""
        step = StepId(wanted.job, begun.task, begun.attempt, wanted.rank)
        at, end = begun.offset + begun.bytes, min(begun.size, begun.offset + wanted.limit)
        while at < end:
            try:
                limit = min(end - at, CHUNK_BYTES)
                chunk = await self._parts.agents.read_log(begun.node, step, wanted.stream, at, limit)
            except HALError as error:
                about = OutputRecord(task=begun.task, attempt=begun.attempt, node=begun.node, error=error.message)
                yield record_line(about)
                return
            if not chunk.data:
                return
            about = msgspec.structs.replace(begun, offset=chunk.offset, bytes=len(chunk.data), size=chunk.size)
            yield record_line(about) + chunk.data
            at = chunk.offset + len(chunk.data)


def _page(store: Store, job: int, states: tuple[TaskState, ...], first: int, limit: int) -> list[TaskRow]:
    """Tasks of the job from one on."""
    return store.tasks(job, states, after=first - 1 if first else None, limit=limit)
