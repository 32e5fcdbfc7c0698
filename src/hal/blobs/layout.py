"""The directories of a store, and the calls on them with the disk's errors translated.

chunks/HEX          a chunk
manifests/HEX       the list of a longer blob's chunks
pins/HOLDER@KIND-HEX    an empty file: that holder keeps that blob
instances/NAME      locked by a process that uses the store, as long as it lives
leases/NAME-N       digests of chunks that this process is writing or reading
staging/NAME-N      a file that this process is writing
format              version of this layout
usage               bytes, files and pins, as three numbers
lock                held while any of these is changed, but for staging
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hal.blobs.errors import BlobDiskError, BlobDiskFullError
from hal.core.interfaces.directory import Directory
from hal.core.model.errors import ConflictError

FORMAT: Final = b"hal blobs 1\n"
FORMAT_FILE: Final = "format"
USAGE_FILE: Final = "usage"
LOCK_FILE: Final = "lock"
MAX_FORMAT_BYTES: Final = 64
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Layout:
    """The opened directories of one store.

    Attributes:
        root, chunks, manifests, pins, instances, leases, staging: see the module.
    """

    def __init__(self, root: Directory) -> None:
        """Open the directories; they are created if missing.

        Raises:
            DeniedError: others may use one of them, or something else is there.
            ConflictError: it is not a blob store of this version.
            BlobDiskFullError: they cannot be created.
        """
        with translated(root):
            self.root = root
            # The version comes first: a store of another version is not changed.
            with locked(root):
                self._check_format()
            self.chunks = root.child("chunks")
            self.manifests = root.child("manifests")
            self.pins = root.child("pins")
            self.instances = root.child("instances")
            self.leases = root.child("leases")
            self.staging = root.child("staging")

    def _check_format(self) -> None:
        try:
            found = self.root.read(FORMAT_FILE, MAX_FORMAT_BYTES)
        except FileNotFoundError:
            found = b""
        if not found:  # new, or its first writer or the power failed before it was complete
            self.root.overwrite(FORMAT_FILE, FORMAT)
            self.root.flush(FORMAT_FILE)
        elif found != FORMAT:
            raise ConflictError(
                f"{self.root.label} is not a blob store of this version of HAL",
                hint="use another directory; what is in a store can be stored again",
            )


@contextmanager
def locked(root: Directory) -> Iterator[None]:
    """Exclude every other process and thread that uses the store."""
    lock = root.lock(LOCK_FILE, wait=True)
    assert lock is not None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def translated(root: Directory) -> Iterator[None]:
    """Turn errors of the disk into HAL's own.

    Raises:
        BlobDiskFullError: it is full.
        BlobDiskError: it failed otherwise.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _FULL:
            raise BlobDiskFullError(
                f"nothing more can be stored in {root.label}: {reason}", hint="free space on that disk"
            ) from error
        raise BlobDiskError(f"the blob store {root.label} cannot be used: {reason}") from error
