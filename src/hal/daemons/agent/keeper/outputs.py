"""The output files of steps: read by the byte ever written, bounded in size, deleted when asked.

A step writes to its files itself, appending. When a file has grown over its bound, the oldest part is given back to the
file system (a hole is punched; positions in the file stay what they were), so the newest bytes are kept whoever
writes and whether or not the keeper lives. Once nothing writes any more the hole is cut out of the file (where the
file system can do that: ext4, xfs) and a small file beside it, `….stdout.kept`, says where its first byte was. Where no
hole can be punched the file is emptied instead.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from hal.core.model import AttemptId, StepId
from hal.core.model.units import format_size
from hal.daemons.agent.keeper.ports import LogPart, output_prefix
from hal.wire.frames import Stream

KEEP_SIZE: Final = 1
PUNCH_HOLE: Final = 2
COLLAPSE_RANGE: Final = 8
BLOCK_BYTES: Final = 4096
"""Holes begin and end at multiples of this (larger blocks of a file system only make them smaller)."""
MAX_FORGOTTEN_PER_TURN: Final = 100
"""Files deleted before the loop looks at its sockets again."""
NO_SPACE_BYTES: Final = 2 * BLOCK_BYTES
"""A file system with less free is full."""
_UNSUPPORTED: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class _Extent(NamedTuple):
    """Of one output, counted in bytes ever written."""

    first: int
    """The oldest byte that is kept."""
    size: int
    base: int
    """Position of the file's own first byte."""


class OutputFiles:
    """The `Outputs` of one node, under HAL_HOME/nodes/NODE/steps."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._doomed: deque[str] = deque()
        self._trimmed: set[str] = set()
        """Outputs of running steps that lost bytes."""

    def directory(self, step: StepId) -> str:
        return f"{self._root}/{step.job}"

    def _path(self, step: StepId, stream: Stream) -> str:
        return f"{self._root}/{step.job}/{output_prefix(step)}.{stream}"

    def prepare(self, step: StepId) -> str:
        directory = self.directory(step)
        try:
            os.makedirs(directory, 0o700, exist_ok=True)
            for stream in Stream:
                os.close(os.open(self._path(step, stream), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        except OSError as error:
            return f"{directory}: {error.strerror}"
        return ""

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, step: StepId, stream: Stream, offset: int, limit: int) -> LogPart:
        path = self._path(step, stream)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return LogPart(0, b"", 0, f"there is no {stream} of step {step} on this node: deleted, or never written")
        except OSError as error:
            return LogPart(0, b"", 0, f"{path}: {error.strerror}")
        try:
            extent = _extent(fd, path)
            wanted = extent.size + offset if offset < 0 else offset
            start = min(max(wanted, extent.first), extent.size)
            return LogPart(start, os.pread(fd, limit, start - extent.base), extent.size)
        except OSError as error:
            return LogPart(0, b"", 0, f"{path}: {error.strerror}")
        finally:
            os.close(fd)

    # ── bounding ──────────────────────────────────────────────────────────────────────────────────────────────────

    def bound(self, steps: Iterable[tuple[StepId, int]]) -> bool:
        """Give back what is over the bound of each of these running steps; whether one of them writes fast."""
        busy = False
        for step, bound_bytes in steps:
            for stream in Stream:
                path = self._path(step, stream)
                try:
                    if os.stat(path).st_size > bound_bytes:
                        busy = self._trim(path, bound_bytes) > bound_bytes // 4 or busy
                except FileNotFoundError:
                    continue
        return busy

    def settle(self, step: StepId, bound_bytes: int) -> str:
        remarks = []
        directory = self.directory(step)
        for stream in Stream:
            path = self._path(step, stream)
            try:
                size = os.stat(path).st_size
                if size <= bound_bytes and path not in self._trimmed:
                    continue
                self._trim(path, bound_bytes)
                self._trimmed.discard(path)
                dropped = _cut(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                remarks.append(f"{stream}: {error.strerror}")
                continue
            if dropped:
                remarks.append(
                    f"{stream}: the oldest {dropped} bytes were dropped, the newest {format_size(bound_bytes)} are kept"
                )
        if self._disk_is_full(directory):
            remarks.append(f"output may be missing: the disk of {directory} is full")
        return "; ".join(remarks)

    def _trim(self, path: str, bound_bytes: int) -> int:
        """Give back the oldest bytes over the bound; how many."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            extent = _extent(fd, path)
            end = (extent.size - extent.base - bound_bytes) // BLOCK_BYTES * BLOCK_BYTES
            over = end - (extent.first - extent.base)
            if over <= 0:
                return 0
            self._trimmed.add(path)
            if not _allocate(fd, PUNCH_HOLE | KEEP_SIZE, 0, end):
                _note(path, "emptied", extent.size, 0)
                os.ftruncate(fd, 0)
            return over
        finally:
            os.close(fd)

    def _disk_is_full(self, directory: str) -> bool:
        try:
            free = os.statvfs(directory)
        except OSError:
            return False
        return (free.f_bavail if os.geteuid() else free.f_bfree) * free.f_frsize < NO_SPACE_BYTES

    # ── deleting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def forget(self, attempts: Sequence[AttemptId]) -> None:
        by_job: dict[int, set[str]] = {}
        for attempt in attempts:
            by_job.setdefault(attempt.job, set()).add(f"{attempt.task}.{attempt.attempt}")
        for job, wanted in by_job.items():
            with contextlib.suppress(FileNotFoundError):
                names = os.listdir(f"{self._root}/{job}")
                # T.A.R.stdout: the attempt is what stands before the second dot.
                self._doomed.extend(f"{self._root}/{job}/{n}" for n in names if ".".join(n.split(".", 2)[:2]) in wanted)

    def work(self) -> bool:
        """Delete some of what is to be forgotten; whether there is more."""
        for _ in range(min(MAX_FORGOTTEN_PER_TURN, len(self._doomed))):
            path = self._doomed.popleft()
            with contextlib.suppress(OSError):
                os.unlink(path)
            if not self._doomed or os.path.dirname(self._doomed[0]) != os.path.dirname(path):
                with contextlib.suppress(OSError):  # the job has other attempts here
                    os.rmdir(os.path.dirname(path))
        return bool(self._doomed)


