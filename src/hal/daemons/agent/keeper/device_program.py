"""Devices of cgroups of version 2: a program for the kernel that says which ones a cgroup's processes may use.

It is assembled from rules, loaded once for each list of rules, and attached to the cgroup of each slot, beside whatever
a service manager has attached further up: the kernel asks all of them. It stays for as long as the cgroup does, whoever
ends. Source: bpf(2), the kernel's Documentation/bpf/prog_cgroup_device.rst and instruction-set.rst.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Final

from hal.daemons.agent.keeper.devices import ANY, DeviceRules

SYSCALLS: Final = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351, "loongarch64": 280}
"""The number of bpf(2), by `uname -m`."""
PROG_LOAD, PROG_ATTACH, PROG_QUERY = 5, 8, 16
TYPE_CGROUP_DEVICE: Final = 15
CGROUP_DEVICE: Final = 6
ALLOW_MULTI: Final = 2
KINDS: Final = {"b": 1, "c": 2}
MAX_LOADED: Final = 16
"""Programs that stay loaded; the oldest one is loaded again when it is needed again."""
MAX_ATTACHED: Final = 64
"""Programs of one cgroup that are listed."""

LOAD, AND, JUMP_UNLESS, SET, EXIT = 0x61, 0x54, 0x55, 0xB7, 0x95
VERDICT, CONTEXT, KIND, MAJOR, MINOR = range(5)
"""Registers: r0 is the answer, r1 the address of kind and access, major, minor, of 32 bits each."""


def assemble(rules: DeviceRules) -> bytes:
    """Return the program that answers 1 for the devices of these rules, and 0 for all others."""
    code = [
        _instruction(LOAD, KIND, CONTEXT, offset=0),
        _instruction(AND, KIND, value=0xFFFF),  # the upper half is the access
        _instruction(LOAD, MAJOR, CONTEXT, offset=4),
        _instruction(LOAD, MINOR, CONTEXT, offset=8),
    ]
    for kind, major, minor in rules:
        checks = [(KIND, KINDS[kind]), (MAJOR, major)] + ([] if minor == ANY else [(MINOR, minor)])
        for left, (register, value) in zip(range(len(checks), 0, -1), checks, strict=True):
            code.append(_instruction(JUMP_UNLESS, register, value=value, offset=left + 1))
        code += [_instruction(SET, VERDICT, value=1), _instruction(EXIT)]
    return b"".join([*code, _instruction(SET, VERDICT, value=0), _instruction(EXIT)])


class DevicePrograms:
    """The loaded programs of one keeper."""

    def __init__(self) -> None:
        self._loaded: OrderedDict[DeviceRules, int] = OrderedDict()
        """Descriptors."""

    def load(self, rules: DeviceRules) -> int:
        """Return a descriptor of the program of these rules; it stays this object's.

        Raises:
            OSError: the kernel has no such programs, or does not let this process load any.
        """
        known = self._loaded.get(rules)
        if known is not None:
            self._loaded.move_to_end(rules)
            return known
        code, licence = ctypes.create_string_buffer(assemble(rules)), ctypes.create_string_buffer(b"GPL")
        count = (len(code) - 1) // 8
        words = struct.pack("=IIQQ", TYPE_CGROUP_DEVICE, count, ctypes.addressof(code), ctypes.addressof(licence))
        fd = _bpf(PROG_LOAD, words, "a program for devices cannot be loaded")
        while len(self._loaded) >= MAX_LOADED:
            os.close(self._loaded.popitem(last=False)[1])
        self._loaded[rules] = fd
        return fd

    def attach(self, rules: DeviceRules, cgroup: Path) -> None:
        """Let the processes of a cgroup, and of those that are created in it, use these devices only.

        Raises:
            OSError: the kernel refused.
        """
        program = self.load(rules)
        fd = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            words = struct.pack("=IIII", fd, program, CGROUP_DEVICE, ALLOW_MULTI)
            _bpf(PROG_ATTACH, words, f"no program for devices can be attached to {cgroup}")
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close the descriptors; what is attached stays."""
        for fd in self._loaded.values():
            os.close(fd)
        self._loaded.clear()


def attached_programs(cgroup: int) -> bytes:
    """Return the numbers of the programs that are attached to an open cgroup, as the kernel writes them.

    Raises:
        OSError: the kernel does not say.
    """
    numbers = (ctypes.c_uint32 * MAX_ATTACHED)()
    words = struct.pack("=IIIIQI", cgroup, CGROUP_DEVICE, 0, 0, ctypes.addressof(numbers), MAX_ATTACHED)
    _bpf(PROG_QUERY, words, "the programs of a cgroup cannot be listed")
    return bytes(numbers).rstrip(b"\0")


def _instruction(operation: int, to: int = 0, source: int = 0, *, offset: int = 0, value: int = 0) -> bytes:
    registers = to | source << 4 if sys.byteorder == "little" else to << 4 | source
    return struct.pack("=BBhi", operation, registers, offset, value)


def _bpf(command: int, words: bytes, failure: str) -> int:
    """Raises:
    OSError: with `failure` and the kernel's reason.
    """
    number = SYSCALLS.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"{failure}: not known how on {os.uname().machine}")
    call = ctypes.CDLL(None, use_errno=True).syscall
    buffer = ctypes.create_string_buffer(words, len(words))
    result: int = call(number, command, buffer, len(words))
    if result < 0:
        reason = ctypes.get_errno()
        raise OSError(reason, f"{failure}: {os.strerror(reason)}")
    return result
