"""A helper's own journal: lines of text, appended with one write each; a line without its end is torn and does not
count.

    H pid start_ticks boot_id version recorder start_ticks uid    first line; 0 0: only this process sees our steps end;
                             uid: whom it serves, or -1: whom its keeper runs as
    I step slot [after]      about to spawn; slot: its cgroup, or -; after: the step whose slot it inherited
    O step number [number]   the spare files of its stdout and stderr, in the journal's name and these numbers
    B step cpu[,cpu]         the CPUs on which it runs; without this line on all
    P step pid wall_ms boot_ms mark      mark: the hard limit that all processes of the step have, or 0
    F seq step code wall_ms message      no process could be made: the job's fault
    U step                   no process could be made: this node's fault; it may run elsewhere
    X seq step status wall_ms user_ms system_ms max_rss_kib in_blocks out_blocks leftover
    C                        nothing more will be spawned

`helper_journal` reads it in the keeper.
"""

from __future__ import annotations

import errno
import os

from hal.runtime.regular_files import create_regular, create_scratch

VERSION = 1
READ_BYTES = 1 << 16
MAX_JOURNAL_BYTES = 1 << 20
"""A journal that exceeds this (and twice its live content) is rewritten."""


class Journal:
    """Can be rebuilt from what runs and what the keeper has not confirmed."""

    def __init__(self, path: str, pid: int, proc: int = -1, recorder: int = 0, uid: int = -1) -> None:
        self.path = path
        self.error = ""
        """Why the last write failed; "": it did not."""
        self.size = 0
        self._lost = ""
        self._torn = False
        self._fd = create_regular(path, os.O_WRONLY | os.O_APPEND)
        with open("/proc/self/stat", "rb") as file:
            ticks = file.read().rsplit(b")", 1)[1].split()[19].decode()
        where = "sys/kernel/random/boot_id"  # as the keeper reads it, whose /proc may be another one
        fd = os.open(where, os.O_RDONLY, dir_fd=proc) if proc >= 0 else os.open(f"/proc/{where}", os.O_RDONLY)
        boot_id = os.read(fd, READ_BYTES).decode("ascii").strip()
        os.close(fd)
        self._first = f"H {pid} {ticks} {boot_id} {VERSION} {recorder} {_start_ticks(recorder)} {uid}\n"
        self.write(self._first)

    def write(self, text: str) -> bool:
        """Append; False if the disk is full. What could not be written is retried with the next lines."""
        data = (("\n" if self._torn else "") + self._lost + text).encode("utf-8", "surrogateescape")
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            self.error = error.strerror or str(error)
            self._lost += text
            return False
        self.size += written
        self._torn = written < len(data)
        self._lost = self._lost + text if self._torn else ""
        self.error = os.strerror(errno.ENOSPC) if self._torn else ""
        return not self._torn

    def give_up(self) -> None:
        """Drop the lines that could not be written."""
        self._lost = ""

    def rewrite(self, text: str) -> None:
        """Replace the whole journal; on a full disk it stays as it is."""
        scratch = self.path + ".new"
        try:
            fd = create_scratch(scratch, flags=os.O_WRONLY | os.O_APPEND)
            data = (self._first + text).encode("utf-8", "surrogateescape")
            if os.write(fd, data) < len(data):
                os.close(fd)
                return
            os.rename(scratch, self.path)
        except OSError as error:
            self.error = error.strerror or str(error)
            return
        os.close(self._fd)
        self._fd, self.size, self._lost, self._torn = fd, len(data), "", False


def _start_ticks(pid: int) -> int:
    """Return when a process began, in clock ticks since the boot; 0 if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read(READ_BYTES).rsplit(b")", 1)[1].split()[19])
    except (OSError, IndexError):
        return 0
