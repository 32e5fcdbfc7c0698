"""One helper: a tiny process that spawns steps, waits for them, and journals their ends before it reports to its
keeper. Its state is in `helper_process`.

Run as a script with `python -I -S`, without packages but `hal.runtime.regular_files`, which needs none (about 10 MiB,
most of it shared): `helper.py JOURNAL recorder PID`, started by a `recorder`, the keeper's socket as file descriptor 0.
It outlives its keeper: when the socket closes it spawns nothing more, waits for what it has, journals that, and ends. A
helper of guarded steps (`helper.py JOURNAL guard PROC`, started by `guard`) ends with its keeper instead, and they with
it; PROC is a descriptor of the /proc outside its PID namespace, or -1 without one.

Further words make it the helper of one user, `… USER LEAST_UID NO_NEW_PRIVS [WAY_BACK …]`: it looks the account up and
opens what only root may open (its journal; `cgroup.procs` of the cgroups to which it returns), becomes that user for
good, and gets everything else that needs root as descriptors from its keeper.

The path of this script must not change: by it a keeper recognises the helpers of other versions (see `adoption`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys

if __name__ == "__main__":
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4)))

from hal.daemons.agent.keeper.helper_process.account import Account, NoAccountError
from hal.daemons.agent.keeper.helper_process.cgroup_moves import CgroupMoves
from hal.daemons.agent.keeper.helper_process.journal import Journal
from hal.daemons.agent.keeper.helper_process.keeper_link import KeeperLink
from hal.daemons.agent.keeper.helper_process.scheduling import leave_real_time
from hal.daemons.agent.keeper.helper_process.steps import Helper

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
STEP_UMASK = 0o022
CORE_VARIABLE = "HAL_CORE_LIMIT"
"""The size of core files that steps may write, unless they raise it; as in `hal.runtime.inheritance`."""
KEEPER_FD = 0
WAKE_BYTES = 1 << 16


def main(argv: list[str]) -> None:
    """Serve the keeper at file descriptor 0 until it has ended and every step has ended, or must end with it."""
    path, kind, number, *words = argv[1:]
    guarded = kind == "guard"
    recorder, proc = (0, int(number)) if guarded else (int(number), -1)
    pid = os.getpid() if proc < 0 else int(os.readlink("self", dir_fd=proc))
    if proc >= 0:
        os.set_inheritable(proc, False)
    os.set_inheritable(KEEPER_FD, False)
    confine_process()
    link = KeeperLink(KEEPER_FD, descriptors=bool(words))
    account: Account | None = None
    try:
        account = Account(words[0], int(words[1])) if words else None
    except NoAccountError as error:
        link.report("A", str(error))
        link.flush()
        return
    journal = Journal(path, pid, proc, recorder, -1 if account is None else account.uid)
    cgroups = CgroupMoves()
    if account is not None:
        cgroups.hold_ways_back(words[3:])
        starter = parent_of(proc)
        try:
            account.take_on(no_new_privileges=words[2] == "1")
        except OSError as error:
            link.report("A", f"this node cannot run anything as user '{words[0]}': {error}")
            link.flush()
            return
        if guarded and not die_with_guard(starter, proc):
            return
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    helper = Helper(journal, link, cgroups, proc, account)
    link.report("R", pid, account is None or cgroups.may_move())
    poll = select.poll()
    poll.register(wake_read, select.POLLIN)
    poll.register(KEEPER_FD, select.POLLIN)
    outputs_fd = -1 if helper.captures is None else helper.captures.fd
    if outputs_fd >= 0:
        poll.register(outputs_fd, select.POLLIN)
    while not helper.closed or (helper.running and not guarded):
        for fd, _ in poll.poll(helper.settle()):
            if fd == wake_read:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, WAKE_BYTES)
            elif fd == outputs_fd:
                helper.name_outputs()
            else:
                helper.listen()
        helper.begin_ready()
        helper.reap()
        if helper.closed:
            with contextlib.suppress(KeyError):
                poll.unregister(KEEPER_FD)
    if helper.captures is not None:
        helper.captures.close()


def parent_of(proc: int) -> int:
    """Return the pid of our parent, in the namespace of that /proc (-1: our own)."""
    if proc < 0:
        return os.getppid()
    fd = os.open("self/stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        return int(os.read(fd, WAKE_BYTES).rsplit(b")", 1)[1].split()[1])
    finally:
        os.close(fd)


def die_with_guard(guard: int, proc: int) -> bool:
    """Receive SIGKILL when our guard dies: a change of credentials has reset that. False: it has died meanwhile."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    return parent_of(proc) == guard


def confine_process() -> None:
    """Adopt what steps leave behind, and set what steps inherit."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # one job's step environment must not be readable by another
    os.umask(STEP_UMASK)
    leave_real_time()
    allow_core_files(os.environ.get(CORE_VARIABLE, ""))
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def allow_core_files(size: str) -> None:
    """Restore the core file size that HAL's starter allowed; the daemons in between wrote none."""
    with contextlib.suppress(OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (int(size), hard))


if __name__ == "__main__":
    main(sys.argv)
