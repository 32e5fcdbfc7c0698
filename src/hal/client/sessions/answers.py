"""Results of tasks as they arrive: values, exceptions, futures that are set to them."""

from __future__ import annotations

import contextlib
import logging
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, PENDING
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol

from hal.client.sessions.errors import BY_STATUS, TaskError
from hal.runtime.exchange import MARK, AnyExchange
from hal.runtime.task_context import waiting
from hal.runtime.task_payloads import decode_error, decode_value
from hal.wire.frames.sessions import TaskResults, TaskStatus

if TYPE_CHECKING:
    from hal.client.sessions.core import SessionCore


_ENDED: Final = frozenset({CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED})
_MADE_LATER: Final = frozenset({"_condition", "_waiters", "_done_callbacks"})
_changing: Final = threading.RLock()
"""Held for an instant by who ends a future that nobody watches, or begins to watch one."""


class Dependent(Protocol):
    """A task that waits for others."""

    def note_end(self) -> None:
        """One of them has ended."""


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
        uses: blocks that call it and were not answered, and maps that do.
        kept: it is found again by the function.
    """

    __slots__ = ("kept", "needs", "ref", "uses")

    def __init__(self, ref: int, needs: frozenset[int]) -> None:
        self.ref = ref
        self.needs = needs
        self.uses = 0
        self.kept = True


class SessionFuture(Future[Any]):
    """The future of one task. `cancel` asks the broker: a task that a worker has is not cancelled.

    A million of them are unanswered at times, and few are waited for: what `Future` needs for that is made when it is
    asked for, so a future is a tenth of the size.
    """

    _state: str = PENDING
    _result: Any = None
    _exception: BaseException | None = None
    _watchable = False
    """It has a condition, waiters and callbacks."""
    _dependents: list[Dependent] | None = None
    """Tasks that wait for this one."""

    def __init__(self, core: SessionCore, task: int) -> None:
        self._core = core
        self.task = task
        """Its id."""

    def __getattr__(self, name: str) -> Any:
        if name not in _MADE_LATER:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        with _changing:
            if not self._watchable:
                self._waiters: list[Any] = []
                self._done_callbacks: list[Callable[[Future[Any]], object]] = []
                self._condition = threading.Condition()
                self._watchable = True
        return object.__getattribute__(self, name)

    def done(self) -> bool:
        """Whether it has ended, or was cancelled."""
        return self._state in _ENDED

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._state in (CANCELLED, CANCELLED_AND_NOTIFIED)

    def cancel(self) -> bool:
        """Cancel the task if no worker has it; returns whether it is cancelled."""
        if not self.done():
            self._core.cancel([(self.task, 1)], wait=True)
        return self.cancelled()

    def result(self, timeout: float | None = None) -> Any:
        """The result; in a task, others run in its slot meanwhile."""
        if self._state == FINISHED and self._exception is None:
            return self._result
        if self.done():
            return super().result(timeout)
        with waiting():
            return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As `result`: the exception, or None."""
        if self._state == FINISHED:
            return self._exception
        with waiting():
            return super().exception(timeout)

    def _invoke_callbacks(self) -> None:
        """Call what waits for the end, in the thread that receives results: one that exits does not end that."""
        for callback in self._done_callbacks:
            try:
                callback(self)
            except BaseException:
                logging.getLogger("concurrent.futures").exception("a callback of %r raised", self)

    def settle(self, status: int, data: memoryview) -> None:
        """Set what the broker has answered."""
        if status == TaskStatus.DONE:
            try:
                value = decode_value(data, self._core.exchange, last=True)
            except BaseException as error:  # of the task's own code, which may also exit
                self.end(error=error)
            else:
                self.end(value)
        elif status == TaskStatus.CANCELLED:
            self.end_cancelled()
        else:
            self.end(error=error_of(status, data))

    def end(self, value: Any = None, error: BaseException | None = None) -> None:
        """Set the result or the exception, unless it has ended; what waits for it is ready."""
        with _changing:
            watched = self._watchable
            if not watched and self._state == PENDING:
                self._result, self._exception = value, error
                self._state = FINISHED
        if watched:
            with contextlib.suppress(InvalidStateError):
                if error is None:
                    self.set_result(value)
                else:
                    self.set_exception(error)
        self._release_dependents()

    def end_cancelled(self) -> None:
        """It was cancelled, unless it has ended."""
        if self._state == PENDING and super().cancel():
            self.set_running_or_notify_cancel()
        self._release_dependents()

    def add_dependent(self, dependent: Dependent) -> None:
        """Tell this task's end to a task that waits for it; at once if it has ended."""
        with _changing:
            if self._state not in _ENDED:
                if self._dependents is None:
                    self._dependents = []
                self._dependents.append(dependent)
                return
        dependent.note_end()

    def _release_dependents(self) -> None:
        with _changing:
            found = self._dependents
            if found is None:
                return
            self._dependents = None
        for dependent in found:
            dependent.note_end()


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
            future.end(error=error)


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
            future.end(error=error)


def values_of(frame: TaskResults, exchange: AnyExchange | None) -> Iterator[Any]:
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


def remove_results(frame: TaskResults, exchange: AnyExchange | None) -> None:
    """Nobody takes these results: remove those that are files."""
    payload = frame.payload
    if exchange is None or MARK not in payload:
        return
    for begin, end in _bounds(frame):
        if begin < end and payload[begin] == MARK:
            with contextlib.suppress(OSError):
                exchange.remove(payload[begin:end])


def error_of(status: int, data: memoryview) -> BaseException:
    """The exception of a task that has no result."""
    if status == TaskStatus.FAILED:
        return decode_error(data, TaskError)
    if status == TaskStatus.CANCELLED:
        return CancelledError()
    return BY_STATUS.get(TaskStatus(status), TaskError)(bytes(data).decode(errors="replace"))


def _bounds(frame: TaskResults) -> Iterator[tuple[int, int]]:
    return pairwise(accumulate(memoryview(frame.sizes).cast("I"), initial=0))