def _extent(fd: int, path: str) -> _Extent:
    info = os.fstat(fd)
    state, base, kept = _noted(path)
    if state == "cut" and info.st_size != kept:
        base = 0  # the note was written, the file not yet cut
    hole = 0
    if info.st_blocks * 512 < info.st_size:
        try:
            hole = os.lseek(fd, 0, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            hole = info.st_size
    return _Extent(base + hole, base + info.st_size, base)


def _cut(path: str) -> int:
    """Cut the hole out of a file to which nothing is written any more; how many bytes were dropped in all."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        extent = _extent(fd, path)
        hole = (extent.first - extent.base) // BLOCK_BYTES * BLOCK_BYTES
        if 0 < hole < extent.size - extent.base and extent.base == 0:
            _note(path, "cut", hole, extent.size - hole)
            if not _allocate(fd, COLLAPSE_RANGE, 0, hole):
                os.unlink(f"{path}.kept")
        return extent.first
    finally:
        os.close(fd)


def _noted(path: str) -> tuple[str, int, int]:
    try:
        with open(f"{path}.kept", encoding="ascii") as file:
            state, base, kept = file.read().split()
        return state, int(base), int(kept)
    except (FileNotFoundError, ValueError):
        return "", 0, 0


def _note(path: str, state: str, base: int, kept: int) -> None:
    scratch = f"{path}.kept.new"
    with open(scratch, "w", encoding="ascii") as file:
        file.write(f"{state} {base} {kept}\n")
    os.replace(scratch, f"{path}.kept")


def _allocate(fd: int, mode: int, offset: int, length: int) -> bool:
    """fallocate(2); False where the file system has no such thing."""
    if _libc.fallocate(fd, mode, offset, length) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number))
