"""What tables show of a job: how long it ran, how far it is. Pure."""

from __future__ import annotations

from hal.client.rest.views import JobInfo, TaskInfo
from hal.core.model import TaskState


def ran_ms(info: JobInfo | TaskInfo, now_ms: int) -> int | None:
    """How long it ran, or has run so far; None before its start."""
    if info.start_ms is None:
        return None
    return max(0, (info.end_ms if info.end_ms is not None else now_ms) - info.start_ms)


def done(info: JobInfo) -> str:
    """`7/10` tasks ended; those that were removed count nowhere."""
    ended = sum(info.counts.get(state.value, 0) for state in TaskState if state.ended)
    return f"{ended}/{info.tasks - info.tasks_removed}"
