"""Performs the steps of a flow (`hal.client.flows.steps`) over a transport.

The sync twin is generated from this file.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from hal.client.flows.async_work import on_thread
from hal.client.flows.steps import Emit, Flow, Listen, Pause, Read, Steps, Work
from hal.core.model.errors import HALError

if TYPE_CHECKING:
    from hal.client.transport.async_stream import AsyncStream
    from hal.client.transport.async_transport import AsyncTransport

T = TypeVar("T")


class AsyncPlayer:
    """Performs one flow."""

    def __init__(self, transport: AsyncTransport, *, pause: Callable[[float], Awaitable[object]] = sleep) -> None:
        """pause: waits for so many seconds, or less where it is to end early."""
        self._transport = transport
        self._pause = pause
        self.stream: AsyncStream | None = None
        """The one that is open."""

    async def result(self, steps: Steps[T]) -> T:
        """Perform all steps; returns what the flow returns."""
        answer: Any = None
        error: HALError | None = None
        while True:
            try:
                step = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as finished:
                result: T = finished.value
                return result
            answer, error = None, None
            try:
                if isinstance(step, Work):
                    answer = await on_thread(step.do)
                else:
                    answer = step.read(await self._transport.send(step.request))
            except HALError as failed:
                error = failed

    async def items(self, flow: Flow[T]) -> AsyncIterator[T]:
        """Perform the steps as far as items are wanted; yields each item."""
        answer: Any = None
        error: HALError | None = None
        try:
            while True:
                try:
                    step = flow.send(answer) if error is None else flow.throw(error)
                except StopIteration:
                    return
                answer, error = None, None
                if isinstance(step, Emit):
                    yield step.item
                    continue
                try:
                    answer = await self._perform(step)
                except HALError as failed:
                    error = failed
        finally:
            flow.close()
            await self._hang_up()

    async def _perform(self, step: Any) -> Any:
        """Perform one step that emits nothing; returns its answer."""
        if isinstance(step, Listen):
            await self._hang_up()
            self.stream = await self._transport.stream(step.request)
            return self.stream.headers
        if isinstance(step, Read):
            piece = await self.stream.read() if self.stream is not None else None
            if piece is None:
                await self._hang_up()
            return piece
        if isinstance(step, Pause):
            await self._hang_up()
            await self._pause(step.seconds)
            return None
        if isinstance(step, Work):
            return await on_thread(step.do)
        return step.read(await self._transport.send(step.request))

    async def _hang_up(self) -> None:
        stream, self.stream = self.stream, None
        if stream is not None:
            await stream.aclose()
