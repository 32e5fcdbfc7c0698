"""What goes wrong with the tasks of a session, besides the tasks' own exceptions."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor
from typing import Final

from hal.core.model.errors import HALError
from hal.wire.frames.sessions import TaskStatus


class SessionLost(HALError, BrokenExecutor):
    """The connection to the session's broker is gone: what becomes of its tasks is unknown."""

    code = "session-lost"


class TaskLostError(HALError):
    """The worker of a task ended while it may have run, and the task may run only once."""

    code = "task-lost"


class TaskQuarantinedError(HALError):
    """Several workers ended while they ran the task; it is not run again."""

    code = "task-quarantined"


class TaskError(HALError):
    """A task's exception that cannot be shown otherwise; its cause has the traceback."""

    code = "task-failed"


class TaskTimeoutError(HALError, TimeoutError):
    """A task ran for longer than it may; it was ended."""

    code = "task-timed-out"


BY_STATUS: Final = {
    TaskStatus.LOST: TaskLostError,
    TaskStatus.QUARANTINED: TaskQuarantinedError,
    TaskStatus.TIMED_OUT: TaskTimeoutError,
}
