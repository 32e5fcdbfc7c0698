"""The output files of steps: read by the position of bytes ever written, bounded in size, deleted on request.

A step appends to its files itself; its helper gives each its name with the first byte (`helper_process.captures`).
When a file exceeds its bound, the oldest part is returned to the file system (a hole is punched; file positions stay
the same), so the newest bytes are kept whoever writes and whether or not the keeper lives. Once nothing writes any
more, the hole is cut out of the file (if the file system supports that: ext4, xfs), and a small file beside it,
`….stdout.kept`, records where its first byte was. If no hole can be punched, the file is emptied instead.

Steps can write to the directories, so nothing there is trusted to be unchanged: files are opened relative to the open
directory of their job, following no link and without blocking, and only regular files of this user with a single name
are read or shortened (see `hal.runtime.regular_files`).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from hal.core.model import StepId
from hal.core.model.units import format_size
from hal.daemons.agent.keeper.deleted_outputs import DeletedOutputs
from hal.daemons.agent.keeper.deletion import Deletions
from hal.daemons.agent.keeper.ports import LogPart, output_prefix
from hal.runtime.regular_files import (
    NotRegularError,
    create_scratch,
    kind_of,
    open_directory,
    open_regular,
    read_regular,
)
from hal.wire.frames.agent_keeper import ForgetPiece, Stream

KEEP_SIZE: Final = 1
PUNCH_HOLE: Final = 2
COLLAPSE_RANGE: Final = 8
BLOCK_BYTES: Final = 4096
"""Holes begin and end at multiples of this (larger blocks of a file system only make them smaller)."""
MAX_OFFSET: Final = (1 << 53) - 1
"""Largest size of an output in bytes; more than a file system holds, and exactly representable in every JSON reader."""
MAX_NOTE_BYTES: Final = 64
SPARE: Final = ".spare"
"""As in `helper_process.captures`: files that have no name yet."""
OTHER_NAME: Final = "the file has another name besides (a hard link)"
NO_SPACE_BYTES: Final = 2 * BLOCK_BYTES
"""A file system with less free space is considered full."""
_UNSUPPORTED: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class _Extent(NamedTuple):
    """The extent of one output, counted in bytes ever written."""

    first: int
    """The oldest byte that is kept."""
    size: int
    base: int
    """Position of the file's own first byte."""


