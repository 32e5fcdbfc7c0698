"""Tasks whose arguments are futures: submitted once all of these have results."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any

from hal.runtime.task_context import waiting

Submit = Callable[[tuple[Any, ...], dict[str, Any]], Future[Any]]


def futures_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Future[Any]]:
    """The arguments that are futures."""
    found = [value for value in args if isinstance(value, Future)]
    if kwargs:
        found += [value for value in kwargs.values() if isinstance(value, Future)]
    return found


class DependentFuture(Future[Any]):
    """The future of a task that waits for the results of others."""

    def __init__(
        self,
        needed: list[Future[Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        submit: Submit,
        release: Callable[[], None],
    ) -> None:
        """
        Args:
            needed: futures among the arguments.
            submit: called with the arguments once all are there.
            release: called once, after that, or when the task will never be submitted.
        """
        super().__init__()
        self._args, self._kwargs, self._submit, self._release = args, kwargs, submit, release
        self._left = len(needed)
        self._counting = threading.Lock()
        self._task: Future[Any] | None = None
        for future in needed:
            future.add_done_callback(self._note_done)

    def cancel(self) -> bool:
        """Cancel the task if no worker has it; returns whether it is cancelled."""
        if self._task is not None:
            self._task.cancel()
        elif super().cancel():
            self.set_running_or_notify_cancel()
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

    def _note_done(self, _future: Future[Any]) -> None:
        with self._counting:
            self._left -= 1
            if self._left:
                return
        try:
            if not self.cancelled():
                args = tuple(_result_of(value) for value in self._args)
                kwargs = {name: _result_of(value) for name, value in self._kwargs.items()}
                self._task = self._submit(args, kwargs)
        except BaseException as error:
            self._fail(error)
        finally:
            self._args, self._kwargs = (), {}
            self._release()
        if self._task is not None:
            self._task.add_done_callback(self._copy)

    def _copy(self, task: Future[Any]) -> None:
        if task.cancelled():
            if super().cancel():
                self.set_running_or_notify_cancel()
        elif (error := task.exception()) is not None:
            self._fail(error)
        else:
            with contextlib.suppress(InvalidStateError):
                self.set_result(task.result())

    def _fail(self, error: BaseException) -> None:
        with contextlib.suppress(InvalidStateError):
            self.set_exception(error)


def _result_of(value: Any) -> Any:
    return value.result() if isinstance(value, Future) else value
