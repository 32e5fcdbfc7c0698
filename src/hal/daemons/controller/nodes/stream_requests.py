"""Streams to steps of one node that it is opening; each request is answered once. No byte of a stream comes here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from hal.core.model import HALError, OverloadedError, TimedOutError, error_from_code, one_line
from hal.daemons.controller.nodes.budget import MAX_NOTE
from hal.wire.frames.controller_agent import OpenStream, StreamOpened

OPEN_MS: Final = 10_000
MAX_OPENING: Final = 64
"""Streams that are being opened at one node."""
FAILURES: Final = frozenset({"conflict", "denied", "not-found", "overloaded", "too-many", "timed-out", "unreachable"})
"""Codes of errors that a node may give."""


class StreamRequests:
    """See the module."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._under_way: dict[int, asyncio.Future[StreamOpened]] = {}
        """By the number of the request."""

    async def open(self, asked: OpenStream, send: Callable[[OpenStream], object]) -> StreamOpened:
        """Ask the node, and return its answer.

        Raises:
            TimedOutError: it did not answer.
            OverloadedError: too many are being opened there.
            HALError: it cannot be opened there.
        """
        if len(self._under_way) >= MAX_OPENING:
            raise OverloadedError(f"{MAX_OPENING} streams are being opened on node '{self._node}'", hint="try again")
        answer: asyncio.Future[StreamOpened] = asyncio.get_running_loop().create_future()
        self._under_way[asked.request] = answer
        send(asked)
        try:
            async with asyncio.timeout(OPEN_MS / 1000):
                opened = await answer
        except TimeoutError:
            raise TimedOutError(f"node '{self._node}' did not open a stream to {asked.step} in time") from None
        finally:
            self._under_way.pop(asked.request, None)
        if opened.error:
            code = opened.code if opened.code in FAILURES else "conflict"
            raise error_from_code(code, one_line(opened.error, MAX_NOTE), f"`hal show {asked.step.job}` shows the job")
        return opened

    def answered(self, opened: StreamOpened) -> None:
        """Hand over an answer; that to a request which nobody waits for says nothing."""
        answer = self._under_way.pop(opened.request, None)
        if answer is not None and not answer.done():
            answer.set_result(opened)

    def end(self, error: HALError) -> None:
        """Let all fail: nobody answers any more."""
        for answer in self._under_way.values():
            if not answer.done():
                answer.set_exception(error)
        self._under_way.clear()
