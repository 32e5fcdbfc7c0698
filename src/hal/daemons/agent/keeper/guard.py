"""A guard: starts a helper so that it, and every process that comes of what it spawns, dies with the keeper.

Run as a script with `python -I -S`, standard library only: `guard.py KEEPER_PID JOURNAL`, the keeper's socket as file
descriptor 0. It waits for its helper, and ends with it.

As root, helper and steps live in a PID namespace of their own (with its own /proc), of which the helper is the init:
when it dies the kernel kills all of them, whatever they have forked or detached. The guard gets SIGKILL when the keeper
dies (PR_SET_PDEATHSIG, which is kept over exec and is tied to the thread that started us: the keeper has only one), the
helper gets it when the guard dies. Without the right to make namespaces the guard adopts all that its helper's steps
leave (PR_SET_CHILD_SUBREAPER), and when keeper or helper is gone it kills its descendants until none is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS = 0x00020000
CLONE_NEWPID = 0x20000000
MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
MS_SLAVE_REC = (1 << 19) | 16384
KEEPER_FD = 0
NO_NAMESPACE = 71
"""Exit code of the inner stage when its /proc could not be mounted."""
KILL_LOOK_S = 0.01
MAX_KILL_LOOKS = 1_000
"""Looks for descendants that SIGKILL has not ended yet."""
READ_BYTES = 4096

_libc = ctypes.CDLL(None, use_errno=True)


class KeeperGoneError(Exception):
    """The keeper has died."""


def main(argv: list[str]) -> int:
    """Either stage; the exit code."""
    if argv[1] == "inner":
        return inner(int(argv[2]), int(argv[3]), argv[4:])
    return outer(int(argv[1]), argv[2])


def outer(keeper: int, journal: str) -> int:
    """Wait for a helper that dies with us, as we die with the keeper."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _keeper_gone)
    helper = [
        sys.executable,
        "-I",
        "-S",
        os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper.py"),
        journal,
    ]
    try:
        die_with_parent(signal.SIGTERM)
        if os.getppid() != keeper:
            return 0
        status = _in_namespace(helper) if os.geteuid() == 0 else NO_NAMESPACE
        if status != NO_NAMESPACE:
            return status
        call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        status = _wait_for(_start_inner(-1, helper))
    except KeeperGoneError:
        status = 0
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    kill_descendants()
    return status


def _in_namespace(helper: list[str]) -> int:
    """Its exit code; `NO_NAMESPACE` when this process may not make one."""
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    mine = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        call("unshare", CLONE_NEWPID | CLONE_NEWNS)
        call("mount", b"none", b"/", None, MS_SLAVE_REC, None)
    except OSError as error:
        print(f"guard: no PID namespace: {error}", file=sys.stderr)  # noqa: T201
        return NO_NAMESPACE
    # From here on SIGKILL: the namespace dies with its init without any doing of ours.
    die_with_parent(signal.SIGKILL)
    pid = _start_inner(proc, helper)
    os.close(proc)
    status = _wait_for(pid)
    if status == NO_NAMESPACE:
        call("setns", mine, CLONE_NEWPID)
        die_with_parent(signal.SIGTERM)
    os.close(mine)
    return status


def _start_inner(proc: int, helper: list[str]) -> int:
    """Start the helper through a stage that ties it to us; this process keeps nothing of the keeper's socket.

    Args:
        proc: of the namespace's outside; -1: there is no namespace.
    """
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    for fd in (theirs, ours) if proc < 0 else (theirs, ours, proc):
        os.set_inheritable(fd, fd != theirs)
    argv = [sys.executable, "-I", "-S", os.path.abspath(__file__), "inner", str(ours), str(proc), *helper]
    pid = os.posix_spawn(sys.executable, argv, os.environ)
    os.close(ours)
    return pid


def inner(alive: int, proc: int, helper: list[str]) -> int:
    """Die with the guard; become the helper, or say why not.

    Args:
        alive: the read end of a pipe that the guard holds open.
        proc: the outside's /proc, when this is the init of a namespace; else -1.
    """
    die_with_parent(signal.SIGKILL)
    poll = select.poll()
    poll.register(alive, 0)
    died = bool(poll.poll(0))  # before it could have taken us along
    os.close(alive)
    try:
        if proc >= 0:
            call("mount", b"proc", b"/proc", b"proc", MS_NOSUID_NODEV_NOEXEC, None)
        if not died:
            os.execv(helper[0], [*helper, str(proc)])
    except OSError as error:
        print(f"guard: no /proc of its own: {error}", file=sys.stderr)  # noqa: T201
    return NO_NAMESPACE


def _wait_for(pid: int) -> int:
    """Its exit code; what it leaves is waited for with it."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status) & 0xFF


def kill_descendants() -> None:
    """Until none is left, or the kernel does not let go of one."""
    for _ in range(MAX_KILL_LOOKS):
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = descendants(os.getpid())
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(KILL_LOOK_S)


def descendants(of: int) -> list[int]:
    """All processes below that one."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                parents[int(name)] = int(file.read(READ_BYTES).rsplit(b")", 1)[1].split()[1])
    found: list[int] = []
    level = {of}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        found.extend(level)
    return found


def die_with_parent(number: int) -> None:
    """Get that signal when the thread that started this process ends."""
    call("prctl", PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def call(name: str, *arguments: object) -> None:
    """A function of the C library that answers 0.

    Raises:
        OSError: it answered something else.
    """
    if getattr(_libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _keeper_gone(number: int, frame: object) -> None:
    raise KeeperGoneError


if __name__ == "__main__":
    sys.exit(main(sys.argv))
