"""Outputs of steps, read at their nodes: one piece, or all of it as it is written.

Nothing is kept here: a piece is asked for with `ReadLog` and passed on. Following asks again after short pauses that
grow while nothing comes.
"""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from hal.core.model import JobSpec, NotFoundError, StepId, UnreachableError
from hal.core.model.errors import one_line
from hal.core.model.facts import MAX_AMOUNT
from hal.core.model.path_patterns import expand_path, values_of_job, values_of_step
from hal.core.model.policy_check import instant_text
from hal.daemons.controller.nodes.budget import MAX_NOTE
from hal.daemons.controller.service.jobs.refusals import no_job, no_task
from hal.daemons.controller.service.parts import Parts
from hal.store import AttemptRow, JobRow, Removal, Removed, Store
from hal.wire.frames.agent_keeper import LogChunk, Stream

CHUNK_BYTES = 256 << 10
MAX_PIECE_BYTES = 4 << 20
"""Longest piece that one request without `follow` gives."""
FIRST_PAUSE_MS = 20
LONGEST_PAUSE_MS = 500
PATIENCE_MS = 120_000
"""How long a follower waits for a node that is not heard."""


class LogRequest(Struct, frozen=True, kw_only=True):
    """Which output of which step."""

    job: int
    task: int = 0
    attempt: int | None = None
    """None: the latest."""
    rank: int = 0
    stream: Stream = Stream.STDOUT


class Piece(Struct, frozen=True, kw_only=True):
    """A part of an output."""

    data: bytes
    offset: int
    size: int
    """Bytes ever written so far."""
    ended: bool
    """Nothing will be added."""
    attempt: int | None = None
    node: str = ""
    path: str = ""
    """The file that the job has named for this output, on that node: HAL keeps none of it; '' if it has named none."""


class _Location(Struct, frozen=True):
    """Where the output is."""

    node: str
    step: StepId
    path: str = ""
    """As in `Piece`."""
    began_ms: int = MAX_AMOUNT
    """When the attempt was allocated, if it has ended."""


