"""A guard: starts a helper so that it, and every process descended from its steps, dies with the keeper.

Run as a script with `python -I -S`, standard library only: `guard.py KEEPER_PID JOURNAL LEASE [ACCOUNT …]`. The
keeper's socket is file descriptor 0; LEASE is a descriptor of the memory in which the keeper writes the end of its
lease (see `lease_memory`); ACCOUNT are words for the helper about the user whom it is to become. It waits for its
helper, and ends with it.

As root, helper and steps live in a PID namespace of their own (with its own /proc), of which the helper is the init:
when it dies, the kernel kills all of them, whatever they have forked or detached. The guard gets SIGKILL when the
keeper dies (PR_SET_PDEATHSIG, which is kept over exec and is tied to the thread that started us: the keeper has only
one), the helper gets it when the guard dies. Without the right to create namespaces, the guard adopts all that its
helper's steps leave (PR_SET_CHILD_SUBREAPER), and when keeper or helper has died, it kills its descendants until none
is left.

A live keeper may stand still (SIGSTOP, a call that never returns) beyond its lease, and its tasks are then given to
other nodes. So the guard itself checks at least once a second: a little after the lease has lapsed, it kills what the
keeper should have killed. If the guard is stopped too, a timer of the kernel kills it a little later (SIGKILL also ends
what is stopped), and with it what is in its namespace.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
TIMER_ABSTIME = 1
CLONE_NEWNS = 0x00020000
CLONE_NEWPID = 0x20000000
MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
MS_SLAVE_REC = (1 << 19) | 16384
KEEPER_FD = 0
NO_NAMESPACE = 71
"""Exit code of the inner stage when its /proc could not be mounted."""
PROC_WORD = 6
"""Which word of the helper's command line is the descriptor of the outer /proc."""
KILL_LOOK_S = 0.01
MAX_KILL_LOOKS = 1_000
"""How often to look for descendants that SIGKILL has not ended yet."""
READ_BYTES = 4096
LOOK_MS = 1_000
"""Longest time between two checks of the lease."""
LAPSE_MARGIN_MS = 500
"""A healthy keeper ends its steps at once when its lease lapses; the guard waits this long for it."""
STILL_MS = 1_000
"""The guard is killed by its timer if it has not checked for this long after that."""

_libc = ctypes.CDLL(None, use_errno=True)


class KeeperGoneError(Exception):
    """The keeper has died."""


class Lease:
    """The keeper's lease, as far as it has been written; and the timer that kills this process if nobody checks it."""

    def __init__(self, fd: int) -> None:
        self._number = memoryview(mmap.mmap(fd, 8, access=mmap.ACCESS_READ)).cast("q")
        os.close(fd)
        self._timer = Timer()

    def lapsed_ms(self) -> int:
        """How long ago the lease lapsed, less the margin; below 0: how long it lasts."""
        now_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        end_ms = self._number[0] + LAPSE_MARGIN_MS
        self._timer.set(max(end_ms, now_ms + LOOK_MS) + STILL_MS)
        return now_ms - end_ms


class Timer:
    """Sends SIGKILL to this process at an instant of the boot clock, running or stopped; not available on an old C
    library."""

    def __init__(self) -> None:
        self._id = ctypes.c_void_p()
        # struct sigevent: a value, the signal, SIGEV_SIGNAL, and padding
        event = (ctypes.c_int * 16)(0, 0, int(signal.SIGKILL), 0)
        try:
            call("timer_create", time.CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(self._id))
            self._set = True
        except (OSError, AttributeError) as error:
            print(f"guard: no timer of its own: {error}", file=sys.stderr)  # noqa: T201
            self._set = False

    def set(self, boot_ms: int) -> None:
        if self._set:
            seconds, ms = divmod(boot_ms, 1000)
            spec = (ctypes.c_long * 4)(0, 0, seconds, ms * 1_000_000)  # struct itimerspec: no repetition
            call("timer_settime", self._id, TIMER_ABSTIME, ctypes.byref(spec), None)


def main(argv: list[str]) -> int:
    """Run either stage; returns the exit code."""
    if argv[1] == "inner":
        return inner(int(argv[2]), int(argv[3]), argv[4:])
    return outer(int(argv[1]), argv[2], Lease(int(argv[3])), argv[4:])


def outer(keeper: int, journal: str, lease: Lease, account: list[str]) -> int:
    """Wait for a helper that dies with us, as we die with the keeper."""
    call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)  # no step can trace us, or take the keeper's socket from us
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _keeper_gone)
    helper = [
        sys.executable,
        "-I",
        "-S",
        os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper.py"),
        journal,
        "guard",
        "-1",
        *account,
    ]
    try:
        die_with_parent(signal.SIGTERM)
        if os.getppid() != keeper:
            return 0
        status = _in_namespace(helper, lease) if os.geteuid() == 0 else NO_NAMESPACE
        if status != NO_NAMESPACE:
            return status
        call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        status = _wait_for(_start_inner(-1, helper), lease)
    except KeeperGoneError:
        status = 0
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    kill_descendants()
    return status


