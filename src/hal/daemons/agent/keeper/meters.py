"""What all processes of a step have used together, as the kernel counts it in the step's cgroup.

Version 2 counts CPU time (`cpu.stat`), the peak of memory (`memory.peak`) and I/O (`io.stat`); version 1 CPU time where
cpu and cpuacct are one hierarchy, and the peak of memory. A slot is used by one step after another and its counters go
on, so each reading is the base of the next. What is not counted here is reported as the kernel counts it of the first
process and those it waited for (wait4). Source: the kernel's Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from hal.wire.bounds import MAX_COUNT
from hal.wire.frames.agent_keeper import Counted, Usage

READ_BYTES: Final = 1 << 12
"""Of a file of counters; a node with more devices than fit has part of its I/O counted."""
FILES: Final = {
    "cpu": ("cpu.stat", "cpuacct.usage_user", "cpuacct.usage_sys"),
    "memory": ("memory.peak", "memory.max_usage_in_bytes"),
    "io": ("io.stat",),
}
"""By controller: the counters of both versions."""
# As plain numbers: operations on flags take longer than reading the counters.
_CPU, _MEMORY, _IO = int(Counted.CPU), int(Counted.MEMORY), int(Counted.IO)
FIELDS: Final = {
    Counted.CPU: ("user_ms", "system_ms"),
    Counted.MEMORY: ("max_rss_bytes",),
    Counted.IO: ("read_bytes", "written_bytes"),
}


class Reading(NamedTuple):
    """Counters at one instant; None: not counted."""

    user_us: int | None = None
    system_us: int | None = None
    peak_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


class Meters:
    """The counters of one slot."""

    __slots__ = ("_base", "_files", "_highest_bytes", "_paths")

    def __init__(self, directories: Mapping[str, Path]) -> None:
        """`directories`: of a new slot, by controller; those not to be counted are left out."""
        paths = [f"{at}/{name}" for controller, at in directories.items() for name in FILES.get(controller, ())]
        self._paths = [path for path in paths if os.path.exists(path)]
        self._files: dict[str, int] = {}
        """Open files of counters by name; empty: they are opened when needed."""
        self._base = Reading(0, 0, 0, 0, 0)
        """When the last step was over."""
        self._highest_bytes = 0
        """The highest peak that was read."""

    @property
    def available(self) -> bool:
        """Whether anything is counted."""
        return bool(self._paths)

    @property
    def open_files(self) -> int:
        """The number of descriptors that it holds."""
        return len(self._files)

    def close(self) -> None:
        """Close its descriptors; they are opened again when needed."""
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()
        # Whoever opens the file again reads the peak of all steps.
        self._base = self._base._replace(peak_bytes=self._highest_bytes)

    def measure(self, usage: Usage, *, over: bool) -> Usage:
        """Return that usage of a first process with what the whole slot used since the last step in it was over.

        Args:
            over: this step is over; what is counted from now on is of the next.
        """
        now, base = self._read(), self._base
        counted = 0
        user_ms, system_ms, peak_bytes = usage.user_ms, usage.system_ms, usage.max_rss_bytes
        read_bytes, written_bytes = usage.read_bytes, usage.written_bytes
        if now.user_us is not None and now.system_us is not None:
            counted = _CPU
            user_ms = _since(now.user_us, base.user_us) // 1000
            system_ms = _since(now.system_us, base.system_us) // 1000
        if now.peak_bytes is not None:
            self._highest_bytes = max(self._highest_bytes, now.peak_bytes)
            # A peak that no later step has passed is an earlier step's, unless the kernel lets it begin again.
            if now.peak_bytes > (base.peak_bytes or 0):
                counted += _MEMORY
                peak_bytes = min(now.peak_bytes, MAX_COUNT)
        if now.read_bytes is not None and now.written_bytes is not None:
            counted += _IO
            read_bytes = _since(now.read_bytes, base.read_bytes)
            written_bytes = _since(now.written_bytes, base.written_bytes)
        if over:
            peak = 0 if self._begin_peak_again() else now.peak_bytes
            self._base = Reading(now.user_us, now.system_us, peak, now.read_bytes, now.written_bytes)
        return Usage(user_ms, system_ms, peak_bytes, read_bytes, written_bytes, counted) if counted else usage

    def _read(self) -> Reading:
        user_us = system_us = peak = read = written = None
        if not self._files:
            for path in self._paths:
                with contextlib.suppress(OSError):
                    self._files[path.rpartition("/")[2]] = _open(path)
        try:
            for name, fd in self._files.items():
                text = os.pread(fd, READ_BYTES, 0)
                match name:
                    case "cpu.stat":
                        user_us, system_us = _value(text, b"user_usec "), _value(text, b"system_usec ")
                    case "cpuacct.usage_user":
                        user_us = int(text) // 1000
                    case "cpuacct.usage_sys":
                        system_us = int(text) // 1000
                    case "memory.peak" | "memory.max_usage_in_bytes":
                        peak = int(text)
                    case "io.stat":
                        pairs = [word.split(b"=", 1) for word in text.split() if b"=" in word]
                        read = sum(int(value) for key, value in pairs if key == b"rbytes")
                        written = sum(int(value) for key, value in pairs if key == b"wbytes")
        except (OSError, ValueError):  # a step has removed its cgroup
            return Reading()
        return Reading(user_us, system_us, peak, read, written)

    def _begin_peak_again(self) -> bool:
        """Let the peak begin at what is in use now; False if the kernel cannot (version 2 before Linux 6.12)."""
        fd = self._files.get("memory.peak", self._files.get("memory.max_usage_in_bytes"))
        if fd is None:
            return False
        try:
            os.pwrite(fd, b"0", 0)
        except OSError:
            return False
        return True


def with_counted(first: Usage, later: Usage | None) -> Usage:
    """Return a step's usage with what was counted of its cgroup later, when nothing of the step was left."""
    if later is None or not later.cgroup:
        return first
    counted = Counted(later.cgroup)
    names = [name for part, some in FIELDS.items() if part in counted for name in some]
    return replace(first, cgroup=first.cgroup | later.cgroup, **{name: getattr(later, name) for name in names})


def _since(now: int, before: int | None) -> int:
    return min(max(0, now - (before or 0)), MAX_COUNT)


def _value(text: bytes, name: bytes) -> int:
    """
    Raises:
        ValueError: it is not there.
    """
    at = text.index(name) + len(name)
    return int(text[at : text.index(b"\n", at)])


def _open(path: str) -> int:
    """Open a file of counters, for writing too if it can be: a peak is begun again through the same descriptor."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
