"""What code of a task finds of the worker that runs it: its session, how deep it is, and how it gives its slot back.

Outside of workers there is none of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hal.core.model.errors import HALError
from hal.runtime.session_file import SessionFile
from hal.runtime.surroundings import keep_surroundings

Waiting = Callable[[], AbstractContextManager[None]]


class _Thread(threading.local):
    """Of the thread that runs a task.

    Attributes:
        depth: how many tasks are above it, plus one; 0: it runs none.
        number: of its worker, in the session.
        waiting: gives the task's slot back while the thread waits.
        state: what its worker keeps of the key of the task; None: the task has none.
        initialized: who calls the task, if an initialiser was called before it.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.number = 0
        self.waiting: Waiting = nullcontext
        self.state: dict[Any, Any] | None = None
        self.initialized: InitializedFunction | None = None


class InitializerError(HALError, BrokenExecutor):
    """The initialiser of a session's client raised in this worker; its cause is what."""

    code = "initializer-failed"


class InitializedFunction:
    """A function before whose first call in a process an initialiser is called, once for each client."""

    def __init__(
        self, key: str, initializer: Callable[..., object], arguments: tuple[Any, ...], function: Callable[..., Any]
    ) -> None:
        self.key, self.initializer, self.arguments, self.function = key, initializer, arguments, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        failure = _initialized.get(self.key, self)
        if failure is self:
            failure = _initialize(self)
        if failure is not None:
            raise InitializerError(f"the initialiser failed: {failure}") from failure
        _thread.initialized = self
        try:
            return self.function(*args, **kwargs)
        finally:
            _thread.initialized = None


_thread = _Thread()
_session: SessionFile | None = None
_initialized: dict[str, Any] = {}
"""None, or what the initialiser raised."""
_initializing = threading.Lock()


def enter_worker(session: SessionFile, number: int, waiting: Waiting) -> None:
    """This thread runs tasks of a worker.

    Args:
        number: of it, in the session.
        waiting: gives a task's slot back while its thread waits.
    """
    global _session
    _session = session
    _thread.number, _thread.waiting = number, waiting


def session_of_worker() -> tuple[SessionFile, int] | None:
    """The session, and the number of this thread's worker in it; None outside of workers."""
    return None if _session is None else (_session, _thread.number)


def set_state(state: dict[Any, Any] | None) -> None:
    """This thread runs tasks of a key, of which its worker keeps this; None: of no key."""
    _thread.state = state


def state_of_key() -> dict[Any, Any] | None:
    """What this worker keeps of the key of the task that calls this; None: it has none."""
    return _thread.state


def initializer_of_task() -> InitializedFunction | None:
    """The initialiser of the client whose task calls this, which is that of the tasks that it submits, too."""
    return _thread.initialized


def set_depth(depth: int) -> None:
    """This thread runs tasks that are so deep."""
    _thread.depth = depth + 1


def depth_of_children() -> int:
    """How deep a task is that is submitted by this thread."""
    return _thread.depth


def waiting() -> AbstractContextManager[None]:
    """While this thread waits for a task; in a task, others run meanwhile."""
    return _thread.waiting() if _thread.depth else nullcontext()


def _initialize(function: InitializedFunction) -> Any:
    with _initializing:
        if function.key not in _initialized:
            try:
                function.initializer(*function.arguments)
            except BaseException as error:
                _initialized[function.key] = error
            else:
                _initialized[function.key] = None
                keep_surroundings()
        return _initialized[function.key]
