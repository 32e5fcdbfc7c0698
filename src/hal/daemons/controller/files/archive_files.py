"""The archives of collected files on the disk: see `collected`. All calls block, and run on one thread."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from hal.core.model import StepId
from hal.runtime.privacy import make_private
from hal.runtime.regular_files import open_regular

READ_BYTES: Final = 1 << 20
STAGING: Final = "staging"

_JOB: Final = re.compile(r"([0-9]{1,18})@([0-9a-f]{16})")
_ARCHIVE: Final = re.compile(r"([0-9]{1,18})\.([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})\.tar")


class Archive(NamedTuple):
    """What was collected of one step."""

    task: int
    attempt: int
    rank: int
    files: int
    size_bytes: int
    """Of the archive."""
    at_ms: int

    @property
    def file_name(self) -> str:
        return f"{self.task}.{self.attempt}.{self.rank}.{self.files}.tar"


class ArchiveFiles:
    """Of one controller; created with the first call that writes, or counts."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._staging = root / STAGING

    def count(self) -> tuple[dict[int, str], dict[str, int]]:
        """Remove what was not completed; returns whose the jobs are that have archives, and the bytes of each."""
        for path in (self._root.parent, self._root, self._staging):
            make_private(path)
        for name in os.listdir(self._staging):
            (self._staging / name).unlink(missing_ok=True)
        jobs: dict[int, str] = {}
        used: dict[str, int] = {}
        for name in os.listdir(self._root):
            if found := _JOB.fullmatch(name):
                job, owner = int(found[1]), found[2]
                jobs[job] = owner
                used[owner] = used.get(owner, 0) + sum(one.size_bytes for one in self.of(job, owner))
        return jobs, used

    def append(self, name: str, data: bytes) -> None:
        """Add to an archive that is written."""
        fd = open_regular(self._staging / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        finally:
            os.close(fd)

    def finish(self, name: str, step: StepId, owner: str, files: int) -> None:
        """Flush it and move it to its place."""
        self.append(name, b"")
        fd = open_regular(self._staging / name)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        place = self._place(step.job, owner)
        make_private(place)
        os.rename(self._staging / name, place / f"{step.task}.{step.attempt}.{step.rank}.{files}.tar")

    def abort(self, name: str) -> None:
        """Remove what was written."""
        (self._staging / name).unlink(missing_ok=True)

    def of(self, job: int, owner: str) -> list[Archive]:
        """The archives of a job, by task, attempt and rank."""
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self._place(job, owner)) as entries:
            for entry in entries:
                if named := _ARCHIVE.fullmatch(entry.name):
                    info = entry.stat(follow_symlinks=False)
                    task, attempt, rank, files = map(int, named.groups())
                    found.append(Archive(task, attempt, rank, files, info.st_size, info.st_mtime_ns // 1_000_000))
        return sorted(found)

    def read(self, job: int, owner: str, archive: Archive, offset: int) -> bytes:
        """A piece of an archive; empty at its end, or if it is gone."""
        try:
            fd = open_regular(self._place(job, owner) / archive.file_name)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(fd, READ_BYTES, offset)
        finally:
            os.close(fd)

    def remove(self, jobs: Sequence[tuple[int, str]]) -> list[tuple[str, int]]:
        """Remove the archives of these jobs; returns for each whose it was and how many bytes they had."""
        freed = []
        for job, owner in jobs:
            size_bytes = 0
            for one in self.of(job, owner):
                (self._place(job, owner) / one.file_name).unlink(missing_ok=True)
                size_bytes += one.size_bytes
            with contextlib.suppress(OSError):
                self._place(job, owner).rmdir()
            freed.append((owner, size_bytes))
        return freed

    def remove_attempt(self, job: int, owner: str, task: int, attempt: int) -> int:
        """Remove the archives of an attempt; returns how many bytes they had."""
        freed = 0
        for one in self.of(job, owner):
            if (one.task, one.attempt) == (task, attempt):
                (self._place(job, owner) / one.file_name).unlink(missing_ok=True)
                freed += one.size_bytes
        return freed

    def _place(self, job: int, owner: str) -> Path:
        return self._root / f"{job}@{owner}"