class Outputs:
    """Read and follow them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def read(self, wanted: LogRequest, offset: int, limit: int) -> Piece:
        """A part of an output; empty while its step has not started.

        Args:
            offset: from the start of everything ever written; negative counts from the end.
        Raises:
            NotFoundError: no such job, task, attempt or rank.
            UnreachableError: its node is not heard.
        """
        location = await self._find(wanted)
        if location is None:
            return Piece(data=b"", offset=0, size=0, ended=await self._is_over(wanted))
        parts: list[bytes] = []
        first: LogChunk | None = None
        at, left = offset, min(limit, MAX_PIECE_BYTES)
        while True:
            chunk = await self._read(location, wanted.stream, at, min(left, CHUNK_BYTES))
            first = first or chunk
            parts.append(chunk.data)
            at, left = chunk.offset + len(chunk.data), left - len(chunk.data)
            if not chunk.data or left <= 0 or at >= chunk.size:
                break
        return Piece(
            data=b"".join(parts),
            offset=first.offset,
            size=chunk.size,
            ended=chunk.ended,
            attempt=location.step.attempt,
            node=location.node,
            path=location.path,
        )

    async def follow(self, wanted: LogRequest, offset: int) -> AsyncIterator[bytes]:
        """Everything from `offset` on, as it is written, until the step has ended (or never starts).

        It ends early where the step's output was rotated away before it could be read: what follows is at another
        offset, which the reader learns by asking again.
        """
        location = None
        pause_ms = FIRST_PAUSE_MS
        while location is None:
            over = await self._is_over(wanted)
            location = await self._find(wanted)
            if location is None:
                if over:
                    return
                await self._parts.runtime.sleep(pause_ms)
                pause_ms = min(pause_ms * 2, LONGEST_PAUSE_MS)
        at, pause_ms, patience_ms = offset, FIRST_PAUSE_MS, PATIENCE_MS
        while True:
            try:
                chunk = await self._read(location, wanted.stream, at, CHUNK_BYTES)
            except UnreachableError:
                if patience_ms <= 0:
                    raise
                patience_ms -= LONGEST_PAUSE_MS
                await self._parts.runtime.sleep(LONGEST_PAUSE_MS)
                continue
            if chunk.offset > at >= 0:
                return
            at = chunk.offset + len(chunk.data)
            if chunk.data:
                pause_ms = FIRST_PAUSE_MS
                yield chunk.data
            elif chunk.ended:
                return
            else:
                await self._parts.runtime.sleep(pause_ms)
                pause_ms = min(pause_ms * 2, LONGEST_PAUSE_MS)

    async def _read(self, location: _Location, stream: Stream, offset: int, limit: int) -> LogChunk:
        chunk = await self._parts.agents.read_log(location.node, location.step, stream, offset, limit)
        if not chunk.size and location.began_ms <= chunk.deleted_ms:
            now_ms = self._parts.runtime.now_ms()
            raise deleted_by_node(location.step, location.node, chunk.deleted_ms, chunk.deleted_by, now_ms)
        return chunk

    async def _is_over(self, wanted: LogRequest) -> bool:
        """Whether the task will never start (again): its job has ended, or it has itself."""
        live = self._parts.plane.job(wanted.job)
        if live is None:
            return True
        state = live.task_state(wanted.task)
        return state is None or state.ended

    async def _find(self, wanted: LogRequest) -> _Location | None:
        """Where the output is; None while there is no attempt.

        Raises:
            NotFoundError: no such job, task, attempt or rank.
        """
        live = self._parts.plane.job(wanted.job)
        active = live.active.get(wanted.task) if live is not None else None
        if live is not None and active is not None and wanted.attempt in (None, active.attempt):
            job = JobNames(live.spec, live.user, live.name)
            return _location(wanted, job, active.attempt, active.nodes)
        found = await self._parts.committer.read(lambda store: _found(store, wanted))
        row, attempt, removed = found.job, found.attempt, found.removed
        if row is None:
            raise no_job(wanted.job)
        if not 0 <= wanted.task < row.tasks:
            raise no_task(row, wanted.task)
        location: _Location | None = None
        if attempt is not None:
            location = _location(wanted, JobNames(row.spec, row.user, row.name), attempt.attempt, attempt.nodes)
            if attempt.ended_ms is not None:
                location = replace(location, began_ms=attempt.allocated_ms)
        if location is not None and location.path:
            return location
        # The job may have run again since: attempts that began before have no output any more.
        before = removed is not None and attempt is not None and attempt.allocated_ms <= removed.at_ms
        if row.removed or before:
            raise outputs_gone(row, removed)
        if row.removed_tasks and not found.task:
            raise no_task(row, wanted.task)
        if found.dropped:
            raise NotFoundError(
                f"attempt {wanted.attempt} of task {row.id}.{wanted.task} is not kept any more, nor is its output",
                hint="attempts_per_task of [retention] in hal.toml says how many are: `hal config show`",
            )
        if location is None and wanted.attempt is not None:
            raise NotFoundError(f"task {row.id}.{wanted.task} has had no attempt {wanted.attempt}")
        return location


def deleted_by_node(step: StepId, node: str, at_ms: int, rule: str, now_ms: int) -> NotFoundError:
    """The error for an output that its node has deleted because of its own bounds. A node may say anything."""
    return NotFoundError(
        f"the output of {step} was deleted at {instant_text(min(at_ms, now_ms))}: node '{node}' keeps no more "
        f"({one_line(rule, MAX_NOTE)})",
        hint="[node] in that machine's hal.toml says how much a node keeps",
    )


def outputs_gone(row: JobRow, removed: Removal | None) -> NotFoundError:
    """Of what an older HAL has removed it is not known when."""
    what = f"the {'attempts and ' if row.removed >= Removed.ATTEMPTS_GOING else ''}outputs of job {row.id}"
    when = "" if removed is None else f" at {instant_text(removed.at_ms)}"
    rule = f" ({removed.rule})" if removed is not None and removed.rule else ""
    return NotFoundError(
        f"{what} were deleted{when}, as retention keeps no more{rule}",
        hint="[retention] in hal.toml says how much is kept: `hal config show`",
    )


class _Found(NamedTuple):
    """What the store says of the attempt that is meant."""

    job: JobRow | None
    attempt: AttemptRow | None
    dropped: bool
    """There was such an attempt, and there have been so many since that it is not kept."""
    removed: Removal | None
    task: bool = True
    """There is such a task."""


def _found(store: Store, wanted: LogRequest) -> _Found:
    """The attempt that is named, or the latest."""
    row, removed = store.job(wanted.job), store.removal(wanted.job)
    task = None if row is None else store.task(wanted.job, wanted.task)
    number = wanted.attempt if wanted.attempt is not None else (task.attempt if task is not None else 0)
    if task is None or number < 1:
        return _Found(row, None, False, removed, task is not None)
    # The first from this number on; one of a waiting task may not have begun.
    first = next(iter(store.attempts(wanted.job, task=wanted.task, after=(wanted.task, number - 1), limit=1)), None)
    if first is None or first.attempt == number:
        return _Found(row, first, False, removed)
    return _Found(row, None, True, removed)


class JobNames(NamedTuple):
    """What the paths of a job's outputs depend on."""

    spec: JobSpec
    user: str
    name: str


def _location(wanted: LogRequest, job: JobNames, attempt: int, nodes: tuple[str, ...]) -> _Location:
    if not 0 <= wanted.rank < len(nodes):
        raise NotFoundError(
            f"attempt {wanted.job}.{wanted.task}.{attempt} has no rank {wanted.rank}",
            hint=f"its ranks are 0 to {len(nodes) - 1}",
        )
    node = nodes[wanted.rank]
    step = StepId(wanted.job, wanted.task, attempt, wanted.rank)
    return _Location(node, step, named_path(wanted.stream, job, step, node))


def named_path(stream: Stream, job: JobNames, step: StepId, node: str) -> str:
    """The file of that output that the job has named, as the step's node resolves it; '' if it has named none."""
    spec = job.spec
    pattern = spec.stdout if stream is Stream.STDOUT else spec.error_path
    if not pattern:
        return ""
    index = spec.array.index(step.task) if spec.array is not None else step.task
    values = values_of_job(step.job, job.user, job.name or spec.title)
    path = expand_path(pattern, values | values_of_step(step.task, index, step.attempt, step.rank, node))
    return posixpath.join(spec.workdir, path)
