"""The node's own bound on outputs: by age and by size, whatever the controller says, or while it says nothing.

The directories of jobs are looked through once an hour, some files at a time; what is too old or too much is handed to
`OutputFiles.forget_by_bounds`. Jobs that run on the node keep their files.
"""

from __future__ import annotations

import contextlib
import heapq
import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from hal.core.model.units import format_size
from hal.daemons.agent.keeper.outputs import OutputFiles
from hal.daemons.agent.keeper.ports import Instant
from hal.runtime.regular_files import open_directory

DAY_MS: Final = 86_400_000
FIRST_AFTER_MS: Final = 60_000
EVERY_MS: Final = 3_600_000
"""From the end of one look to the next."""
LOOKED_AT_ONCE: Final = 200
"""Files and directories that one turn looks at."""
PAUSE_MS: Final = 20
MAX_DIRECTORIES: Final = 200_000
"""Jobs whose age and size are remembered during one look; those that were written to last are looked at next time."""
MAX_FORGOTTEN: Final = 10_000
"""Jobs whose outputs one look deletes."""
FORGOTTEN_AT_ONCE: Final = 100
"""Of these, so many in one turn."""


class _Job(NamedTuple):
    written_ms: int
    """When something was last written there."""
    job: int
    size_bytes: int
    """Of its files, as the disk has it."""


class OldOutputs:
    """Looks for outputs that are too old or too much."""

    def __init__(self, outputs: OutputFiles, keep_ms: int, keep_bytes: int) -> None:
        """Args:
        keep_ms: since something was last written; 0: no bound.
        keep_bytes: of all outputs together; 0: no bound.
        """
        self._outputs = outputs
        self._keep_ms = keep_ms
        self._keep_bytes = keep_bytes
        self._look: Iterator[_Job | None] | None = None
        self._found: list[_Job] = []
        """A heap by negated time: those that were written to first."""
        self._total_bytes = 0
        self._doomed: dict[int, str] = {}
        """Jobs that are too old or too much, of the look that is over, each with the bound."""
        self.next_boot_ms = 0
        """When `advance` is due, by the boot clock."""

    def advance(self, now: Instant, is_running: Callable[[int], bool]) -> None:
        """Continue for one turn; sets when the next is due."""
        if self._doomed:
            self._forget_some(now, is_running)
            self.next_boot_ms = now.boot_ms + (PAUSE_MS if self._doomed else EVERY_MS)
            return
        if self._look is None:
            if not self.next_boot_ms:
                self.next_boot_ms = now.boot_ms + FIRST_AFTER_MS
                return
            self._found, self._total_bytes = [], 0
            self._look = self._jobs()
        self.next_boot_ms = now.boot_ms + PAUSE_MS
        for _ in range(LOOKED_AT_ONCE):
            try:
                found = next(self._look)
            except StopIteration:
                self._look = None
                self._choose(now, is_running)
                self.next_boot_ms = now.boot_ms + (PAUSE_MS if self._doomed else EVERY_MS)
                return
            if found is not None:
                self._total_bytes += found.size_bytes
                heapq.heappush(self._found, found._replace(written_ms=-found.written_ms))
                if len(self._found) > MAX_DIRECTORIES:
                    heapq.heappop(self._found)

    def _choose(self, now: Instant, is_running: Callable[[int], bool]) -> None:
        for minus_ms, job, size_bytes in sorted(self._found, reverse=True):
            too_old = self._keep_ms and -minus_ms < now.wall_ms - self._keep_ms
            too_much = self._keep_bytes and self._total_bytes > self._keep_bytes
            if not (too_old or too_much) or len(self._doomed) >= MAX_FORGOTTEN:
                break
            if not is_running(job):
                days, size = self._keep_ms // DAY_MS, format_size(self._keep_bytes)
                self._doomed[job] = f"outputs_days = {days}" if too_old else f'outputs_size = "{size}"'
                self._total_bytes -= size_bytes
        self._found = []

    def _forget_some(self, now: Instant, is_running: Callable[[int], bool]) -> None:
        some = {job: self._doomed.pop(job) for job in list(islice(self._doomed, FORGOTTEN_AT_ONCE))}
        self._outputs.forget_by_bounds({job: why for job, why in some.items() if not is_running(job)}, now.wall_ms)

    def _jobs(self) -> Iterator[_Job | None]:
        """Each job's directory, after None for each of its files."""
        try:
            root = open_directory(self._outputs.root, flags=os.O_RDONLY)
        except OSError:  # no step has run here yet
            return
        try:
            with os.scandir(root) as entries:
                for entry in entries:
                    if entry.name.isdecimal() and len(entry.name) < 19:
                        yield from _files_of(entry.name, root)
        except OSError:  # the disk does not answer: next time
            return
        finally:
            os.close(root)


def _files_of(name: str, root: int) -> Iterator[_Job | None]:
    try:
        directory = open_directory(name, dir_fd=root, flags=os.O_RDONLY)
    except OSError:  # a job has put something else in its place
        return
    try:
        info = os.fstat(directory)
        written_ns, size_bytes = info.st_mtime_ns, 0
        with os.scandir(directory) as files:
            for file in files:
                with contextlib.suppress(OSError):
                    info = file.stat(follow_symlinks=False)
                    written_ns = max(written_ns, info.st_mtime_ns)
                    size_bytes += info.st_blocks * 512
                yield None
    finally:
        os.close(directory)
    yield _Job(written_ns // 1_000_000, int(name), size_bytes)
