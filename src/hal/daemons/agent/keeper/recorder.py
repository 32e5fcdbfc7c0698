"""A recorder: starts a helper, and records how its steps end if the helper dies, even if the keeper dies with it.

Run as a script with `python -I -S`, standard library only: `recorder.py JOURNAL [ACCOUNT …]`, with the keeper's socket
as file descriptor 0, which it passes on, and so it does the words about the user whom the helper is to become. It stays
who it is: no process of that user can end it, or write to the journal. It does nothing while the helper lives. When the
helper has died, its steps are this process's children (PR_SET_CHILD_SUBREAPER): it appends their ends to the helper's
journal, as the helper would have, for whichever keeper reads it. It ends when it has no child any more.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
import sys
import time

TYPE_CHECKING = False  # typing is one more module to load
if TYPE_CHECKING:
    import resource

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
KEEPER_FD = 0
RETRY_S = 1.0
"""A journal on a full disk is retried after this."""
MAX_JOURNAL_BYTES = 16 << 20
MAX_PID_DIGITS = 7


def main(argv: list[str]) -> int:
    """Start the helper and wait; returns the exit code."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        print(f"recorder: no subreaper: {os.strerror(ctypes.get_errno())}", file=sys.stderr)  # noqa: T201
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # no step can trace it, or take the keeper's socket from it
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper.py")
    helper = os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", script, argv[1], "recorder", str(os.getpid()), *argv[2:]],
        os.environ,
        setsid=True,
        setsigdef=(signal.SIGTERM,),
    )
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, KEEPER_FD)  # the helper's end of the socket is the only one
    code = 0
    steps: dict[int, str] = {}
    unwritten = ""
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG if unwritten else 0)
        except ChildProcessError:
            pid = 0
            if not unwritten:
                return code
        if pid == helper:
            code = os.waitstatus_to_exitcode(status) & 0xFF
            steps = unended(argv[1])
        elif pid in steps:
            unwritten += end_line(steps.pop(pid), os.waitstatus_to_exitcode(status), usage)
        if unwritten and append(argv[1], unwritten):
            unwritten = ""
        elif unwritten:
            time.sleep(RETRY_S)


def unended(journal: str) -> dict[int, str]:
    """Return the steps, by the pid of their first process, whose end the helper's journal does not contain."""
    found: dict[str, int] = {}
    data = b""
    fd = open_journal(journal, os.O_RDONLY)
    if fd >= 0:  # otherwise a step removed it: the next keeper kills what it does not know
        with contextlib.suppress(OSError):
            data = os.read(fd, MAX_JOURNAL_BYTES)
        os.close(fd)
    for line in data.decode("utf-8", "surrogateescape").split("\n")[:-1]:
        words = line.split(" ")
        if words[0] == "P" and len(words) >= 5 and words[2].isdecimal() and len(words[2]) <= MAX_PID_DIGITS:
            found[words[1]] = int(words[2])
        elif words[0] in ("X", "F") and len(words) > 5:
            found.pop(words[2], None)
    return {pid: step for step, pid in found.items()}


def open_journal(path: str, flags: int) -> int:
    """Open the journal; -1 if it is gone, or a step has put something other than a file there.

    `hal.runtime.regular_files` does the same, and loads modules that such a small process does not need.
    """
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return -1


def end_line(step: str, status: int, usage: resource.struct_rusage) -> str:
    """Format an end as a helper does; something may be left of the step, because nobody has checked."""
    wall_ms = time.time_ns() // 1_000_000
    numbers = (
        round(usage.ru_utime * 1000),
        round(usage.ru_stime * 1000),
        usage.ru_maxrss,
        usage.ru_inblock,
        usage.ru_oublock,
    )
    return f"X 0 {step} {status} {wall_ms} {' '.join(map(str, numbers))} 1\n"


def append(journal: str, lines: str) -> bool:
    """Append lines; returns whether they are in it, or never can be, because it was removed."""
    fd = open_journal(journal, os.O_WRONLY | os.O_APPEND)
    if fd < 0:
        return True
    try:
        data = f"\n{lines}".encode("utf-8", "surrogateescape")  # the helper may have died within a line
        return os.write(fd, data) == len(data)
    except OSError:
        return False
    finally:
        os.close(fd)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
