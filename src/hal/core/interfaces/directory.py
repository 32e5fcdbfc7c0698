"""A private directory of flat files, as code that keeps files asks for it: the floor `runtime` implements it, on the
disk and in memory.

Pure: a Protocol. Names are one component of a path. Every method but `lock` raises OSError as the system call does
(ENOSPC when the disk is full); FileNotFoundError and FileExistsError are part of the contract.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

Data = bytes | bytearray | memoryview


class DirectoryEntry(NamedTuple):
    """A regular file in a directory; whatever else is there has no entry."""

    name: str
    size_bytes: int
    used_ns: int
    """When it was written or last touched, by the host's clock."""


class Lock(Protocol):
    """A lock that its process holds; the death of the process releases it."""

    def release(self) -> None:
        """Release it; harmless if released."""


class Directory(Protocol):
    """One directory; only its owner may read it.

    What was written survives the death of the process. It survives a power failure only if it was flushed; without
    that, a file may be missing or torn afterwards.
    """

    @property
    def label(self) -> str:
        """Its path, for errors."""

    def child(self, name: str) -> Directory:
        """Open a directory in this one; created if missing.

        Raises:
            DeniedError: something else is there, or others may use it.
        """

    def create(self, name: str, data: Data, *, flush: bool = False) -> None:
        """Create a file. If that fails, no file is left.

        Raises:
            FileExistsError: the name is taken.
        """

    def read(self, name: str, limit: int) -> bytes:
        """Read at most the first `limit` bytes of a regular file.

        Raises:
            FileNotFoundError: there is none.
        """

    def overwrite(self, name: str, data: Data) -> None:
        """Write over the beginning of a file, created if missing. A reader may see a part of it."""

    def append(self, name: str, data: Data) -> None:
        """Add to the end of a file."""

    def move(self, name: str, target: Directory, target_name: str, *, flush: bool = False) -> None:
        """Move a file into another directory of the same disk, in one step; a file of that name there is replaced."""

    def flush(self, name: str) -> None:
        """Flush a file and its name, so that it survives a power failure."""

    def touch(self, name: str) -> None:
        """Set `used_ns` to now; harmless if the file is gone."""

    def find(self, name: str) -> DirectoryEntry | None:
        """Return the file of that name; None: there is none."""

    def remove(self, name: str) -> bool:
        """Remove a file; False: there was none."""

    def entries(self) -> list[DirectoryEntry]:
        """Return all files, in no order."""

    def lock(self, name: str, *, wait: bool) -> Lock | None:
        """Lock a file, created if missing, against every other holder, other locks of this process included.

        Args:
            wait: until it is released; otherwise None is returned while another holds it.
        """
