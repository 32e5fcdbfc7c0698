"""Where a keeper writes until when its lease runs, for guards to read: shared memory, so that it costs no call.

What stops the keeper (SIGSTOP, a call that never returns) stops the writing, and guards end what they guard.
"""

from __future__ import annotations

import mmap
import os
from typing import Final

SIZE_BYTES: Final = 8


class LeaseMemory:
    """One number: the last millisecond of the lease, by the boot clock; 0: there was no lease yet."""

    def __init__(self) -> None:
        """
        Raises:
            OSError: the kernel has no more memory or descriptors for it.
        """
        self.fd = os.memfd_create("hal-lease", os.MFD_CLOEXEC)
        """Guards inherit it."""
        os.ftruncate(self.fd, SIZE_BYTES)
        self._number = memoryview(mmap.mmap(self.fd, SIZE_BYTES)).cast("q")

    def write(self, until_boot_ms: int) -> None:
        """The lease runs until then."""
        self._number[0] = until_boot_ms