def _in_namespace(helper: list[str], lease: Lease) -> int:
    """Run it in a namespace; returns its exit code, or `NO_NAMESPACE` if this process may not create one."""
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    mine = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        call("unshare", CLONE_NEWPID | CLONE_NEWNS)
        call("mount", b"none", b"/", None, MS_SLAVE_REC, None)
    except OSError as error:
        print(f"guard: no PID namespace: {error}", file=sys.stderr)  # noqa: T201
        return NO_NAMESPACE
    # From here on SIGKILL suffices: the namespace dies with its init.
    die_with_parent(signal.SIGKILL)
    status = _wait_for(_start_inner(proc, helper), lease, proc)
    os.close(proc)
    if status == NO_NAMESPACE:
        call("setns", mine, CLONE_NEWPID)
        die_with_parent(signal.SIGTERM)
    os.close(mine)
    return status


def _start_inner(proc: int, helper: list[str]) -> int:
    """Start the helper through a stage that ties it to us.

    Args:
        proc: the /proc outside the namespace; -1: there is no namespace.
    """
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    for fd in (theirs, ours) if proc < 0 else (theirs, ours, proc):
        os.set_inheritable(fd, fd != theirs)
    argv = [sys.executable, "-I", "-S", os.path.abspath(__file__), "inner", str(ours), str(proc), *helper]
    pid = os.posix_spawn(sys.executable, argv, os.environ)
    os.close(ours)
    return pid


def inner(alive: int, proc: int, helper: list[str]) -> int:
    """Die with the guard; become the helper, or report why not.

    Args:
        alive: the read end of a pipe that the guard holds open.
        proc: the outside's /proc, if this is the init of a namespace; else -1.
    """
    die_with_parent(signal.SIGKILL)
    poll = select.poll()
    poll.register(alive, 0)
    died = bool(poll.poll(0))  # the guard died before PR_SET_PDEATHSIG was set
    os.close(alive)
    try:
        if proc >= 0:
            call("mount", b"proc", b"/proc", b"proc", MS_NOSUID_NODEV_NOEXEC, None)
        if not died:
            os.execv(helper[0], [*helper[:PROC_WORD], str(proc), *helper[PROC_WORD + 1 :]])
    except OSError as error:
        print(f"guard: no /proc of its own: {error}", file=sys.stderr)  # noqa: T201
    return NO_NAMESPACE


def _wait_for(pid: int, lease: Lease, proc: int = -1) -> int:
    """Wait for its end; returns its exit code; its orphans are reaped too. When the lease has lapsed, it is killed
    if it has steps.

    Args:
        proc: the /proc of our own namespace, if another was mounted over it; -1: /proc itself.
    """
    fd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    try:
        while True:
            lapsed_ms = lease.lapsed_ms()
            if lapsed_ms > 0 and set(descendants(os.getpid(), proc)) - {pid}:
                os.kill(pid, signal.SIGKILL)
            poll.poll(min(LOOK_MS, -lapsed_ms + 1) if lapsed_ms <= 0 else LOOK_MS)
            with contextlib.suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    if ended[0] == pid:
                        return os.waitstatus_to_exitcode(ended[1]) & 0xFF
    finally:
        os.close(fd)


def kill_descendants() -> None:
    """Kill all descendants, until none is left or the kernel does not end one."""
    for _ in range(MAX_KILL_LOOKS):
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = descendants(os.getpid())
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # a step may run sudo
                os.kill(pid, signal.SIGKILL)
        time.sleep(KILL_LOOK_S)


def descendants(of: int, proc: int = -1) -> list[int]:
    """Return all descendants of a process, according to that /proc (-1: the mounted one)."""
    parents: dict[int, int] = {}
    root = proc if proc >= 0 else os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in os.listdir(root):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                fd = os.open(f"{name}/stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=root)
                try:
                    parents[int(name)] = int(os.read(fd, READ_BYTES).rsplit(b")", 1)[1].split()[1])
                finally:
                    os.close(fd)
    if root != proc:
        os.close(root)
    found: list[int] = []
    level = {of}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        found.extend(level)
    return found


def die_with_parent(number: int) -> None:
    """Receive that signal when the thread that started this process ends."""
    call("prctl", PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def call(name: str, *arguments: object) -> None:
    """Return a function of the C library that returns 0 on success.

    Raises:
        OSError: when it returns something else.
    """
    if getattr(_libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _keeper_gone(number: int, frame: object) -> None:
    raise KeeperGoneError


if __name__ == "__main__":
    sys.exit(main(sys.argv))
