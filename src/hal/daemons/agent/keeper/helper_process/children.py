"""The child processes of a helper: their sessions, and the marks that show to which step they belong."""

from __future__ import annotations

import os
import resource

READ_BYTES = 1 << 16
LEAST_PORTION_BYTES = 1 << 11
"""The kernel lists children in chunks of a page; a shorter one is the last."""
MARK_TOP_US = 1 << 62
"""Every mark is below this: as a limit of real-time CPU, which it is to the kernel, it has no effect."""


class Children:
    """Marks what is spawned next, and lists what was spawned or adopted."""

    def __init__(self) -> None:
        self._mark = MARK_TOP_US
        """Mark of the step spawned last."""
        try:
            self._list = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._list = -1

    def set_mark(self, boot_ns: int) -> int:
        """Give this process, and thereby what it spawns next, a hard limit that no other step of this boot has.

        A step's processes inherit it, whatever they fork, execute, detach or hide from; only root can raise it again.
        It is derived from the time and decreases with each step, because we cannot raise ours either.

        Returns: the mark; 0 if somebody has lowered our limit.
        """
        mark = min(MARK_TOP_US - boot_ns, self._mark - 1)
        try:
            resource.setrlimit(resource.RLIMIT_RTTIME, (mark, mark))
        except (OSError, ValueError):
            return 0
        self._mark = mark
        return mark

    def pids(self) -> list[int]:
        """Return the pids of all children that were not reaped yet."""
        if self._list < 0:
            me = os.getpid()
            return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent_of(name) == me]
        os.lseek(self._list, 0, os.SEEK_SET)
        data = os.read(self._list, READ_BYTES)
        portion = data
        while len(portion) >= LEAST_PORTION_BYTES and (portion := os.read(self._list, READ_BYTES)):
            data += portion
        return [int(pid) for pid in data.split()]


def outside_pid(proc: int, pid: int) -> int:
    """Return the pid, in the namespace of that /proc, of a child that was not reaped yet."""
    fd = os.pidfd_open(pid)
    try:
        info = os.open(f"self/fdinfo/{fd}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
        try:
            text = os.read(info, READ_BYTES)
        finally:
            os.close(info)
    finally:
        os.close(fd)
    return int(text.partition(b"\nPid:")[2].split(None, 1)[0])


def session_of(pid: int) -> int:
    """Return a process's session; its own pid if it does not exist."""
    try:
        return os.getsid(pid)
    except OSError:
        return pid


def mark_of(pid: int) -> int:
    """Return the hard limit that marks a process's step; -1 if the process does not exist or has none."""
    try:
        return resource.prlimit(pid, resource.RLIMIT_RTTIME)[1]
    except (OSError, ValueError):
        return -1


def _parent_of(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read(READ_BYTES).rsplit(b")", 1)[1].split()[1])
    except (OSError, IndexError):
        return 0
