"""Identify a process by its pid together with its start time; pid files hold both.

A pid alone may since have been reused for another process. Standard library only and cheap to import.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final, NamedTuple

from hal.runtime.privacy import write_private
from hal.runtime.regular_files import NotRegularError, read_regular

MAX_PID_FILE_BYTES: Final = 4096


class ProcessIdentity(NamedTuple):
    """A process and its start time, so that a later process with the same pid is not mistaken for it."""

    pid: int
    start_ticks: int
    """Field 22 of /proc/PID/stat: clock ticks since boot."""
    boot_id: str = ""
    """The boot in which it ran; '' when unknown."""


def boot_id() -> str:
    """The kernel's id of this boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return ""


def start_ticks(pid: int) -> int | None:
    """When process `pid` started, in clock ticks since boot; None if there is no such process or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read(MAX_PID_FILE_BYTES)
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may itself contain spaces and parentheses: count fields from the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X", b"x") else int(fields[19])


def identify(pid: int | None = None) -> ProcessIdentity:
    """The identity of a running process (this one by default).

    Raises:
        ProcessLookupError: there is none with this pid.
    """
    pid = os.getpid() if pid is None else pid
    ticks = start_ticks(pid)
    if ticks is None:
        raise ProcessLookupError(errno.ESRCH, f"no process {pid}")
    return ProcessIdentity(pid, ticks, boot_id())


def alive(process: ProcessIdentity | None) -> bool:
    """Whether that very process still runs (not a zombie, and not a later process with its pid)."""
    if process is None or start_ticks(process.pid) != process.start_ticks:
        return False
    return not process.boot_id or process.boot_id == boot_id()


def kill(process: ProcessIdentity, signal_number: int) -> bool:
    """Send a signal to that very process and to no other; False if it has ended.

    A pidfd is opened first and the start time compared afterwards, so no pid can be recycled in between.

    Raises:
        DeniedError: it belongs to another user.
    """
    import signal

    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not alive(process):
            return False
        signal.pidfd_send_signal(fd, signal_number)
    except ProcessLookupError:
        return False
    except PermissionError:
        from hal.core.model.errors import DeniedError

        raise DeniedError(f"process {process.pid} may not be signalled", hint="it belongs to another user") from None
    finally:
        os.close(fd)
    return True


def wait_gone(process: ProcessIdentity, timeout_s: float) -> bool:
    """Wait until that process has ended, at most `timeout_s`; returns whether it has. Blocks."""
    import select

    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        if not alive(process):
            return True
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(max(0, int(timeout_s * 1000)))) or not alive(process)
    finally:
        os.close(fd)


def write_pid_file(path: Path, process: ProcessIdentity | None = None) -> ProcessIdentity:
    """Write the process (this one by default) to a pid file, atomically."""
    import json

    process = process or identify()
    write_private(path, json.dumps(process._asdict()) + "\n")
    return process


def read_pid_file(path: Path) -> ProcessIdentity | None:
    """Read the process in a pid file, alive or not; None if there is no file, or it is malformed."""
    import json

    try:
        plain = json.loads(read_regular(path, MAX_PID_FILE_BYTES))
        return ProcessIdentity(int(plain["pid"]), int(plain["start_ticks"]), str(plain.get("boot_id", "")))
    except (FileNotFoundError, NotADirectoryError, NotRegularError):
        return None
    except (ValueError, KeyError, TypeError):
        return None


def running(path: Path) -> ProcessIdentity | None:
    """Return the process that the pid file names, if it still runs."""
    process = read_pid_file(path)
    return process if alive(process) else None


def remove_pid_file(path: Path) -> None:
    """Remove this process's own pid file; one written by a successor stays."""
    process = read_pid_file(path)
    if process is not None and process.pid == os.getpid():
        path.unlink(missing_ok=True)
