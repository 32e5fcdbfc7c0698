"""The mark: what a controller remembers of its store beside it, so that a lost store is not taken for a new one.

One line in HAL_HOME: which HAL the store belongs to, the newest group that was committed and the newest that was
flushed, and the last job's id. It is written in place after each commit, never flushed: a few microseconds. A store
with another identity, or with fewer groups than the mark, is refused until a person says what is to happen.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from pathlib import Path
from typing import Final, NamedTuple

from hal.store.errors import StoreLost

INSTANCE: Final = "instance"
"""What the store keeps its identity under: 32 hex digits, made at the first start."""
LINE_BYTES: Final = 160
_WAYS_OUT: Final = (
    "put the right one back, or `hal restore FILE` from a backup; `hal up --new-store` goes on with what is there now, "
    "and what is missing is lost"
)


class Seen(NamedTuple):
    """What the mark says."""

    instance: str = ""
    """Empty: nothing yet, or a person has said that the store may be another one."""
    boot_id: str = "-"
    """Boot of this host in which `committed` was true: a power failure may take back what was not flushed."""
    committed: int = 0
    """Number of the newest group that was committed."""
    flushed: int = 0
    """Number of the newest group that was flushed."""
    last_job: int = 0
    """Largest id of any job: never given out again, not even by a store that was restored."""


class StoreMark:
    """The file. Writing calls may come from two threads: the writer's, and the one that flushes."""

    def __init__(self, path: Path, boot_id: str) -> None:
        self._path = path
        self._boot_id = boot_id
        self._lock = threading.Lock()
        self._fd: int | None = None
        self._seen: Seen | None = None

    @property
    def seen(self) -> Seen:
        """What it says; nothing where there is none, or where it cannot be read."""
        with self._lock:
            return self._read()

    def check(self, place: str, instance: str, newest: int, *, flushes: bool) -> None:
        """Whether a store is the one that is remembered, and as new.

        Args:
            place: what to call it.
            instance: its identity; '': it has none yet.
            newest: number of its newest group.
            flushes: commits survive a power failure only once they are flushed.
        Raises:
            StoreLost: it is another one, or an older state of it.
        """
        seen = self.seen
        if not seen.instance:
            return
        if instance != seen.instance:
            what = f"belongs to another HAL ({instance[:8]})" if instance else "is empty"
            raise StoreLost(f"the store {place} {what}: it is not the one that this HAL used", hint=_WAYS_OUT)
        least = seen.committed if seen.boot_id == self._boot_id or not flushes else seen.flushed
        if newest < least:
            raise StoreLost(
                f"the store {place} is older than what this HAL has written: it ends with group {newest}, not {least}; "
                f"an old copy, or its log (…-wal) was removed",
                hint=_WAYS_OUT,
            )

    def gone(self, place: str) -> StoreLost:
        """The error for a store that is not there although one was used."""
        return StoreLost(f"the store {place} that this HAL used is gone", hint=_WAYS_OUT)

    def committed(self, number: int, *, instance: str = "", last_job: int = 0) -> None:
        """That group is committed.

        Args:
            instance: the store's identity, where the group says it.
            last_job: largest id of a job that the group made; 0: none.
        """
        with self._lock:
            seen = self._read()
            self._write(
                seen._replace(
                    instance=instance or seen.instance,
                    boot_id=self._boot_id,
                    committed=number,
                    flushed=min(seen.flushed, number),
                    last_job=max(seen.last_job, last_job),
                )
            )

    def flushed(self, number: int) -> None:
        """All groups up to that one are flushed."""
        with self._lock:
            seen = self._read()
            if number > seen.flushed:
                self._write(seen._replace(flushed=number))

    def adopt(self, instance: str, newest: int) -> None:
        """This store is the one from now on."""
        with self._lock:
            seen = self._read()
            if not seen.instance and instance:
                self._write(seen._replace(instance=instance, boot_id="-", committed=newest, flushed=newest))

    def accept_another(self) -> None:
        """The next store that is opened is taken as it is: a person says so. Ids of jobs go on."""
        with self._lock:
            self._write(Seen(last_job=self._read().last_job))

    def close(self) -> None:
        """Write no more."""
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def _read(self) -> Seen:
        if self._seen is None:
            self._seen = Seen()
            with contextlib.suppress(OSError, ValueError):
                fd = self._open(os.O_RDONLY)
                try:
                    text = os.read(fd, LINE_BYTES).decode("ascii")
                finally:
                    os.close(fd)
                instance, boot_id, committed, flushed, last_job = text.split()
                self._seen = Seen(
                    "" if instance == "-" else instance, boot_id, int(committed), int(flushed), int(last_job)
                )
        return self._seen

    def _write(self, seen: Seen) -> None:
        """In place, a line of always the same length; a disk that refuses leaves an older mark, which demands less."""
        self._seen = seen
        words = (seen.instance or "-", seen.boot_id, str(seen.committed), str(seen.flushed), str(seen.last_job))
        line = " ".join(words).ljust(LINE_BYTES - 1) + "\n"
        with contextlib.suppress(OSError):
            if self._fd is None:
                self._fd = self._open(os.O_RDWR | os.O_CREAT)
            os.pwrite(self._fd, line.encode("ascii"), 0)

    def _open(self, flags: int) -> int:
        fd = os.open(self._path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(f"{self._path} is not a regular file")
        return fd
