"""What a process uses of its machine, under the names that every client library of Prometheus uses."""

from __future__ import annotations

import os
import resource
import time
from typing import Final

from hal.runtime.identity import start_ticks
from hal.runtime.metrics.declaration import Kind, Metric
from hal.runtime.metrics.registry import Registry

CPU: Final = Metric(
    name="process_cpu_seconds_total",
    kind=Kind.COUNTER,
    unit="seconds",
    text="CPU time of this process, in user and in system mode.",
)
MEMORY: Final = Metric(
    name="process_resident_memory_bytes", kind=Kind.GAUGE, unit="bytes", text="Memory of this process that is resident."
)
FILES: Final = Metric(name="process_open_fds", kind=Kind.GAUGE, text="Open file descriptors of this process.")
MAX_FILES: Final = Metric(name="process_max_fds", kind=Kind.GAUGE, text="File descriptors that it may open.")
STARTED: Final = Metric(
    name="process_start_time_seconds",
    kind=Kind.GAUGE,
    unit="seconds",
    text="When this process started, in seconds since 1970.",
)
PROCESS: Final = (CPU, MEMORY, FILES, MAX_FILES, STARTED)


def watch_process(registry: Registry) -> None:
    """Show this process in a registry that declares `PROCESS`."""
    cpu, memory, files = (registry.numbers(metric).of() for metric in (CPU, MEMORY, FILES))
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    registry.numbers(MAX_FILES).of().set(float(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    ticks = start_ticks(os.getpid())
    if ticks is not None:
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        registry.numbers(STARTED).of().set(round(time.time() - age_s, 2))

    def view() -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu.set(used.ru_utime + used.ru_stime)
        with open("/proc/self/statm", "rb") as file:
            memory.set(float(int(file.read(256).split()[1]) * page_bytes))
        files.set(float(len(os.listdir("/proc/self/fd"))))

    registry.before_scrape("process", view)
