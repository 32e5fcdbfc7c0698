"""Which processes belong to which step, found in /proc: by session, by descent, by environment, by cgroup.

A step begins a session of its own. A process may leave that session (setsid) and lose its parents, but it still
carries the attempt's token and the node in its first environment, or descends from one that does. Reading one process
costs about 20 µs, so many steps are looked for in one pass.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from hal.core.model import StepId
from hal.runtime.identity import ProcessIdentity, kill

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
MAX_ENVIRON_BYTES: Final = 1 << 21
START_SLACK_MS: Final = 20
"""How far a process's start in /proc (clock ticks) may lie before the clock that was read before its spawn."""
MAX_SPAWN_MS: Final = 60_000
"""Longest time from that clock to the process's start, on a machine under load."""
KTHREADD: Final = 2


MARKING: Final = (b"HAL_ATTEMPT_TOKEN=", b"HAL_NODE_RANK=", b"HAL_NODE=", b"HAL_HOME=")
"""Variables that together mark a step: another HAL on this host may give its attempts the same tokens."""


class ProcessInfo(NamedTuple):
    """One line of /proc/PID/stat."""

    pid: int
    state: str
    parent: int
    session: int
    cpu_ticks: int
    """Of itself and of its children that it has waited for."""
    start_ticks: int
    rss_bytes: int


def marking(home: str, node: str, token: str, rank: int) -> frozenset[bytes]:
    """The entries of a step's first environment that mark it."""
    return frozenset(
        name + os.fsencode(str(value)) for name, value in zip(MARKING, (token, rank, node, home), strict=True)
    )


class Mark(NamedTuple):
    """How the processes of one step are known."""

    environment: frozenset[bytes]
    """Entries that its first environment has and no other step's has all of; empty: not known by it."""
    pid: int = 0
    """Of the first process, which leads the session; 0: not known."""
    boot_ms: int = 0
    """Read just before the first process was spawned; 0: not known."""
    cgroup_pids: tuple[int, ...] = ()
    """Members of the step's own cgroup."""


def read_process(pid: int) -> ProcessInfo | None:
    """None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            data = file.read(4096)
    except (FileNotFoundError, ProcessLookupError):
        return None
    end = data.rindex(b")")
    f = data[end + 2 :].split()
    ticks = int(f[11]) + int(f[12]) + int(f[13]) + int(f[14])
    return ProcessInfo(pid, f[0].decode(), int(f[1]), int(f[3]), ticks, int(f[19]), int(f[21]) * PAGE_BYTES)


def all_processes() -> dict[int, ProcessInfo]:
    """Every process that is not a zombie, by pid; kernel threads left out."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            info = read_process(int(name))
            if info is not None and info.state not in "ZXx" and KTHREADD not in (info.pid, info.parent):
                found[info.pid] = info
    return found


def members(marks: Mapping[StepId, Mark], spare: Iterable[int] = ()) -> dict[StepId, list[ProcessInfo]]:
    """The living processes of each of these steps; [] for a step that has none left.

    Args:
        marks: how the processes of each step are known.
        spare: pids of HAL's own processes here: never a member, whatever cgroup they pass through.
    """
    table = all_processes()
    for pid in spare:
        table.pop(pid, None)
    owner: dict[int, StepId] = {}
    sessions: dict[int, StepId] = {}
    environments: dict[frozenset[bytes], StepId] = {}
    earliest = min((mark.boot_ms for mark in marks.values()), default=0) - START_SLACK_MS
    for step, mark in marks.items():
        if mark.pid and same_start(table.get(mark.pid), mark.boot_ms, absent=True):
            sessions[mark.pid] = step
        if mark.environment:
            environments[mark.environment] = step
        owner.update((pid, step) for pid in mark.cgroup_pids if pid in table)
    for pid, info in table.items():
        if info.session in sessions:
            owner.setdefault(pid, sessions[info.session])
    for pid, info in table.items():
        if pid not in owner and info.start_ticks * 1000 // TICKS_PER_S >= earliest:
            carried = _by_environment(pid, environments)
            if carried is not None:
                owner[pid] = carried
    for pid in table:
        _inherit(pid, table, owner)
    found: dict[StepId, list[ProcessInfo]] = {step: [] for step in marks}
    for pid, owned_by in owner.items():
        found[owned_by].append(table[pid])
    return found


def same_start(info: ProcessInfo | None, boot_ms: int, *, absent: bool = False) -> bool:
    """Whether that process is the one spawned just after `boot_ms`; `absent` is the answer when there is none."""
    if info is None:
        return absent
    started = info.start_ticks * 1000 // TICKS_PER_S
    return not boot_ms or boot_ms - START_SLACK_MS <= started <= boot_ms + MAX_SPAWN_MS


def send(processes: Iterable[ProcessInfo], number: int) -> int:
    """Signal those very processes; to how many it went."""
    return sum(kill(ProcessIdentity(info.pid, info.start_ticks), number) for info in processes)


def child_pids(pid: int) -> Sequence[int]:
    """Children of a process, zombies included; of this process's table only where the kernel offers the list."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return [info.pid for info in all_processes().values() if info.parent == pid]


def _inherit(pid: int, table: Mapping[int, ProcessInfo], owner: dict[int, StepId]) -> None:
    """A process belongs to whom its nearest owned ancestor belongs to."""
    path: list[int] = []
    at = pid
    while at in table and at not in owner and len(path) <= len(table):
        path.append(at)
        at = table[at].parent
    if at in owner:
        for descendant in path:
            owner[descendant] = owner[at]


def _by_environment(pid: int, environments: Mapping[frozenset[bytes], StepId]) -> StepId | None:
    if not environments:
        return None
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            data = file.read(MAX_ENVIRON_BYTES)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ESRCH, errno.EACCES, errno.EPERM):
            return None
        raise
    if b"HAL_ATTEMPT_TOKEN=" not in data:
        return None
    return environments.get(frozenset(entry for entry in data.split(b"\0") if entry.startswith(MARKING)))
