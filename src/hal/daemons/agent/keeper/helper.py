"""One helper: a tiny process that spawns steps, waits for them, and journals their ends before it reports to its
keeper. Its state is in `helper_process`.

Run as a script with `python -I -S`, without packages but `hal.runtime.regular_files`, which needs none (about 10 MiB,
most of it shared): `helper.py JOURNAL recorder PID`, started by a `recorder`, the keeper's socket as file descriptor 0.
It outlives its keeper: when the socket closes it spawns nothing more, waits for what it has, journals that, and ends. A
helper of guarded steps (`helper.py JOURNAL PROC`, started by `guard`) ends with its keeper instead, and they with it;
PROC is a descriptor of the /proc outside its PID namespace, or -1 without one.

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

from hal.daemons.agent.keeper.helper_process.journal import Journal
from hal.daemons.agent.keeper.helper_process.keeper_link import KeeperLink
from hal.daemons.agent.keeper.helper_process.steps import Helper

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
STEP_UMASK = 0o022
CORE_VARIABLE = "HAL_CORE_LIMIT"
"""The size of core files that steps may write, unless they raise it; as in `hal.runtime.inheritance`."""
KEEPER_FD = 0
WAKE_BYTES = 1 << 16


def main(argv: list[str]) -> None:
    """Serve the keeper at file descriptor 0 until it has ended and every step has ended, or must end with it."""
    guarded = len(argv) == 3
    recorder = int(argv[3]) if len(argv) > 3 else 0
    proc = int(argv[2]) if guarded else -1
    pid = os.getpid() if proc < 0 else int(os.readlink("self", dir_fd=proc))
    if proc >= 0:
        os.set_inheritable(proc, False)
    confine_process()
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    os.set_inheritable(KEEPER_FD, False)
    link = KeeperLink(KEEPER_FD)
    helper = Helper(Journal(argv[1], pid, proc, recorder), link, proc)
    link.report("R", pid)
    poll = select.poll()
    poll.register(wake_read, select.POLLIN)
    poll.register(KEEPER_FD, select.POLLIN)
    outputs_fd = helper.captures.fd
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
    helper.captures.close()


def confine_process() -> None:
    """Adopt what steps leave behind, and set what steps inherit."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # one job's step environment must not be readable by another
    os.umask(STEP_UMASK)
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
