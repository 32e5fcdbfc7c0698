"""What observing costs those who only run work: short tasks with and without it, in blocks that take turns.

Each figure is the median, over pairs of neighbouring blocks, of the one's cost divided by the other's; in every second
pair the order is turned round. So what else the machine does meets both alike, and a trend cancels. Beside the wall
time of a block there is the CPU time of HAL's own processes for a task, which other work on the machine hardly touches;
the collector's own is not in it, and is shown apart.

- telemetry: a collector runs, samples come each second (ten times as often as by default), ends are followed;
- killed, stopped, flooded: as it says, of the collector, against none at all;
- metrics: a controller that counts, against one that does not (`_unmetered_controller.py`); both run all the time.

    python benchmarks/observability_quiet.py [telemetry|killed|stopped|flooded|metrics …] [--pairs 12] [--tasks 2000]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import hal
from _private_hal import pid_of, private_hal, say
from controller import running
from hal.client.rest import plane_calls
from hal.daemons.collector.reception import PLANE, WIRE_SOCKET
from hal.runtime.home import Home
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log
from hal.runtime.real_runtime import RealRuntime
from hal.runtime.telemetry_sender import TelemetrySender
from hal.wire.frames.telemetry import LogLine, Severity
from hal.wire.roles import Role

MOST: Final = 1.03
"""The bar: three per cent."""
CONFIG: Final = '[node.telemetry]\nevery = "1s"\n'
READY_S: Final = 60.0
STATES: Final = ("telemetry", "killed", "stopped", "flooded")
OF_HAL: Final = ("hal.daemons.", "keeper/helper.py", "keeper/recorder.py")
"""In the command line of a process of HAL."""
COLLECTOR: Final = "hal.daemons.collector"


def exact_cpu_s(pid: int) -> float:
    """CPU time of all threads of a process: to the nanosecond, where `cpu_s` has ticks of 10 ms."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


class Block(NamedTuple):
    """What a block of tasks took, for each task."""

    wall_us: float
    cpu_us: float


def own_cpu_s(home: Path) -> float:
    """CPU time of HAL's processes of that home, without the collector."""
    total = 0.0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError):
            words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ")
            mine = str(home) in words or f"HAL_HOME={home}".encode() in (entry / "environ").read_bytes().split(b"\0")
            if mine and COLLECTOR not in words and any(one in words for one in OF_HAL):
                total += exact_cpu_s(int(entry.name))
    return total


def block(client: hal.Client, tasks: int, used_s: Callable[[], float]) -> Block:
    """Run an array of short tasks."""
    before, begin = used_s(), time.perf_counter()
    client.submit(["/bin/true"], array=tasks).wait()
    wall_s = time.perf_counter() - begin
    return Block(wall_s / tasks * 1e6, (used_s() - before) / tasks * 1e6)


def report(name: str, pairs: list[tuple[Block, Block]], **more: object) -> None:
    """The medians of the ratios, with and without."""
    for field in Block._fields:
        ratios = sorted(getattr(on, field) / getattr(off, field) for on, off in pairs)
        quarter = len(ratios) // 4
        say(
            f"quiet-{name}-{field.removesuffix('_us')}", statistics.median(ratios), "ratio", MOST, higher=False,
            pairs=len(pairs), quartiles=[round(ratios[quarter], 3), round(ratios[-1 - quarter], 3)],
            without_us=round(statistics.median(getattr(off, field) for _, off in pairs), 1),
            load=round(os.getloadavg()[0], 1), **more,
        )  # fmt: skip


def in_turns(count: int, on: Callable[[], Block], off: Callable[[], Block]) -> Iterator[tuple[Block, Block]]:
    """So many pairs of blocks: on, off, off, on, on, …"""
    for number in range(count):
        if number % 2:
            without = off()
            yield on(), without
        else:
            with_it = on()
            yield with_it, off()