class OutputFiles:
    """The `Outputs` of one node, under HAL_HOME/nodes/NODE/steps."""

    def __init__(self, root: Path) -> None:
        """Args:
        root: may be a link to another disk; one that appears in its place later is not followed.
        """
        self._deleted = DeletedOutputs(root.parent / "deleted-outputs")
        self._root = str(root.resolve() if root.is_symlink() else root)
        self._deletions = Deletions(self._root)
        self._trimmed: set[str] = set()
        """Outputs of running steps that lost bytes."""

    @property
    def root(self) -> str:
        """The directory of the jobs' directories."""
        return self._root

    def directory(self, step: StepId) -> str:
        return f"{self._root}/{step.job}"

    def _path(self, step: StepId, stream: Stream) -> str:
        return f"{self._root}/{step.job}/{output_prefix(step)}.{stream}"

    def prepare(self, step: StepId) -> str:
        directory = self.directory(step)
        try:
            os.makedirs(directory, 0o700, exist_ok=True)
            opened = self._open_directory(step)
            try:
                for stream in Stream:
                    name = f"{output_prefix(step)}.{stream}"
                    os.close(open_regular(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, dir_fd=opened))
            finally:
                os.close(opened)
        except OSError as error:
            return _in_words(directory, error)
        return ""

    def _open_directory(self, step: StepId) -> int:
        """Open the directory of its job's files: that very directory, not one to which a link leads."""
        root = open_directory(self._root)
        try:
            return open_directory(str(step.job), dir_fd=root)
        finally:
            os.close(root)

    # ── what helpers leave ────────────────────────────────────────────────────────────────────────────────────────

    def claim(self, step: StepId, names: Sequence[str]) -> None:
        with contextlib.ExitStack() as open_now, contextlib.suppress(OSError):
            root = open_directory(self._root)
            open_now.callback(os.close, root)
            spares = open_directory(SPARE, dir_fd=root)
            open_now.callback(os.close, spares)
            there = [(name, stream) for name, stream in zip(names, Stream, strict=False) if name and _is(name, spares)]
            if not there:
                return
            with contextlib.suppress(FileExistsError):
                os.mkdir(str(step.job), 0o700, dir_fd=root)
            directory = open_directory(str(step.job), dir_fd=root)
            open_now.callback(os.close, directory)
            for name, stream in there:
                os.rename(name, f"{output_prefix(step)}.{stream}", src_dir_fd=spares, dst_dir_fd=directory)

    def drop_spares(self, stem: str) -> None:
        self._delete_spares(lambda of: of == stem)

    def sweep_spares(self, stems: Collection[str]) -> None:
        self._delete_spares(lambda of: of not in stems)

    def _delete_spares(self, doomed: Callable[[str], bool]) -> None:
        with contextlib.ExitStack() as open_now, contextlib.suppress(OSError):
            root = open_directory(self._root)
            open_now.callback(os.close, root)
            spares = open_directory(SPARE, dir_fd=root, flags=os.O_RDONLY)
            open_now.callback(os.close, spares)
            for name in os.listdir(spares):
                if doomed(name.rpartition(".")[0]):
                    with contextlib.suppress(OSError):  # a directory that a job has created here stays
                        os.unlink(name, dir_fd=spares)

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, step: StepId, stream: Stream, offset: int, limit: int) -> LogPart:
        return self._read(step, stream, offset, limit, lambda: self._open_directory(step))

    def read_many(self, steps: Sequence[StepId], stream: Stream, offset: int, limit: int, total: int) -> list[LogPart]:
        parts: list[LogPart] = []
        job, directory = 0, -1
        try:
            for step in steps:
                if step.job != job:
                    if directory >= 0:
                        os.close(directory)
                    job, directory = step.job, -1
                    with contextlib.suppress(OSError):  # each of its outputs says what is wrong
                        directory = self._open_directory(step)
                if directory >= 0:
                    part = self._read(step, stream, offset, limit, partial(os.dup, directory))
                else:
                    part = self.read(step, stream, offset, limit)
                parts.append(part)
                total -= len(part.data)
                if total < limit:
                    break
        finally:
            if directory >= 0:
                os.close(directory)
        return parts

    def _read(
        self, step: StepId, stream: Stream, offset: int, limit: int, opened_directory: Callable[[], int]
    ) -> LogPart:
        path = self._path(step, stream)
        try:
            with _Output(opened_directory(), os.path.basename(path), os.O_RDONLY) as output:
                extent = output.extent()
                wanted = extent.size + offset if offset < 0 else offset
                start = min(max(wanted, extent.first), extent.size)
                return LogPart(start, os.pread(output.fd, limit, start - extent.base), extent.size)
        except FileNotFoundError:  # a file comes into being with the first byte
            found = self._deleted.find(step.job)
            return LogPart(0, b"", 0) if found is None else LogPart(0, b"", 0, "", found.at_ms, found.bound)
        except OSError as error:
            return LogPart(0, b"", 0, _in_words(path, error))

    # ── bounding ──────────────────────────────────────────────────────────────────────────────────────────────────

    def bound(self, steps: Iterable[tuple[StepId, int]]) -> bool:
        """Trim each of these running steps' outputs to its bound; returns whether one of them grows fast."""
        busy = False
        for step, bound_bytes in steps:
            for stream in Stream:
                # Something that is no longer an output is the step's own doing: its exit reports it.
                with contextlib.suppress(OSError):
                    info = os.lstat(self._path(step, stream))
                    if info.st_size > bound_bytes and stat.S_ISREG(info.st_mode):
                        busy = self._trim(step, stream, bound_bytes) > bound_bytes // 4 or busy
        return busy

    def settle(self, step: StepId, bound_bytes: int) -> str:
        remarks = []
        for stream in Stream:
            path = self._path(step, stream)
            try:
                info = os.lstat(path)
                if not stat.S_ISREG(info.st_mode):
                    remarks.append(f"{stream} was not kept: {kind_of(info.st_mode)} is in the place of the file")
                    continue
                if info.st_nlink > 1:
                    remarks.append(f"{stream} is neither shown nor bounded: {OTHER_NAME}")
                    continue
                if not info.st_size and path not in self._trimmed:
                    self._delete_empty(step, stream)
                    continue
                if info.st_size <= bound_bytes and path not in self._trimmed:
                    continue
                self._trim(step, stream, bound_bytes)
                self._trimmed.discard(path)
                with _Output(self._open_directory(step), os.path.basename(path), os.O_RDWR) as output:
                    dropped = output.cut()
            except FileNotFoundError:
                continue
            except OSError as error:
                remarks.append(f"{stream}: {error.strerror}")
                continue
            if dropped:
                remarks.append(
                    f"{stream}: the oldest {dropped} bytes were dropped, the newest {format_size(bound_bytes)} are kept"
                )
        if self._disk_is_full(self._root):
            remarks.append(f"output may be missing: the disk of {self._root} is full")
        return "; ".join(remarks)

    def _delete_empty(self, step: StepId, stream: Stream) -> None:
        """Delete an output in which nothing is, nor was; the directory of its job too, if it was the last one."""
        name = f"{output_prefix(step)}.{stream}"
        directory = self._open_directory(step)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.stat(f"{name}.kept", dir_fd=directory, follow_symlinks=False)
                return  # it was emptied
            os.unlink(name, dir_fd=directory)
        finally:
            os.close(directory)
        with contextlib.suppress(OSError):
            os.rmdir(self.directory(step))

    def _trim(self, step: StepId, stream: Stream, bound_bytes: int) -> int:
        """Remove the oldest bytes over the bound; returns how many."""
        path = self._path(step, stream)
        with _Output(self._open_directory(step), os.path.basename(path), os.O_RDWR) as output:
            extent = output.extent()
            end = (extent.size - extent.base - bound_bytes) // BLOCK_BYTES * BLOCK_BYTES
            over = end - (extent.first - extent.base)
            if over <= 0:
                return 0
            self._trimmed.add(path)
            if not _allocate(output.fd, PUNCH_HOLE | KEEP_SIZE, 0, end):
                output.note("emptied", extent.size, 0)
                os.ftruncate(output.fd, 0)
            return over

    def _disk_is_full(self, directory: str) -> bool:
        try:
            free = os.statvfs(directory)
        except OSError:
            return False
        return (free.f_bavail if os.geteuid() else free.f_bfree) * free.f_frsize < NO_SPACE_BYTES

    # ── deleting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def forget(self, pieces: Sequence[ForgetPiece], request: int = 0) -> None:
        self._deletions.add(pieces, request)

    def forget_by_bounds(self, jobs: Mapping[int, str], at_ms: int) -> None:
        """Delete all outputs of these jobs, as the node keeps no more; whoever asks for them hears so.

        Args:
            jobs: each with the bound, as hal.toml has it.
            at_ms: now.
        """
        if not jobs:
            return
        with contextlib.suppress(OSError):  # a full disk: it is known until this process ends
            self._deleted.add(jobs.items(), at_ms)
        self._deletions.add([ForgetPiece(job) for job in jobs])

    def forgotten(self) -> list[int]:
        return self._deletions.finished()

    def work(self) -> bool:
        """Delete some of the forgotten files; returns whether there is more."""
        return self._deletions.advance()


