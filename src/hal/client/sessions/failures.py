"""Tasks of a session that failed, as people see them."""

from __future__ import annotations

import time

from msgspec import Struct

from hal.client.sessions.questions import ask_failures
from hal.runtime.session_file import SessionFile
from hal.runtime.task_payloads import error_text
from hal.wire.frames.sessions import TaskFailure, TaskStatus


class FailedTask(Struct, frozen=True, kw_only=True):
    """A task that has no result, and was not cancelled."""

    function: str
    """With its module, unless that is the program itself."""
    tags: tuple[str, ...]
    status: str
    """`failed`: it raised; `quarantined`: workers ended while it ran; `lost`: one did, and it may run only once;
    `timed-out`."""
    error: str
    """In one line: what it raised, or how its last worker ended."""
    traceback: str
    """The worker's; '' where there is none."""
    attempts: int
    """How often it has begun, as far as that is known."""
    worker: str
    """That had it last."""
    slot: int
    """The task of the job of the slots, that this worker is."""
    at_ms: int
    """When it failed."""
    client: int
    """Number of the client that has submitted it."""
    task: int
    """Its number there."""


def failures_of(session: SessionFile, tag: str = "", function: str = "") -> list[FailedTask]:
    """The newest failures first, as many as the broker keeps.

    Args:
        tag, function: of these only; '': of all. A function is named with or without its module.
    Raises:
        UnreachableError: the broker does not answer.
    """
    now_ms = time.time_ns() // 1_000_000
    return [_failed(one, now_ms) for one in ask_failures(session, tag=tag, function=function).failures]


def _failed(one: TaskFailure, now_ms: int) -> FailedTask:
    if one.status is TaskStatus.FAILED:
        error, traceback = error_text(one.payload)
    else:
        error, _, traceback = one.payload.decode(errors="replace").partition("\n")
    return FailedTask(
        function=one.function,
        tags=one.tags,
        status=one.status.name.lower().replace("_", "-"),
        error=error,
        traceback=traceback,
        attempts=one.attempts,
        worker=one.worker,
        slot=one.slot,
        at_ms=now_ms - one.ago_ms,
        client=one.client,
        task=one.task,
    )
