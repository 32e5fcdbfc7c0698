"""Directories of a virtual host's disk, in memory: they survive its processes, fill up, and lose what was not flushed
when the power fails.

A power failure leaves each file that was not flushed as it pleases: whole, torn, empty, or missing; and each name that
was not flushed with or without its file. Seeded, so that one seed gives one outcome.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from typing import Final

from hal.core.interfaces.directory import Data, Directory, DirectoryEntry
from hal.core.model.errors import InternalError
from hal.runtime.virtual_loop import ProcessKilledError

UNBOUNDED: Final = 1 << 62


class _File:
    """The contents of a file, and whether they are on the platter."""

    def __init__(self, data: bytes, used_ns: int) -> None:
        self.data = bytearray(data)
        self.used_ns = used_ns
        self.flushed: bytes | None = None
        """As of its last flush; None: never flushed."""


class VirtualDisk:
    """The disk of one host.

    Attributes:
        capacity_bytes: beyond it, writes fail with ENOSPC.
        before: called before each call that changes something, with its name; it may raise, as if the process had died
            there or the disk had failed.
    """

    def __init__(self, seed: int | str = 0, *, capacity_bytes: int = UNBOUNDED) -> None:
        self.capacity_bytes = capacity_bytes
        self.before: Callable[[str], None] = lambda call: None
        self._random = random.Random(seed)
        self._directories: dict[str, _Node] = {}
        self._locks: dict[_File, Holder] = {}
        self._ticks = 0

    def open(self, path: str, holder: Holder) -> VirtualDirectory:
        """Open a directory for one process; created if missing."""
        node = self._directories.setdefault(path, _Node())
        return VirtualDirectory(self, path, node, holder)

    def end(self, holder: Holder) -> None:
        """A process has died: its locks are released."""
        holder.alive = False
        self._locks = {file: one for file, one in self._locks.items() if one is not holder}

    def lose_power(self) -> None:
        """Lose what was not flushed; all processes are dead."""
        self._locks.clear()
        for node in self._directories.values():
            node.lose_power(self._random)

    @property
    def used_bytes(self) -> int:
        """Bytes of all files."""
        return sum(len(file.data) for node in self._directories.values() for file in node.files.values())

    def tick_ns(self) -> int:
        """A clock that never stands still."""
        self._ticks += 1
        return self._ticks

    def extend(self, file: _File, at: int, data: Data) -> None:
        """Write into a file.

        Raises:
            OSError: the disk is full; what fitted was written.
        """
        more = max(0, at + len(data) - len(file.data))
        room = more if self.capacity_bytes == UNBOUNDED else max(0, self.capacity_bytes - self.used_bytes)
        fits = len(data) - max(0, more - room)
        file.data[at : at + fits] = bytes(data)[:fits]
        if fits < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Holder:
    """A process, as far as its disk is concerned.

    Attributes:
        alive: False once it was killed.
    """

    def __init__(self) -> None:
        self.alive = True


class _Node:
    """A directory: its names now, and those on the platter."""

    def __init__(self) -> None:
        self.files: dict[str, _File] = {}
        self.flushed: dict[str, _File] = {}

    def flush_names(self) -> None:
        self.flushed = dict(self.files)

    def lose_power(self, rng: random.Random) -> None:
        names = sorted({*self.files, *self.flushed})
        left: dict[str, _File] = {}
        for name in names:
            now, then = self.files.get(name), self.flushed.get(name)
            file = now if now is then else rng.choice((now, then))
            if file is None:
                continue
            if file.flushed != bytes(file.data):
                kept = rng.choice((b"", bytes(file.data), bytes(file.data[: len(file.data) // 2]), file.flushed or b""))
                file.data = bytearray(kept)
            left[name] = file
        self.files = left
        self.flushed = dict(left)
        for file in left.values():
            file.flushed = bytes(file.data)


class VirtualDirectory:
    """One directory, as one process has opened it; see `hal.core.interfaces.directory.Directory`."""

    def __init__(self, disk: VirtualDisk, path: str, node: _Node, holder: Holder) -> None:
        self._disk = disk
        self._path = path
        self._node = node
        self._holder = holder

    @property
    def label(self) -> str:
        return self._path

    def _change(self, call: str) -> None:
        """Before a change: a dead process makes none any more, not even while its code is unwound."""
        if self._holder.alive:
            self._disk.before(call)
        if not self._holder.alive:
            raise ProcessKilledError(call)

    def child(self, name: str) -> VirtualDirectory:
        self._change("child")
        return self._disk.open(f"{self._path}/{name}", self._holder)

    def create(self, name: str, data: Data, *, flush: bool = False) -> None:
        self._change("create")
        if name in self._node.files:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        file = self._node.files[name] = _File(b"", self._disk.tick_ns())
        try:
            self._disk.extend(file, 0, data)
        except OSError:
            del self._node.files[name]
            raise
        if flush:
            file.flushed = bytes(file.data)

    def read(self, name: str, limit: int) -> bytes:
        return bytes(self._file(name).data[:limit])

    def overwrite(self, name: str, data: Data) -> None:
        self._change("overwrite")
        file = self._node.files.setdefault(name, _File(b"", self._disk.tick_ns()))
        self._disk.extend(file, 0, data)

    def append(self, name: str, data: Data) -> None:
        self._change("append")
        file = self._file(name)
        self._disk.extend(file, len(file.data), data)

    def move(self, name: str, target: Directory, target_name: str, *, flush: bool = False) -> None:
        self._change("move")
        if not isinstance(target, VirtualDirectory):
            raise InternalError(f"{target.label} is not on this disk")
        file = self._file(name)
        del self._node.files[name]
        target._node.files[target_name] = file
        if flush:
            target._node.flush_names()

    def flush(self, name: str) -> None:
        self._change("flush")
        file = self._file(name)
        file.flushed = bytes(file.data)
        self._node.flush_names()

    def touch(self, name: str) -> None:
        self._change("touch")
        file = self._node.files.get(name)
        if file is not None:
            file.used_ns = self._disk.tick_ns()

    def find(self, name: str) -> DirectoryEntry | None:
        file = self._node.files.get(name)
        return None if file is None else DirectoryEntry(name, len(file.data), file.used_ns)

    def remove(self, name: str) -> bool:
        self._change("remove")
        return self._node.files.pop(name, None) is not None

    def entries(self) -> list[DirectoryEntry]:
        return [DirectoryEntry(name, len(file.data), file.used_ns) for name, file in self._node.files.items()]

    def lock(self, name: str, *, wait: bool) -> VirtualLock | None:
        self._change("lock")
        file = self._node.files.setdefault(name, _File(b"", self._disk.tick_ns()))
        if file in self._disk._locks:
            if wait:
                raise InternalError(f"{self._path}/{name} is locked, and a simulated call cannot wait for it")
            return None
        self._disk._locks[file] = self._holder
        return VirtualLock(self._disk, file, self._holder)

    def _file(self, name: str) -> _File:
        try:
            return self._node.files[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None


class VirtualLock:
    """A lock that is held."""

    def __init__(self, disk: VirtualDisk, file: _File, holder: Holder) -> None:
        self._disk = disk
        self._file = file
        self._holder = holder

    def release(self) -> None:
        if self._disk._locks.get(self._file) is self._holder:
            del self._disk._locks[self._file]
