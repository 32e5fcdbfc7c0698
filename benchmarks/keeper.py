"""The keeper alone, the benchmark in its agent's place: how fast steps are spawned, captured, journalled and reported.

Real processes of /bin/true, a keeper with two helpers, frames as its agent sends them. Figures: steps a second in
bursts of 1,000 (median of RUNS), the time of a lone step from start frame to exit frame, what limits cost, and memory.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from hal.core.model import StepId
from hal.runtime import step_users
from hal.runtime.home import Home
from hal.wire.codec import FrameDecoder, encode
from hal.wire.frames.agent_keeper import (
    AGENT_KEEPER,
    AgentKeeperFrame,
    Exits,
    ExitsAck,
    Heartbeat,
    Start,
    StepStart,
    StepTemplate,
)
from hal.wire.frames.hello import Hello, Welcome
from hal.wire.roles import Role

BURST: Final = 1_000
RUNS: Final = 5
LONE: Final = 200
DEADLINE_S: Final = 60.0


class Driver:
    """Starts a keeper and speaks to it."""

    def __init__(self, home: Path) -> None:
        self.home = Home(home)
        self.home.create()
        argv = [sys.executable, "-m", "hal.daemons.agent.keeper", "--home", str(home), "--node", "n1", "--no-agent"]
        self.keeper = subprocess.Popen([*argv, "--cpu-milli", "2000", "--memory", str(1 << 30)], start_new_session=True)
        self.decoder = FrameDecoder(AGENT_KEEPER)
        self.frames: list[AgentKeeperFrame] = []
        path = str(self.home.keeper_socket("n1"))
        deadline = time.monotonic() + DEADLINE_S
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            try:
                self.socket.connect(path)
                break
            except OSError:
                self.socket.close()
                if time.monotonic() > deadline or self.keeper.poll() is not None:
                    raise
                time.sleep(0.01)
        self.socket.settimeout(DEADLINE_S)
        self.send(Hello(role=Role.AGENT, versions=(1, 1), name="n1"))
        self.next(Welcome)
        self.send(Heartbeat(stamp_boot_ms=0))
        self.stamp = self.next(Heartbeat).stamp_boot_ms
        self.job = 0

    def send(self, frame: AgentKeeperFrame) -> None:
        self.socket.sendall(encode(frame))

    def next(self, kind: type[Any]) -> Any:
        while True:
            while self.frames:
                frame = self.frames.pop(0)
                if isinstance(frame, kind):
                    return frame
            self.frames += self.decoder.feed(self.socket.recv(1 << 18))

    def run(self, count: int, template: StepTemplate) -> float:
        """Seconds from the start frame until all exits have come; they are acknowledged as they come."""
        self.job += 1
        steps = tuple(StepStart(StepId(self.job, n, 1, 0), 0, "token", ("n1",), n, count, 0) for n in range(count))
        begun = time.perf_counter()
        self.send(Start(epoch=1, stamp_boot_ms=self.stamp, templates=(template,), steps=steps))
        left = count
        while left:
            exits = self.next(Exits).exits
            left -= len(exits)
            assert all(one.code == 0 for one in exits), exits[0]
            self.send(ExitsAck(steps=tuple(one.step for one in exits)))
        return time.perf_counter() - begun

    def close(self) -> None:
        self.keeper.send_signal(signal.SIGTERM)
        self.keeper.wait(DEADLINE_S)
        self.home.drop_socket_dir()


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def say(name: str, value: float, unit: str, **more: Any) -> None:
    print(json.dumps({"bench": name, "value": round(value, 3), "unit": unit, **more}), flush=True)


def main() -> None:
    os.environ.setdefault(step_users.VARIABLE, "1")  # its frames name no user
    true = StepTemplate(command=("/bin/true",), env={"PATH": os.environ["PATH"]})
    limited = StepTemplate(command=("/bin/true",), cpu_milli=1000, memory_bytes=256 << 20)
    with tempfile.TemporaryDirectory(prefix="hal-bench-") as directory:
        driver = Driver(Path(directory) / "home")
        try:
            idle = rss_mib(driver.keeper.pid)
            driver.run(100, true)
            rates = [BURST / driver.run(BURST, true) for _ in range(RUNS)]
            say("keeper-burst-true", statistics.median(rates), "steps/s", target=1_500, runs=[round(r) for r in rates])
            lone = [1000 * driver.run(1, true) for _ in range(LONE)]
            say("keeper-lone-step-p50", statistics.median(lone), "ms", target=4, better="lower")
            say("keeper-lone-step-p99", sorted(lone)[LONE * 99 // 100], "ms", better="lower")
            rates = [BURST / driver.run(BURST, limited) for _ in range(RUNS)]
            say("keeper-burst-true-limited", statistics.median(rates), "steps/s", note="memory and cpu cgroup a step")
            say("keeper-rss-idle", idle, "MiB", target=30, better="lower")
            say("keeper-rss-after", rss_mib(driver.keeper.pid), "MiB", target=30, better="lower")
        finally:
            driver.close()


if __name__ == "__main__":
    main()