class _Output:
    """One open output file, and its open directory."""

    def __init__(self, directory: int, name: str, flags: int) -> None:
        """Args:
            directory: a descriptor; closed with this.
        Raises:
            NotRegularError: it is not a file of this user's, who is not root, or has another name besides.
            OSError: as open(2).
        """
        self._directory = directory
        self._name = name
        self.fd = -1
        try:
            self.fd = open_regular(name, flags, dir_fd=directory)
            info = os.fstat(self.fd)
            if info.st_nlink > 1:
                raise NotRegularError(errno.EMLINK, OTHER_NAME, name)
            if os.geteuid() not in (0, info.st_uid):  # root gives files of outputs to the users of their steps
                raise NotRegularError(errno.EPERM, f"the file belongs to user id {info.st_uid}", name)
        except OSError:
            self.close()
            raise

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        for fd in (self.fd, self._directory):
            if fd >= 0:
                os.close(fd)
        self.fd = self._directory = -1

    def extent(self) -> _Extent:
        info = os.fstat(self.fd)
        state, base, kept = self._noted()
        if state == "cut" and info.st_size != kept:
            base = 0  # the note was written, the file not cut yet
        hole = 0
        if info.st_blocks * 512 < info.st_size:
            try:
                hole = os.lseek(self.fd, 0, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                hole = info.st_size
        if base + info.st_size > MAX_OFFSET:
            raise OSError(errno.EFBIG, "the file is larger than an output can be")
        return _Extent(base + hole, base + info.st_size, base)

    def cut(self) -> int:
        """Cut the hole out of a file that is no longer written to; returns how many bytes were dropped in all."""
        extent = self.extent()
        hole = (extent.first - extent.base) // BLOCK_BYTES * BLOCK_BYTES
        if 0 < hole < extent.size - extent.base and extent.base == 0:
            self.note("cut", hole, extent.size - hole)
            if not _allocate(self.fd, COLLAPSE_RANGE, 0, hole):
                os.unlink(f"{self._name}.kept", dir_fd=self._directory)
        return extent.first

    def note(self, state: str, base: int, kept: int) -> None:
        """Record beside the file how many bytes are missing at its beginning."""
        scratch = f"{self._name}.kept.new"
        fd = create_scratch(scratch, dir_fd=self._directory)
        try:
            os.write(fd, f"{state} {base} {kept}\n".encode("ascii"))
        finally:
            os.close(fd)
        os.replace(scratch, f"{self._name}.kept", src_dir_fd=self._directory, dst_dir_fd=self._directory)

    def _noted(self) -> tuple[str, int, int]:
        try:
            text = read_regular(f"{self._name}.kept", MAX_NOTE_BYTES, dir_fd=self._directory)
            state, base, kept = text.decode("ascii").split()
            noted = state, int(base), int(kept)
        except (FileNotFoundError, NotRegularError, ValueError):
            return "", 0, 0
        return noted if 0 <= noted[1] <= MAX_OFFSET else ("", 0, 0)


def _is(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _in_words(path: str, error: OSError) -> str:
    if isinstance(error, NotRegularError):
        where = os.fspath(error.filename)
        return f"{where if '/' in where else path}: {error.strerror}"
    return f"{path}: {error.strerror}"


def _allocate(fd: int, mode: int, offset: int, length: int) -> bool:
    """Call fallocate(2); False if the file system does not support it."""
    if _libc.fallocate(fd, mode, offset, length) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number))
