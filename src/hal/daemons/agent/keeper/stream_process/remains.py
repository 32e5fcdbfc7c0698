"""What is left of a command that ran inside a step: found by descent, by session, and by a variable of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import time

READ_BYTES = 1 << 16
MAX_ENVIRON_BYTES = 1 << 20
GRACE_S = 2.0
"""How long a command whose client is gone may take to end after it was told, before it is killed."""
LOOK_S = 0.02
MAX_ROUNDS = 250
"""Rounds of killing; what forks faster ends with the step."""
VARIABLE = "HAL_STREAM"
"""In the environment of what was begun for a stream; its value names the stream."""


def remains(session: int, name: str) -> list[int]:
    """Return the pids of living processes that belong to a command: children of this process, which adopts what the
    command leaves behind, and their children; its session; and, for what is adopted by the first process of a PID
    namespace, those that have its variable.

    Args:
        session: the pid of the command's first process.
        name: the value of its variable; '': what it left behind is adopted by this process, nothing has to be read.
    """
    parents: dict[int, int] = {}
    found: set[int] = set()
    marked = f"{VARIABLE}={name}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        pid = int(entry)
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read(READ_BYTES).rsplit(b")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if fields[0] in b"ZX":
            continue
        parents[pid] = int(fields[1])
        if int(fields[3]) == session or (name and _is_marked(pid, marked)):
            found.add(pid)
    me = os.getpid()
    for pid in parents:
        chain = [pid]
        while (
            (parent := parents.get(chain[-1], 0)) and parent != me and parent not in found and len(chain) < READ_BYTES
        ):
            chain.append(parent)
        if parent == me or parent in found:
            found.update(chain)
    found.discard(me)
    return sorted(found)


def end_all(session: int, name: str, *, politely: bool) -> None:
    """End what is left; returns when nothing is, or when it forks faster than it is killed.

    Args:
        politely: it is told first (SIGHUP, SIGCONT), and has a moment to end by itself.
    """
    deadline_s = time.monotonic() + GRACE_S
    alive = remains(session, name)
    if politely and alive:
        for number in (signal.SIGHUP, signal.SIGCONT):
            _send(alive, number)
        while alive and time.monotonic() < deadline_s:
            time.sleep(LOOK_S)
            reap()
            alive = remains(session, name)
    for _ in range(MAX_ROUNDS):
        if not alive:
            return
        _send(alive, signal.SIGKILL)
        time.sleep(LOOK_S)
        reap()
        alive = remains(session, name)


def reap() -> dict[int, int]:
    """Reap what has ended; returns statuses by pid."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            ended[pid] = status
    return ended


def _is_marked(pid: int, marked: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return marked in file.read(MAX_ENVIRON_BYTES).split(b"\0")
    except OSError:
        return False


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
