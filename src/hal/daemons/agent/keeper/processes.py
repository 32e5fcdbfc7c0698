"""Find the step that a process belongs to: by cgroup, session, an inherited mark, environment, descent, elimination.

A step begins a session of its own. A process may leave that session (setsid), lose its parents and clear its
environment; it still has the hard limit (RLIMIT_RTTIME, of no other use) that its helper gave to that step alone, and
that only root can raise. One that has lowered even that limit is an orphan of the helper that certainly belongs to no
particular step: it is attributed to any step that ends there and began before it. Reading one process costs about 20
µs, so many steps are searched for in one pass.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from hal.core.model import StepId
from hal.core.model.errors import DeniedError
from hal.runtime.identity import ProcessIdentity, kill

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
MAX_ENVIRON_BYTES: Final = 1 << 21
START_SLACK_MS: Final = 20
"""How far a process's start in /proc (clock ticks) may be before the clock that was read before its spawn."""
MAX_SPAWN_MS: Final = 60_000
"""Longest time from that clock to the process's start, on a machine under load."""
STATUS_BYTES: Final = 1 << 12
"""Read of a process's status, and of its limits."""
KERNEL_THREAD: Final = 0x0020_0000
"""PF_KTHREAD, among a process's flags. In a container, pid 2 is an ordinary process."""
MARK_TOP_US: Final = 1 << 62
"""A mark is this less the nanoseconds since boot at the spawn; `helper_process.children` computes it."""


MARKING: Final = (b"HAL_ATTEMPT_TOKEN=", b"HAL_NODE_RANK=", b"HAL_NODE=", b"HAL_HOME=")
"""Variables that together mark a step: another HAL on this host may give its attempts the same tokens."""


class ProcessInfo(NamedTuple):
    """One line of /proc/PID/stat."""

    pid: int
    state: str
    parent: int
    session: int
    cpu_ticks: int
    """Of itself and of its children that it has reaped."""
    start_ticks: int
    rss_bytes: int
    flags: int = 0
    """The kernel's flags, of which `KERNEL_THREAD` is one."""


def marking(home: str, node: str, token: str, rank: int) -> frozenset[bytes]:
    """Return the entries of a step's start environment that mark it."""
    return frozenset(
        name + os.fsencode(str(value)) for name, value in zip(MARKING, (token, rank, node, home), strict=True)
    )


class Mark(NamedTuple):
    """The marks of one step's processes."""

    environment: frozenset[bytes]
    """Entries that together occur only in this step's start environment; empty: not marked by it."""
    pid: int = 0
    """Pid of the first process, which leads the session; 0: unknown."""
    boot_ms: int = 0
    """Read just before the first process was spawned; 0: unknown."""
    cgroup_pids: tuple[int, ...] = ()
    """Members of the step's own cgroup."""
    limit: int = 0
    """The hard limit that only its processes have; 0: unknown."""
    helper: int = 0
    """Pid of its helper, which is the parent of its orphans; 0: dead, or unknown."""
    uid: int = -1
    """User id of whoever may bear the marks that a process can choose for itself; -1: anybody."""
    inhabited: bool = False
    """The kernel counts a process in its cgroup, which may have another pid each time processes are read."""


class Others(NamedTuple):
    """The marks of all other steps, so that their processes are left alone."""

    pids: frozenset[int]
    """First processes."""
    limits: frozenset[int]
    cgroups: frozenset[str]
    """Names of their slots."""


NO_OTHERS: Final = Others(frozenset(), frozenset(), frozenset())
LEFT_LOOKS: Final = 3
MAX_CHASES: Final = 200
"""Attempts in a row to catch what forks faster than all processes can be read."""


def read_process(pid: int) -> ProcessInfo | None:
    """Read a process; None if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            data = file.read(4096)
    except (FileNotFoundError, ProcessLookupError):
        return None
    end = data.rindex(b")")
    f = data[end + 2 :].split()
    ticks = int(f[11]) + int(f[12]) + int(f[13]) + int(f[14])
    return ProcessInfo(pid, f[0].decode(), int(f[1]), int(f[3]), ticks, int(f[19]), int(f[21]) * PAGE_BYTES, int(f[6]))


def all_processes() -> dict[int, ProcessInfo]:
    """Every process that is not a zombie, by pid; kernel threads left out."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            info = read_process(int(name))
            if info is not None and info.state not in "ZXx" and not info.flags & KERNEL_THREAD:
                found[info.pid] = info
    return found


