"""What a broker counts, as series for the collector. Pure.

Labels have few values: no session, user, function or tag is one.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from hal.runtime.telemetry_sender import SeriesKey
from hal.wire.frames.sessions import LATENCY_STEPS, SessionNumbers, TaskStatus
from hal.wire.frames.telemetry import SeriesKind

UPTIME: Final = "hal_broker_uptime_seconds"
_GAUGE, _COUNTER = SeriesKind.GAUGE, SeriesKind.COUNTER


def values_of(numbers: SessionNumbers, queue: str) -> dict[SeriesKey, float]:
    """The values of one instant.

    Args:
        queue: in which the session's jobs are.
    """
    of_queue = (("queue", queue),)
    found = {
        SeriesKey(name, kind, of_queue): float(value)
        for name, kind, value in (
            (UPTIME, _GAUGE, numbers.uptime_ms / 1_000),
            ("hal_sessions_brokers", _GAUGE, 1),
            ("hal_sessions_clients", _GAUGE, numbers.clients),
            ("hal_sessions_slots", _GAUGE, numbers.slots),
            ("hal_sessions_slots_busy", _GAUGE, numbers.busy),
            ("hal_sessions_tasks_waiting", _GAUGE, numbers.waiting),
            ("hal_sessions_tasks_unanswered", _GAUGE, numbers.unanswered),
            ("hal_sessions_task_retries_total", _COUNTER, numbers.retried),
            ("hal_sessions_lost_workers_total", _COUNTER, numbers.lost_workers),
            ("hal_sessions_task_latency_seconds_sum", _COUNTER, numbers.latency_ms / 1_000),
            ("hal_sessions_task_latency_seconds_count", _COUNTER, sum(numbers.latencies)),
        )
    }
    for status, tasks in zip(TaskStatus, numbers.ended, strict=False):
        labels = (*of_queue, ("status", status.name.lower().replace("_", "-")))
        found[SeriesKey("hal_sessions_tasks_total", _COUNTER, labels)] = float(tasks)
    for step, tasks in enumerate(accumulate(numbers.latencies)):
        bound = f"{(1 << step) / 1_000:g}" if step < LATENCY_STEPS - 1 else "+Inf"
        labels = (*of_queue, ("le", bound))
        found[SeriesKey("hal_sessions_task_latency_seconds_bucket", _COUNTER, labels)] = float(tasks)
    return found
