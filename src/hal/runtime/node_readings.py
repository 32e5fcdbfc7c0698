"""What this machine uses at an instant, as series for the collector: from /proc, and of HAL_HOME's file system.

Blocking, some hundred microseconds in all. What cannot be read is left out; devices are bounded in number. Sources:
the kernel's Documentation/filesystems/proc.rst, admin-guide/iostats.rst, accounting/psi.rst.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hal.runtime.telemetry_sender import SeriesKey
from hal.wire.frames.telemetry import SeriesKind

MAX_DEVICES: Final = 32
"""Disks, and network interfaces, of which series are sent."""
READ_BYTES: Final = 256 << 10
SECTOR_BYTES: Final = 512
"""Of /proc/diskstats, whatever the disk's own are."""
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
MODES: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""The order of the kernel's columns."""
WINDOWS: Final = ("1m", "5m", "15m")
PRESSURES: Final = ("cpu", "memory", "io")
NO_DISKS: Final = ("loop", "ram", "zram", "dm-", "md", "sr", "fd")
"""Beginnings of names of what is no disk, or counts what another device counts, too."""
NO_INTERFACES: Final = ("lo", "veth", "docker", "br-", "virbr", "ifb", "cali", "tunl", "dummy")

GAUGE, COUNTER = SeriesKind.GAUGE, SeriesKind.COUNTER
Values = dict[SeriesKey, float]


class NodeReader:
    """Reads one machine."""

    def __init__(self, home: Path, root: Path = Path("/")) -> None:
        """
        Args:
            home: its file system is measured.
            root: the directory that contains /proc and /sys; tests pass recorded ones.
        """
        self._home, self._root = home, root

    def read(self) -> Values:
        """Return the values of all series of the node but those of GPUs."""
        found: Values = {}
        for part in (self._cpu, self._load, self._memory, self._pressure, self._disks, self._network, self._space):
            try:
                found.update(part())
            except (OSError, ValueError, IndexError):  # this kernel says it otherwise, or not at all
                continue
        return found

    def _cpu(self) -> Iterator[tuple[SeriesKey, float]]:
        count = 0
        for line in self._lines("proc/stat"):
            name, *columns = line.split()
            if name == "cpu":
                for mode, ticks in zip(MODES, columns, strict=False):
                    yield (
                        SeriesKey("hal_node_cpu_seconds_total", COUNTER, (("mode", mode),)),
                        int(ticks) / TICKS_PER_S,
                    )
            elif name.startswith("cpu"):
                count += 1
            else:
                break
        yield SeriesKey("hal_node_cpus", GAUGE), count

    def _load(self) -> Iterator[tuple[SeriesKey, float]]:
        words = self._text("proc/loadavg").split()
        for window, load in zip(WINDOWS, words, strict=False):
            yield SeriesKey("hal_node_load", GAUGE, (("window", window),)), float(load)

    def _memory(self) -> Iterator[tuple[SeriesKey, float]]:
        fields: dict[str, int] = {}
        for line in self._lines("proc/meminfo"):
            name, _, value = line.partition(":")
            fields[name] = int(value.split()[0]) << 10
        yield SeriesKey("hal_node_memory_total_bytes", GAUGE), fields.get("MemTotal", 0)
        if "MemAvailable" in fields:
            yield SeriesKey("hal_node_memory_available_bytes", GAUGE), fields["MemAvailable"]
            yield SeriesKey("hal_node_memory_used_bytes", GAUGE), fields.get("MemTotal", 0) - fields["MemAvailable"]
        yield SeriesKey("hal_node_swap_total_bytes", GAUGE), fields.get("SwapTotal", 0)
        yield SeriesKey("hal_node_swap_used_bytes", GAUGE), fields.get("SwapTotal", 0) - fields.get("SwapFree", 0)

    def _pressure(self) -> Iterator[tuple[SeriesKey, float]]:
        for resource in PRESSURES:
            try:
                lines = self._lines(f"proc/pressure/{resource}")
            except OSError:
                continue
            for line in lines:
                kind, *words = line.split()
                total = next((word[6:] for word in words if word.startswith("total=")), "")
                if total:
                    labels = (("resource", resource), ("stalled", kind))
                    yield SeriesKey("hal_node_pressure_seconds_total", COUNTER, labels), int(total) / 1e6

    def _disks(self) -> Iterator[tuple[SeriesKey, float]]:
        count = 0
        for line in self._lines("proc/diskstats"):
            words = line.split()
            name = words[2]
            if name.startswith(NO_DISKS) or not self._is_whole_disk(name) or not any(map(int, words[3:14])):
                continue
            count += 1
            if count > MAX_DEVICES:
                return
            device = (("device", name),)
            yield SeriesKey("hal_node_disk_read_bytes_total", COUNTER, device), int(words[5]) * SECTOR_BYTES
            yield SeriesKey("hal_node_disk_written_bytes_total", COUNTER, device), int(words[9]) * SECTOR_BYTES
            yield SeriesKey("hal_node_disk_busy_seconds_total", COUNTER, device), int(words[12]) / 1000

    def _is_whole_disk(self, name: str) -> bool:
        """Partitions have no directory of their own there."""
        return (self._root / "sys/block" / name.replace("/", "!")).exists()

    def _network(self) -> Iterator[tuple[SeriesKey, float]]:
        count = 0
        for line in self._lines("proc/net/dev"):
            name, colon, numbers = line.partition(":")
            name = name.strip()
            if not colon or name.startswith(NO_INTERFACES):
                continue
            words = numbers.split()
            if not any(map(int, words)):
                continue
            count += 1
            if count > MAX_DEVICES:
                return
            device = (("device", name),)
            yield SeriesKey("hal_node_network_received_bytes_total", COUNTER, device), int(words[0])
            yield SeriesKey("hal_node_network_sent_bytes_total", COUNTER, device), int(words[8])
            errors = sum(int(words[at]) for at in (2, 3, 10, 11))
            yield SeriesKey("hal_node_network_errors_total", COUNTER, device), errors

    def _space(self) -> Iterator[tuple[SeriesKey, float]]:
        found = os.statvfs(self._home)
        yield SeriesKey("hal_node_home_size_bytes", GAUGE), found.f_blocks * found.f_frsize
        yield SeriesKey("hal_node_home_free_bytes", GAUGE), found.f_bavail * found.f_frsize

    def _text(self, path: str) -> str:
        with (self._root / path).open("rb") as file:
            return file.read(READ_BYTES).decode(errors="replace")

    def _lines(self, path: str) -> list[str]:
        return self._text(path).splitlines()
