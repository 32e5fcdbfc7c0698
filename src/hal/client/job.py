"""A submitted job, for synchronous code."""

from __future__ import annotations

import codecs
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from hal.client import calls
from hal.client.follow import LogFollower
from hal.client.outcome import error_of
from hal.client.steps import waited
from hal.client.views import JobInfo, LogPart, Outcome, TaskInfo, WhyInfo
from hal.core.model import TaskState

if TYPE_CHECKING:
    from hal.client.sync import Client


class Job:
    """One submitted job. What it was when last read is `info`; `state` asks again until the job has ended."""

    def __init__(self, client: Client, job_id: str, info: JobInfo | None = None) -> None:
        self.client = client
        self._info = info
        self.id = job_id

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def __str__(self) -> str:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id and other.client is self.client

    def __hash__(self) -> int:
        return hash((self.id, id(self.client)))

    @property
    def info(self) -> JobInfo:
        """The job as it was when last read."""
        return self._info or self.refresh()

    @property
    def state(self) -> TaskState:
        """Its state now."""
        if self._info is not None and self._info.ended:
            return self._info.state
        return self.refresh().state

    @property
    def exit_code(self) -> int | None:
        """Of its task (the largest over an array); None before its end."""
        return self.info.exit_code if self.state.ended else None

    def refresh(self) -> JobInfo:
        """Read it again.

        Raises:
            NotFoundError: there is no such job.
        """
        self._info = self.client.call(calls.job(self.id))
        return self._info

    def wait(self, timeout: float | None = None, *, check: bool = False) -> JobInfo:
        """Wait for its end.

        Args:
            timeout: seconds; None: no limit.
            check: raise when it did not succeed.
        Raises:
            TimedOutError: it has not ended by then; it goes on.
            JobFailedError: with `check`, it failed, was cancelled or ran into its limit.
        """
        return self.client.drive(waited(self.id, timeout, check=check, clock=time.monotonic, seen=self._seen))

    def _seen(self, info: JobInfo) -> None:
        self._info = info

    @overload
    def logs(
        self,
        stream: str = "stdout",
        *,
        task: int = 0,
        rank: int = 0,
        attempt: int | None = None,
        follow: Literal[False] = False,
    ) -> str: ...

    @overload
    def logs(
        self,
        stream: str = "stdout",
        *,
        task: int = 0,
        rank: int = 0,
        attempt: int | None = None,
        follow: Literal[True],
    ) -> Iterator[str]: ...

    def logs(
        self,
        stream: str = "stdout",
        *,
        task: int = 0,
        rank: int = 0,
        attempt: int | None = None,
        follow: bool = False,
    ) -> str | Iterator[str]:
        """What it wrote, as text (what is not UTF-8 is replaced).

        Args:
            stream: 'stdout' or 'stderr'.
            task: which task of its array, from 0.
            rank: which of its nodes, from 0.
            attempt: which try, from 1; default the latest, and with `follow` every one from it on.
            follow: give pieces as they are written, until the task has ended.
        Raises:
            NotFoundError: no such task or attempt.
        """
        if follow:
            return _texts(self.log_bytes(stream, task=task, rank=rank, attempt=attempt, follow=True))
        return b"".join(self.log_bytes(stream, task=task, rank=rank, attempt=attempt)).decode(errors="replace")

    def log_bytes(
        self,
        stream: str = "stdout",
        *,
        task: int = 0,
        rank: int = 0,
        attempt: int | None = None,
        follow: bool = False,
        tail_bytes: int | None = None,
    ) -> Iterator[bytes]:
        """As `logs`, as raw pieces; with `tail_bytes` only the last so many bytes (and what follows)."""
        follower = self.follower(stream, task=task, rank=rank, attempt=attempt)
        return follower.pieces(follow=follow, tail_bytes=tail_bytes)

    def follower(
        self, stream: str = "stdout", *, task: int = 0, rank: int = 0, attempt: int | None = None
    ) -> LogFollower:
        """Reads one of its outputs, and knows how much of it was not kept."""
        return LogFollower(self.client.connections, self.id, stream=stream, task=task, rank=rank, attempt=attempt)

    def log_part(self, stream: str = "stdout", *, task: int = 0, rank: int = 0, offset: int = 0) -> LogPart:
        """The output file of its latest attempt from `offset` on, and how long it is."""
        return self.client.call(calls.log(self.id, task=task, rank=rank, stream=stream, offset=offset))

    def why(self) -> WhyInfo:
        """Why it has not started, and what would help."""
        return self.client.call(calls.why(self.id))

    def tasks(self, state: str | Sequence[str] = "", *, limit: int | None = None) -> Iterator[TaskInfo]:
        """Its tasks by number, page by page as they are consumed."""
        states = state if isinstance(state, str) else ",".join(state)
        return self.client.paged(
            lambda size, cursor: calls.tasks(self.id, state=states, limit=size, cursor=cursor), limit
        )

    def task(self, number: int = 0) -> TaskInfo:
        """One task with all its attempts.

        Raises:
            NotFoundError: the job has no such task.
        """
        return self.client.call(calls.task(self.id, number))

    def cancel(self) -> None:
        """End it, whatever it does.

        Raises:
            ConflictError: it has ended already.
        """
        self._one(self.client.cancel(self.id))

    def hold(self) -> None:
        """Keep it from starting (tasks that run go on)."""
        self._one(self.client.hold(self.id))

    def release(self) -> None:
        """Let it start again."""
        self._one(self.client.release(self.id))

    def requeue(self) -> None:
        """Run it again, as a new attempt."""
        self._info = None
        self._one(self.client.requeue(self.id))

    def update(self, **fields: Any) -> JobInfo:
        """Change a job that has not ended: priority, walltime, name, queue, hold …

        Raises:
            SpecError: no such field, or not such a value.
            ConflictError: the job is past the point where this can be changed.
        """
        self._info = self.client.call(calls.update(self.id, fields))
        return self._info

    def _one(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if not outcome.ok:
                raise error_of(outcome)


def _texts(pieces: Iterator[bytes]) -> Iterator[str]:
    """Text of byte pieces; a character cut between two pieces is kept whole."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for piece in pieces:
        if text := decoder.decode(piece):
            yield text
    if rest := decoder.decode(b"", final=True):
        yield rest
