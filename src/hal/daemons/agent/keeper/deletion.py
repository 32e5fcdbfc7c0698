"""Delete the files of forgotten attempts, some at a time: a directory may hold any number of files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from typing import Final

from hal.core.model import AttemptId
from hal.runtime.regular_files import open_directory

MAX_DELETED_PER_TURN: Final = 100
"""Files deleted before the loop returns to its sockets."""
MAX_LOOKED_PER_TURN: Final = 2_000
"""File names examined before that."""


class Deletions:
    """The pending deletions in the directories of jobs below one directory."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._doomed: dict[int, set[str]] = {}
        """By job: the attempts, as prefixes of file names (`T.A`)."""
        self._begun: _Directory | None = None

    def add(self, attempts: Sequence[AttemptId]) -> None:
        """Delete the files of these attempts."""
        for attempt in attempts:
            self._doomed.setdefault(attempt.job, set()).add(f"{attempt.task}.{attempt.attempt}")

    def advance(self) -> bool:
        """Continue for one turn; returns whether there is more to do."""
        looks, deletions = MAX_LOOKED_PER_TURN, MAX_DELETED_PER_TURN
        while looks > 0 and deletions > 0:
            if self._begun is None:
                if not self._doomed:
                    return False
                job = next(iter(self._doomed))
                wanted = self._doomed.pop(job)
                looks -= 1
                try:
                    self._begun = _Directory(self._root, job, wanted)
                except OSError:  # it does not exist, or is not a directory of ours: nothing in it is ours
                    continue
            name = self._begun.next_name()
            looks -= 1
            if name is None:
                self._begun.close()
                self._begun = None
            elif self._begun.delete(name):
                deletions -= 1
        return self._begun is not None or bool(self._doomed)


class _Directory:
    """The directory of one job, while it is examined."""

    def __init__(self, root: str, job: int, wanted: Iterable[str]) -> None:
        """Raises:
        OSError: it cannot be opened, or something else is in its place.
        """
        self._name = str(job)
        self._wanted = frozenset(wanted)
        self._root = open_directory(root)
        self._fd = -1
        try:
            self._fd = open_directory(self._name, dir_fd=self._root, flags=os.O_RDONLY)
            self._entries = os.scandir(self._fd)
        except OSError:
            self._close_descriptors()
            raise

    def next_name(self) -> str | None:
        """Return the name of the next file; None: there is none, or the disk does not answer."""
        try:
            entry = next(self._entries, None)
        except OSError:
            return None
        return entry.name if entry is not None else None

    def delete(self, name: str) -> bool:
        """Delete a file if it belongs to a forgotten attempt; T.A.R.stdout: the attempt is the part before the
        second dot."""
        if ".".join(name.split(".", 2)[:2]) not in self._wanted:
            return False
        with contextlib.suppress(OSError):  # a directory that a job has created here stays
            os.unlink(name, dir_fd=self._fd)
        return True

    def close(self) -> None:
        """Close it; the directory is removed with its last file."""
        self._entries.close()
        with contextlib.suppress(OSError):  # the job has other attempts here
            os.rmdir(self._name, dir_fd=self._root)
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        for fd in (self._root, self._fd):
            if fd >= 0:
                os.close(fd)
