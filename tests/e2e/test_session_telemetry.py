"""Brokers of sessions send what they count to the collector, which shows the sums."""

from __future__ import annotations

import http.client
import socket

import pytest

from tests.e2e.conftest import LiveHal, until

pytestmark = pytest.mark.slow


def metrics(live: LiveHal) -> str:
    """What Prometheus would read at the collector."""
    connection = http.client.HTTPConnection("hal", timeout=30)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(live.home.socket_dir() / "observability.sock"))
    connection.request("GET", "/v1/metrics")
    answer = connection.getresponse().read().decode()
    connection.close()
    return answer


def test_sums_of_sessions_outlive_them(own_hal: LiveHal) -> None:
    """A short session of 300 tasks, one of two brokers of 200: all are counted, though both are over."""
    own_hal.up("--restart", "--cpus", "2", "--with", "observability")
    until(lambda: (own_hal.home.socket_dir() / "observability-wire.sock").exists(), "the collector listens")
    with own_hal.client() as client:
        with client.session(slots=1, cpus=0.5, memory="64MiB") as session:
            assert sum(session.map(abs, range(300))) == 44_850
        with client.session(slots=2, cpus=0.5, memory="64MiB", shards=2) as session:
            assert sum(session.map(abs, range(200))) == 19_900
            until(lambda: 'hal_sessions_brokers{queue="default"} ' in metrics(own_hal), "brokers send while they run")
            assert "hal_sessions_slots" in metrics(own_hal)
    done = 'hal_sessions_tasks_total{queue="default",status="done"} 500\n'
    until(lambda: done in metrics(own_hal), "all tasks are counted")
    assert 'hal_sessions_task_latency_seconds_count{queue="default"} 500\n' in metrics(own_hal)
