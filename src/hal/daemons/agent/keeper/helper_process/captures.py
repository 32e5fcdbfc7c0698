"""The outputs of steps that HAL keeps: each stream is written to a file that gets its name with its first byte.

A step begins with two empty files from `.spare` beside the directories of jobs. inotify reports the first byte that is
written to one: the file is then renamed to where the stream is kept, and the directory of the job is created if it is
the first. A file that is still empty when its step has ended, with nothing left of the step, serves the next one: many
steps write nothing, and files are slow to create and delete. The helper's journal says which files a step has, so that
a keeper can name them if the helper dies.

A job can write to these directories: a spare file that is not exactly as it was created is not used again.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct

from hal.daemons.agent.keeper.helper_process.spawn_failures import CannotSpawnError, describe_obstacle
from hal.daemons.agent.keeper.helper_process.step_files import Directories
from hal.runtime.regular_files import NotRegularError, create_regular, kind_of

SPARE = ".spare"
STREAMS = ("stdout", "stderr")
MAX_SPARES = 16
"""Empty files kept for steps to come."""
MODE = 0o600
IN_MODIFY = 0x2
IN_ONESHOT = 0x80000000
IN_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
EVENT = struct.Struct("iIII")
READ_BYTES = 1 << 14

Identity = tuple[int, int, int, int, int]
"""Device, inode, mode, owner and number of names of a file."""


class Spare:
    """One file, empty as far as is known."""

    __slots__ = ("identity", "name", "number", "taken_by", "watch")

    def __init__(self, number: int, name: str, identity: Identity) -> None:
        self.number = number
        """By which the helper's journal says whose it is."""
        self.name = name
        self.identity = identity
        self.watch = -1
        """inotify's number of it; -1: its first byte will not be told."""
        self.taken_by: tuple[str, str, str] | None = None
        """A step, the path of its files without their endings, and which stream it is; None: it is nobody's, or has its
        name."""


