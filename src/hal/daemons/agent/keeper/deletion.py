"""Delete the files of forgotten attempts and jobs, some at a time: a directory may hold any number of files.

A turn costs O(names log pieces), and a request O(its pieces log pieces).
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from hal.runtime.regular_files import open_directory
from hal.wire.frames.agent_keeper import ForgetPiece

MAX_DELETED_PER_TURN: Final = 100
"""Files deleted before the loop returns to its sockets."""
MAX_LOOKED_PER_TURN: Final = 2_000
"""File names examined before that."""
MAX_PENDING: Final = 100_000
"""Pieces that wait to be deleted; a request beyond is not answered, and comes again."""


class Deletions:
    """The pending deletions in the directories of jobs below one directory."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._doomed: dict[int, _Doomed] = {}
        """By job."""
        self._pending = 0
        """Pieces in `_doomed`."""
        self._left: dict[int, int] = {}
        """Jobs that are left, by request."""
        self._finished: list[int] = []
        self._begun: _Directory | None = None

    def add(self, pieces: Sequence[ForgetPiece], request: int = 0) -> None:
        """Delete these files.

        Args:
            request: returned by `finished` when nothing of them is left; 0: nobody waits for that.
        """
        if self._pending + len(pieces) > MAX_PENDING or request in self._left:
            return
        jobs = {piece.job for piece in pieces}
        for job in jobs:
            doomed = self._doomed.setdefault(job, _Doomed())
            if request:
                doomed.requests.append(request)
        for piece in pieces:
            self._doomed[piece.job].add(piece)
        self._pending += len(pieces)
        if request and jobs:
            self._left[request] = len(jobs)
        elif request:
            self._finished.append(request)

    def finished(self) -> list[int]:
        """Return the requests of which nothing is left, once each."""
        finished, self._finished = self._finished, []
        return finished

    def advance(self) -> bool:
        """Continue for one turn; returns whether there is more to do."""
        looks, deletions = MAX_LOOKED_PER_TURN, MAX_DELETED_PER_TURN
        while looks > 0 and deletions > 0:
            if self._begun is None:
                if not self._doomed:
                    return False
                job = next(iter(self._doomed))
                wanted = self._doomed.pop(job)
                self._pending -= wanted.pieces
                looks -= 1
                try:
                    self._begun = _Directory(self._root, job, wanted)
                except OSError:  # it does not exist, or is not a directory of ours: nothing in it is ours
                    self._done(wanted)
                    continue
            name = self._begun.next_name()
            looks -= 1
            if name is None:
                self._begun.close()
                self._done(self._begun.wanted)
                self._begun = None
            elif self._begun.delete(name):
                deletions -= 1
        return self._begun is not None or bool(self._doomed)

    def _done(self, wanted: _Doomed) -> None:
        for request in wanted.requests:
            self._left[request] -= 1
            if not self._left[request]:
                del self._left[request]
                self._finished.append(request)


class _Doomed:
    """What is to be deleted of one job."""

    def __init__(self) -> None:
        self.whole = False
        self.pieces = 0
        self.requests: list[int] = []
        """Who waits for it; a request is in it once."""
        self._tasks: dict[int, _Tasks] = {}
        """By attempt number."""

    def add(self, piece: ForgetPiece) -> None:
        self.pieces += 1
        if piece.attempt:
            self._tasks.setdefault(piece.attempt, _Tasks()).add(piece.first, piece.first + piece.count)
        else:
            self.whole = True

    def names(self, name: str) -> bool:
        """Whether a file is to be deleted; T.A.R.stdout: task, attempt, rank."""
        if self.whole:
            return True
        task, _, rest = name.partition(".")
        attempt = rest.partition(".")[0]
        if not (task.isdecimal() and attempt.isdecimal() and len(task) < 19 and len(attempt) < 19):
            return False
        tasks = self._tasks.get(int(attempt))
        return tasks is not None and int(task) in tasks


class _Tasks:
    """A set of tasks, as ranges that neither overlap nor touch, in order."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []

    def add(self, first: int, end: int) -> None:
        """Add the tasks [first, end)."""
        low, high = bisect_left(self._ends, first), bisect_right(self._firsts, end)
        if low < high:  # it overlaps or touches these
            first, end = min(first, self._firsts[low]), max(end, self._ends[high - 1])
        self._firsts[low:high], self._ends[low:high] = [first], [end]

    def __contains__(self, task: int) -> bool:
        at = bisect_right(self._firsts, task) - 1
        return at >= 0 and task < self._ends[at]


class _Directory:
    """The directory of one job, while it is examined."""

    def __init__(self, root: str, job: int, wanted: _Doomed) -> None:
        """Raises:
        OSError: it cannot be opened, or something else is in its place.
        """
        self._name = str(job)
        self.wanted = wanted
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
        """Delete a file if it belongs to what is forgotten; a directory that a job has created here stays."""
        if not self.wanted.names(name):
            return False
        with contextlib.suppress(OSError):
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
