"""Which devices the steps of a node may use, as rules for their cgroups; `[node] devices` in hal.toml decides.

A rule names a device by kind and numbers, as the kernel does: a device file by another name is no way around it. Files
of GPUs, and those that patterns of the site name, are looked up when a step starts, for many numbers are given out at
run time.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from typing import Final, NamedTuple

from hal.core.model.cpu_lists import mask_of, parse_cpus
from hal.core.model.node_config import ALL_DEVICES, STANDARD_DEVICES
from hal.daemons.agent.keeper.helper_process.device_files import device_files, gpu_files
from hal.wire.frames.agent_keeper import StepDevice

ANY: Final = -1


class DeviceRule(NamedTuple):
    """A device that may be used in every way."""

    kind: str
    """`c` or `b`."""
    major: int
    minor: int
    """`ANY`: all of that major number."""

    def __str__(self) -> str:
        """Format as cgroups of version 1 write it."""
        return f"{self.kind} {self.major}:{'*' if self.minor == ANY else self.minor} rwm"


DeviceRules = tuple[DeviceRule, ...]
"""Sorted; (): all devices may be used."""

STANDARD: Final = (
    *(DeviceRule("c", 1, minor) for minor in (3, 5, 7, 8, 9)),  # null, zero, full, random, urandom
    *(DeviceRule("c", 5, minor) for minor in (0, 1, 2)),  # tty, console, ptmx
    *(DeviceRule("c", major, ANY) for major in range(136, 144)),  # pts
)
"""Of every step. Source: the kernel's Documentation/admin-guide/devices.txt."""


class StepDevices:
    """The devices of steps of one node."""

    def __init__(self, words: Sequence[str]) -> None:
        """Args:
        words: of `[node] devices`.
        """
        self.restricted = ALL_DEVICES not in words
        """Whether any device is kept from steps."""
        self._patterns = tuple(word for word in words if word not in (ALL_DEVICES, STANDARD_DEVICES))

    def rules(self, *, gpus: bool, own_files: tuple[str, ...] = ()) -> DeviceRules:
        """Return what a step may use.

        Args:
            gpus: it asked for some.
            own_files: of those that are its own; (): not known, so it may use all.
        """
        if not self.restricted:
            return ()
        paths = device_files(self._patterns) + (gpu_files(own_files) if gpus else [])
        return STANDARD if not paths else tuple(sorted({*STANDARD, *_rules_of(paths)}))


def own_files(devices: tuple[StepDevice, ...]) -> tuple[str, ...]:
    """Return the device files of a step's own GPUs; () where those of some are not known, or it has none."""
    if not all(device.files for device in devices):
        return ()
    return tuple(file for device in devices for file in device.files)


def near_cpus(devices: tuple[StepDevice, ...]) -> int:
    """Return the CPUs that are near a step's own GPUs, as a mask; 0: not known."""
    mask = 0
    for device in devices:
        with contextlib.suppress(ValueError):  # what a node reports may be anything
            mask |= mask_of(parse_cpus(device.cpus))
    return mask


def _rules_of(paths: list[str]) -> list[DeviceRule]:
    found = []
    for path in paths:
        status = os.stat(path)
        kind = "b" if stat.S_ISBLK(status.st_mode) else "c"
        found.append(DeviceRule(kind, os.major(status.st_rdev), os.minor(status.st_rdev)))
    return found
