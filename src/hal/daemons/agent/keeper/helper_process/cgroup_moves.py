"""The moves of a helper into and out of the cgroups of its steps, and onto their CPUs, so that each step's first
process is born there.

`Moves` are pairs of `cgroup.procs` files: into a cgroup of a step, and back out; the first leads to where processes are
counted, if they are.
"""

from __future__ import annotations

import contextlib
import os
import time

Moves = list[tuple[str, str]]
Cpus = tuple[int, ...]

READ_BYTES = 1 << 16
MAX_CGROUP_FDS = 256
STAY_MS = 10
"""How long a helper may stay in the cgroup of a short step that it has spawned, and on the CPUs of any step."""


class CgroupMoves:
    """Where this process is."""

    def __init__(self) -> None:
        self.within: Moves = []
        """The cgroups of a step, in which this process still is."""
        self.leave_ns = 0
        """When it must leave them, by the monotonic clock."""
        self._ways_back: list[str] = []
        self._fds: dict[str, int] = {}
        """Open `cgroup.procs` files by path."""
        self._held: dict[str, int] = {}
        """Those that this process cannot open again."""
        self._own_cpus = os.sched_getaffinity(0)
        self._bound = False
        """Whether this process is on a step's CPUs only."""

    def hold_ways_back(self, paths: list[str]) -> None:
        """Open the files to which this process returns, while it may: kernels check who opened them."""
        for path in paths:
            self._held[path] = os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def may_move(self) -> bool:
        """Whether the kernel lets this process move by what it holds; before Linux 5.16 some check who writes."""
        try:
            for path in self._held:
                self._move(path)
        except OSError:
            return False
        return True

    def receive(self, moves: Moves, fds: list[int]) -> None:
        """Use these open files for the moves into a step's cgroups."""
        for (path, _), fd in zip(moves, fds, strict=True):
            former = self._fds.pop(path, None)
            if former is not None:
                os.close(former)
            self._make_room()
            self._fds[path] = fd

    @property
    def inside(self) -> bool:
        """Whether this process is in the cgroups of a step, or on its CPUs only."""
        return self._bound or bool(self._ways_back)

    def enter(self, moves: Moves, cpus: Cpus) -> list[str]:
        """Move into a step's cgroups and onto its CPUs; returns why some could not be entered."""
        ways_back = [back for _, back in moves]
        if self._ways_back != ways_back:
            self.leave()
            self._ways_back = ways_back
        self.within = moves
        failures = []
        for path, _ in moves:
            try:
                self._move(path)
            except OSError as error:
                failures.append(f"a limit was not set: {path}: {error.strerror}")
        if cpus:  # after the moves: kernels before 6.2 forget this when a process moves to another cpuset
            try:
                os.sched_setaffinity(0, cpus)
                self._bound = True
            except OSError as error:
                failures.append(f"it was not bound to CPUs {', '.join(map(str, cpus))}: {error.strerror}")
                self.unbind()
        else:
            self.unbind()
        return failures

    def stay(self) -> None:
        """Stay where this process is, and on the CPUs of the step, for `STAY_MS` at most."""
        self.leave_ns = time.monotonic_ns() + STAY_MS * 1_000_000

    def leave(self) -> None:
        """Move back: a helper must not be counted, or killed, with a step.

        If a short step follows another, it moves from a cgroup without a memory limit directly to that of the next
        step: a move takes the lock of all forks of the machine.
        """
        for path in self._ways_back:
            with contextlib.suppress(OSError):  # its own cgroup was removed: it stays where it is
                self._move(path)
        self._ways_back, self.within = [], []

    def unbind(self) -> None:
        """Use all CPUs again: not after each step, for the next one is often begun on the same, and to go from one CPU
        to another takes 50 µs."""
        if self._bound:
            self._bound = False
            with contextlib.suppress(OSError):  # its CPUs were taken from the machine: the kernel has chosen others
                os.sched_setaffinity(0, self._own_cpus)

    def is_inhabited(self, moves: Moves) -> bool:
        """Whether any process but this one is in these cgroups of a step, or in one created inside them."""
        if not moves:
            return False
        try:
            fd = os.open(moves[0][0].removesuffix("cgroup.procs") + "pids.current", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            me = os.getpid()
            return any(_inhabitants(into) - {me} for into, _ in moves)
        try:
            return int(os.read(fd, READ_BYTES)) > (moves == self.within)
        finally:
            os.close(fd)

    def _move(self, path: str) -> None:
        fd = self._fds.get(path) or self._held.get(path)
        if fd is None:
            self._make_room()
            fd = self._fds[path] = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, b"0")

    def _make_room(self) -> None:
        if len(self._fds) >= MAX_CGROUP_FDS:
            os.close(self._fds.pop(next(iter(self._fds))))


def _inhabitants(members: str) -> set[int]:
    """Read the pids in a `cgroup.procs` file; none if it cannot be read."""
    try:
        fd = os.open(members, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return set()
    try:
        return {int(pid) for pid in os.read(fd, READ_BYTES).split()}
    except OSError:
        return set()
    finally:
        os.close(fd)
