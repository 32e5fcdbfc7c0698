"""Where tests keep blob stores: on the disk, and on a virtual host's disk."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Final, Protocol

from hal.blobs import Blobs, open_blobs
from hal.core.interfaces.directory import Directory
from hal.runtime.real_directory import open_private_directory
from hal.runtime.virtual_directory import Holder, VirtualDisk

MIB: Final = 1 << 20
_numbers = count(1)


def opened(
    directory: Directory, *, max_bytes: int = 1_000 * MIB, max_files: int = 10_000, flush: bool = False
) -> Blobs:
    """A store, as a process of its own would open it."""
    return open_blobs(directory, f"p{next(_numbers)}", max_bytes=max_bytes, max_files=max_files, flush=flush)


class Place(Protocol):
    """What `hal.conformance.blobs` asks for, as both places have it."""

    def open(self, *, max_bytes: int, max_files: int, fresh: bool) -> Blobs: ...

    def damage(self, digest: str) -> None: ...


class DiskPlace:
    """Stores in a temporary directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stores = 0

    def open(self, *, max_bytes: int, max_files: int, fresh: bool) -> Blobs:
        self._stores += fresh
        return opened(open_private_directory(self._path), max_bytes=max_bytes, max_files=max_files)

    def damage(self, digest: str) -> None:
        (file,) = (path for path in self._path.glob(f"*/{digest}") if path.is_file())
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)

    @property
    def _path(self) -> Path:
        return self._root / f"store-{self._stores}"


class VirtualPlace:
    """Stores on a virtual disk."""

    def __init__(self) -> None:
        self._disk = VirtualDisk()
        self._stores = 0

    def open(self, *, max_bytes: int, max_files: int, fresh: bool) -> Blobs:
        self._stores += fresh
        return opened(self._root, max_bytes=max_bytes, max_files=max_files)

    def damage(self, digest: str) -> None:
        for kind in ("chunks", "manifests"):
            directory = self._root.child(kind)
            if directory.find(digest) is not None:
                data = bytearray(directory.read(digest, 8 * MIB))
                data[-1] ^= 1
                directory.overwrite(digest, data)

    def leftovers(self) -> list[str]:
        """Files that a step should not leave behind."""
        return [entry.name for kind in ("staging", "leases") for entry in self._root.child(kind).entries()]

    @property
    def _root(self) -> Directory:
        return self._disk.open(f"/store-{self._stores}", Holder())
