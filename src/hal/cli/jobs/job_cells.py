"""What tables show of a job: how long it ran, how far it is, why it waits or how it ended. Pure."""

from __future__ import annotations

from hal.cli.kit.formats import span
from hal.client.rest.views import JobInfo, TaskInfo
from hal.core.model import TaskState


def ran_ms(info: JobInfo | TaskInfo, now_ms: int) -> int | None:
    """How long it ran, or has run so far; None before its start."""
    if info.start_ms is None:
        return None
    return max(0, (info.end_ms if info.end_ms is not None else now_ms) - info.start_ms)


def done(info: JobInfo) -> str:
    """`7/10` tasks ended."""
    ended = sum(info.counts.get(state.value, 0) for state in TaskState if state.ended)
    return f"{ended}/{info.tasks}"


def remark(info: JobInfo, now_ms: int) -> str:
    """Why it waits, and how long already; or how it ended."""
    if info.state in (TaskState.PENDING, TaskState.HELD):
        waited = span(now_ms - info.submit_ms)
        return f"{waited} {info.reason}".rstrip()
    if info.state is TaskState.FAILED and info.exit_code:
        return info.reason or f"exit code {info.exit_code}"
    return info.reason
