"""What probing services costs their node: processor time of the agent, of the stream service and of the process of each
probe, for each kind of probe.

A real HAL with `--services` tasks, each probed once a second; a task is a small server that answers every probe. From
the processor time of a while the same while without services is subtracted. The servers' own time is not in it: what a
job's server needs for an answer is its own matter; nor is the command's of a probe that runs one (`true`).
Prints JSON lines: `python benchmarks/probes.py [--services 20] [--seconds 20]`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from _private_hal import cpu_s, pid_of, private_hal, say
from hal.client.sync_client import Client
from hal.runtime.home import Home

INTERVAL_S: Final = 1
SETTLE_S: Final = 3.0
DEADLINE_S: Final = 120.0
SERVER: Final = (
    "import os, socket\n"
    "served = socket.create_server(('127.0.0.1', int(os.environ['HAL_PORT_MAIN'])))\n"
    "while True:\n"
    "    sock, _ = served.accept()\n"
    "    if MODE == 'http' and sock.recv(4096): sock.sendall(b'HTTP/1.1 200 OK\\r\\n\\r\\n')\n"
    "    sock.close()\n"
)
KINDS: Final[dict[str, dict[str, Any]]] = {
    "tcp": {"tcp": True},
    "http": {"http": "/"},
    "command": {"command": ["true"]},
}


def streams_pid(home: Path, node: str) -> int | None:
    """The stream service of the node, if it runs: the first of the processes with its command, the others serve one
    stream each."""
    command = f"stream_service.py\0{Home(home).stream_socket(node)}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if command in (entry / "cmdline").read_bytes():
                    began = (entry / "stat").read_text().rsplit(")", 1)[1].split()[19]
                    found.append((int(began), int(entry.name)))
    return min(found, default=(0, None))[1]


def with_children_s(pid: int) -> float:
    """CPU time of a process and of its children that have ended, in seconds."""
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(word) for word in words[11:15]) / os.sysconf("SC_CLK_TCK")


def spent_s(home: Path) -> tuple[float, float]:
    """CPU time of the agent; of the stream service with its children."""
    (agent,) = (home / "run").glob("agent-*.pid")
    service = streams_pid(home, agent.stem.removeprefix("agent-"))
    return cpu_s(pid_of(home, agent.stem)), 0.0 if service is None else with_children_s(service)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    with private_hal("--cpus", str(given.services)) as home, Client() as client:
        idle = spent_s(home)
        time.sleep(given.seconds)
        idle_s = spent_s(home)[0] - idle[0]
        for kind, readiness in KINDS.items():
            job = client.submit(
                [sys.executable, "-S", "-c", f"MODE = {kind!r}\n{SERVER}"],
                array=given.services,
                service={"ports": ["main"], "readiness": {**readiness, "interval": f"{INTERVAL_S}s"}},
            )
            deadline = time.monotonic() + DEADLINE_S
            while job.refresh().ready != given.services:
                assert time.monotonic() < deadline, "they did not become ready"
                time.sleep(0.1)
            time.sleep(SETTLE_S)
            before, began = spent_s(home), time.perf_counter()
            time.sleep(given.seconds)
            after, seconds = spent_s(home), time.perf_counter() - began
            probes = given.services * seconds / INTERVAL_S
            agent_s = after[0] - before[0] - idle_s * seconds / given.seconds
            service_s = after[1] - before[1]
            say(f"probe-{kind}", (agent_s + service_s) * 1e3 / probes, "ms CPU",
                note=f"of its node for a probe; {given.services} services, each once in {INTERVAL_S} s",
                agent_ms=round(agent_s * 1e3 / probes, 2), service_ms=round(service_s * 1e3 / probes, 2),
                load=round(os.getloadavg()[0], 1))  # fmt: skip
            client.cancel(job.id)
            job.wait(DEADLINE_S)


if __name__ == "__main__":
    main()
