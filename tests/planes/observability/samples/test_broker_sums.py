"""Sums over the brokers of sessions: counters only grow, gauges are those that are fresh."""

from __future__ import annotations

import numpy as np

from hal.planes.observability.samples.broker_sums import BrokerSums
from hal.planes.observability.samples.exposition import exposition
from hal.planes.observability.telemetry import ReceivedValues, Sender, SenderTable
from hal.planes.sessions.series import values_of
from hal.wire.frames.sessions import LATENCY_STEPS, SessionNumbers
from hal.wire.frames.telemetry import Series
from hal.wire.roles import Role


def numbers(done: int, slots: int = 2, uptime_ms: int = 1_000) -> SessionNumbers:
    """Of a broker that has answered so many tasks, each within 2 to 4 ms."""
    latencies = [0] * LATENCY_STEPS
    latencies[2] = done
    return SessionNumbers(
        uptime_ms=uptime_ms, clients=1, waiting=3, unanswered=4, done=done, busy=1, slots=slots,
        latencies=tuple(latencies), latency_ms=3 * done, ended=(done, 0, 0, 0, 0, 0), retried=0, lost_workers=0,
    )  # fmt: skip


def received(name: str, found: SessionNumbers, queue: str = "default") -> ReceivedValues:
    values = values_of(found, queue)
    table = SenderTable()
    table.define(0, [Series(key.name, key.kind, dict(key.labels)) for key in values])
    return ReceivedValues(
        Sender(Role.BROKER, name, "boot:1"),
        0,
        0,
        table,
        np.arange(len(values), dtype=np.uint32),
        np.array(list(values.values())),
    )


def value(sums: BrokerSums, now_ms: int, name: str, **labels: str) -> float:
    """Of the series with at least these labels."""
    return sum(
        one.value for one in sums.sums(now_ms) if one.name == name and labels.items() <= dict(one.labels).items()
    )


def test_brokers_add_up_by_queue() -> None:
    sums = BrokerSums(0)
    sums.take(received("1.0", numbers(10)), 5_000)
    sums.take(received("2.0", numbers(20, slots=3)), 5_000)
    sums.take(received("3.0", numbers(40), queue="gpu"), 5_000)
    assert value(sums, 5_000, "hal_sessions_tasks_total", queue="default", status="done") == 30
    assert value(sums, 5_000, "hal_sessions_tasks_total", status="done") == 70
    assert value(sums, 5_000, "hal_sessions_slots", queue="default") == 5
    assert value(sums, 5_000, "hal_sessions_brokers") == 3


def test_what_was_counted_stays_when_a_broker_is_gone() -> None:
    """The sum of a counter never falls; its slots are no more after a minute."""
    sums = BrokerSums(0)
    sums.take(received("1.0", numbers(10)), 5_000)
    sums.take(received("1.0", numbers(15)), 15_000)
    sums.take(received("2.0", numbers(1)), 70_000)
    assert value(sums, 80_000, "hal_sessions_tasks_total", status="done") == 16
    assert value(sums, 80_000, "hal_sessions_slots") == 2
    assert value(sums, 2_000_000, "hal_sessions_tasks_total", status="done") == 16


def test_of_a_broker_that_was_there_before_only_what_is_new_counts() -> None:
    """The collector was started again a second ago; the broker has run for a minute."""
    sums = BrokerSums(0)
    sums.take(received("1.0", numbers(1_000_000, uptime_ms=60_000)), 1_000)
    sums.take(received("1.0", numbers(1_000_007, uptime_ms=70_000)), 11_000)
    assert value(sums, 11_000, "hal_sessions_tasks_total", status="done") == 7


def test_a_count_that_began_again_is_added() -> None:
    sums = BrokerSums(0)
    sums.take(received("1.0", numbers(10)), 5_000)
    sums.take(received("1.0", numbers(3)), 15_000)
    assert value(sums, 15_000, "hal_sessions_tasks_total", status="done") == 13


def test_prometheus_sees_a_histogram() -> None:
    """Ten tasks of 2 to 4 ms: none within 2 ms, all within 4."""
    sums = BrokerSums(0)
    sums.take(received("1.0", numbers(10)), 5_000)
    text = exposition([], {}, 5_000, sums.sums(5_000))
    assert "# TYPE hal_sessions_task_latency_seconds histogram\n" in text
    assert text.count("# TYPE hal_sessions_task_latency_seconds") == 1
    assert 'hal_sessions_task_latency_seconds_bucket{le="0.002",queue="default"} 0\n' in text
    assert 'hal_sessions_task_latency_seconds_bucket{le="0.004",queue="default"} 10\n' in text
    assert 'hal_sessions_task_latency_seconds_bucket{le="+Inf",queue="default"} 10\n' in text
    assert 'hal_sessions_task_latency_seconds_sum{queue="default"} 0.03\n' in text
    assert "hal_broker_uptime_seconds" not in text
