"""Results of tasks as they arrive: values, exceptions, futures that are set to them."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Protocol

from hal.client.sessions.errors import BY_STATUS, TaskError
from hal.runtime.exchange import MARK, Exchange
from hal.runtime.task_context import waiting
from hal.runtime.task_payloads import decode_error, decode_value
from hal.wire.frames.sessions import TaskResults, TaskStatus

if TYPE_CHECKING:
    from hal.client.sessions.core import SessionCore


class Block(Protocol):
    """Tasks that were submitted in one frame."""

    left: int
    """Tasks of it that were not answered."""
    size: int
    """Its bytes."""
    stored: Stored
    files: list[bytes]
    """Arguments of it that are files."""

    def receive(self, frame: TaskResults) -> None:
        """Some of them were answered."""

    def lose(self, error: BaseException) -> None:
        """The others never will be."""


class Stored:
    """A function that the broker has.

    Attributes:
        ref: its id.
        needs: shared values that it uses.
        uses: blocks that call it and were not answered.
    """

    __slots__ = ("needs", "ref", "uses")

    def __init__(self, ref: int, needs: frozenset[int]) -> None:
        self.ref = ref
        self.needs = needs
        self.uses = 0


class SessionFuture(Future[Any]):
    """The future of one task. `cancel` asks the broker: a task that a worker has is not cancelled."""

    def __init__(self, core: SessionCore, task: int) -> None:
        super().__init__()
        self._core = core
        self.task = task
        """Its id."""

    def cancel(self) -> bool:
        """Cancel the task if no worker has it; returns whether it is cancelled."""
        if not self.done():
            self._core.cancel([(self.task, 1)], wait=True)
        return self.cancelled()

    def result(self, timeout: float | None = None) -> Any:
        """The result; in a task, others run in its slot meanwhile."""
        if self.done():
            return super().result(timeout)
        with waiting():
            return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As `result`: the exception, or None."""
        if self.done():
            return super().exception(timeout)
        with waiting():
            return super().exception(timeout)

    def settle(self, status: int, data: memoryview) -> None:
        """Set the result."""
        with contextlib.suppress(InvalidStateError):
            if status == TaskStatus.DONE:
                try:
                    value = decode_value(data, self._core.exchange, last=True)
                except Exception as error:
                    self.set_exception(error)
                else:
                    self.set_result(value)
            elif status == TaskStatus.CANCELLED:
                super().cancel()
                self.set_running_or_notify_cancel()
            else:
                self.set_exception(error_of(status, data))


class FutureBlock:
    """Tasks with a future each."""

    __slots__ = ("files", "futures", "left", "size", "stored")

    def __init__(self, futures: list[SessionFuture], size: int, stored: Stored, files: list[bytes]) -> None:
        self.files = files
        self.futures = futures
        self.left = len(futures)
        self.size = size
        self.stored = stored

    def receive(self, frame: TaskResults) -> None:
        view = memoryview(frame.payload)
        futures = self.futures
        for index, (begin, end) in enumerate(_bounds(frame), frame.index):
            futures[index].settle(frame.statuses[index - frame.index], view[begin:end])

    def lose(self, error: BaseException) -> None:
        for future in self.futures:
            if not future.done():
                with contextlib.suppress(InvalidStateError):
                    future.set_exception(error)


class RecoveredBlock:
    """Tasks that an earlier process of this client has submitted, by their index in their block."""

    __slots__ = ("files", "futures", "left", "size", "stored")

    def __init__(self, futures: dict[int, SessionFuture]) -> None:
        self.futures = futures
        self.left = len(futures)
        self.size = 0
        self.stored = Stored(0, frozenset())
        self.files: list[bytes] = []

    def receive(self, frame: TaskResults) -> None:
        view = memoryview(frame.payload)
        for index, (begin, end) in enumerate(_bounds(frame), frame.index):
            self.futures[index].settle(frame.statuses[index - frame.index], view[begin:end])

    def lose(self, error: BaseException) -> None:
        for future in self.futures.values():
            if not future.done():
                with contextlib.suppress(InvalidStateError):
                    future.set_exception(error)


def values_of(frame: TaskResults, exchange: Exchange | None) -> Iterator[Any]:
    """Yield the results, in order.

    Raises: the exception of the first task that failed, where it is its turn.
    """
    payload = frame.payload
    view = memoryview(payload)
    loads, plain = pickle.loads, frame.statuses.count(0) == len(frame.statuses)
    for position, (begin, end) in enumerate(_bounds(frame)):
        if plain or frame.statuses[position] == TaskStatus.DONE:
            if payload[begin] > MARK:
                yield loads(view[begin:end])
            else:
                yield decode_value(view[begin:end], exchange, last=True)
        else:
            raise error_of(frame.statuses[position], view[begin:end])


def error_of(status: int, data: memoryview) -> BaseException:
    """The exception of a task that has no result."""
    if status == TaskStatus.FAILED:
        return decode_error(data, TaskError)
    if status == TaskStatus.CANCELLED:
        return CancelledError()
    return BY_STATUS.get(TaskStatus(status), TaskError)(bytes(data).decode(errors="replace"))


def _bounds(frame: TaskResults) -> Iterator[tuple[int, int]]:
    return pairwise(accumulate(memoryview(frame.sizes).cast("I"), initial=0))
