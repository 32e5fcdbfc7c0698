"""Tasks whose arguments are futures: submitted once all of these have results.

Such a task is one object until it is submitted, and the same future afterwards. Nothing recurses: graphs may be as deep
as they like, also when their first task fails.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from hal.client.sessions.answers import SessionFuture
from hal.runtime.shared_values import take_used

if TYPE_CHECKING:
    from hal.client.sessions.core import Options, SessionCore

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], "Options"]


def futures_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Future[Any]]:
    """The arguments that are futures."""
    found = [value for value in args if isinstance(value, Future)]
    if kwargs:
        found += [value for value in kwargs.values() if isinstance(value, Future)]
    return found


_counting: Final = threading.RLock()


class DependentFuture(SessionFuture):
    """The future of a task that waits for the results of others."""

    def __init__(self, core: SessionCore, needed: list[Future[Any]], call: Call) -> None:
        """
        Args:
            needed: futures among the arguments.
            call: function, arguments and options.
        Raises: as `SessionCore.submit`.
        """
        super().__init__(core, -1)
        core.reserve()
        self._call: Call | None = call
        """None: it was submitted, or has ended without that."""
        self._left = len(needed) + 1
        for future in needed:
            if isinstance(future, SessionFuture):
                future.add_dependent(self)
            else:
                future.add_done_callback(self.note_end)
        self.note_end()

    def note_end(self, _future: object = None) -> None:
        """One of the tasks that it waits for has ended."""
        with _counting:
            self._left -= 1
            if self._left:
                return
        self._core.ready.add(self)

    def cancel(self) -> bool:
        """Cancel the task if no worker has it; returns whether it is cancelled."""
        if self.done():
            return self.cancelled()
        if self._take_call() is None:
            return super().cancel()
        self.end_cancelled()
        self._core.release()
        return self.cancelled()

    def submit(self) -> None:
        """Submit the task: all that it waits for is there."""
        call = self._take_call()
        if call is None:
            return
        try:
            function, args, kwargs, options = call
            args = tuple([_result_of(value) for value in args])
            kwargs = {name: _result_of(value) for name, value in kwargs.items()}
            data = self._core.encode([args, kwargs] if kwargs else args)
            self._core.submit(function, data, take_used(), options, self)
        except BaseException as error:
            take_used()
            self.end(error=error)
        finally:
            self._core.release()

    def _take_call(self) -> Call | None:
        with _counting:
            call, self._call = self._call, None
        return call


class ReadyTasks:
    """Tasks whose arguments are there. They leave as the window has room, in the order in which they became ready."""

    def __init__(self, core: SessionCore) -> None:
        self._core = core
        self._tasks: deque[DependentFuture] = deque()
        self._submitting = threading.Lock()

    def add(self, task: DependentFuture) -> None:
        """Let a task be submitted: by this thread, or by the one that does so already."""
        self._tasks.append(task)
        if not self._core.receives_now:  # it submits all of them when it has read its frames
            self.submit()

    def submit(self) -> None:
        """Submit as many as there is room for."""
        tasks, core = self._tasks, self._core
        while tasks and core.has_room(1):
            if not self._submitting.acquire(blocking=False):
                return  # who holds it looks again
            try:
                while tasks and core.has_room(1):
                    tasks.popleft().submit()
            finally:
                self._submitting.release()
            core.flush_if_confirmed()


def _result_of(value: Any) -> Any:
    return value.result() if isinstance(value, Future) else value
