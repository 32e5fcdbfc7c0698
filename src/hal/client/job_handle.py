"""What a job is to both clients: its id and what was last read of it; and where the two differ by nature."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from typing import Literal, overload

from hal.client.rest.views import JobInfo
from hal.core.model import TaskState


class JobHandle:
    """A job's id, and the job as it was when last read."""

    client: object

    def __init__(self, job_id: str, info: JobInfo | None) -> None:
        self.id = job_id
        self._info = info

    def __repr__(self) -> str:
        """With the state when last read; asks nobody."""
        state = "" if self._info is None else f", state={self._info.state.value!r}"
        return f"{type(self).__name__}({self.id!r}{state})"

    def __str__(self) -> str:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and other.id == self.id and other.client is self.client

    def __hash__(self) -> int:
        return hash((self.id, id(self.client)))

    def _seen(self, info: JobInfo) -> None:
        self._info = info


class SyncJobHandle(JobHandle, ABC):
    """Reads state and output at once; `state` asks again until the job has ended."""

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
        """That of its task (the largest over an array); None before its end."""
        return self.info.exit_code if self.state.ended else None

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
        """Read its output as text (what is not UTF-8 is replaced).

        Args:
            stream: 'stdout' or 'stderr'.
            task: which task of its array, from 0.
            rank: which of its nodes, from 0.
            attempt: which attempt, from 1; default the latest, and with `follow` every one from it on.
            follow: give pieces as they are written, until the task has ended.
        Raises:
            NotFoundError: no such task or attempt.
        """
        if follow:
            return _texts(self.log_bytes(stream, task=task, rank=rank, attempt=attempt, follow=True))
        return b"".join(self.log_bytes(stream, task=task, rank=rank, attempt=attempt)).decode(errors="replace")

    @abstractmethod
    def refresh(self) -> JobInfo:
        """Read it again."""

    @abstractmethod
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
        """Read its output as raw pieces."""


class AsyncJobHandle(JobHandle, ABC):
    """The same, with methods to await."""

    @property
    def info(self) -> JobInfo | None:
        """The job as it was when last read; None before that."""
        return self._info

    async def state(self) -> TaskState:
        """Its state now."""
        if self._info is not None and self._info.ended:
            return self._info.state
        return (await self.refresh()).state

    async def exit_code(self) -> int | None:
        """That of its task (the largest over an array); None before its end."""
        return self._info.exit_code if (await self.state()).ended and self._info is not None else None

    async def logs(self, stream: str = "stdout", *, task: int = 0, rank: int = 0, attempt: int | None = None) -> str:
        """Read its output as text; as `Job.logs` without `follow`, which is `follow()` here."""
        pieces = [piece async for piece in self.log_bytes(stream, task=task, rank=rank, attempt=attempt)]
        return b"".join(pieces).decode(errors="replace")

    @abstractmethod
    async def refresh(self) -> JobInfo:
        """Read it again."""

    @abstractmethod
    def log_bytes(
        self,
        stream: str = "stdout",
        *,
        task: int = 0,
        rank: int = 0,
        attempt: int | None = None,
        follow: bool = False,
        tail_bytes: int | None = None,
    ) -> AsyncIterator[bytes]:
        """Read its output as raw pieces."""


def _texts(pieces: Iterator[bytes]) -> Iterator[str]:
    """Text of byte pieces; a character cut between two pieces is kept whole."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for piece in pieces:
        if text := decoder.decode(piece):
            yield text
    if rest := decoder.decode(b"", final=True):
        yield rest
