"""Strangers: processes of this node's steps that no journal names, because one was removed or truncated. They are
killed first.

Nobody would ever report what such a step does, and its task runs again, here or elsewhere, as soon as this keeper
reports what it holds. So a keeper looks for them before it starts anything: by the marks in the start environment of
steps' processes, by the cgroups of this node's slots, and by helpers whose own journal is gone, with everything that
they spawned.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from hal.daemons.agent.keeper import processes
from hal.daemons.agent.keeper.processes import ProcessInfo
from hal.daemons.agent.keeper.watch import read_clocks

MAX_END_MS: Final = 10_000
"""What SIGKILL has not ended by then is stuck in the kernel."""
LOOK_MS: Final = 5
READ_BYTES: Final = 1 << 21
SCRIPTS: Final = (b"/keeper/helper.py", b"/keeper/guard.py", b"/keeper/recorder.py")
MAX_SCRIPT_WORD: Final = 5
"""The script is among the first words of a command line."""


class Known(NamedTuple):
    """What journals name."""

    marks: frozenset[frozenset[bytes]]
    """The marks of steps, in their environment."""
    journals: frozenset[bytes]
    """Paths of helpers' journals."""
    helpers: frozenset[int]
    """Pids of the processes that write these journals, and of their recorders."""
    slots: frozenset[bytes]
    """Names of slots."""


class Strangers:
    """The strangers of one node."""

    def __init__(self, home: str, node: str, journals: str, slots: str) -> None:
        """Args:
        home: HAL_HOME.
        journals: directory of this node's journals.
        slots: name of the directory of its slots.
        """
        self._node = frozenset((b"HAL_HOME=" + os.fsencode(home), b"HAL_NODE=" + os.fsencode(node)))
        self._journal = os.fsencode(journals) + b"/helper-"
        self._slot = f"/{slots}/s".encode()
        self.left: list[int] = []
        """Pids of processes that could not be killed."""

    def end(self, known: Known) -> set[frozenset[bytes]]:
        """Kill them until none is left, at most for `MAX_END_MS`; returns the marks of those that were found."""
        found: set[frozenset[bytes]] = set()
        until_ms = read_clocks().boot_ms + MAX_END_MS
        while alive := self._find(known, found):
            processes.send(alive, signal.SIGKILL)
            if read_clocks().boot_ms > until_ms:
                self.left = [info.pid for info in alive]
                break
            time.sleep(LOOK_MS / 1000)
        return found

    def _find(self, known: Known, found: set[frozenset[bytes]]) -> list[ProcessInfo]:
        table = processes.all_processes()
        own = _with_ancestors(os.getpid(), table)
        strange = {pid for pid in table if pid not in own and self._is_strange(pid, known, found)}
        return [info for pid, info in table.items() if pid not in own and _is_below(pid, strange, table)]

    def _is_strange(self, pid: int, known: Known, found: set[frozenset[bytes]]) -> bool:
        if pid in known.helpers:
            return False
        words = _read(pid, "cmdline").split(b"\0")
        # A process can write its own command line: it proves nothing.
        if any(word.endswith(SCRIPTS) for word in words[:MAX_SCRIPT_WORD]) and any(
            word.startswith(self._journal) and word not in known.journals for word in words
        ):
            return True
        variables = _read(pid, "environ")
        if b"HAL_ATTEMPT_TOKEN=" in variables:
            mark = frozenset(one for one in variables.split(b"\0") if one.startswith(processes.MARKING))
            if mark >= self._node:
                if mark not in known.marks:
                    found.add(mark)
                return mark not in known.marks
        _, slot, rest = _read(pid, "cgroup").partition(self._slot)
        return bool(slot) and b"s" + rest.split(b"\n", 1)[0].split(b"/", 1)[0] not in known.slots


def _with_ancestors(pid: int, table: Mapping[int, ProcessInfo]) -> set[int]:
    """Return ourselves and our ancestors: a person may have started us from within a step."""
    found: set[int] = set()
    while pid in table and pid not in found:
        found.add(pid)
        pid = table[pid].parent
    return found


def _is_below(pid: int, strange: Collection[int], table: Mapping[int, ProcessInfo]) -> bool:
    """Whether it is a stranger, or a descendant of one."""
    seen: set[int] = set()
    while pid in table and pid not in seen:
        if pid in strange:
            return True
        seen.add(pid)
        pid = table[pid].parent
    return False


def _read(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
        return file.read(READ_BYTES)
    return b""
