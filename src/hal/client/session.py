"""`Session`: an executor (`concurrent.futures`) whose tasks run in the slots of a session, microseconds apart.

Imports no NumPy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hal.client.sessions.core import SessionCore
from hal.client.sessions.errors import (
    SessionLost,
    TaskError,
    TaskLostError,
    TaskQuarantinedError,
    TaskTimeoutError,
)
from hal.client.sessions.executor import Session
from hal.runtime.commands import CommandEnd
from hal.runtime.session_file import SessionFile, read_session_file
from hal.runtime.shared_values import SharedValue
from hal.runtime.task_context import depth_of_children, initializer_of_task, session_of_worker, state_of_key

__all__ = [
    "CommandEnd",
    "Session",
    "SessionLost",
    "SharedValue",
    "TaskError",
    "TaskLostError",
    "TaskQuarantinedError",
    "TaskTimeoutError",
    "current_session",
    "key_state",
    "open_session",
]


def open_session(
    session: SessionFile | str | Path,
    *,
    initializer: Callable[..., object] | None = None,
    initargs: tuple[Any, ...] = (),
    client: str = "",
) -> Session:
    """Connect to the broker of a session.

    Args:
        session: its file, or what is in it.
        initializer: called with `initargs` in each worker before the first task of this client there; if it raises,
            these tasks fail with InitializerError.
        client: in a durable session, a name of this program's own: a later process that gives the same one has the
            futures of its unfinished tasks in `recovered`.
    Raises:
        UnreachableError: no broker answers.
        NotFoundError, DeniedError, SpecError: of the file.
    """
    if not isinstance(session, SessionFile):
        session = read_session_file(Path(session))
    if session.shards:
        from hal.client.sessions.shards import open_shards  # most sessions have one broker

        return open_shards(session, initializer=initializer, arguments=initargs, client=client)
    return Session(SessionCore(session, initializer=initializer, arguments=initargs, client=client))


def current_session() -> Session:
    """The session of the task that calls this: a task may submit tasks.

    While a task waits for the result of one of these, or for the next result of a `map`, other tasks run in its slot.

    Raises:
        RuntimeError: no task calls.
    """
    found = session_of_worker()
    if found is None or not depth_of_children():
        raise RuntimeError("only a task of a session has a session of its own")
    begun = initializer_of_task()
    key = begun.key if begun is not None else ""
    with _opening:
        core = _opened.get(key)
        if core is None:
            core = _opened[key] = SessionCore(
                found[0],
                worker=found[1],
                initializer=begun.initializer if begun is not None else None,
                arguments=begun.arguments if begun is not None else (),
                initialized=key,
            )
        return Session(core)


def key_state() -> dict[Any, Any]:
    """What this worker keeps of the key of the task that calls this: a dictionary, which is empty at first.

    It is there for further tasks of the key as long as its worker is.

    Raises:
        RuntimeError: no task calls, or one without a key.
    """
    found = state_of_key()
    if found is None:
        raise RuntimeError("only a task with a key has a state: submit it with session.options(key=…)")
    return found


_opening = threading.Lock()
_opened: dict[str, SessionCore] = {}
"""Of this process, if it is a worker, once a task has asked for it: by the initialiser that its tasks have."""