def members(
    marks: Mapping[StepId, Mark], spare: Iterable[int] = (), others: Others | None = None
) -> dict[StepId, list[ProcessInfo]]:
    """Return the living processes of each of these steps; [] for a step that has none left.

    Args:
        marks: the marks of each step.
        spare: pids of HAL's own processes here: never a member, whatever cgroup they pass through.
        others: the marks of all other steps; given if these are to be killed, so that ambiguous processes that are
            certainly not another step's are included.
    """
    table = all_processes()
    for pid in spare:
        table.pop(pid, None)
    owner: dict[int, StepId] = {}
    sessions: dict[int, StepId] = {}
    environments: dict[frozenset[bytes], StepId] = {}
    limits: dict[int, StepId] = {}
    earliest = min((mark.boot_ms for mark in marks.values()), default=0) - START_SLACK_MS
    for step, mark in marks.items():
        if mark.pid and same_start(table.get(mark.pid), mark.boot_ms, absent=True):
            sessions[mark.pid] = step
        if mark.environment:
            environments[mark.environment] = step
        if mark.limit:
            limits[mark.limit] = step
        owner.update((pid, step) for pid in mark.cgroup_pids if pid in table)
    for pid, info in table.items():
        if info.session in sessions and _may_bear(pid, marks[sessions[info.session]]):
            owner.setdefault(pid, sessions[info.session])
    for pid, info in table.items():
        if pid not in owner and info.start_ticks * 1000 // TICKS_PER_S >= earliest:
            carried = limits.get(hard_limit(pid)) if limits else None
            if carried is None:
                carried = _by_environment(pid, environments)
            if carried is not None and _may_bear(pid, marks[carried]):
                owner[pid] = carried
    for pid in table:
        _inherit(pid, table, owner)
    if others is not None:
        _eliminate(marks, table, owner, others)
    found: dict[StepId, list[ProcessInfo]] = {step: [] for step in marks}
    for pid, owned_by in owner.items():
        found[owned_by].append(table[pid])
    return found


def same_start(info: ProcessInfo | None, boot_ms: int, *, absent: bool = False) -> bool:
    """Whether that process is the one spawned just after `boot_ms`; `absent` is the answer if there is none."""
    if info is None:
        return absent
    started = info.start_ticks * 1000 // TICKS_PER_S
    return not boot_ms or boot_ms - START_SLACK_MS <= started <= boot_ms + MAX_SPAWN_MS


def send(processes: Iterable[ProcessInfo], number: int) -> int:
    """Signal those very processes; returns how many were signalled. Those of another user (a step may run sudo) are
    skipped."""
    reached = 0
    for info in processes:
        with contextlib.suppress(DeniedError):
            reached += kill(ProcessIdentity(info.pid, info.start_ticks), number)
    return reached


def _may_bear(pid: int, mark: Mark) -> bool:
    """Whether the marks that a process chose for itself count: users could else take one another's steps for theirs."""
    return mark.uid < 0 or real_uid(pid) == mark.uid


def real_uid(pid: int) -> int:
    """Return whose process it is, whatever rights it has now; -1 if it does not exist."""
    with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/status", "rb", buffering=0) as file:
        return int(file.read(STATUS_BYTES).partition(b"\nUid:")[2].split(None, 1)[0])
    return -1


def hard_limit(pid: int) -> int:
    """Return the hard limit that marks a step's processes; 0 if it cannot be read."""
    try:
        return resource.prlimit(pid, resource.RLIMIT_RTTIME)[1]
    except PermissionError:  # another user's, and this process may not change limits (CAP_SYS_RESOURCE)
        return _written_limit(pid)
    except (OSError, ValueError):
        return 0