class Captures:
    """All files of one helper: opened by itself, or by the keeper for a helper that serves another user."""

    def __init__(self, stem: str, directories: Directories, owner: int = -1) -> None:
        """Args:
        stem: the beginning of its spare files' names, which no other helper uses.
        owner: user id to which the files are given; -1: this process's.
        """
        self._owner = owner
        self._stem = stem
        self._directories = directories
        self._root = ""
        self._count = 0
        self._free: list[Spare] = []
        self._watched: dict[int, Spare] = {}
        """Those that were empty when last looked at, by inotify's number."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.inotify_init1(IN_FLAGS)
        """Readable when first bytes were written; -1: the kernel has no more such descriptors for this user."""

    def open(self, step: str, prefix: str, opened: list[int]) -> tuple[list[Spare], str]:
        """Open two files for a step.

        Args:
            prefix: path of its files without their endings.
            opened: gets their descriptors, which the caller closes; fewer than two if the disk is full.
        Returns: its files; and why an output is not kept, or "".
        Raises:
            CannotSpawnError: something other than a file of HAL is where they would be.
        """
        taken: list[Spare] = []
        try:
            self._clear(prefix)
            for stream in STREAMS:
                fd, spare = self._take(os.path.dirname(os.path.dirname(prefix)))
                opened.append(fd)
                spare.taken_by = step, prefix, stream
                taken.append(spare)
                if spare.watch < 0:
                    self._name(spare)
        except NotRegularError as error:
            self.ended(taken, left=False)
            raise CannotSpawnError(126, f"its output cannot be created: {describe_obstacle(error)}") from None
        except OSError as error:
            return taken, f"its output was not kept: {prefix}: {error.strerror}"
        return taken, ""

    def name_written(self) -> list[tuple[str, str]]:
        """Name the files to which a first byte was written; returns why some could not be named, with their steps."""
        problems = []
        try:
            data = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return []
        at = 0
        while at + EVENT.size <= len(data):
            watch, mask, _, length = EVENT.unpack_from(data, at)
            at += EVENT.size + length
            spare = self._watched.pop(watch, None)
            if spare is None:
                continue
            spare.watch = -1
            if mask & IN_MODIFY and spare.taken_by is not None:
                step = spare.taken_by[0]
                problems.append((step, self._name(spare)))
        return [(step, problem) for step, problem in problems if problem]

    def ended(self, taken: list[Spare], *, left: bool) -> str:
        """Handle the end of a step: what it wrote has its name, and the rest is free again.

        Args:
            left: processes of it may still write: all its files get their names.
        Returns: why an output was not kept, or "".
        """
        problems = []
        for spare in taken:
            if spare.taken_by is None:
                continue  # it has its name
            info = self._stat(spare)
            if info is None:
                problems.append(f"its {spare.taken_by[2]} was not kept: its file was removed")
                spare.taken_by = None
                self._discard(spare)
            elif left or info.st_size:
                problems.append(self._name(spare))
            else:
                self._put_back(spare, info)
        return "; ".join(problem for problem in problems if problem)

    def close(self) -> None:
        """Delete the free files."""
        while self._free:
            self._discard(self._free.pop())

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _clear(self, prefix: str) -> None:
        """Remove files that an earlier try of the step has left under its names.

        Raises:
            NotRegularError: something else is there.
        """
        where, _, name = prefix.rpartition("/")
        directory = self._directories.existing(where)
        if directory < 0:
            return
        for stream in STREAMS:
            try:
                mode = os.stat(f"{name}.{stream}", dir_fd=directory, follow_symlinks=False).st_mode
            except FileNotFoundError:
                continue
            if not stat.S_ISREG(mode):
                raise NotRegularError(0, f"{kind_of(mode)} is in the place of the file", f"{prefix}.{stream}")
            os.unlink(f"{name}.{stream}", dir_fd=directory)

    def _take(self, root: str) -> tuple[int, Spare]:
        """Return a descriptor of an empty file, and the file."""
        if root != self._root:
            self.close()
            self._root = root
        while self._free:
            spare = self._free.pop()
            try:
                fd = os.open(
                    spare.name,
                    os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC,
                    dir_fd=self._spare_directory(),
                )
            except OSError:
                self._discard(spare)
                continue
            info = os.fstat(fd)
            if _identity(info) == spare.identity and not info.st_size:
                return fd, spare
            os.close(fd)
            self._discard(spare)
        self._count += 1
        name = spare_name(self._stem, self._count)
        try:
            fd = create_regular(name, os.O_WRONLY | os.O_APPEND, MODE, dir_fd=self._spare_directory())
        except FileNotFoundError:  # the directory was deleted after it was opened
            self._directories.forget(self._spare_path())
            fd = create_regular(name, os.O_WRONLY | os.O_APPEND, MODE, dir_fd=self._spare_directory())
        if self._owner >= 0:
            os.fchown(fd, self._owner, -1)
        return fd, self._watch(Spare(self._count, name, _identity(os.fstat(fd))), fd)

    def _watch(self, spare: Spare, fd: int) -> Spare:
        if self.fd >= 0:
            spare.watch = self._libc.inotify_add_watch(self.fd, b"/proc/self/fd/%d" % fd, IN_MODIFY | IN_ONESHOT)
        if spare.watch >= 0:
            self._watched[spare.watch] = spare
        return spare

    def _name(self, spare: Spare) -> str:
        """Rename a file to where its stream is kept; returns why that failed, or ""."""
        assert spare.taken_by is not None  # its caller has looked
        _, prefix, stream = spare.taken_by
        self._forget(spare)
        spare.taken_by = None
        where, _, name = prefix.rpartition("/")
        problem = ""
        for _ in range(2):
            try:
                os.rename(
                    spare.name,
                    f"{name}.{stream}",
                    src_dir_fd=self._spare_directory(),
                    dst_dir_fd=self._directories.open(where),
                )
            except FileNotFoundError as error:  # a directory was deleted after it was opened
                self._directories.forget(where)
                problem = error.strerror or str(error)
            except OSError as error:
                problem = error.strerror or str(error)
                break
            else:
                return ""
        with contextlib.suppress(OSError):
            os.unlink(spare.name, dir_fd=self._spare_directory())
        return f"its {stream} was not kept: {prefix}.{stream}: {problem}"

    def _put_back(self, spare: Spare, info: os.stat_result) -> None:
        spare.taken_by = None
        if spare.watch < 0 or _identity(info) != spare.identity or len(self._free) >= MAX_SPARES:
            self._discard(spare)
        else:
            self._free.append(spare)

    def _discard(self, spare: Spare) -> None:
        self._forget(spare)
        with contextlib.suppress(OSError):
            os.unlink(spare.name, dir_fd=self._spare_directory())

    def _forget(self, spare: Spare) -> None:
        if spare.watch >= 0:
            if self._watched.pop(spare.watch, None) is not None:
                self._libc.inotify_rm_watch(self.fd, spare.watch)
            spare.watch = -1

    def _stat(self, spare: Spare) -> os.stat_result | None:
        try:
            return os.stat(spare.name, dir_fd=self._spare_directory(), follow_symlinks=False)
        except OSError:
            return None

    def _spare_path(self) -> str:
        return f"{self._root}/{SPARE}"

    def _spare_directory(self) -> int:
        return self._directories.open(self._spare_path())


def spare_name(stem: str, number: int) -> str:
    """Return the name of a file of the helper whose journal has that stem."""
    return f"{stem}.{number}"


def _identity(info: os.stat_result) -> Identity:
    return info.st_dev, info.st_ino, info.st_mode, info.st_uid, info.st_nlink
