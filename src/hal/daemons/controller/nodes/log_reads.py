"""Reads of outputs that are under way at one node; each is answered by one frame."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from hal.core.model import ConflictError, HALError, OverloadedError, TimedOutError, one_line
from hal.daemons.controller.nodes.budget import MAX_NOTE
from hal.wire.errors import MalformedFrameError
from hal.wire.frames.agent_keeper import LogChunk, OutputPart, OutputParts, ReadLog, ReadOutputs

LOG_TIMEOUT_MS: Final = 10_000
MAX_LOG_REQUESTS: Final = 1_000
"""Reads under way at one node."""


Asked = ReadLog | ReadOutputs
Answer = LogChunk | OutputParts


class _Pending(NamedTuple):
    asked: Asked
    answer: asyncio.Future[Any]

    def is_answered_by(self, answer: Answer) -> bool:
        asked = self.asked
        if isinstance(asked, ReadLog):
            same = isinstance(answer, LogChunk) and answer.step == asked.step and answer.stream is asked.stream
            return same and isinstance(answer, LogChunk) and len(answer.data) <= asked.limit
        few = isinstance(answer, OutputParts) and 1 <= len(answer.parts) <= len(asked.steps)
        return few and isinstance(answer, OutputParts) and all(len(one.data) <= asked.limit for one in answer.parts)


class LogReads:
    """See the module."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._under_way: dict[int, _Pending] = {}
        """By the number of the request."""

    async def read(self, asked: ReadLog, send: Callable[[ReadLog], object]) -> LogChunk:
        """Ask the node, and return its answer.

        Raises:
            TimedOutError: it did not answer.
            OverloadedError: too many reads are under way there.
            ConflictError: it cannot be read there.
            UnreachableError: the connection was lost.
        """
        chunk: LogChunk = await self._answer(asked, send, f"the output of {asked.step}")
        if chunk.error:
            raise not_readable(chunk.error)
        return chunk

    async def read_many(self, asked: ReadOutputs, send: Callable[[ReadOutputs], object]) -> Sequence[OutputPart]:
        """The same of several steps: of the first of them, at least of one; each may have an error.

        Raises:
            TimedOutError, OverloadedError, UnreachableError: as `read`.
        """
        found: OutputParts = await self._answer(asked, send, f"{len(asked.steps)} outputs")
        return found.parts

    async def _answer(self, asked: Any, send: Callable[[Any], object], what: str) -> Any:
        if len(self._under_way) >= MAX_LOG_REQUESTS:
            raise OverloadedError(f"{MAX_LOG_REQUESTS} outputs are being read on node '{self._node}'", hint="try again")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._under_way[asked.request] = _Pending(asked, answer)
        send(asked)
        try:
            async with asyncio.timeout(LOG_TIMEOUT_MS / 1000):
                return await answer
        except TimeoutError:
            raise TimedOutError(f"node '{self._node}' did not send {what} in time") from None
        finally:
            self._under_way.pop(asked.request, None)

    def answered(self, answer: Answer) -> None:
        """Hand over an answer; that to a request which nobody waits for says nothing.

        Raises:
            MalformedFrameError: it answers another question than was asked.
        """
        read = self._under_way.pop(answer.request, None)
        if read is None:
            return
        if not read.is_answered_by(answer):
            step = read.asked.step if isinstance(read.asked, ReadLog) else read.asked.steps[0]
            error = MalformedFrameError(f"it answered the read of an output of {step} with another")
            if not read.answer.done():
                read.answer.set_exception(error)
            raise error
        if not read.answer.done():
            read.answer.set_result(answer)

    def end(self, error: HALError) -> None:
        """Let all fail: nobody answers any more."""
        for read in self._under_way.values():
            if not read.answer.done():
                read.answer.set_exception(error)
        self._under_way.clear()


def not_readable(error: str) -> ConflictError:
    """The error for an output that cannot be read, as its node says."""
    return ConflictError(one_line(error, MAX_NOTE), hint="the step's own processes can replace its files")
