"""The end of a keeper's lease, written for guards to read: in shared memory, so that it costs no system call.

Whatever stops the keeper (SIGSTOP, a call that never returns) also stops the writing, and guards end their steps.
"""

from __future__ import annotations

import mmap
import os
from typing import Final

SIZE_BYTES: Final = 8


class LeaseMemory:
    """One number: the last millisecond of the lease, by the boot clock; 0: there was no lease yet."""

    def __init__(self) -> None:
        """Raises:
        OSError: the kernel lacks memory or descriptors for it.
        """
        self.fd = os.memfd_create("hal-lease", os.MFD_CLOEXEC)
        """Guards inherit it."""
        os.ftruncate(self.fd, SIZE_BYTES)
        self._number = memoryview(mmap.mmap(self.fd, SIZE_BYTES)).cast("q")

    def write(self, until_boot_ms: int) -> None:
        """Write the end of the lease."""
        self._number[0] = until_boot_ms
