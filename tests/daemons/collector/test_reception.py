"""The collector's reception: it listens beside the controller, and what arrives reaches the parts."""

from __future__ import annotations

from pathlib import Path

from hal.daemons.collector.reception import WIRE_SOCKET, Reception
from hal.runtime.real_runtime import RealRuntime
from hal.runtime.telemetry_sender import TelemetrySender
from hal.wire.frames.telemetry import LogLine, Severity
from hal.wire.roles import Role
from tests.runtime.real_runtime import run_real


def test_what_a_process_of_this_host_sends_reaches_the_parts(tmp_path: Path) -> None:
    """Over a real socket; whoever fails to take it harms nobody else."""

    async def main(runtime: RealRuntime) -> None:
        reception = Reception(runtime)
        texts: list[str] = []
        reception.received("lines", lambda got: 1 / 0)
        reception.received("lines", lambda got: texts.extend(line.text for line in got.lines))
        listening = runtime.spawn_task(reception.run(), "reception")
        sender = TelemetrySender(runtime, Role.AGENT, "n1")
        sender.dial((f"unix:{runtime.paths.socket_dir() / WIRE_SOCKET}",))
        sending = runtime.spawn_task(sender.run(), "sender")
        sender.lines([LogLine(1, Severity.INFO, "agent", "hello")])
        await sender.flush(10_000)
        assert texts == ["hello"]
        assert sender.queued_bytes == 0
        health = reception.health()
        assert (health["lines_received"], health["lines_faulty"], health["connections"]) == (1, 1, 1)
        sending.cancel()
        listening.cancel()

    run_real(tmp_path, main)
