"""Performs the steps of a flow (`hal.client.flows.steps`) over a transport.

Generated from async_player.py by tools/sync_client.py: edit that file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

from hal.client.flows.steps import Emit, Flow, Listen, Pause, Read, Steps, Work
from hal.core.model.errors import HALError

if TYPE_CHECKING:
    from hal.client.transport.stream import Stream
    from hal.client.transport.transport import Transport

T = TypeVar("T")


class Player:
    """Performs one flow."""

    def __init__(self, transport: Transport, *, pause: Callable[[float], object] = sleep) -> None:
        """pause: waits for so many seconds, or less where it is to end early."""
        self._transport = transport
        self._pause = pause
        self.stream: Stream | None = None
        """The one that is open."""

    def result(self, steps: Steps[T]) -> T:
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
                    answer = step.do()
                else:
                    answer = step.read(self._transport.send(step.request))
            except HALError as failed:
                error = failed

    def items(self, flow: Flow[T]) -> Iterator[T]:
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
                    answer = self._perform(step)
                except HALError as failed:
                    error = failed
        finally:
            flow.close()
            self._hang_up()

    def _perform(self, step: Any) -> Any:
        """Perform one step that emits nothing; returns its answer."""
        if isinstance(step, Listen):
            self._hang_up()
            self.stream = self._transport.stream(step.request)
            return self.stream.headers
        if isinstance(step, Read):
            piece = self.stream.read() if self.stream is not None else None
            if piece is None:
                self._hang_up()
            return piece
        if isinstance(step, Pause):
            self._hang_up()
            self._pause(step.seconds)
            return None
        if isinstance(step, Work):
            return step.do()
        return step.read(self._transport.send(step.request))

    def _hang_up(self) -> None:
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.close()
