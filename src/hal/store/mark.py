"""The mark: what a controller remembers about its store outside it, so that a lost store is not mistaken for a new
one.

Two lines in HAL_HOME: the identity of the store, the newest committed group and the id of the last job; and the newest
flushed group. They are written in place after each commit and flush and never flushed themselves, which costs a few
microseconds. A store with another identity, or with fewer groups than the mark, is refused until a person decides what
to do.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

from hal.store.errors import StoreLost

INSTANCE: Final = "instance"
"""The key of the store's identity: 32 hex digits, created at the first start."""
LINE_BYTES: Final = 128
NONE: Final = "-"
_WAYS_OUT: Final = (
    "put the right one back, or run `hal restore FILE` with a backup; `hal up --new-store` continues with what is "
    "there now, and what is missing is lost"
)


class Seen(NamedTuple):
    """The contents of the mark."""

    instance: str = ""
    """Empty: nothing is recorded yet, or a person has accepted another store."""
    boot_id: str = NONE
    """Boot id of this host when `committed` was written: a power failure may undo what was not flushed."""
    committed: int = 0
    """Number of the newest group that was committed."""
    flushed: int = 0
    """Number of the newest group that was flushed."""
    last_job: int = 0
    """Largest id of any job: never assigned again, not even by a restored store."""


class StoreMark:
    """The file. The thread that commits writes its first line, the one that flushes writes the second."""

    def __init__(self, path: Path, boot_id: str) -> None:
        self._path = path
        self._boot_id = boot_id
        self._fd: int | None = None
        self._commits, self._flushed = _read(path)

    @property
    def seen(self) -> Seen:
        """The contents; empty where there is no mark, or where it cannot be read."""
        return self._commits._replace(flushed=self._flushed)

    def check(self, location: str, instance: str, newest: int, *, flushes: bool) -> None:
        """Check that a store is the remembered one, and as recent.

        Args:
            location: its name in error messages.
            instance: its identity; '': it has none yet.
            newest: number of its newest group.
            flushes: commits survive a power failure only once they are flushed.
        Raises:
            StoreLost: it is another store, or an older state of the same one.
        """
        seen = self.seen
        if not seen.instance:
            return
        if instance != seen.instance:
            what = f"belongs to another HAL ({instance[:8]})" if instance else "is empty"
            raise StoreLost(f"the store {location} {what}: it is not the one that this HAL used", hint=_WAYS_OUT)
        least = seen.committed if seen.boot_id == self._boot_id or not flushes else seen.flushed
        if newest < least:
            raise StoreLost(
                f"the store {location} is older than what this HAL has written: it ends with group {newest}, not "
                f"{least}; it is an old copy, or its log (…-wal) was removed",
                hint=_WAYS_OUT,
            )

    def missing_store_error(self, location: str) -> StoreLost:
        """The error for a store that does not exist although one was used."""
        return StoreLost(f"the store {location} that this HAL used is gone", hint=_WAYS_OUT)

    def record_commit(self, number: int, *, instance: str = "", last_job: int = 0) -> None:
        """Record that a group is committed.

        Args:
            instance: the store's identity, if the group sets it.
            last_job: largest id of a job that the group creates; 0: none.
        """
        before = self._commits
        self._write_commits(
            Seen(instance or before.instance, self._boot_id, number, last_job=max(before.last_job, last_job))
        )

    def record_flush(self, number: int) -> None:
        """Record that all groups up to this one are flushed."""
        if number != self._flushed:
            self._write_flushed(number)

    def remember(self, instance: str, newest: int) -> None:
        """Remember a store that was opened, if none is remembered yet."""
        if instance and not self._commits.instance:
            self._write_commits(self._commits._replace(instance=instance, committed=newest))
            self._write_flushed(newest)

    def accept_another(self) -> None:
        """Accept the next store that is opened as it is, because a person asked for it. Job ids continue."""
        self._write_commits(Seen(last_job=self._commits.last_job))
        self._write_flushed(0)

    def close(self) -> None:
        """Close the file; nothing is written afterwards."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write_commits(self, seen: Seen) -> None:
        self._commits = seen
        self._write(f"{seen.instance or NONE} {seen.boot_id} {seen.committed} {seen.last_job}", 0)

    def _write_flushed(self, number: int) -> None:
        self._flushed = number
        self._write(str(number), LINE_BYTES)

    def _write(self, line: str, at: int) -> None:
        """Write a line of fixed length in place; a disk that refuses leaves an older mark, which demands less."""
        with contextlib.suppress(OSError):
            if self._fd is None:
                self._fd = _open(self._path, os.O_RDWR | os.O_CREAT)
            os.pwrite(self._fd, (line.ljust(LINE_BYTES - 1) + "\n").encode("ascii"), at)


def _read(path: Path) -> tuple[Seen, int]:
    """Read both lines; empty where there is no mark, or where it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        fd = _open(path, os.O_RDONLY)
        try:
            text = os.read(fd, 2 * LINE_BYTES).decode("ascii")
        finally:
            os.close(fd)
        instance, boot_id, committed, last_job, flushed = text.split()
        seen = Seen("" if instance == NONE else instance, boot_id, int(committed), last_job=int(last_job))
        return seen, int(flushed)
    return Seen(), 0


def _open(path: Path, flags: int) -> int:
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path} is not a regular file")
    return fd