# ── a collector ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Collector:
    """The collector of a home, as a state asks for it."""

    def __init__(self, home: Path, client: hal.Client, state: str) -> None:
        self._home, self._client, self._state = home, client, state
        self._process: subprocess.Popen[bytes] | None = None
        self._flood: multiprocessing.Process | None = None
        self.cpu_s = 0.0
        """That collectors have used during blocks."""

    def begin(self) -> None:
        """Bring it into the state."""
        self._process = subprocess.Popen([sys.executable, "-m", COLLECTOR], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + READY_S
        while not any(plane.name == PLANE for plane in self._client.planes()):
            assert time.monotonic() < deadline, "the collector is not announced"
            time.sleep(0.1)
        time.sleep(2.0)  # its agent connects, and sends
        if self._state == "killed":
            self._process.kill()  # it is announced for another minute: agents go on dialling
        elif self._state == "stopped":
            self._process.send_signal(signal.SIGSTOP)
        elif self._state == "flooded":
            self._flood = multiprocessing.Process(target=flood, args=(self._home,), daemon=True)
            self._flood.start()

    def end(self) -> None:
        """As if there had never been one."""
        if self._flood is not None:
            self._flood.kill()
            self._flood.join()
            self._flood = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        with contextlib.suppress(hal.HALError):
            self._client.call(plane_calls.withdraw(PLANE))
        time.sleep(1.0)  # agents hear of it

    def used_s(self) -> float:
        """CPU time of the one that runs."""
        with contextlib.suppress(OSError):
            return exact_cpu_s(self._process.pid) if self._process is not None else 0.0
        return 0.0


def flood(home: Path) -> None:
    """Send log lines as fast as the collector lets one. It stands for an agent elsewhere, so it leaves what is measured
    the cores."""
    os.nice(19)

    async def main() -> None:
        runtime = RealRuntime("flood", Home(home), open_log(LogFile(home / "flood.log"), "flood"), seed=1)
        sender = TelemetrySender(runtime, Role.BROKER, "flood")
        sender.dial((f"unix:{Home(home).socket_dir() / WIRE_SOCKET}",))
        sending = asyncio.ensure_future(sender.run())
        lines = [LogLine(1, Severity.INFO, "broker", "x" * 200) for _ in range(1_000)]
        while not sending.done():
            sender.lines(lines)
            await asyncio.sleep(0.05)

    asyncio.run(main())


def with_collector(state: str, pairs: int, tasks: int) -> None:
    """Blocks beside a collector in that state, against blocks without one."""
    with private_hal("--cpus", "2", config=CONFIG) as home, hal.connect(home=home) as client:
        block(client, tasks, lambda: 0.0)
        collector = Collector(home, client, state)

        def on() -> Block:
            collector.begin()
            before = collector.used_s()
            found = block(client, tasks, lambda: own_cpu_s(home))
            collector.cpu_s += max(collector.used_s() - before, 0.0)
            collector.end()
            return found

        found = list(in_turns(pairs, on, lambda: block(client, tasks, lambda: own_cpu_s(home))))
    report(state, found, collector_us=round(collector.cpu_s / pairs / tasks * 1e6, 1))


def with_metrics(pairs: int, tasks: int) -> None:
    """Blocks of a controller that counts, against one that does not; the CPU time is the controllers'."""
    counting = ["-m", "hal.daemons.controller"]
    other = [str(Path(__file__).with_name("_unmetered_controller.py"))]
    with running(2, counting) as client, running(2, other) as plain:
        pids = [pid_of(one.address.home.root, "controller") for one in (client, plain) if one.address.home]
        for one in (client, plain):
            block(one, tasks, lambda: 0.0)
        found = in_turns(
            pairs,
            lambda: block(client, tasks, lambda: exact_cpu_s(pids[0])),
            lambda: block(plain, tasks, lambda: exact_cpu_s(pids[1])),
        )
        report("metrics", list(found))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=[*STATES, "metrics"], help="which, of those above")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--tasks", type=int, default=2_000, help="of a block")
    given = parser.parse_args()
    for what in given.what:
        if what == "metrics":
            with_metrics(given.pairs, given.tasks)
        else:
            with_collector(what, given.pairs, given.tasks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
