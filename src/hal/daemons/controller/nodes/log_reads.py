"""Reads of outputs that are under way at one node; each is answered by one chunk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from hal.core.model import ConflictError, HALError, OverloadedError, TimedOutError, one_line
from hal.daemons.controller.nodes.budget import MAX_NOTE
from hal.wire.errors import MalformedFrameError
from hal.wire.frames.agent_keeper import LogChunk, ReadLog

LOG_TIMEOUT_MS: Final = 10_000
MAX_LOG_REQUESTS: Final = 1_000
"""Reads under way at one node."""


class _LogRead(NamedTuple):
    asked: ReadLog
    answer: asyncio.Future[LogChunk]

    def is_answered_by(self, chunk: LogChunk) -> bool:
        same = chunk.step == self.asked.step and chunk.stream is self.asked.stream
        return same and len(chunk.data) <= self.asked.limit


class LogReads:
    """See the module."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._under_way: dict[int, _LogRead] = {}
        """By the number of the request."""

    async def read(self, asked: ReadLog, send: Callable[[ReadLog], object]) -> LogChunk:
        """Ask the node, and return its answer.

        Raises:
            TimedOutError: it did not answer.
            OverloadedError: too many reads are under way there.
            ConflictError: it cannot be read there.
            UnreachableError: the connection was lost.
        """
        if len(self._under_way) >= MAX_LOG_REQUESTS:
            raise OverloadedError(f"{MAX_LOG_REQUESTS} outputs are being read on node '{self._node}'", hint="try again")
        answer: asyncio.Future[LogChunk] = asyncio.get_running_loop().create_future()
        self._under_way[asked.request] = _LogRead(asked, answer)
        send(asked)
        try:
            async with asyncio.timeout(LOG_TIMEOUT_MS / 1000):
                chunk = await answer
        except TimeoutError:
            raise TimedOutError(f"node '{self._node}' did not send the output of {asked.step} in time") from None
        finally:
            self._under_way.pop(asked.request, None)
        if chunk.error:
            raise ConflictError(one_line(chunk.error, MAX_NOTE), hint="the step's own processes can replace its files")
        return chunk

    def answered(self, chunk: LogChunk) -> None:
        """Hand over an answer; that to a request which nobody waits for says nothing.

        Raises:
            MalformedFrameError: it answers another question than was asked.
        """
        read = self._under_way.pop(chunk.request, None)
        if read is None:
            return
        if not read.is_answered_by(chunk):
            error = MalformedFrameError(f"it answered the read of an output of {read.asked.step} with another")
            if not read.answer.done():
                read.answer.set_exception(error)
            raise error
        if not read.answer.done():
            read.answer.set_result(chunk)

    def end(self, error: HALError) -> None:
        """Let all fail: nobody answers any more."""
        for read in self._under_way.values():
            if not read.answer.done():
                read.answer.set_exception(error)
        self._under_way.clear()