def _written_limit(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/limits", "rb", buffering=0) as file:
        return int(file.read(STATUS_BYTES).partition(b"\nMax realtime timeout")[2].split(None, 2)[1])
    return 0


def chase(mark: Mark) -> int:
    """Kill orphans of a step as soon as they are found, until there are none; returns how many were hit.

    A process that forks and exits again and again has another pid each time all processes have been read.
    """
    hits = 0
    for _ in range(MAX_CHASES if mark.limit and mark.helper else 0):
        found = False
        for pid in child_pids(mark.helper):
            if hard_limit(pid) == mark.limit:
                found = _kill_marked(pid, mark.limit) or found
        if not found:
            break
        hits += 1
    return hits


def is_left(mark: Mark) -> bool:
    """Whether there may be a process of it although reading all processes found none."""
    if mark.inhabited:
        return True
    looks = LEFT_LOOKS if mark.limit and mark.helper else 0
    return any(hard_limit(pid) == mark.limit for _ in range(looks) for pid in child_pids(mark.helper))


def _kill_marked(pid: int, limit: int) -> bool:
    """Kill a process that still has that mark once we hold its pidfd; returns whether it did."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if hard_limit(pid) == limit:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
            return True
        return False
    except OSError:
        return False
    finally:
        os.close(fd)


def child_pids(pid: int) -> Sequence[int]:
    """Return the children of a process, including zombies; works for this process only, if the kernel provides the
    list."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return [info.pid for info in all_processes().values() if info.parent == pid]


def _inherit(pid: int, table: Mapping[int, ProcessInfo], owner: dict[int, StepId]) -> None:
    """Attribute a process to the owner of its nearest owned ancestor."""
    path: list[int] = []
    at = pid
    while at in table and at not in owner and len(path) <= len(table):
        path.append(at)
        at = table[at].parent
    if at in owner:
        for descendant in path:
            owner[descendant] = owner[at]


def _eliminate(
    marks: Mapping[StepId, Mark], table: Mapping[int, ProcessInfo], owner: dict[int, StepId], others: Others
) -> None:
    """Attribute orphans of helpers, and their descendants, that belong to no known step, to one of these that may
    own them."""
    by_helper: dict[int, list[tuple[int, StepId]]] = {}
    firsts = set(others.pids)
    for step, mark in marks.items():
        firsts.add(mark.pid)
        if mark.helper and mark.boot_ms and mark.limit:
            by_helper.setdefault(mark.helper, []).append((mark.boot_ms - START_SLACK_MS, step))
    fresh: list[int] = []
    for pid, info in table.items():
        candidates = by_helper.get(info.parent)
        if candidates is None or pid in owner or pid in firsts or info.session in firsts:
            continue
        limit, started_ms = hard_limit(pid), info.start_ticks * 1000 // TICKS_PER_S
        if limit in others.limits or slot_of(pid) in others.cgroups or _may_be_first(info, limit, started_ms):
            continue
        latest = max((candidate for candidate in candidates if candidate[0] <= started_ms), default=None)
        if latest is not None:
            owner[pid] = latest[1]
            fresh.append(pid)
    if fresh:
        for pid in table:
            _inherit(pid, table, owner)


def _may_be_first(info: ProcessInfo, limit: int, started_ms: int) -> bool:
    """Whether it is the first process of a step that is just being spawned and that its helper has not reported yet."""
    if info.session == info.parent:  # not even in a session of its own
        return True
    marked_ms = (MARK_TOP_US - limit) // 1_000_000
    return info.session == info.pid and -START_SLACK_MS <= started_ms - marked_ms <= MAX_SPAWN_MS


def slot_of(pid: int) -> str:
    """Return the name of the innermost cgroup with a slot's name; '' if there is none."""
    try:
        with open(f"/proc/{pid}/cgroup", "rb", buffering=0) as file:
            text = file.read(MAX_ENVIRON_BYTES).decode(errors="replace")
    except OSError:
        return ""
    for line in text.splitlines():
        for name in reversed(line.rpartition(":")[2].split("/")):
            if name[:1] == "s" and name[1:].isdigit():
                return name
    return ""


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
